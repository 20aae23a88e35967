package store_test

import (
	"bytes"
	"cmp"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/store"
)

// left is a database with its files, as a broker has left them.
type left struct {
	t    *testing.T
	path string
	id   string // of the ledger
}

const leftRows = 600 // each with a record; they fill many pages

// leave makes one with so many rows. A process that dies leaves its files as they are: those are
// taken while the broker has them open.
func leave(t *testing.T, closed bool, many int) left {
	t.Helper()
	dir := t.TempDir()
	s := open(t, store.Config{Path: filepath.Join(dir, "served.db"), Now: atNoon})
	for n := 0; n < many; n += 100 {
		records := make([]audit.Record, 100)
		err := s.Commit(t.Context(), func(tx *store.Tx) error {
			var errs []error
			for i := range records {
				records[i] = audit.Record{Kind: audit.Denial, Actor: fmt.Sprintf("user:%d", n+i+1)}
				errs = append(errs, addRun(int64(n+i))(tx))
			}
			return errors.Join(errs...)
		}, records...)
		if err != nil {
			t.Fatal(err)
		}
	}
	id, _ := s.Ledger()
	l := left{t, filepath.Join(dir, "broker.db"), id}
	if closed {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, suffix := range []string{"", "-wal", ".lock"} {
		l.take(filepath.Join(dir, "served.db")+suffix, suffix)
	}
	s.Close()
	return l
}

// again is l at another place.
func (l left) again(t *testing.T) left {
	t.Helper()
	copied := left{t, filepath.Join(t.TempDir(), "broker.db"), l.id}
	for _, suffix := range []string{"", "-wal", ".lock"} {
		copied.take(l.path+suffix, suffix)
	}
	return copied
}

// take copies a file to the place of one of l's; what is not there is not there.
func (l left) take(from, suffix string) {
	l.t.Helper()
	b, err := os.ReadFile(from)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err == nil {
		err = os.WriteFile(l.path+suffix, b, 0o600)
	}
	if err != nil {
		l.t.Fatal(err)
	}
}

func (l left) remove(suffixes ...string) {
	l.t.Helper()
	for _, s := range suffixes {
		if err := os.Remove(l.path + s); err != nil {
			l.t.Fatal(err)
		}
	}
}

// unmark makes l a file that no broker has closed: a broker of before the marks.
func (l left) unmark() {
	l.t.Helper()
	lock, err := os.ReadFile(l.path + ".lock")
	if err == nil {
		err = os.WriteFile(l.path+".lock", lock[:26], 0o600)
	}
	if err != nil {
		l.t.Fatal(err)
	}
}

// edit changes the bytes of the database file.
func (l left) edit(f func([]byte) []byte) {
	l.t.Helper()
	b, err := os.ReadFile(l.path)
	if err == nil {
		err = os.WriteFile(l.path, f(b), 0o600)
	}
	if err != nil {
		l.t.Fatal(err)
	}
}

// rewrite makes one record speak of another actor.
func (l left) rewrite(seq int) {
	l.sql(`UPDATE audit SET line = replace(line, 'user:', 'user_') WHERE seq = ?`, seq)
}

// prune moves the cut to a record, and clears up to another.
func (l left) prune(to, cleared int) {
	l.sql(`INSERT INTO cut (one, seq, hash) SELECT 1, seq, hash FROM audit WHERE seq = ?`, to)
	l.sql(`DELETE FROM audit WHERE seq <= ?`, cleared)
}

// damage makes nonsense of a page that holds rows which nothing reads.
func (l left) damage() {
	l.t.Helper()
	l.sql(`CREATE TABLE other AS SELECT seq, 'nobody reads ' || seq || line FROM audit`)
	l.edit(func(b []byte) []byte {
		at := bytes.Index(b, []byte("nobody reads 300{"))
		if at < 0 {
			l.t.Fatal("the row is not there")
		}
		const page = 4096
		copy(b[at/page*page:], bytes.Repeat([]byte{0xff}, 64))
		return b
	})
}

// sql runs a statement as another program does.
func (l left) sql(statement string, args ...any) {
	l.t.Helper()
	db, err := sql.Open("sqlite", "file:"+l.path)
	if err == nil {
		_, err = db.Exec(statement, args...)
	}
	if err := errors.Join(err, db.Close()); err != nil {
		l.t.Fatal(err)
	}
}

// checkpoint moves what is in the -wal into the database file; both stay.
func (l left) checkpoint() {
	l.t.Helper()
	l.take(l.path+"-wal", ".kept")
	l.sql(`PRAGMA wal_checkpoint`)
	l.take(l.path+".kept", "-wal")
}

// TestStartingAgain opens what is there, whatever became of it.
func TestStartingAgain(t *testing.T) {
	const same, other, empty = "same", "other", "empty" // the ledger, then
	const away = "restore a copy, or move it, -wal, -shm and .lock away"
	nothing := func(left) {}
	type original struct {
		closed bool
		many   int
	}
	originals := map[original]left{}
	for _, o := range []original{{true, leftRows}, {false, leftRows}, {true, 10_300}} {
		originals[o] = leave(t, o.closed, o.many)
	}
	for _, tc := range []struct {
		name   string
		closed bool // by a broker; else it has died
		then   func(left)
		ledger string
		clean  bool
		refuse []string // in place of a ledger
		many   int      // rows; 0: leftRows
	}{
		{name: "closed", closed: true, then: nothing, ledger: same, clean: true},
		{name: "died", then: nothing, ledger: same},
		{name: "closed by a broker of before the marks", closed: true, then: left.unmark, ledger: same},

		{name: "closed, without its lock file", closed: true, then: func(l left) { l.remove(".lock") }, ledger: other},
		{name: "died, without its lock file", then: func(l left) { l.remove(".lock") }, ledger: other},
		{name: "an empty lock file", closed: true, then: func(l left) { os.Truncate(l.path+".lock", 0) }, ledger: other},
		{name: "a lock file alone", closed: true, then: func(l left) { l.remove("") }, ledger: empty, clean: true},
		{name: "an empty database", closed: true, then: func(l left) { os.Truncate(l.path, 0) }, ledger: empty, clean: true},

		{name: "died, without its -wal", then: func(l left) { l.remove("-wal") }, ledger: empty},
		{name: "died, with an empty -wal", then: func(l left) { os.Truncate(l.path+"-wal", 0) }, ledger: empty},
		{name: "died after a checkpoint, without its -wal", then: func(l left) { l.checkpoint(); l.remove("-wal") }, ledger: other},
		{name: "died after a checkpoint, with an empty -wal", then: func(l left) { l.checkpoint(); os.Truncate(l.path+"-wal", 0) }, ledger: other},
		{name: "died after a checkpoint", then: left.checkpoint, ledger: same},
		{name: "closed, with an empty -wal", closed: true, then: func(l left) { l.take(os.DevNull, "-wal") }, ledger: same, clean: true},
		{name: "died, the -wal alone", then: func(l left) { l.remove("") }, refuse: []string{"its -wal is there and it is not"}},

		{name: "of a newer broker", closed: true, then: func(l left) { l.sql(`INSERT INTO migrations VALUES (1000, 0)`) },
			refuse: []string{"a newer one has written it"}},
		{name: "no database", closed: true, then: func(l left) { l.edit(func([]byte) []byte { return bytes.Repeat([]byte("text "), 1000) }) },
			refuse: []string{"it is not a database", away}},
		{name: "cut off", closed: true, then: func(l left) { l.edit(func(b []byte) []byte { return b[:len(b)/2] }) },
			refuse: []string{"it is damaged", away}},
		{name: "cut off within a page", closed: true, then: func(l left) { l.edit(func(b []byte) []byte { return b[:len(b)-100] }) },
			refuse: []string{away}}, // by SQLite or by the chain
		{name: "not closed, a page is damaged", closed: true, then: func(l left) { l.damage(); l.unmark() },
			refuse: []string{"it is damaged", "quick_check", away}},
		{name: "closed, a page is damaged that no start reads", closed: true, then: left.damage, ledger: same, clean: true},

		{name: "closed, the last record was changed", closed: true, then: func(l left) { l.rewrite(600) },
			refuse: []string{"its audit was changed: record 600 does not match its hash", away}},
		{name: "closed, a record long ago was changed", closed: true, then: func(l left) { l.rewrite(9) }, ledger: same, clean: true},
		{name: "not closed, a record long ago was changed", closed: true, then: func(l left) { l.unmark(); l.rewrite(9) },
			refuse: []string{"its audit was changed: record 9 does not match its hash", away}},
		{name: "not closed, a record very long ago was changed", closed: true, many: 10_300, then: func(l left) { l.unmark(); l.rewrite(299) }, ledger: same},
		{name: "not closed, a record less long ago was changed", closed: true, many: 10_300, then: func(l left) { l.unmark(); l.rewrite(301) },
			refuse: []string{"its audit was changed: record 301 does not match its hash", away}},
		{name: "a copy, a record very long ago was changed", closed: true, many: 10_300, then: func(l left) { l.remove(".lock"); l.rewrite(299) },
			refuse: []string{"its audit was changed: record 299 does not match its hash", away}},
		{name: "closed, a late record is missing", closed: true, then: func(l left) { l.sql(`DELETE FROM audit WHERE seq = 590`) },
			refuse: []string{"its audit was changed: record 590 does not follow the one before it", away}},
		{name: "not closed, an early record is missing", closed: true, then: func(l left) { l.unmark(); l.sql(`DELETE FROM audit WHERE seq = 1`) },
			refuse: []string{"its audit was changed: record 1 does not follow the one before it", away}},
		{name: "a hash is missing", closed: true, then: func(l left) { l.sql(`UPDATE audit SET hash = x'' WHERE seq = 344`) },
			refuse: []string{"its audit was changed: record 344 has no hash", away}},

		{name: "closed, pruned long before its end", closed: true, then: func(l left) { l.prune(300, 300) }, ledger: same, clean: true},
		{name: "closed, pruned up to near its end", closed: true, then: func(l left) { l.prune(590, 590) }, ledger: same, clean: true},
		{name: "not closed, pruned", closed: true, then: func(l left) { l.unmark(); l.prune(300, 300) }, ledger: same},
		{name: "not closed, pruned and not cleared yet", closed: true, then: func(l left) { l.unmark(); l.prune(300, 100) }, ledger: same},
		{name: "a copy, pruned", closed: true, then: func(l left) { l.remove(".lock"); l.prune(300, 299) }, ledger: other},
		{name: "not closed, pruned, and a record more is missing", closed: true, then: func(l left) { l.unmark(); l.prune(300, 301) },
			refuse: []string{"its audit was changed: record 301 does not follow the one before it", away}},
		{name: "not closed, its cut was changed", closed: true, then: func(l left) { l.unmark(); l.prune(300, 300); l.sql(`UPDATE cut SET hash = zeroblob(32)`) },
			refuse: []string{"its audit was changed: record 301 does not follow the one before it", away}},
		{name: "not closed, its cut is gone", closed: true, then: func(l left) { l.unmark(); l.prune(300, 300); l.sql(`DELETE FROM cut`) },
			refuse: []string{"its audit was changed: record 1 does not follow the one before it", away}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			many := cmp.Or(tc.many, leftRows)
			l := originals[original{tc.closed, many}].again(t)
			tc.then(l)
			s, err := store.Open(t.Context(), store.Config{Path: l.path})
			if tc.refuse != nil {
				for _, want := range append(tc.refuse, fmt.Sprintf("%q", l.path)) {
					if err == nil || !strings.Contains(err.Error(), want) {
						t.Errorf("Open = %v, want %s", err, want)
					}
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			id, since := s.Ledger()
			if (id == l.id) != (tc.ledger == same) || since.Equal(noon) != (tc.ledger == same) {
				t.Errorf("ledger %s since %v, was %s; want %s", id, since, l.id, tc.ledger)
			}
			want := store.Opening{Clean: tc.clean}
			if tc.ledger == other {
				want.Former = l.id
			}
			if s.Opening() != want {
				t.Errorf("found %+v, want %+v", s.Opening(), want)
			}
			if n := runs(t, s); tc.ledger == same && n != many || tc.ledger == empty && n != 0 {
				t.Errorf("%d rows", n)
			}
			if err := s.Commit(t.Context(), addRun(int64(many)), audit.Record{Kind: audit.Start}); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestRefusedStaysAsItWas: a broker that must not open a file takes nothing of it
// from the one that may.
func TestRefusedStaysAsItWas(t *testing.T) {
	newer := leave(t, false, leftRows)
	s := open(t, store.Config{Path: newer.path})
	if err := s.Commit(t.Context(), addRun(-1000)); err != nil {
		t.Fatal(err)
	}
	l := newer.again(t)
	before, _ := os.ReadFile(l.path + ".lock")
	if _, err := store.Open(t.Context(), store.Config{Path: l.path}); err == nil || !strings.Contains(err.Error(), "a newer one") {
		t.Fatalf("Open = %v", err)
	}
	after, _ := os.ReadFile(l.path + ".lock")
	wal, err := os.Stat(l.path + "-wal")
	if err != nil || wal.Size() == 0 || !bytes.Equal(before, after) {
		t.Errorf("the -wal has %d bytes, the lock file %q, was %q; %v", wal.Size(), after, before, err)
	}
}

// TestCopies: a copy that was taken while a broker served is another ledger,
// wherever it is put, and has everything that was acknowledged before.
func TestCopies(t *testing.T) {
	for _, row := range []struct {
		name string
		stop bool // the broker is closed before the copy is put back; else it dies
	}{{"after a stop", true}, {"after a death", false}} {
		t.Run(row.name, func(t *testing.T) {
			l := left{t, filepath.Join(t.TempDir(), "broker.db"), ""}
			s := open(t, store.Config{Path: l.path, Now: atNoon})
			l.id, _ = s.Ledger()
			stop, ended, acknowledged := make(chan struct{}), make(chan struct{}), make(chan int64, 1<<20)
			go func() {
				defer close(ended)
				for n := int64(0); ; n++ {
					if err := s.Commit(t.Context(), addRun(n), audit.Record{Kind: audit.Decision}); err != nil {
						t.Error(err)
					}
					acknowledged <- n
					select {
					case <-stop:
						return
					default:
					}
				}
			}()
			for n := range acknowledged {
				if n == 100 {
					break
				}
			}
			l.sql(`VACUUM INTO ?`, l.path+".copy")
			close(stop)
			<-ended
			if row.stop {
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				l.take(l.path+".copy", "")
			} else {
				dead := left{t, filepath.Join(t.TempDir(), "broker.db"), l.id}
				dead.take(l.path+".lock", ".lock")
				dead.take(l.path+".copy", "")
				l = dead
			}
			again := open(t, store.Config{Path: l.path})
			if id, since := again.Ledger(); id == l.id || time.Since(since) > time.Minute {
				t.Errorf("ledger %s since %v, was %s", id, since, l.id)
			}
			if want := (store.Opening{Former: l.id}); again.Opening() != want {
				t.Errorf("found %+v, want %+v", again.Opening(), want)
			}
			if rows, head := runs(t, again), verify(t, again); rows < 101 || head.Seq != uint64(rows) {
				t.Errorf("%d rows and %d records, but 101 were acknowledged before", rows, head.Seq)
			}
		})
	}
}

// TestClosedWhileRead: what another program keeps from being folded in is found
// at the next opening.
func TestClosedWhileRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "broker.db")
	s := open(t, store.Config{Path: path})
	id, _ := s.Ledger()
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	var n int
	if err := tx.QueryRow(`SELECT COUNT(*) FROM audit`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(t.Context(), addRun(1), audit.Record{Kind: audit.Start}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("Close = %v", err)
	}
	s = open(t, store.Config{Path: path})
	if got, _ := s.Ledger(); got != id || s.Opening().Clean || runs(t, s) != 1 {
		t.Errorf("ledger %s, was %s; found %+v, %d rows", got, id, s.Opening(), runs(t, s))
	}
	tx.Rollback()
}
