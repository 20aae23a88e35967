package store_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/store"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func atNoon() time.Time { return noon }

func open(t *testing.T, c store.Config) *store.Store {
	t.Helper()
	if c.Path == "" {
		c.Path = filepath.Join(t.TempDir(), "broker.db")
	}
	s, err := store.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// addRun writes a row that the tests can count: migrations that never were.
func addRun(n int64) func(*store.Tx) error {
	return func(tx *store.Tx) error {
		_, err := tx.Exec(`INSERT INTO migrations (number, applied) VALUES (?, ?)`, -n, n)
		return err
	}
}

func runs(t *testing.T, s *store.Store) (n int) {
	t.Helper()
	if err := s.Read().QueryRow(`SELECT COUNT(*) FROM migrations WHERE number <= 0`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func verify(t *testing.T, s *store.Store) audit.Head {
	t.Helper()
	var b bytes.Buffer
	if err := s.Export(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	head, err := audit.Verify(&b)
	if err != nil {
		t.Fatal(err)
	}
	return head
}

func TestCommit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "broker.db")
	s := open(t, store.Config{Path: path, Now: atNoon})
	own := errors.New("a reason of its own")
	start := audit.Record{Kind: audit.Start}
	for _, tc := range []struct {
		name    string
		write   func(*store.Tx) error
		records []audit.Record
		want    error
		rows    int
		seq     uint64
	}{
		{"rows and a record", addRun(1), []audit.Record{start}, nil, 1, 1},
		{"records alone", nil, []audit.Record{start, start}, nil, 1, 3},
		{"rows alone", addRun(2), nil, nil, 2, 3},
		{"what fails leaves nothing", func(tx *store.Tx) error {
			return errors.Join(addRun(3)(tx), own)
		}, []audit.Record{start}, own, 2, 3},
		{"and the next goes on", addRun(3), []audit.Record{start}, nil, 3, 4},
		{"a row that is there", addRun(3), []audit.Record{start}, fault.New("store.Exec", fault.StoreFailed, "SQLite result code 1555"), 3, 4},
		{"a kind outside the list", addRun(4), []audit.Record{{Kind: "other"}},
			fault.New("store.Commit", fault.InternalError, `no kind of record is called "other"`), 3, 4},
	} {
		err := s.Commit(t.Context(), tc.write, tc.records...)
		if !errors.Is(err, tc.want) && fmt.Sprint(err) != fmt.Sprint(tc.want) {
			t.Errorf("%s: Commit = %v, want %v", tc.name, err, tc.want)
		}
		if got := runs(t, s); got != tc.rows {
			t.Errorf("%s: %d rows, want %d", tc.name, got, tc.rows)
		}
		if got := verify(t, s).Seq; got != tc.seq {
			t.Errorf("%s: %d records, want %d", tc.name, got, tc.seq)
		}
	}
	head := verify(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again := open(t, store.Config{Path: path})
	if err := again.Commit(t.Context(), nil, start); err != nil {
		t.Fatal(err)
	}
	if got := verify(t, again).Seq; got != head.Seq+1 {
		t.Errorf("the chain goes on at %d, want %d", got, head.Seq+1)
	}
}

func TestWriteCompletesItsRecords(t *testing.T) {
	s := open(t, store.Config{Now: atNoon})
	records := []audit.Record{{Kind: audit.Decision}}
	err := s.Commit(t.Context(), func(*store.Tx) error { records[0].Operation = "op1"; return nil }, records...)
	if err != nil {
		t.Fatal(err)
	}
	var operation, line string
	if err := s.Read().QueryRow(`SELECT operation, line FROM audit`).Scan(&operation, &line); err != nil {
		t.Fatal(err)
	}
	want := string(audit.Record{Time: noon, Kind: audit.Decision, Operation: "op1"}.Canonical(1, [32]byte{}))
	if operation != "op1" || line != want {
		t.Errorf("%q, %s, want %s", operation, line, want)
	}
}

// TestTxScans also shows that a request sees what it wrote itself.
func TestTxScans(t *testing.T) {
	s := open(t, store.Config{})
	err := s.Commit(t.Context(), func(tx *store.Tx) error {
		var n int64
		for _, number := range []int64{-1, -2} {
			found, err := tx.Scan([]any{&n}, `SELECT applied FROM migrations WHERE number = ?`, number)
			if found || err != nil {
				t.Errorf("Scan = %v, %v before the row is there", found, err)
			}
			if err := addRun(-number)(tx); err != nil {
				return err
			}
			found, err = tx.Scan([]any{&n}, `SELECT applied FROM migrations WHERE number = ?`, number)
			if !found || err != nil || n != -number {
				t.Errorf("Scan = %v, %v, %d", found, err, n)
			}
		}
		if _, err := tx.Scan([]any{&n}, `SELECT nonsense`); fault.ReasonOf(err) != fault.StoreFailed {
			t.Errorf("Scan of nonsense = %v", err)
		}
		if _, err := tx.Exec(`nonsense`); fault.ReasonOf(err) != fault.StoreFailed {
			t.Errorf("Exec of nonsense = %v", err)
		}
		return nil
	})
	if err != nil || runs(t, s) != 2 {
		t.Errorf("Commit = %v with %d rows", err, runs(t, s))
	}
}

// TestOneFailsAmongMany commits from many callers at once, every third of
// which fails.
func TestOneFailsAmongMany(t *testing.T) {
	s := open(t, store.Config{})
	own := errors.New("its own")
	var wg sync.WaitGroup
	for i := range int64(120) {
		wg.Go(func() {
			err := s.Commit(context.Background(), func(tx *store.Tx) error {
				if err := addRun(i)(tx); err != nil || i%3 != 0 {
					return err
				}
				return own
			}, audit.Record{Kind: audit.Decision})
			if (i%3 == 0) != errors.Is(err, own) {
				t.Errorf("request %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	if got := runs(t, s); got != 80 {
		t.Errorf("%d rows, want 80", got)
	}
	if got := verify(t, s).Seq; got != 80 {
		t.Errorf("%d records, want 80", got)
	}
}

// counting counts commits in n.
func counting(n *int) store.Config {
	last := store.Committed
	return store.Config{Tamper: func(at store.Moment, _ []audit.Record) error {
		if at == store.Committing && last != at {
			*n++
		}
		last = at
		return nil
	}}
}

// TestBatches holds the writer inside one request while others come, which
// then share one commit.
func TestBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		commits := 0
		s := open(t, counting(&commits))
		defer s.Close()
		hold := make(chan struct{})
		go s.Commit(t.Context(), func(*store.Tx) error { <-hold; return nil })
		synctest.Wait()
		written := 0
		for range 20 {
			go s.Commit(t.Context(), func(*store.Tx) error { written++; return nil })
		}
		synctest.Wait()
		close(hold)
		synctest.Wait()
		s.Close()
		if written != 20 || commits != 2 {
			t.Errorf("%d requests in %d commits, want 20 in 2", written, commits)
		}
	})
}

// TestLater: what may wait joins a commit, and is on disk when CommitLater
// returns: with the commit that it joined, after 50 ms, or with the others of a
// full batch.
func TestLater(t *testing.T) {
	for _, row := range []struct {
		name    string
		later   []time.Duration                // when each CommitLater begins
		then    func(*testing.T, *store.Store) // when all have begun
		commits int
		took    time.Duration // until the last has returned
	}{
		{name: "joins", later: make([]time.Duration, 2), commits: 1, then: func(t *testing.T, s *store.Store) {
			if err := s.Commit(t.Context(), nil, audit.Record{Kind: audit.Decision}); err != nil {
				t.Error(err)
			}
		}},
		{name: "alone", later: make([]time.Duration, 1), commits: 1, took: 50 * time.Millisecond},
		{name: "the first one's wait counts", later: []time.Duration{0, 30 * time.Millisecond}, commits: 1, took: 50 * time.Millisecond},
		{name: "each wait is new", later: []time.Duration{0, 60 * time.Millisecond}, commits: 2, took: 110 * time.Millisecond},
		{name: "full", later: make([]time.Duration, 256), commits: 1},
		{name: "closed", later: make([]time.Duration, 3), commits: 1, then: func(t *testing.T, s *store.Store) {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				commits := 0
				c := counting(&commits)
				c.Path = filepath.Join(t.TempDir(), "broker.db")
				s := open(t, c)
				defer s.Close()
				start := time.Now()
				var wg sync.WaitGroup
				for i, at := range row.later {
					wg.Go(func() {
						time.Sleep(at)
						ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond) // what was taken is not withdrawn
						defer cancel()
						if err := s.CommitLater(ctx, addRun(int64(i+1)), audit.Record{Kind: audit.Drop}); err != nil {
							t.Error(err)
						}
					})
				}
				synctest.Wait()
				if row.then != nil {
					row.then(t, s)
				}
				wg.Wait()
				if took := time.Since(start); took != row.took || commits != row.commits {
					t.Errorf("%v and %d commits, want %v and %d", took, commits, row.took, row.commits)
				}
				s.Close()
				s = open(t, store.Config{Path: c.Path})
				defer s.Close()
				if got := runs(t, s); got != len(row.later) {
					t.Errorf("%d rows, want %d", got, len(row.later))
				}
				verify(t, s)
				var b bytes.Buffer
				if err := s.Export(t.Context(), &b); err != nil {
					t.Error(err)
				}
				if text := b.String(); row.name == "joins" && strings.Index(text, `"decision"`) < strings.LastIndex(text, `"drop"`) {
					t.Errorf("what waited came later:\n%s", text)
				}
			})
		})
	}
}

func TestWithdrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, store.Config{})
		defer s.Close()
		ctx, cancel := context.WithCancel(t.Context())
		hold := make(chan struct{})
		taken, waiting := make(chan error, 1), make(chan error, 1)
		go func() {
			taken <- s.Commit(ctx, func(tx *store.Tx) error { <-hold; return addRun(1)(tx) })
		}()
		synctest.Wait()
		go func() { waiting <- s.Commit(ctx, addRun(2)) }()
		synctest.Wait()
		cancel()
		synctest.Wait()
		select {
		case err := <-waiting:
			if fault.ReasonOf(err) != fault.StoreUnavailable {
				t.Errorf("the one that waited: %v", err)
			}
		default:
			t.Error("the one that waited still does")
		}
		close(hold)
		if err := <-taken; err != nil {
			t.Errorf("the one that was taken: %v", err)
		}
		if err := s.Commit(ctx, addRun(3)); fault.ReasonOf(err) != fault.StoreUnavailable {
			t.Errorf("the one that came late: %v", err)
		}
		if got := runs(t, s); got != 1 {
			t.Errorf("%d rows, want 1", got)
		}
	})
}

