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
	File int // of those that were given, from 1
	Line int // of the file, from 1
	Why  string
}

func (e *BadRecord) Error() string { return fmt.Sprintf("the record in line %d %s", e.Line, e.Why) }

// Evidence is what is known of a chain from elsewhere. Without any, Verify looks at
// the chain alone, which does not show that its end is missing, or that all of it
// was written anew.
type Evidence struct {
	Heads  []Checkpoint // whose signatures are good
	Expect Head         // a head that was kept elsewhere; zero: none
	Cut    *Pruned      // where the chain begins, see [FindCut]; nil: with the first record
}

// A Report says what was found to be whole.
type Report struct {
	Head    Head   // of the chain
	Before  uint64 // records that are not here: those before the Cut
	Ledger  string // whose it is at its end
	Heads   int    // signed heads that fit
	Signed  uint64 // records that the newest of them speaks of
	Unseen  int    // signed heads of records before the Cut, which nothing here shows
	Repeats int    // records that stand in two files, alike
}

// Verify reads exported lines from the first record on and returns the head of
// the chain. The error is a *[BadRecord], or that of r.
func Verify(r io.Reader) (Head, error) {
	report, err := Evidence{}.Verify(r)
	return report.Head, err
}

// Verify reads exported lines from the first record on, or from the Cut, and holds
// them against the evidence. Several files are one chain, in their order; a file may
// begin with records that are in those before it, if they are the same, and a line
// that is cut off at the end of one may be whole at the beginning of the next. That
// is what writing them at least once leaves. The error is a *[BadRecord], or that of
// a file; the report is then of what was whole until there.
func (e Evidence) Verify(files ...io.Reader) (Report, error) {
	w := walk{expect: e.Expect, several: len(files) > 1}
	w.heads = slices.SortedStableFunc(slices.Values(e.Heads), func(a, b Checkpoint) int { return cmp.Compare(a.Size, b.Size) })
	why := w.begin(e.Cut)
	w.file, w.line = 1, 1
	if why != "" {
		return w.Report, w.bad(why)
	}
	for i, f := range files {
		w.file, w.line, w.fresh = i+1, 1, i > 0
		if err := w.read(bufio.NewReaderSize(f, lineLimit)); err != nil {
			return w.Report, err
		}
	}
	if w.torn != nil {
		return w.Report, w.torn
	}
	return w.Report, w.end()
}

// A walk goes along a chain.
type walk struct {
	Report
	expect Head
	heads  []Checkpoint // that are not reached yet, the smallest first
	tree   Tree         // grows while there are heads

	several bool       // files
	hashes  [][32]byte // where there are several: of the records from the beginning on
	start   Head       // before the first of them
	at      Head       // the last record that was read; not Head where that was read before
	fresh   bool       // nothing of this file was read yet, and there was one before
	torn    *BadRecord // how the file before ends
	part    []byte     // what there is of that record
	file    int        // in which we are, from 1
	line    int        // in which we are, from 1
}

func (w *walk) bad(why string) error { return &BadRecord{w.file, w.line, why} }

// read goes along a file.
func (w *walk) read(in *bufio.Reader) error {
	for ; ; w.line++ {
		line, err := in.ReadSlice('\n')
		why := ""
		switch {
		case err == io.EOF && len(line) == 0:
			return nil
		case err != nil && err != io.EOF && !errors.Is(err, bufio.ErrBufferFull):
			return err
		case err == io.EOF && w.at == w.Head:
			w.torn, w.part = &BadRecord{w.file, w.line, "is cut off"}, bytes.Clone(line)
			return nil
		case err == io.EOF:
			why = "is cut off"
		case err != nil:
			why = "is too long to be one"
		default:
			why = w.step(line, in)
		}
		switch {
		case why == "":
		case w.torn != nil && w.at == w.Head: // what was cut off is missing
			return w.torn
		default:
			return w.bad(why)
		}
	}
}

// step takes the next line, and says what is wrong with it. in is what follows.
func (w *walk) step(line []byte, in *bufio.Reader) (why string) {
	canonical, hash, why := whole(line)
	if why != "" {
		return why
	}
	if w.fresh {
		w.at, w.fresh = w.seam(canonical), false
	}
	next, why := w.at.Follow(canonical, hash)
	if why != "" {
		return w.at.displaced(canonical, in)
	}
	if w.at = next; next.Seq <= w.Head.Seq {
		return w.again(next)
	}
	if w.torn != nil && !bytes.HasPrefix(line, w.part) {
		return "is another record than the one that is cut off where a file before ends"
	}
	w.torn = nil
	if why := w.started(canonical); why != "" {
		return why
	}
	w.Head = next
	if w.several {
		w.hashes = append(w.hashes, next.Hash)
	}
	if w.expect.Seq == next.Seq && w.expect != next {
		return "has another hash than the head that was expected"
	}
	if len(w.heads) > 0 {
		w.tree.Add(canonical)
	}
	return w.signed()
}

// seam is where a file goes on that begins with this line: after the last one, or
// before that, with records that were read already.
func (w *walk) seam(canonical []byte) Head {
	seq, _ := seqOf(canonical)
	switch {
	case seq <= w.start.Seq || seq > w.Head.Seq:
		return w.Head
	case seq == w.start.Seq+1:
		return w.start
	}
	return Head{seq - 1, w.hashes[seq-w.start.Seq-2]}
}

// again holds a record against the one of that number that was read before.
func (w *walk) again(h Head) (why string) {
	if w.hashes[h.Seq-w.start.Seq-1] != h.Hash {
		return fmt.Sprintf("is another record %d than the one in a file before", h.Seq)
	}
	w.Repeats++
	return ""
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
	start := said(canonical, Start).Started
	if start == nil {
		return ""
	}
	if p := start.Previous; p != (Place{}) && p != w.Head.Place() {
		return fmt.Sprintf("is the start of a broker after record %d with another hash than the one here", p.Seq)
	}
	w.Ledger = start.Ledger
	return ""
}

// An event is what some kinds of records say of the audit itself.
type event struct {
	Started *Started
	Pruned  *Pruned
}

// said is what a record of that kind says; nothing where the line is of another.
func said(line []byte, kind Kind) (e event) {
	if !bytes.Contains(line, []byte(`"kind":"`+kind+`"`)) || json.Unmarshal(line, &e) != nil {
		return event{}
	}
	return e
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
	if len(w.heads) > 0 {
		last := w.heads[len(w.heads)-1]
		return w.bad(fmt.Sprintf("is missing, and all after it: a head of %d records of %q is signed", last.Size, last.Origin))
	}
	if w.expect.Seq > w.Head.Seq {
		return w.bad(fmt.Sprintf("is missing, and all after it: the head that was expected is of %d records", w.expect.Seq))
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
	case said(line, Start).Started != nil:
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
