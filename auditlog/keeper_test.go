package auditlog_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/mod/sumdb/note"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/auditlog"
	"onbehalf.internal/broker/internal/testlog"
	"onbehalf.internal/broker/store"
)

// A rig is a store with a keeper, and what it says.
type rig struct {
	t        *testing.T
	path     string
	key      note.Signer
	verifier note.Verifier
	second   func([]byte) error

	store *store.Store
	stop  func() // the keeper, and its last head
	log   testlog.Buffer
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, path: filepath.Join(t.TempDir(), "broker.db")}
	r.key, r.verifier = newAuditKey(t)
	return r
}

func newAuditKey(t *testing.T) (note.Signer, note.Verifier) {
	t.Helper()
	file, public, err := audit.NewKey("broker.example")
	if err != nil {
		t.Fatal(err)
	}
	key, err := audit.ParseKey(file)
	verifier, err2 := note.NewVerifier(public)
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	return key, verifier
}

// begin is the start of a process: it opens the store and records that.
func (r *rig) begin() {
	r.t.Helper()
	var err error
	if r.store, err = store.Open(r.t.Context(), store.Config{Path: r.path}); err != nil {
		r.t.Fatal(err)
	}
	id, _ := r.store.Ledger()
	r.add(audit.Record{Kind: audit.Start, Started: &audit.Started{Ledger: id, Previous: r.store.Head().Place()}})
	keeper, err := auditlog.NewKeeper(r.t.Context(), auditlog.Config{Store: r.store, Key: r.key, Second: r.second, Now: time.Now, Log: slog.New(slog.NewTextHandler(&r.log, nil))})
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(r.t.Context())
	done := make(chan struct{})
	go func() { keeper.Run(ctx); close(done) }()
	r.stop = func() { cancel(); <-done }
}

func (r *rig) end() {
	r.t.Helper()
	r.stop()
	if err := r.store.Close(); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) add(records ...audit.Record) {
	r.t.Helper()
	if err := r.store.Commit(r.t.Context(), nil, records...); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) addMany(n int) {
	r.t.Helper()
	r.add(denials(n)...)
}

func denials(n int) (all []audit.Record) {
	for range n {
		all = append(all, audit.Record{Kind: audit.Denial, Actor: "user:7"})
	}
	return all
}

// heads are the sizes of those in the store.
func (r *rig) heads() []uint64 { return headsIn(r.t, r.store) }

func headsIn(t *testing.T, s *store.Store) (sizes []uint64) {
	t.Helper()
	rows, err := s.Read().Query(`SELECT size FROM heads ORDER BY size`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var n uint64
		if err := rows.Scan(&n); err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, n)
	}
	return sizes
}

// pass lets time of a synctest bubble pass, until nobody in it has anything to do.
func pass(some time.Duration) {
	time.Sleep(some)
	synctest.Wait()
}

// verify holds an export against the heads of a second place.
func (r *rig) verify(heads []byte) (audit.Report, error) {
	r.t.Helper()
	signed, err := audit.ReadHeads(bytes.NewReader(heads), r.verifier)
	if err != nil {
		r.t.Fatal(err)
	}
	var export bytes.Buffer
	if err := r.store.Export(r.t.Context(), &export); err != nil {
		r.t.Fatal(err)
	}
	return audit.Evidence{Heads: signed}.Verify(&export)
}

func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: %s", what, diff)
	}
}

// TestWhenHeadsAreSigned: a minute after the last where anything is new, at once where
// 1,000 are, and at the end.
func TestWhenHeadsAreSigned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.begin()
		pass(59500 * time.Millisecond)
		equal(t, "before the minute is over", r.heads(), []uint64(nil))
		pass(time.Second)
		equal(t, "after a minute", r.heads(), []uint64{1})
		pass(5 * time.Minute)
		equal(t, "nothing new", r.heads(), []uint64{1})
		r.addMany(999)
		pass(3 * time.Second)
		equal(t, "a minute has passed and something is new", r.heads(), []uint64{1, 1000})
		r.addMany(999)
		pass(3 * time.Second)
		equal(t, "999 are new", r.heads(), []uint64{1, 1000})
		r.addMany(1)
		pass(3 * time.Second)
		equal(t, "1,000 are new", r.heads(), []uint64{1, 1000, 2000})
		r.addMany(1)
		r.stop()
		equal(t, "at the end", r.heads(), []uint64{1, 1000, 2000, 2001})
		r.end()
	})
}