// TestTamper shows what each moment leaves behind, before and after the file
// has been opened again.
func TestTamper(t *testing.T) {
	for _, tc := range []struct {
		name   string
		at     store.Moment
		rows   int  // of the request that was broken
		failed bool // the store writes no more
	}{
		{"applying", store.Applying, 0, false},
		{"committing", store.Committing, 0, true},
		{"committed", store.Committed, 1, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "broker.db")
			s := open(t, store.Config{Path: path, Tamper: func(at store.Moment, records []audit.Record) error {
				if at == tc.at && len(records) == 1 && records[0].Kind == audit.Sending {
					return errors.New("broken")
				}
				return nil
			}})
			if err := s.Commit(t.Context(), nil, audit.Record{Kind: audit.Decision}); err != nil {
				t.Fatal(err)
			}
			err := s.Commit(t.Context(), addRun(1), audit.Record{Kind: audit.Sending})
			if fault.ReasonOf(err) != fault.StoreFailed || strings.Contains(err.Error(), "broken") {
				t.Errorf("Commit = %v", err)
			}
			if (s.Err() != nil) != tc.failed {
				t.Errorf("Err = %v", s.Err())
			}
			err = s.Commit(t.Context(), addRun(2), audit.Record{Kind: audit.Outcome})
			if (err != nil) != tc.failed || err != nil && fault.ReasonOf(err) != fault.StoreFailed {
				t.Errorf("the next Commit = %v", err)
			}
			want := tc.rows
			if !tc.failed {
				want++
			}
			if got := runs(t, s); got != want {
				t.Errorf("%d rows, want %d", got, want)
			}
			s.Close()
			s = open(t, store.Config{Path: path})
			if err := s.Commit(t.Context(), addRun(3), audit.Record{Kind: audit.Start}); err != nil || runs(t, s) != want+1 {
				t.Errorf("after opening again: %v with %d rows, want %d", err, runs(t, s), want+1)
			}
			verify(t, s)
		})
	}
}

