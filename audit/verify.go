package audit

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
)

// A BadRecord is the first line that is not as it was written.
type BadRecord struct {
	Line int // from 1
	Why  string
}

func (e *BadRecord) Error() string { return fmt.Sprintf("the record in line %d %s", e.Line, e.Why) }

// Evidence is what is known of a chain from elsewhere. Without any, Verify looks at
// the chain alone, which does not show that its end is missing, or that all of it
// was written anew.
type Evidence struct {
	Heads  []Checkpoint // whose signatures are good
	Expect Head         // a head that was kept elsewhere; zero: none
}

// A Report says what was found to be whole.
type Report struct {
	Head   Head   // of the chain
	Ledger string // whose it is at its end
	Heads  int    // signed heads that fit
	Signed uint64 // records that the newest of them speaks of
}

// Verify reads exported lines from the first record on and returns the head of
// the chain. The error is a *[BadRecord], or that of r.
func Verify(r io.Reader) (Head, error) {
	report, err := Evidence{}.Verify(r)
	return report.Head, err
}

// Verify reads exported lines from the first record on and holds them against the
// evidence. The error is a *[BadRecord], or that of r; the report is then of what
// was whole until there.
func (e Evidence) Verify(r io.Reader) (Report, error) {
	w := walk{expect: e.Expect, heads: slices.Clone(e.Heads)}
	slices.SortStableFunc(w.heads, func(a, b Checkpoint) int { return cmp.Compare(a.Size, b.Size) })
	in := bufio.NewReaderSize(r, lineLimit)
	for n := 1; ; n++ {
		line, err := in.ReadSlice('\n')
		why := ""
		switch {
		case err == io.EOF && len(line) == 0:
			return w.Report, w.end()
		case err == io.EOF:
			why = "is cut off"
		case errors.Is(err, bufio.ErrBufferFull):
			why = "is too long to be one"
		case err != nil:
			return w.Report, err
		default:
			why = w.step(line, in)
		}
		if why != "" {
			return w.Report, &BadRecord{n, why}
		}
	}
}

// A walk goes along a chain.
type walk struct {
	Report
	expect Head
	heads  []Checkpoint // that are not reached yet, the smallest first
	tree   Tree         // grows while there are heads
}

// step takes the next line, and says what is wrong with it. in is what follows.
func (w *walk) step(line []byte, in *bufio.Reader) (why string) {
	canonical, hash, why := whole(line)
	if why != "" {
		return why
	}
	next, why := w.Head.Follow(canonical, hash)
	if why != "" {
		return w.Head.displaced(canonical, in)
	}
	if why := w.started(canonical); why != "" {
		return why
	}
	w.Head = next
	if w.expect.Seq == next.Seq && w.expect != next {
		return "has another hash than the head that was expected"
	}
	if len(w.heads) > 0 {
		w.tree.Add(canonical)
	}
	return w.signed()
}

// whole takes an exported line apart. It compares bytes: two spellings of one JSON
// value are two lines.
func whole(line []byte) (canonical []byte, hash [32]byte, why string) {
	if len(line) < hashLength {
		return nil, hash, "is not a record"
	}
	canonical = append(bytes.Clone(line[:len(line)-hashLength]), '}')
	hash = Link(canonical)
	if !bytes.Equal(line, Exported(canonical, hash)) {
		return nil, hash, "does not match its hash"
	}
	return canonical, hash, ""
}

// started looks at the start of a broker: it names the record before it.
func (w *walk) started(canonical []byte) (why string) {
	start := startIn(canonical)
	if start == nil {
		return ""
	}
	if p := start.Previous; p != (Place{}) && p != w.Head.Place() {
		return fmt.Sprintf("is the start of a broker after record %d with another hash than the one here", p.Seq)
	}
	w.Ledger = start.Ledger
	return ""
}

// startIn returns what a start record says, or nil for any other.
func startIn(canonical []byte) *Started {
	if !bytes.Contains(canonical, []byte(`"kind":"start"`)) {
		return nil
	}
	var r struct{ Started *Started }
	if json.Unmarshal(canonical, &r) != nil {
		return nil
	}
	return r.Started
}

// signed holds the records so far against the heads that were signed of so many.
func (w *walk) signed() (why string) {
	for len(w.heads) > 0 && w.heads[0].Size == w.Head.Seq {
		head := w.heads[0]
		w.heads = w.heads[1:]
		switch {
		case head.Origin != Origin(w.Ledger):
			return fmt.Sprintf("is of %q, and the head that was signed of so many records is of %q", Origin(w.Ledger), head.Origin)
		case head.Root != w.tree.Root():
			return fmt.Sprintf("ends %d records, from %d on, that are not those that the head of %d was signed for", head.Size-w.Signed, w.Signed+1, head.Size)
		}
		w.Heads, w.Signed = w.Heads+1, head.Size
	}
	return ""
}

// end says what is missing after the last line.
func (w *walk) end() error {
	missing := int(w.Head.Seq) + 1
	if len(w.heads) > 0 {
		last := w.heads[len(w.heads)-1]
		return &BadRecord{missing, fmt.Sprintf("is missing, and all after it: a head of %d records of %q is signed", last.Size, last.Origin)}
	}
	if w.expect.Seq > w.Head.Seq {
		return &BadRecord{missing, fmt.Sprintf("is missing, and all after it: the head that was expected is of %d records", w.expect.Seq)}
	}
	return nil
}

// displaced says what became of the order: line is whole in itself, and not the
// record after h.
func (h Head) displaced(line []byte, in *bufio.Reader) string {
	const unlike = "does not follow the one before it"
	want := h.Seq + 1
	seq, ok := seqOf(line)
	following, _ := in.ReadSlice('\n')
	next, _ := seqOf(following)
	switch {
	case !ok || seq == want:
		return unlike
	case seq < want:
		return fmt.Sprintf("%s: it is record %d once more", unlike, seq)
	case next == want:
		return fmt.Sprintf("%s: it is record %d, and record %d stands after it", unlike, seq, want)
	case startIn(line) != nil:
		return fmt.Sprintf("%s: it is record %d, the start of a broker, and the segment of records %d to %d is missing", unlike, seq, want, seq-1)
	case seq == want+1:
		return fmt.Sprintf("%s: it is record %d, and record %d is missing", unlike, seq, want)
	}
	return fmt.Sprintf("%s: it is record %d, and records %d to %d are missing", unlike, seq, want, seq-1)
}

// seqOf reads the number that a line says it has.
func seqOf(line []byte) (seq uint64, ok bool) {
	rest, ok := bytes.CutPrefix(line, []byte(`{"seq":`))
	digits, _, found := bytes.Cut(rest, []byte(","))
	seq, err := strconv.ParseUint(string(digits), 10, 64)
	return seq, ok && found && err == nil
}