// TestHeadsOverRestarts: the tree goes on where the last process left it, also where
// what it left does not fit any more, and all heads hold against one export.
func TestHeadsOverRestarts(t *testing.T) {
	r := newRig(t)
	var second bytes.Buffer
	r.second = auditlog.Writer(&second)
	for n, many := range []int{0, 6, 1, 1500, 2} {
		r.begin()
		r.addMany(many)
		if n == 3 { // a tree that does not make its root is built anew
			r.stop()
			err := r.store.Commit(t.Context(), func(tx *store.Tx) error {
				_, err := tx.Exec(`UPDATE heads SET tree = zeroblob(length(tree))`)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		r.end()
	}
	r.begin()
	defer r.end()
	report, err := r.verify(second.Bytes())
	if err != nil || report.Heads != 5 || report.Signed != 1514 || report.Head.Seq != 1515 {
		t.Errorf("%+v, %v", report, err)
	}
	if strings.Contains(r.log.String(), "level=ERROR") {
		t.Error(r.log.String())
	}
}

// TestChangedAudit: of a record that was changed under the broker no head is signed,
// and of none after it.
func TestChangedAudit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.begin()
		r.addMany(3)
		err := r.store.Commit(t.Context(), func(tx *store.Tx) error {
			_, err := tx.Exec(`UPDATE audit SET line = replace(line, 'user:7', 'user:8') WHERE seq = 3`)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		pass(2 * time.Minute)
		r.stop()
		equal(t, "heads", r.heads(), []uint64(nil))
		r.end()
		if n := strings.Count(r.log.String(), `msg="audit was changed" record=3 signed=0`); n != 1 {
			t.Errorf("said %d times: %s", n, r.log.String())
		}
	})
}

// TestSecondPlaceFails: what cannot be written there is said, is tried again in a
// minute, and stops nobody.
func TestSecondPlaceFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		var second testlog.Buffer
		var tries atomic.Int32
		var full atomic.Bool
		full.Store(true)
		r.second = func(head []byte) error {
			if tries.Add(1); full.Load() {
				return syscall.ENOSPC
			}
			_, err := second.Write(head)
			return err
		}
		r.begin()
		r.addMany(1000)
		pass(30 * time.Second)
		r.addMany(1500) // operations go on
		pass(10 * time.Second)
		if said := strings.Count(r.log.String(), `msg="head not at its second place" records=1001 why="no space left on device"`); said != 1 || tries.Load() != 1 {
			t.Errorf("said %d times after %d tries: %s", said, tries.Load(), r.log.String())
		}
		equal(t, "heads in the store", r.heads(), []uint64{1001})
		pass(time.Minute)
		equal(t, "heads in the store", r.heads(), []uint64{1001, 2501})
		full.Store(false)
		pass(time.Minute) // nothing is new, and the head is still brought there
		if report, err := r.verify([]byte(second.String())); err != nil || report.Heads != 1 || report.Signed != 2501 {
			t.Errorf("%+v, %v", report, err)
		}
		r.end()
	})
}

// TestFile: the file for heads is made for its owner alone, is appended to, and what
// others may write, or is no file, is refused.
func TestFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "heads")
	put := auditlog.File(path)
	for range 2 {
		if err := put([]byte("head\n")); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	info, err2 := os.Stat(path)
	if err != nil || err2 != nil || string(text) != "head\nhead\n" || info.Mode().Perm() != 0o600 {
		t.Errorf("%q, %v, %v %v", text, info.Mode(), err, err2)
	}
	link, pipe, wide := filepath.Join(dir, "link"), filepath.Join(dir, "pipe"), filepath.Join(dir, "wide")
	if err := errors.Join(os.Symlink(path, link), syscall.Mkfifo(pipe, 0o600), os.WriteFile(wide, nil, 0o600), os.Chmod(wide, 0o620)); err != nil {
		t.Fatal(err)
	}
	for _, refused := range []string{link, pipe, wide, dir, filepath.Join(dir, "no", "heads")} {
		if err := auditlog.File(refused)([]byte("head\n")); err == nil {
			t.Errorf("%s is taken", refused)
		}
	}
	if _, err := os.Stat("/dev/full"); err == nil {
		if err := auditlog.File("/dev/full")([]byte("head\n")); err == nil || !strings.Contains(err.Error(), "is not a regular file") {
			t.Errorf("/dev/full: %v", err)
		}
	}
}

// TestFullDisk: a head that does not fit leaves nothing of itself. The disk is full
// where the system lets files of this process end.
func TestFullDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "heads")
	put := auditlog.File(path)
	if err := put([]byte("head\n")); err != nil {
		t.Fatal(err)
	}
	signal.Ignore(syscall.SIGXFSZ) // else the system ends the process
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 8, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	err := put([]byte("another head\n"))
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	if text, err2 := os.ReadFile(path); !errors.Is(err, syscall.EFBIG) || err2 != nil || string(text) != "head\n" {
		t.Errorf("%v, and the file has %q, %v", err, text, err2)
	}
}

// BenchmarkKeeper: what signing costs a record, off the writer's path.
func BenchmarkKeeper(b *testing.B) {
	const n = 20_000
	file, _, err := audit.NewKey("broker.example")
	if err != nil {
		b.Fatal(err)
	}
	key, _ := audit.ParseKey(file)
	s, err := store.Open(b.Context(), store.Config{Path: filepath.Join(b.TempDir(), "broker.db")})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	for range n / 1000 {
		if err := s.Commit(b.Context(), nil, denials(1000)...); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		keeper, err := auditlog.NewKeeper(b.Context(), auditlog.Config{Store: s, Key: key, Now: time.Now, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			b.Fatal(err)
		}
		ctx, cancel := context.WithCancel(b.Context())
		cancel()
		keeper.Run(ctx)
		b.StopTimer()
		if err := s.Commit(b.Context(), func(tx *store.Tx) error { _, err := tx.Exec(`DELETE FROM heads`); return err }); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/record")
}