// TestCommitThatFails is a real one: a deferred foreign key that COMMIT finds broken.
func TestCommitThatFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "broker.db")
	s := open(t, store.Config{Path: path})
	err := s.Commit(t.Context(), func(tx *store.Tx) error {
		_, err := tx.Exec(`CREATE TABLE child (parent BIGINT REFERENCES migrations (number) DEFERRABLE INITIALLY DEFERRED)`)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	err = s.Commit(t.Context(), func(tx *store.Tx) error {
		_, err := tx.Exec(`INSERT INTO child VALUES (4711)`)
		return err
	}, audit.Record{Kind: audit.Decision})
	if want := "store.Commit: store_failed: SQLite result code 787"; fmt.Sprint(err) != want || fmt.Sprint(s.Err()) != want {
		t.Errorf("Commit = %v, Err = %v, want %s", err, s.Err(), want)
	}
	if err := s.Commit(t.Context(), addRun(1)); fault.ReasonOf(err) != fault.StoreFailed {
		t.Errorf("the next Commit = %v", err)
	}
	s.Close()
	s = open(t, store.Config{Path: path})
	if err := s.Commit(t.Context(), addRun(1)); err != nil || s.Err() != nil {
		t.Errorf("after opening again: %v, %v", err, s.Err())
	}
	if head := verify(t, s); head.Seq != 0 {
		t.Errorf("%d records, want none", head.Seq)
	}
}

// TestRequestThatEndsTheTransaction: the batch is lost, not half of it kept.
func TestRequestThatEndsTheTransaction(t *testing.T) {
	s := open(t, store.Config{})
	err := s.Commit(t.Context(), func(tx *store.Tx) error {
		if err := addRun(1)(tx); err != nil {
			return err
		}
		_, err := tx.Exec(`ROLLBACK`)
		return err
	}, audit.Record{Kind: audit.Decision})
	if fault.ReasonOf(err) != fault.StoreFailed || s.Err() == nil {
		t.Errorf("Commit = %v, Err = %v", err, s.Err())
	}
	if runs(t, s) != 0 {
		t.Error("a row was kept")
	}
}

func TestReadersCannotWrite(t *testing.T) {
	s := open(t, store.Config{})
	if _, err := s.Read().Exec(`DELETE FROM audit`); err == nil {
		t.Error("a reader has written")
	}
	if _, err := s.Read().Exec(`PRAGMA query_only = 0; DELETE FROM audit`); err == nil {
		t.Error("a reader has made itself a writer")
	}
}

func TestOneOpens(t *testing.T) {
	path := filepath.Join(t.TempDir(), "broker.db")
	s := open(t, store.Config{Path: path})
	_, err := store.Open(t.Context(), store.Config{Path: path})
	if err == nil || !strings.Contains(err.Error(), "another broker has it open") {
		t.Errorf("a second Open in this process = %v", err)
	}
	if out := child(t, "open", path); !strings.Contains(out, "another broker has it open") {
		t.Errorf("a second process: %s", out)
	}
	if err := s.Commit(t.Context(), addRun(1)); err != nil {
		t.Errorf("the first after that: %v", err)
	}
	s.Close()
	if out := child(t, "open", path); !strings.HasPrefix(out, "open ") {
		t.Errorf("another process after Close: %s", out)
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	place := func(name string, mode fs.FileMode, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	link := filepath.Join(dir, "link.db")
	if err := os.Symlink(place("target.db", 0o600, ""), link); err != nil {
		t.Fatal(err)
	}
	newer := open(t, store.Config{Path: filepath.Join(dir, "newer.db")})
	if err := newer.Commit(t.Context(), addRun(-1000)); err != nil {
		t.Fatal(err)
	}
	newer.Close()
	for _, tc := range []struct{ name, path, want string }{
		{"no folder", filepath.Join(dir, "absent", "broker.db"), "no such file or directory"},
		{"a folder", dir, "is a directory"},
		{"readable by others", place("wide.db", 0o644, ""), "chmod 600"},
		{"a link", link, "too many levels of symbolic links"},
		{"not a database", place("text.db", 0o600, strings.Repeat("text ", 1000)), "it is not a database"},
		{"of a newer broker", filepath.Join(dir, "newer.db"), "a newer one has written it"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, err := store.Open(t.Context(), store.Config{Path: tc.path})
			if err == nil {
				s.Close()
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), tc.path) {
				t.Errorf("Open = %v, want %q", err, tc.want)
			}
		})
	}
}

func TestFilesAreForTheirOwner(t *testing.T) {
	dir := filepath.Join(t.TempDir(), `od"d ?#% name`)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	s := open(t, store.Config{Path: filepath.Join(dir, "broker.db")})
	if err := s.Commit(t.Context(), addRun(1)); err != nil {
		t.Fatal(err)
	}
	var got []string
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%s %o", e.Name(), info.Mode().Perm()))
	}
	want := []string{"broker.db 600", "broker.db-shm 600", "broker.db-wal 600", "broker.db.lock 600"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestLedgerIdentity(t *testing.T) {
	path := filepath.Join(t.TempDir(), "broker.db")
	now := noon
	reopen := func() (string, time.Time) {
		now = now.Add(time.Hour)
		s, err := store.Open(t.Context(), store.Config{Path: path, Now: func() time.Time { return now }})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		return s.Ledger()
	}
	copyFile := func(from, to string) {
		b, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(to, b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}

	id, since := reopen()
	if id == "" || !since.Equal(noon.Add(time.Hour)) {
		t.Errorf("new: %q since %v", id, since)
	}
	if id2, since2 := reopen(); id2 != id || !since2.Equal(since) {
		t.Errorf("opened again: %q since %v, want %q since %v", id2, since2, id, since)
	}
	copyFile(path, path+".backup")
	if id2, _ := reopen(); id2 != id {
		t.Errorf("a copy was taken: %q, want %q", id2, id)
	}
	copyFile(path+".backup", path)
	restored, since := reopen()
	if restored == id || !since.Equal(now) {
		t.Errorf("restored: %q since %v, want another than %q since %v", restored, since, id, now)
	}
	if id2, _ := reopen(); id2 != restored {
		t.Errorf("opened again after that: %q, want %q", id2, restored)
	}
	if err := os.Remove(path + ".lock"); err != nil {
		t.Fatal(err)
	}
	if id2, _ := reopen(); id2 == restored {
		t.Error("without its lock file it is still the same ledger")
	}
}

func TestClosed(t *testing.T) {
	s := open(t, store.Config{})
	if err := s.Close(); err != nil {
		t.Errorf("Close = %v", err)
	}
	if err := s.Commit(t.Context(), addRun(1)); fault.ReasonOf(err) != fault.StoreUnavailable {
		t.Errorf("Commit = %v", err)
	}
	if err := s.CommitLater(t.Context(), addRun(1)); fault.ReasonOf(err) != fault.StoreUnavailable {
		t.Errorf("CommitLater = %v", err)
	}
	if err := s.Export(t.Context(), &bytes.Buffer{}); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("Export = %v", err)
	}
}

func TestExportFindsAChangedRow(t *testing.T) {
	s := open(t, store.Config{})
	for range 3 {
		if err := s.Commit(t.Context(), nil, audit.Record{Kind: audit.Denial, Actor: "user:7"}); err != nil {
			t.Fatal(err)
		}
	}
	err := s.Commit(t.Context(), func(tx *store.Tx) error {
		_, err := tx.Exec(`UPDATE audit SET line = replace(line, 'user:7', 'user:8') WHERE seq = 3`)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := s.Export(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	if _, err := audit.Verify(&b); fmt.Sprint(err) != "the record in line 3 does not match its hash" {
		t.Errorf("Verify = %v", err)
	}
}

// TestKill ends a process that commits as fast as it can, with SIGKILL, and
// counts what it had acknowledged.
func TestKill(t *testing.T) {
	path := filepath.Join(t.TempDir(), "broker.db")
	last, ledger := int64(0), ""
	for range 3 {
		cmd := childCommand("commit", path, strconv.FormatInt(last+1, 10))
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		acknowledged := 0
		for lines := bufio.NewScanner(out); lines.Scan(); {
			n, err := strconv.ParseInt(lines.Text(), 10, 64)
			if err != nil {
				t.Errorf("the child says %q", lines.Text())
			}
			last = max(last, n)
			if acknowledged++; acknowledged == 50 {
				cmd.Process.Kill()
			}
		}
		_ = cmd.Wait()
		s, err := store.Open(t.Context(), store.Config{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		rows, head := int64(runs(t, s)), verify(t, s)
		if rows < last || head.Seq < uint64(last) {
			t.Errorf("%d rows and %d records, but %d were acknowledged", rows, head.Seq, last)
		}
		if uint64(rows) != head.Seq {
			t.Errorf("%d rows but %d records", rows, head.Seq)
		}
		id, _ := s.Ledger()
		if s.Opening() != (store.Opening{}) || ledger != "" && id != ledger {
			t.Errorf("found %+v, ledger %s, was %s", s.Opening(), id, ledger)
		}
		last, ledger = rows, id
		s.Close()
	}
}

func childCommand(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "STORE_TEST_CHILD="+strings.Join(args, "\n"))
	return cmd
}

func child(t *testing.T, args ...string) string {
	t.Helper()
	out, err := childCommand(args...).CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestMain(m *testing.M) {
	if args := os.Getenv("STORE_TEST_CHILD"); args != "" {
		runChild(strings.Split(args, "\n"))
		return
	}
	os.Exit(m.Run())
}

// runChild is the other process: "open <path>" and "open-unprivileged <path>" say
// how Open went and which ledger it is, "commit <path> <from>" commits one row and
// one record after the other and prints each number that was acknowledged.
func runChild(args []string) {
	if args[0] == "open-unprivileged" {
		dropRoot()
	}
	s, err := store.Open(context.Background(), store.Config{Path: args[1]})
	if err != nil {
		fmt.Println(err)
		return
	}
	if args[0] != "commit" {
		id, _ := s.Ledger()
		fmt.Println("open", id)
		s.Close()
		return
	}
	from, _ := strconv.ParseInt(args[2], 10, 64)
	for n := from; ; n++ {
		if err := s.Commit(context.Background(), addRun(n), audit.Record{Kind: audit.Decision}); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(n)
	}
}
