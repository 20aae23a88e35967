package audit_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
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
