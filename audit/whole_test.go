package audit_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"onbehalf.internal/broker/audit"
)

const (
	records   = 100_000
	perHead   = 1000
	perBroker = 10_000 // records of one process: a segment
)

// A written ledger is an export, and the heads that were signed on the way.
type written struct {
	lines    [][]byte
	heads    []byte // file
	head     audit.Head
	verifier note.Verifier
}

// write writes a ledger as a broker does, start records and all.
func write(ledger string, many int, key note.Signer, verifier note.Verifier) written {
	w := written{verifier: verifier}
	var tree audit.Tree
	for i := range many {
		r := audit.Record{Time: noon, Kind: audit.Outcome, Actor: fmt.Sprintf("user:%d", i), Operation: "op", Token: audit.DigestOf("t"), Attempt: 1}
		if i%perBroker == 0 {
			r = audit.Record{Time: noon, Kind: audit.Start, Started: &audit.Started{Version: "0.1.0", Ledger: ledger, Previous: w.head.Place()}}
		}
		line, next := w.head.Next(r)
		w.lines, w.head = append(w.lines, audit.Exported(line, next.Hash)), next
		tree.Add(line)
		if next.Seq%perHead == 0 {
			c := audit.Checkpoint{Origin: audit.Origin(ledger), Size: next.Seq, Root: tree.Root()}
			signed, err := c.Sign(key)
			if err != nil {
				panic(err)
			}
			w.heads = append(append(w.heads, signed...), '\n')
		}
	}
	return w
}

func newKey(t testing.TB) (note.Signer, note.Verifier) {
	t.Helper()
	file, public, err := audit.NewKey("broker.example")
	if err != nil {
		t.Fatal(err)
	}
	key, err := audit.ParseKey(file)
	if err != nil {
		t.Fatal(err)
	}
	verifier, err := note.NewVerifier(public)
	if err != nil {
		t.Fatal(err)
	}
	return key, verifier
}

// large is one ledger for all who only read it.
var large = sync.OnceValue(func() written {
	t := &testing.B{}
	key, verifier := newKey(t)
	return write("ledger", records, key, verifier)
})

func (w written) signed(t testing.TB) []audit.Checkpoint {
	t.Helper()
	heads, err := audit.ReadHeads(bytes.NewReader(w.heads), w.verifier)
	if err != nil {
		t.Fatal(err)
	}
	return heads
}

func TestWhole(t *testing.T) {
	w := large()
	report, err := audit.Evidence{Heads: w.signed(t), Expect: w.head}.Verify(bytes.NewReader(bytes.Join(w.lines, nil)))
	if want := (audit.Report{Head: w.head, Ledger: "ledger", Heads: records / perHead, Signed: records}); err != nil || report != want {
		t.Errorf("%+v, %v; want %+v", report, err, want)
	}
}

