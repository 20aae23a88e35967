package auditlog_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/mod/sumdb/note"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/auditlog"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/store"
)

// A shelf is a drain whose audit is signed and pruned, too.
type shelf struct {
	*drain
	key      note.Signer
	verifier note.Verifier
	heads    bytes.Buffer
	stop     func()
}

const kept = 24 * time.Hour

func newShelf(t *testing.T) *shelf {
	s := &shelf{}
	s.key, s.verifier = newAuditKey(t)
	s.drain = newDrain(t)
	s.run()
	return s
}

// run signs and prunes in this process.
func (s *shelf) run() {
	s.t.Helper()
	log := slog.New(slog.NewTextHandler(&s.log, nil))
	keeper, err := auditlog.NewKeeper(s.t.Context(), auditlog.Config{Store: s.Store, Key: s.key, Second: auditlog.Writer(&s.heads), Now: time.Now, Log: log})
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(s.t.Context())
	signed, pruned := make(chan struct{}), make(chan struct{})
	go func() { keeper.Run(ctx); close(signed) }()
	pruner := &auditlog.Pruner{Store: s.Store, Keep: kept, Now: time.Now, Log: log}
	go func() { pruner.Run(ctx); close(pruned) }()
	s.stop = func() { cancel(); <-signed; <-pruned; s.halt() }
}

// again is a restart, or with a death before it.
func (s *shelf) again() {
	s.t.Helper()
	s.stop()
	s.start()
	s.run()
}

// from is the first record that readers find.
func (s *shelf) from() uint64 {
	s.t.Helper()
	before, _, err := s.Store.Extent(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	return before.Seq + 1
}

// rows counts those of a table.
func (s *shelf) rows(table string) (n int) {
	s.t.Helper()
	if err := s.Store.Read().QueryRow(`SELECT COUNT(*) FROM ` + table).Scan(&n); err != nil {
		s.t.Fatal(err)
	}
	return n
}

// export is all that the store has.
func (s *shelf) export() []byte {
	s.t.Helper()
	var b bytes.Buffer
	if err := s.Store.Export(s.t.Context(), &b); err != nil {
		s.t.Fatal(err)
	}
	return b.Bytes()
}

func (s *shelf) verify(files ...[]byte) (audit.Report, error) {
	s.t.Helper()
	heads, err := audit.ReadHeads(bytes.NewReader(s.heads.Bytes()), s.verifier)
	if err != nil {
		s.t.Fatal(err)
	}
	var all []io.Reader
	for _, f := range files {
		all = append(all, bytes.NewReader(f))
	}
	return audit.Evidence{Heads: heads, Cut: audit.FindCut(bytes.NewReader(slices.Concat(files...)))}.Verify(all...)
}

// TestPruned: what is old, signed and copied goes, up to a head, with a record that says
// so. What is left, alone and after the sink's files, holds against all heads.
func TestPruned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf(t)
		s.add(denials(2999)...) // 3000
		pass(23 * time.Hour)
		s.add(denials(100)...) // 3100
		pass(time.Hour)
		if s.from() != 1 || s.rows("audit") != 3100 {
			t.Errorf("begins with %d of %d", s.from(), s.rows("audit"))
		}
		pass(2 * time.Hour)
		before, last, err := s.Store.Extent(t.Context())
		if err != nil || before.Seq != 3000 || last != 3101 || s.rows("audit") != 101 {
			t.Errorf("%+v, %d, %v; %d rows", before, last, err, s.rows("audit"))
		}
		equal(t, "heads", headsIn(t, s.Store), []uint64{3000, 3100, 3101})
		head := s.Store.Head()
		if said := s.log.String(); strings.Count(said, "\n") != 1 || !strings.Contains(said, `msg="audit pruned" from=1 to=3000`) {
			t.Error(said)
		}
		export := s.export()
		if !bytes.Contains(export, []byte(`"pruned":{"from":1,"to":{"seq":3000,`)) {
			t.Errorf("%s", export)
		}
		report, err := s.verify(export)
		if want := (audit.Report{Head: head, Before: 3000, Ledger: report.Ledger, Heads: 3, Signed: 3101, Unseen: report.Unseen}); err != nil || report != want || report.Ledger == "" {
			t.Errorf("the export: %+v, %v; want %+v", report, err, want)
		}
		report, err = s.verify(s.read(s.path), export)
		if err != nil || report.Head != head || report.Before != 0 || report.Repeats != 101 || report.Heads != 3 {
			t.Errorf("both: %+v, %v", report, err)
		}
		pass(30 * time.Hour) // the next ones, and the record of the first time
		if s.from() != 3101+1 || s.rows("audit") > 3 || !strings.Contains(s.log.String(), `msg="audit pruned" from=3001 to=3100`) {
			t.Errorf("begins with %d, %d rows", s.from(), s.rows("audit"))
		}
		for range 3 {
			s.again()
			s.add(denials(5)...)
			pass(2 * time.Minute)
			if report, err := s.verify(s.export()); err != nil || report.Head != s.Store.Head() || report.Signed != report.Head.Seq {
				t.Errorf("%+v, %v", report, err)
			}
			if report, err := s.verify(s.read(s.path), s.export()); err != nil || report.Head != s.Store.Head() || report.Before != 0 {
				t.Errorf("%+v, %v", report, err)
			}
		}
		s.stop()
		if strings.Contains(s.log.String(), "level=ERROR") || strings.Contains(s.log.String(), "level=WARN") {
			t.Error(s.log.String())
		}
	})
}