// TestManipulated: each way to spoil an export of 100,000 records is found, and the
// first record that is not as it was written is named.
func TestManipulated(t *testing.T) {
	w := large()
	heads := w.signed(t)
	without := func(from, to int) [][]byte { return slices.Concat(w.lines[:from-1], w.lines[to:]) }
	changed := func(change func(lines [][]byte)) [][]byte {
		lines := slices.Clone(w.lines)
		change(lines)
		return lines
	}
	key, _ := newKey(t)
	foreign := write("another", 3*perHead, key, w.verifier)
	// The same ledger, written anew with one record changed: a chain of its own.
	anew := rewritten(w, 54_321)

	const unlike = "does not follow the one before it: it is record "
	for _, tc := range []struct {
		name  string
		lines [][]byte
		known audit.Evidence
		line  int
		why   string
	}{
		{"a byte is flipped", changed(func(l [][]byte) { l[77_776] = bytes.Replace(l[77_776], []byte("user:"), []byte("usgr:"), 1) }),
			audit.Evidence{}, 77_777, "does not match its hash"},
		{"a record is dropped", without(5_001, 5_001), audit.Evidence{}, 5_001, unlike + "5002, and record 5001 is missing"},
		{"records are dropped", without(5_001, 5_003), audit.Evidence{}, 5_001, unlike + "5004, and records 5001 to 5003 are missing"},
		{"a record is doubled", slices.Insert(slices.Clone(w.lines), 42_000, w.lines[41_999]), audit.Evidence{}, 42_001, unlike + "42000 once more"},
		{"two are swapped", changed(func(l [][]byte) { l[99], l[100] = l[100], l[99] }), audit.Evidence{}, 100, unlike + "101, and record 100 stands after it"},
		{"a segment is missing", without(20_001, 30_000), audit.Evidence{}, 20_001,
			unlike + "30001, the start of a broker, and the segment of records 20001 to 30000 is missing"},
		{"the first segment is missing", without(1, 10_000), audit.Evidence{}, 1,
			unlike + "10001, the start of a broker, and the segment of records 1 to 10000 is missing"},
		{"the tail is cut, against a signed head", w.lines[:96_000], audit.Evidence{Heads: heads}, 96_001,
			`is missing, and all after it: a head of 100000 records of "onbehalf-broker/ledger" is signed`},
		{"the tail is cut, against an expected head", w.lines[:99_999], audit.Evidence{Expect: w.head}, 100_000,
			"is missing, and all after it: the head that was expected is of 100000 records"},
		{"all is cut", nil, audit.Evidence{Heads: heads[:1]}, 1, `is missing, and all after it: a head of 1000 records of "onbehalf-broker/ledger" is signed`},
		{"written anew, against signed heads", anew.lines, audit.Evidence{Heads: heads}, 55_000,
			"ends 1000 records, from 54001 on, that are not those that the head of 55000 was signed for"},
		{"written anew, against an expected head", anew.lines, audit.Evidence{Expect: w.head}, 100_000, "has another hash than the head that was expected"},
		{"another ledger", foreign.lines, audit.Evidence{Heads: heads}, 1000,
			`is of "onbehalf-broker/another", and the head that was signed of so many records is of "onbehalf-broker/ledger"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := tc.known.Verify(bytes.NewReader(bytes.Join(tc.lines, nil)))
			var bad *audit.BadRecord
			if !errors.As(err, &bad) || bad.Line != tc.line || bad.Why != tc.why {
				t.Errorf("Verify = %v, want line %d %s", err, tc.line, tc.why)
			}
		})
	}
	for _, unseen := range [][][]byte{anew.lines, w.lines[:96_000]} { // what a chain alone does not show
		if _, err := audit.Verify(bytes.NewReader(bytes.Join(unseen, nil))); err != nil {
			t.Errorf("without a head: %v", err)
		}
	}
}

// TestSeveralFiles: what a sink and a later export hold is one chain. What is in two of
// them, or cut off where one ends, is no harm; each way to spoil them is found, with the
// file and the line.
func TestSeveralFiles(t *testing.T) {
	w := large()
	a, b, c := w.lines[:40_000], w.lines[39_990:70_000], w.lines[55_000:]
	heads := w.signed(t)
	with := func(lines [][]byte, change func([][]byte)) [][]byte {
		lines = slices.Clone(lines)
		change(lines)
		return lines
	}
	flip := func(at int) func([][]byte) {
		return func(l [][]byte) { l[at] = bytes.Replace(l[at], []byte("user:"), []byte("usgr:"), 1) }
	}
	swap := func(at int) func([][]byte) { return func(l [][]byte) { l[at], l[at+1] = l[at+1], l[at] } }
	torn := with(a, func(l [][]byte) { l[39_999] = l[39_999][:100] })
	anew := rewritten(w, 39_995).lines
	const unlike = "does not follow the one before it: it is record "
	for _, tc := range []struct {
		name       string
		files      [][][]byte
		file, line int
		why        string
		repeats    int
	}{
		{"as they were written", [][][]byte{a, b, c}, 0, 0, "", 10 + 15_000},
		{"without a seam in two", [][][]byte{a, w.lines[40_000:]}, 0, 0, "", 0},
		{"an empty file between", [][][]byte{a, nil, b, c, nil}, 0, 0, "", 10 + 15_000},
		{"the same file twice", [][][]byte{a, a, b, c}, 0, 0, "", 40_000 + 10 + 15_000},
		{"a file that ends before the one before it", [][][]byte{w.lines[:70_000], b[:100], c}, 0, 0, "", 100 + 15_000},
		{"the end of a file is cut off, and whole in the next", [][][]byte{torn, b, c}, 0, 0, "", 9 + 15_000},
		{"the same with an empty file between", [][][]byte{torn, nil, b, c}, 0, 0, "", 9 + 15_000},

		{"a byte is flipped", [][][]byte{a, b, with(c, flip(30_000))}, 3, 30_001, "does not match its hash", 0},
		{"a byte is flipped in what is there twice", [][][]byte{a, b, with(c, flip(7))}, 3, 8, "does not match its hash", 0},
		{"a record is dropped", [][][]byte{a, slices.Delete(slices.Clone(b), 100, 101), c}, 2, 101, unlike + "40092, and record 40091 is missing", 0},
		{"a record is dropped at the seam", [][][]byte{a, w.lines[40_001:]}, 2, 1, unlike + "40002, and record 40001 is missing", 0},
		{"a record is dropped in what is there twice", [][][]byte{a, b, slices.Delete(slices.Clone(c), 5, 6)}, 3, 6, unlike + "55007, and record 55006 is missing", 0},
		{"a record is doubled", [][][]byte{a, slices.Insert(slices.Clone(b), 100, b[99]), c}, 2, 101, unlike + "40090 once more", 0},
		{"a record is doubled in what is there twice", [][][]byte{a, b, slices.Insert(slices.Clone(c), 100, c[99])}, 3, 101, unlike + "55100 once more", 0},
		{"two are swapped", [][][]byte{a, with(b, swap(200)), c}, 2, 201, unlike + "40192, and record 40191 stands after it", 0},
		{"two are swapped at the seam", [][][]byte{a, with(w.lines[40_000:], swap(0))}, 2, 1, unlike + "40002, and record 40001 stands after it", 0},
		{"the tail is cut", [][][]byte{a, b}, 2, 30_011, `is missing, and all after it: a head of 100000 records of "onbehalf-broker/ledger" is signed`, 0},
		{"the tail of one is cut", [][][]byte{a[:39_000], b, c}, 2, 1, unlike + "39991, and records 39001 to 39990 are missing", 0},
		{"a file is missing", [][][]byte{a, w.lines[50_000:]}, 2, 1,
			unlike + "50001, the start of a broker, and the segment of records 40001 to 50000 is missing", 0},
		{"the first file is missing", [][][]byte{b, c}, 1, 1, unlike + "39991, and records 1 to 39990 are missing", 0},
		{"in another order", [][][]byte{a, c, b}, 2, 1, unlike + "55001, and records 40001 to 55000 are missing", 0},
		{"a file is another", [][][]byte{a, anew[39_990:]}, 2, 5, "is another record 39995 than the one in a file before", 0},
		{"a file is another, from its beginning on", [][][]byte{a, anew[39_995:]}, 2, 1, "does not follow the one before it", 0},
		{"a file is another, and what was in both is gone", [][][]byte{a, anew[40_000:]}, 2, 1, "does not follow the one before it", 0},
		{"the end of a file is cut off", [][][]byte{torn, w.lines[40_000:]}, 1, 40_000, "is cut off", 0},
		{"the end of the last file is cut off", [][][]byte{a, torn}, 2, 40_000, "is cut off", 0},
		{"the end of a file is cut off, and another follows", [][][]byte{torn, with(w.lines[39_999:], func(l [][]byte) { l[0] = anew[39_999] })}, 1, 40_000, "is cut off", 0},
		{"what is cut off is another record", [][][]byte{with(torn, func(l [][]byte) { l[39_999] = []byte("{}") }), b}, 2, 10,
			"is another record than the one that is cut off where a file before ends", 0},
		{"a record that is there twice is cut off", [][][]byte{w.lines[:41_000], torn, w.lines[41_000:]}, 2, 40_000, "is cut off", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var files []io.Reader
			for _, lines := range tc.files {
				files = append(files, bytes.NewReader(bytes.Join(lines, nil)))
			}
			report, err := audit.Evidence{Heads: heads}.Verify(files...)
			var bad *audit.BadRecord
			if errors.As(err, &bad) != (tc.why != "") || bad != nil && *bad != (audit.BadRecord{File: tc.file, Line: tc.line, Why: tc.why}) {
				t.Fatalf("Verify = %+v, %v, want file %d line %d %s", bad, err, tc.file, tc.line, tc.why)
			}
			if bad == nil && (report.Repeats != tc.repeats || report.Head != w.head || report.Heads != len(heads)) {
				t.Errorf("%+v, want %d repeats", report, tc.repeats)
			}
		})
	}
}

// pruned is a ledger of 300 records, with a head of each 50, that has lost its first
// 100 according to its record 200. It has one start, which is among them.
func pruned(t *testing.T) (lines [][]byte, heads []audit.Checkpoint, end audit.Head) {
	t.Helper()
	key, verifier := newKey(t)
	var tree, cut audit.Tree
	var at audit.Head
	var msg []byte
	for n := uint64(1); n <= 300; n++ {
		r := audit.Record{Time: noon, Kind: audit.Denial, Attempt: int(n)}
		switch n {
		case 1:
			r = audit.Record{Time: noon, Kind: audit.Start, Started: &audit.Started{Ledger: "l"}}
		case 200:
			r = audit.Record{Time: noon, Kind: audit.Retention, Pruned: &audit.Pruned{From: 1, To: at.Place(), Tree: cut.Bytes(), Head: string(msg)}}
			r.Pruned.To = headOf(t, lines[99]).Place()
		}
		line, next := at.Next(r)
		lines, at = append(lines, audit.Exported(line, next.Hash)), next
		if tree.Add(line); n%50 == 0 {
			c := audit.Checkpoint{Origin: audit.Origin("l"), Size: n, Root: tree.Root()}
			signed, err := c.Sign(key)
			if err != nil {
				t.Fatal(err)
			}
			if heads = append(heads, c); n == 100 {
				cut, msg = tree.Clone(), signed
			}
		}
	}
	if _, err := audit.OpenCheckpoint(msg, verifier); err != nil {
		t.Fatal(err)
	}
	return lines, heads, at
}

// headOf is the head that an exported line makes.
func headOf(t *testing.T, line []byte) audit.Head {
	t.Helper()
	var r struct {
		Seq  uint64
		Hash audit.Digest
	}
	if err := json.Unmarshal(line, &r); err != nil {
		t.Fatal(err)
	}
	return audit.Head{Seq: r.Seq, Hash: r.Hash}
}

// TestCut: what begins after records that were pruned is held against the heads from
// there on, and the report says what is not here. It begins where a record says so,
// and nowhere else.
func TestCut(t *testing.T) {
	lines, heads, end := pruned(t)
	whole := lines[100:]
	other := headOf(t, lines[99])
	other.Hash[0]++
	edit := func(record int, old, new string) [][]byte { // and all that follows is chained anew
		l := rewriteFrom(t, lines, record, old, new)
		return l[100:]
	}
	report := func(heads, unseen int, signed uint64) audit.Report {
		return audit.Report{Head: end, Before: 100, Ledger: "l", Heads: heads, Unseen: unseen, Signed: signed}
	}
	for _, tc := range []struct {
		name  string
		files [][][]byte
		known audit.Evidence
		want  audit.Report
		line  int
		why   string
	}{
		{"alone", [][][]byte{whole}, audit.Evidence{}, report(0, 0, 0), 0, ""},
		{"with all heads", [][][]byte{whole}, audit.Evidence{Heads: heads}, report(5, 1, 300), 0, ""},
		{"with the head at the cut", [][][]byte{whole}, audit.Evidence{Heads: heads[1:2]}, report(1, 0, 100), 0, ""},
		{"with later heads", [][][]byte{whole}, audit.Evidence{Heads: heads[3:]}, report(3, 0, 300), 0, ""},
		{"with the end before the cut", [][][]byte{whole}, audit.Evidence{Expect: headOf(t, lines[99])}, report(0, 0, 0), 0, ""},
		{"with an end that is pruned", [][][]byte{whole}, audit.Evidence{Expect: headOf(t, lines[9])}, report(0, 0, 0), 0, ""},
		{"with files of before", [][][]byte{lines[:150], whole}, audit.Evidence{Heads: heads},
			audit.Report{Head: end, Ledger: "l", Heads: 6, Signed: 300, Repeats: 50}, 0, ""},

		{"the first of it is missing", [][][]byte{whole[1:]}, audit.Evidence{}, audit.Report{}, 1,
			"does not follow the one before it: it is record 102, and records 1 to 101 are missing"},
		{"the record that says so is missing", [][][]byte{whole[:99]}, audit.Evidence{}, audit.Report{}, 1,
			"does not follow the one before it: it is record 101, and records 1 to 100 are missing"},
		{"a file of before is missing", [][][]byte{lines[:90], whole}, audit.Evidence{}, audit.Report{}, 1,
			"does not follow the one before it: it is record 101, and records 91 to 100 are missing"},
		{"a record is missing", [][][]byte{append(slices.Clone(whole[:50]), whole[51:]...)}, audit.Evidence{}, audit.Report{}, 51,
			"does not follow the one before it: it is record 152, and record 151 is missing"},
		{"a byte is flipped", [][][]byte{append(append(slices.Clone(whole[:150]), bytes.ToUpper(whole[150])), whole[151:]...)}, audit.Evidence{}, audit.Report{}, 151,
			"does not match its hash"},
		{"the tail is cut", [][][]byte{whole[:199]}, audit.Evidence{Heads: heads}, audit.Report{}, 200,
			`is missing, and all after it: a head of 300 records of "onbehalf-broker/l" is signed`},
		{"written anew", [][][]byte{edit(120, `"attempt":120`, `"attempt":121`)}, audit.Evidence{Heads: heads}, audit.Report{}, 50,
			"ends 50 records, from 101 on, that are not those that the head of 150 was signed for"},
		{"another tree", [][][]byte{edit(200, `"tree":"`, `"tree":"AAAA`)}, audit.Evidence{}, audit.Report{}, 1, "follows what was pruned, of which no tree is known"},
		{"a tree that is another", [][][]byte{edit(200, `"tree":"`, `"tree":"`+strings.Repeat("A", 128)+`","x":"`)},
			audit.Evidence{Heads: heads[2:]}, audit.Report{}, 50, "ends 150 records, from 1 on, that are not those that the head of 150 was signed for"},
		{"the end before the cut is another", [][][]byte{whole}, audit.Evidence{Expect: other}, audit.Report{}, 1, "follows record 100, and the head of so many is of others"},
		{"the head at the cut is another", [][][]byte{whole}, audit.Evidence{Heads: []audit.Checkpoint{{Origin: audit.Origin("l"), Size: 100}}}, audit.Report{}, 1,
			"follows record 100, and the head of so many is of others"},
		{"the head is of another ledger", [][][]byte{whole}, audit.Evidence{Heads: []audit.Checkpoint{{Origin: audit.Origin("k"), Size: 100, Root: heads[1].Root}}}, audit.Report{}, 1,
			"follows record 100, and the head of so many is of others"},
		{"another place", [][][]byte{edit(200, headOf(t, lines[99]).Place().Hash.String(), other.Place().Hash.String())}, audit.Evidence{}, audit.Report{}, 1,
			"does not follow the one before it"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var files []io.Reader
			for _, l := range tc.files {
				files = append(files, bytes.NewReader(bytes.Join(l, nil)))
			}
			tc.known.Cut = audit.FindCut(bytes.NewReader(bytes.Join(slices.Concat(tc.files...), nil)))
			got, err := tc.known.Verify(files...)
			var bad *audit.BadRecord
			if errors.As(err, &bad) != (tc.why != "") || bad != nil && *bad != (audit.BadRecord{File: len(files), Line: tc.line, Why: tc.why}) {
				t.Fatalf("Verify = %+v, %v, want line %d %s", bad, err, tc.line, tc.why)
			}
			if bad == nil && got != tc.want {
				t.Errorf("%+v, want %+v", got, tc.want)
			}
		})
	}
}

// rewriteFrom changes a record, and chains it and all after it anew.
func rewriteFrom(t *testing.T, lines [][]byte, record int, old, new string) [][]byte {
	t.Helper()
	anew := slices.Clone(lines[:record-1])
	at := headOf(t, lines[record-2])
	for i, line := range lines[record-1:] {
		canonical := line[:bytes.LastIndex(line, []byte(`,"hash":"`))]
		rest := canonical[bytes.Index(canonical, []byte(`,"v":1`)):]
		if i == 0 {
			rest = bytes.Replace(rest, []byte(old), []byte(new), 1)
		}
		canonical = fmt.Appendf(nil, `{"seq":%d,"prev":"%x"%s}`, at.Seq+1, at.Hash, rest)
		at = audit.Head{Seq: at.Seq + 1, Hash: audit.Link(canonical)}
		anew = append(anew, audit.Exported(canonical, at.Hash))
	}
	return anew
}

// rewritten is w with another actor in a record, and all after it chained anew.
func rewritten(w written, record int) written {
	anew := written{verifier: w.verifier, lines: slices.Clone(w.lines[:record-1])}
	for i, line := range w.lines {
		canonical, _, _ := bytes.Cut(line, []byte(`,"hash":`))
		r := audit.Head{}
		if i >= record-1 {
			rest := canonical[bytes.Index(canonical, []byte(`,"v":1`)):]
			if i == record-1 {
				rest = bytes.Replace(rest, []byte("user:"), []byte("user:9"), 1)
			}
			if at := bytes.Index(rest, []byte(`,"previous":`)); at >= 0 {
				rest = fmt.Appendf(bytes.Clone(rest[:at]), `,"previous":{"seq":%d,"hash":"%x"}}`, anew.head.Seq, anew.head.Hash)
			}
			canonical = fmt.Appendf(nil, `{"seq":%d,"prev":"%x"%s`, anew.head.Seq+1, anew.head.Hash, rest)
		}
		canonical = append(bytes.Clone(canonical), '}')
		r = audit.Head{Seq: anew.head.Seq + 1, Hash: audit.Link(canonical)}
		if i >= record-1 {
			anew.lines = append(anew.lines, audit.Exported(canonical, r.Hash))
		}
		anew.head = r
	}
	return anew
}

// TestPrevious: a start that names another record before it is found, also in a chain
// that was written anew around it.
func TestPrevious(t *testing.T) {
	first, head := audit.Head{}.Next(audit.Record{Time: noon, Kind: audit.Stop})
	for _, tc := range []struct {
		previous audit.Place
		line     int
	}{
		{head.Place(), 0},
		{audit.Place{}, 0}, // of a broker that did not say so yet
		{audit.Place{Seq: 7, Hash: head.Hash}, 2},
		{audit.Place{Seq: 1, Hash: audit.DigestOf("other")}, 2},
	} {
		second, last := head.Next(audit.Record{Time: noon, Kind: audit.Start, Started: &audit.Started{Ledger: "l", Previous: tc.previous}})
		_, err := audit.Verify(bytes.NewReader(slices.Concat(audit.Exported(first, head.Hash), audit.Exported(second, last.Hash))))
		var bad *audit.BadRecord
		if errors.As(err, &bad) != (tc.line > 0) || bad != nil && (bad.Line != tc.line || !strings.Contains(bad.Why, "is the start of a broker after record")) {
			t.Errorf("previous %+v: %v", tc.previous, err)
		}
	}
}

// TestTree: the roots are those of RFC 6962 as package tlog makes them, at every size,
// and a tree comes back from its bytes.
func TestTree(t *testing.T) {
	var stored []tlog.Hash
	read := tlog.HashReaderFunc(func(at []int64) ([]tlog.Hash, error) {
		var some []tlog.Hash
		for _, i := range at {
			some = append(some, stored[i])
		}
		return some, nil
	})
	var tree audit.Tree
	for n := range int64(70) {
		want, err := tlog.TreeHash(n, read)
		back, err2 := audit.TreeOf(uint64(n), tree.Bytes())
		if got := tree.Root(); err != nil || err2 != nil || tlog.Hash(got) != want || back.Root() != got || back.Size() != uint64(n) {
			t.Fatalf("%d records: %x, want %v; %v %v", n, got, want, err, err2)
		}
		if _, err := audit.TreeOf(uint64(n)+1, tree.Bytes()); err == nil && bits.OnesCount64(uint64(n)) != bits.OnesCount64(uint64(n)+1) {
			t.Errorf("a tree of %d is taken for one of %d", n, n+1)
		}
		line := fmt.Appendf(nil, "line %d", n)
		more, err := tlog.StoredHashes(n, line, read)
		if err != nil {
			t.Fatal(err)
		}
		stored = append(stored, more...)
		tree = back
		tree.Add(line)
	}
	if _, err := audit.TreeOf(1, make([]byte, 31)); err == nil {
		t.Error("31 bytes are a hash")
	}
}

// TestReadHeads: what is no head, and what nobody signed, proves nothing.
func TestReadHeads(t *testing.T) {
	key, verifier := newKey(t)
	other, otherVerifier := newKey(t)
	sign := func(k note.Signer, text string) string {
		msg, err := note.Sign(&note.Note{Text: text}, k)
		if err != nil {
			t.Fatal(err)
		}
		return string(msg)
	}
	root := strings.Repeat("A", 43) + "="
	good := sign(key, "onbehalf-broker/l\n7\n"+root+"\n")
	for _, tc := range []struct {
		name, file string
		heads      int
		err        string
	}{
		{"one", good, 1, ""},
		{"two", good + good, 2, ""},
		{"empty lines between", "\n" + good + "\n\n" + good + "\n", 2, ""},
		{"a line more", sign(key, "onbehalf-broker/l\n7\n"+root+"\nmore\n"), 1, ""},
		{"nothing", "", 0, ""},
		{"of another key", good + sign(other, "onbehalf-broker/l\n8\n"+root+"\n"), 0, "head 2 is not signed by a key that was given"},
		{"changed", strings.Replace(good, "7", "8", 1), 0, "head 1 has a signature that is not of what stands in it"},
		{"cut", good[:len(good)-9], 0, "head 1 has a signature that is not of what stands in it"},
		{"cut before its signature", good[:strings.Index(good, "—")], 0, "head 1 is not a checkpoint"},
		{"no signature", "onbehalf-broker/l\n7\n" + root + "\n\n", 0, "head 1 is not a checkpoint"},
		{"no root", sign(key, "onbehalf-broker/l\n7\n"), 0, "head 1 is not a checkpoint"},
		{"a short root", sign(key, "onbehalf-broker/l\n7\nAAAA\n"), 0, "head 1 is not a checkpoint"},
		{"of no record", sign(key, "onbehalf-broker/l\n0\n"+root+"\n"), 0, "head 1 is not a checkpoint"},
		{"a number in other words", sign(key, "onbehalf-broker/l\n07\n"+root+"\n"), 0, "head 1 is not a checkpoint"},
		{"something else", "[]", 0, "head 1 is not a checkpoint"},
	} {
		heads, err := audit.ReadHeads(strings.NewReader(tc.file), verifier)
		if len(heads) != tc.heads || (err == nil) != (tc.err == "") || err != nil && !strings.HasPrefix(err.Error(), tc.err) {
			t.Errorf("%s: %v, %v; want %d, %q", tc.name, heads, err, tc.heads, tc.err)
		}
	}
	both := good + sign(other, "onbehalf-broker/l\n8\n"+root+"\n")
	if heads, err := audit.ReadHeads(strings.NewReader(both), verifier, otherVerifier); len(heads) != 2 || err != nil {
		t.Errorf("after a change of keys: %v, %v", heads, err)
	}
}

// TestKeyFile: a key is one file as NewKey makes it, and nothing like it.
func TestKeyFile(t *testing.T) {
	file, public, err := audit.NewKey("broker.example")
	if err != nil {
		t.Fatal(err)
	}
	second, _, err := audit.NewKey("broker.example")
	if err != nil {
		t.Fatal(err)
	}
	line, body, _ := strings.Cut(string(file), "\n")
	_, otherPEM, _ := strings.Cut(string(second), "\n")
	for _, tc := range []struct{ name, text, want string }{
		{"as it was made", string(file), ""},
		{"empty", "", "its first line must be the verifier key"},
		{"no name", body, "its first line must be the verifier key"},
		{"no private key", line + "\n", "after its first line must stand one private key"},
		{"two private keys", string(file) + body, "after its first line must stand one private key"},
		{"text between", line + "\n\n" + body, "after its first line must stand one private key"},
		{"another private key", line + "\n" + otherPEM, "its first line is the verifier key of another private key"},
		{"not Ed25519", line + "\n" + otherKey(t), "its private key must be of Ed25519"},
	} {
		key, err := audit.ParseKey([]byte(tc.text))
		if (err == nil) != (tc.want == "") || err != nil && !strings.HasPrefix(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
		if err != nil && strings.Contains(err.Error(), body[40:60]) {
			t.Errorf("%s: the error shows the key", tc.name)
		}
		if shown := fmt.Sprintf("%v %+v %#v %d", key, key, key, key); tc.want == "" && (key.Name() != "broker.example" || strings.Contains(shown, body[40:60]) || !strings.HasPrefix(public, key.Name())) {
			t.Errorf("%s: %s", tc.name, shown)
		}
	}
	for _, name := range []string{"", "a b", "a+b"} {
		if _, _, err := audit.NewKey(name); err == nil {
			t.Errorf("a key may be called %q", name)
		}
	}
}

func otherKey(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

// FuzzEvidence feeds the verifier files of which nobody wrote either: it ends, and
// what it takes for whole are so many lines as it says, with all heads.
func FuzzEvidence(f *testing.F) {
	key, verifier := newKey(f)
	w := write("l", 3, key, verifier)
	c := audit.Checkpoint{Origin: audit.Origin("l"), Size: 3}
	head, err := c.Sign(key)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(bytes.Join(w.lines, nil), head, uint64(3))
	f.Add([]byte(`{"seq":18446744073709551615,"prev":"`), []byte("— x y\n\n"), uint64(0))
	f.Add(bytes.Join(w.lines[1:], nil), append(head, head...), uint64(2))
	f.Fuzz(func(t *testing.T, export, heads []byte, expect uint64) {
		signed, err := audit.ReadHeads(bytes.NewReader(heads), verifier)
		if err != nil {
			signed = []audit.Checkpoint{c}
		}
		report, err := audit.Evidence{Heads: signed, Expect: audit.Head{Seq: expect}}.Verify(bytes.NewReader(export))
		if err == nil && (report.Head.Seq != uint64(bytes.Count(export, []byte("\n"))) || report.Heads != len(signed) || expect > 0) {
			t.Errorf("%+v of %q with %d heads, and %d expected", report, export, len(signed), expect)
		}
		var bad *audit.BadRecord
		if err != nil && (!errors.As(err, &bad) || bad.Line != int(report.Head.Seq)+1 && expect != report.Head.Seq && report.Head.Seq != 3) {
			t.Errorf("%v after %d records", err, report.Head.Seq)
		}
	})
}

// BenchmarkVerify: 100,000 records with 100 heads.
func BenchmarkVerify(b *testing.B) {
	w := large()
	export, heads := bytes.Join(w.lines, nil), w.signed(b)
	b.SetBytes(int64(len(export)))
	for b.Loop() {
		if _, err := (audit.Evidence{Heads: heads}).Verify(bytes.NewReader(export)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/records, "ns/record")
}