// TestNotPruned: what is not copied stays, and so does what no head speaks of.
func TestNotPruned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf(t)
		s.add(denials(9)...)
		pass(2 * time.Minute)
		old := s.path
		s.away(".1")
		if err := os.WriteFile(s.path, []byte("something else\n"), 0o600); err != nil { // the sink stands still
			t.Fatal(err)
		}
		s.add(denials(10)...)
		pass(3 * kept)
		if s.from() != 10+1 || s.sink.Behind() != 11 { // and the record that says so
			t.Errorf("begins with %d, behind by %d", s.from(), s.sink.Behind())
		}
		s.away(".2")
		pass(2 * time.Hour)
		if s.from() != 21+1 || s.sink.Behind() != 0 {
			t.Errorf("begins with %d, behind by %d", s.from(), s.sink.Behind())
		}
		if report, err := s.verify(s.read(old+".1"), s.read(s.path), s.export()); err != nil || report.Head != s.Store.Head() {
			t.Errorf("%+v, %v", report, err)
		}
		s.stop()

		d := newDrain(t) // without heads nothing is pruned
		d.add(denials(9)...)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			(&auditlog.Pruner{Store: d.Store, Keep: kept, Now: time.Now, Log: slog.New(slog.NewTextHandler(&d.log, nil))}).Run(ctx)
			close(done)
		}()
		pass(3 * kept)
		cancel()
		<-done
		d.halt()
		if before, last, err := d.Store.Extent(t.Context()); before.Seq != 0 || last != 10 || err != nil {
			t.Errorf("%+v, %d, %v", before, last, err)
		}
	})
}

// TestPruningFails: the cut and its record are one commit, and what a process has not
// cleared the next one does.
func TestPruningFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf(t)
		s.add(denials(999)...)
		pass(2 * time.Minute)
		s.fail.Store("retention")
		pass(kept + time.Hour)
		if s.from() != 1 || s.rows("audit") != 1000 || s.rows("cut") != 0 || !strings.Contains(s.log.String(), `msg="audit not pruned" reason=`) {
			t.Errorf("begins with %d of %d rows: %s", s.from(), s.rows("audit"), s.log.String())
		}
		s.fail.Store("none") // what is cleared has no record
		pass(time.Hour)
		if s.from() != 1001 || s.rows("audit") != 1001 {
			t.Errorf("begins with %d of %d rows", s.from(), s.rows("audit"))
		}
		if n := bytes.Count(s.export(), []byte("\n")); n != 1 {
			t.Errorf("%d records are read", n)
		}
		page, err := auditlog.NewReader(s.Store, time.Now).Page(t.Context(), auditlog.Auditor{Caller: "a"}, 0, 10, auditlog.Filter{})
		if err != nil || page.First != 1001 || page.Next != 1001 || page.Head != 1001 {
			t.Errorf("%+v, %v", page, err)
		}
		s.fail.Store("")
		s.again() // opened while rows are there that are gone
		pass(time.Minute)
		if s.from() != 1001 || s.rows("audit") > 5 {
			t.Errorf("begins with %d of %d rows", s.from(), s.rows("audit"))
		}
		if report, err := s.verify(s.read(s.path), s.export()); err != nil || report.Head != s.Store.Head() {
			t.Errorf("%+v, %v", report, err)
		}
		s.stop()
	})
}

// TestPageAfterTheCut: a reading begins where records are, and says so; one that is
// missing elsewhere is an error, also after a cut.
func TestPageAfterTheCut(t *testing.T) {
	d := newDesk(t, denials(300)...)
	head := audit.Head{Seq: 100, Hash: d.hash(100)}
	err := d.store.Commit(t.Context(), func(tx *store.Tx) error {
		if err := tx.Prune(head); err != nil {
			return err
		}
		_, err := tx.Clear(70)
		return err
	}, audit.Record{Kind: audit.Retention})
	if err != nil {
		t.Fatal(err)
	}
	for _, after := range []uint64{0, 50, 100} {
		p := d.page("a", after, 50, auditlog.Filter{})
		if p.First != 101 || p.Next != 150 || p.Head < 301 || !bytes.HasPrefix(p.Lines, []byte(`{"seq":101,`)) {
			t.Errorf("after %d: first %d, next %d, head %d, %.20s", after, p.First, p.Next, p.Head, p.Lines)
		}
	}
	equal(t, "readings", d.readings(), []string{`a {"from":101,"to":301}`})
	if p := d.page("a", 200, 50, auditlog.Filter{}); p.First != 101 || p.Next != 250 {
		t.Errorf("first %d, next %d", p.First, p.Next)
	}
	for _, record := range []int{101, 180} {
		if err := d.store.Commit(t.Context(), func(tx *store.Tx) error { _, err := tx.Exec(`DELETE FROM audit WHERE seq = ?`, record); return err }); err != nil {
			t.Fatal(err)
		}
		_, err := d.reader.Page(t.Context(), auditlog.Auditor{Caller: "a"}, uint64(record)-1, 50, auditlog.Filter{})
		if want := fmt.Sprintf("record %d of the audit is missing", record); fault.ReasonOf(err) != fault.StoreFailed || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	for _, to := range []audit.Head{{Seq: 99, Hash: d.hash(150)}, head, {Seq: 150}, {Seq: 9000, Hash: d.hash(150)}} {
		if err := d.store.Commit(t.Context(), func(tx *store.Tx) error { return tx.Prune(to) }); err == nil {
			t.Errorf("pruned to %d", to.Seq)
		}
	}
}

// hash is that of a record.
func (d *desk) hash(seq uint64) (hash [32]byte) {
	d.t.Helper()
	err := d.store.Lines(d.t.Context(), seq-1, 1, func(_ uint64, line []byte, h [32]byte) error {
		hash = h
		return json.Unmarshal(line, &struct{}{})
	})
	if err != nil {
		d.t.Fatal(err)
	}
	return hash
}

// TestKeeperAfterACut: heads go on from the newest that fits, of which the one at the
// cut is the last. Where none does, nothing is signed.
func TestKeeperAfterACut(t *testing.T) {
	for name, tc := range map[string]struct{ change, said string }{
		"the newest does not fit":        {`UPDATE heads SET tree = zeroblob(length(tree)) WHERE size = (SELECT MAX(size) FROM heads)`, ""},
		"none but that at the cut fits":  {`UPDATE heads SET tree = zeroblob(length(tree)) WHERE size > (SELECT MIN(size) FROM heads)`, ""},
		"none fits":                      {`UPDATE heads SET tree = zeroblob(length(tree))`, `msg="audit was changed" record=1 `},
		"the newest is of more than all": {`UPDATE heads SET size = size + 100 WHERE size = (SELECT MAX(size) FROM heads)`, `msg="audit was changed"`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newShelf(t)
				s.add(denials(999)...)
				pass(2 * time.Minute)
				pass(kept + time.Hour)
				s.add(denials(9)...)
				pass(2 * time.Minute)
				if s.from() != 1001 || len(headsIn(t, s.Store)) != 3 {
					t.Fatalf("begins with %d, heads %v", s.from(), headsIn(t, s.Store))
				}
				s.stop()
				if err := s.Store.Commit(t.Context(), func(tx *store.Tx) error { _, err := tx.Exec(tc.change); return err }); err != nil {
					t.Fatal(err)
				}
				newest := slices.Max(headsIn(t, s.Store))
				s.start()
				s.run()
				pass(2 * time.Minute)
				s.stop()
				if tc.said != "" {
					if !strings.Contains(s.log.String(), tc.said) || slices.Max(headsIn(t, s.Store)) != newest {
						t.Errorf("heads %v: %s", headsIn(t, s.Store), s.log.String())
					}
					return
				}
				if report, err := s.verify(s.export()); err != nil || report.Signed != report.Head.Seq || report.Head != s.Store.Head() {
					t.Errorf("%+v, %v: %s", report, err, s.log.String())
				}
			})
		})
	}
}
