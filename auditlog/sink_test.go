package auditlog_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
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

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/auditlog"
	"onbehalf.internal/broker/internal/testlog"
	"onbehalf.internal/broker/store"
	"onbehalf.internal/broker/store/storetest"
)

// A drain is a store whose audit is copied to a file, in a bubble of synctest.
type drain struct {
	*storetest.File
	t    *testing.T
	path string // of the sink's file
	log  testlog.Buffer
	fail atomic.Value // string: the kind of the records whose commits fail; "none": those without any
	sink *auditlog.Sink
	halt func() // what is left is copied before
}

func newDrain(t *testing.T) *drain {
	d := &drain{File: storetest.New(t), t: t}
	d.path = filepath.Join(filepath.Dir(d.Path), "audit.jsonl")
	d.halt = func() {}
	d.fail.Store("")
	d.Fail = func(at store.Moment, records []audit.Record) error {
		kind := "none"
		if len(records) > 0 {
			kind = string(records[0].Kind)
		}
		if at == store.Applying && kind == d.fail.Load() {
			return errors.New("no")
		}
		return nil
	}
	d.start()
	return d
}

// start is what a new process does. The one before has died, if it was not halted.
func (d *drain) start() {
	d.t.Helper()
	d.halt()
	d.Reopen()
	id, _ := d.Store.Ledger()
	d.add(audit.Record{Kind: audit.Start, Started: &audit.Started{Ledger: id, Previous: d.Store.Head().Place()}})
	var err error
	if d.sink, err = auditlog.NewSink(d.t.Context(), auditlog.SinkConfig{Store: d.Store, Path: d.path, Log: slog.New(slog.NewTextHandler(&d.log, nil))}); err != nil {
		d.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(d.t.Context())
	done := make(chan struct{})
	go func() { d.sink.Run(ctx); close(done) }()
	d.halt = func() { cancel(); <-done }
}

func (d *drain) add(records ...audit.Record) {
	d.t.Helper()
	if err := d.Store.Commit(d.t.Context(), nil, records...); err != nil {
		d.t.Fatal(err)
	}
}

func (d *drain) read(path string) []byte {
	d.t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		d.t.Fatal(err)
	}
	return b
}

// away moves the file away, as logrotate does.
func (d *drain) away(name string) string {
	d.t.Helper()
	if err := os.Rename(d.path, d.path+name); err != nil {
		d.t.Fatal(err)
	}
	return d.path + name
}

// whole fails the test unless the files are one chain, up to the last record.
func (d *drain) whole(repeats int, paths ...string) {
	d.t.Helper()
	var files []io.Reader
	for _, path := range paths {
		files = append(files, bytes.NewReader(d.read(path)))
	}
	report, err := audit.Evidence{}.Verify(files...)
	if err != nil || report.Head != d.Store.Head() || report.Repeats != repeats {
		d.t.Errorf("%+v, %v; want %d repeats up to record %d", report, err, repeats, d.Store.Head().Seq)
	}
}

// said fails the test unless the log has so many messages of the sink, and this in the last.
func (d *drain) said(many int, last string) {
	d.t.Helper()
	lines := strings.Split(strings.TrimSpace(d.log.String()), "\n")
	if lines[0] == "" {
		lines = nil
	}
	if len(lines) != many || many > 0 && !strings.Contains(lines[many-1], last) {
		d.t.Errorf("said %d times, want %d and %s:\n%s", len(lines), many, last, d.log.String())
	}
}

// TestSink: every record is in the file, once and in order, over restarts; the file is
// its owner's alone.
func TestSink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDrain(t)
		pass(2 * time.Second)
		d.whole(0, d.path)
		d.add(denials(2500)...)
		if n := d.sink.Behind(); n != 2500 {
			t.Errorf("behind by %d", n)
		}
		pass(2 * time.Second)
		d.whole(0, d.path)
		if n := d.sink.Behind(); n != 0 {
			t.Errorf("behind by %d", n)
		}
		d.add(denials(3)...)
		d.halt() // which copies what is left
		d.whole(0, d.path)
		for range 3 {
			d.start()
			d.add(denials(2)...)
			pass(2 * time.Second)
			d.whole(0, d.path)
		}
		d.halt()
		var export bytes.Buffer
		if err := d.Store.Export(t.Context(), &export); err != nil || !bytes.Equal(export.Bytes(), d.read(d.path)) {
			t.Errorf("the file is not the export; %v", err)
		}
		if info, err := os.Stat(d.path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", info.Mode(), err)
		}
		d.said(0, "")
	})
}

// TestSinkRotated: the file may be moved away or made empty while the broker runs and
// while it does not, and a file that is there already goes on if it is an export.
func TestSinkRotated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDrain(t)
		step := func() { d.add(denials(3)...); pass(2 * time.Second) }
		step()
		first := d.away(".1")
		step()
		d.whole(0, first, d.path)
		d.halt()
		second := d.away(".2")
		d.start()
		step()
		third := d.away(".3")
		if err := os.WriteFile(d.path, nil, 0o640); err != nil { // as logrotate's create
			t.Fatal(err)
		}
		step()
		d.whole(0, first, second, third, d.path)
		fourth := d.path + ".4" // as copytruncate
		if err := errors.Join(os.WriteFile(fourth, d.read(d.path), 0o600), os.Truncate(d.path, 0)); err != nil {
			t.Fatal(err)
		}
		step()
		d.whole(0, first, second, third, fourth, d.path)
		d.said(0, "")
		d.halt()

		var export bytes.Buffer
		d.path = filepath.Join(filepath.Dir(d.path), "export.jsonl")
		err := d.Store.Export(t.Context(), &export)
		if err := errors.Join(err, os.WriteFile(d.path, export.Bytes(), 0o600)); err != nil {
			t.Fatal(err)
		}
		err = d.Store.Commit(t.Context(), func(tx *store.Tx) error { _, err := tx.Exec(`DELETE FROM copied`); return err })
		if err != nil {
			t.Fatal(err)
		}
		d.start()
		step()
		d.whole(0, d.path)
		d.halt()
		d.said(0, "")
	})
}

// TestSinkDies: wherever a process ends between the file and the store's word of it,
// the next one goes on without a gap.
func TestSinkDies(t *testing.T) {
	for _, tc := range []struct {
		name    string
		between func(d *drain) (before []string) // what happens before the next process
		repeats int
	}{
		{"the file is there", func(*drain) []string { return nil }, 0},
		{"the last line was not written whole", func(d *drain) []string {
			if err := os.Truncate(d.path, int64(len(d.read(d.path))-70)); err != nil {
				d.t.Fatal(err)
			}
			return nil
		}, 0},
		{"a line and a half were written", func(d *drain) []string {
			b := d.read(d.path)
			if err := os.Truncate(d.path, int64(bytes.LastIndexByte(b[:len(b)-300], '\n')+100)); err != nil {
				d.t.Fatal(err)
			}
			return nil
		}, 0},
		{"nothing was written", func(d *drain) []string {
			lines := bytes.SplitAfter(d.read(d.path), []byte("\n"))
			if err := os.WriteFile(d.path, bytes.Join(lines[:4], nil), 0o600); err != nil {
				d.t.Fatal(err)
			}
			return nil
		}, 0},
		{"the file was moved away", func(d *drain) []string { return []string{d.away(".1")} }, 1000},
		{"the same, and its last line was not written whole", func(d *drain) []string {
			if err := os.Truncate(d.path, int64(len(d.read(d.path))-70)); err != nil {
				d.t.Fatal(err)
			}
			return []string{d.away(".1")}
		}, 999},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDrain(t)
				d.add(denials(3)...)
				pass(2 * time.Second)
				d.fail.Store("none") // the word of it
				d.add(denials(1200)...)
				pass(10 * time.Second)
				if n := bytes.Count(d.read(d.path), []byte("\n")); n != 1004 || d.sink.Behind() != 1200 {
					t.Fatalf("%d records are in the file, and the store misses %d", n, d.sink.Behind())
				}
				d.said(1, `msg="sink not written" copied=4 why=`)
				d.halt()
				d.log = testlog.Buffer{}
				d.fail.Store("")
				before := tc.between(d)
				d.start()
				pass(2 * time.Second)
				d.whole(tc.repeats, append(before, d.path)...)
				d.halt()
				d.said(0, "")
			})
		})
	}
}

// TestSinkTrouble: what cannot be written is said when it begins and when it ends, is
// tried again, stops nobody, and is all in the file in the end.
func TestSinkTrouble(t *testing.T) {
	for _, tc := range []struct {
		name       string
		begin, end func(d *drain) error
		why        string
	}{
		{"a link", func(d *drain) error { return errors.Join(os.Remove(d.path), os.Symlink("/dev/null", d.path)) }, removed, "too many levels of symbolic links"},
		{"a pipe", func(d *drain) error { return errors.Join(os.Remove(d.path), syscall.Mkfifo(d.path, 0o600)) }, removed, "is not a regular file"},
		{"a folder", func(d *drain) error { return errors.Join(os.Remove(d.path), os.Mkdir(d.path, 0o700)) }, removed, "is a directory"},
		{"others may write it", func(d *drain) error { return os.Chmod(d.path, 0o620) }, func(d *drain) error { return os.Chmod(d.path, 0o600) }, "can be written by its group"},
		{"its folder is gone", func(d *drain) error {
			d.path = filepath.Join(filepath.Dir(d.path), "no", "audit.jsonl")
			return nil
		}, func(d *drain) error { return os.Mkdir(filepath.Dir(d.path), 0o700) }, "no such file or directory"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDrain(t)
				d.add(denials(5)...)
				pass(2 * time.Second)
				d.halt()
				first := d.path + ".first"
				if err := errors.Join(os.WriteFile(first, d.read(d.path), 0o600), tc.begin(d)); err != nil {
					t.Fatal(err)
				}
				d.start()
				for range 10 {
					d.add(denials(3)...) // operations go on
					pass(time.Minute)
				}
				d.said(1, `msg="sink not written" copied=6 why=`)
				d.said(1, tc.why)
				if n := d.sink.Behind(); n != 31 {
					t.Errorf("behind by %d", n)
				}
				if err := tc.end(d); err != nil {
					t.Fatal(err)
				}
				pass(time.Minute)
				d.said(2, `msg="sink written again" copied=37`)
				d.whole(map[bool]int{true: 6}[bytes.HasPrefix(d.read(d.path), d.read(first))], first, d.path)
				d.halt()
			})
		})
	}
}

func removed(d *drain) error { return os.Remove(d.path) }

// TestSinkOnAFullDisk: a write that fails half way leaves nothing of itself.
func TestSinkOnAFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDrain(t)
		pass(2 * time.Second)
		before := d.read(d.path)
		signal.Ignore(syscall.SIGXFSZ) // else the system ends the process
		var limit syscall.Rlimit
		if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
			t.Fatal(err)
		}
		d.add(denials(500)...) // in the database before files of this process end
		err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: uint64(len(before)) + 1000, Max: limit.Max})
		if err != nil {
			t.Fatal(err)
		}
		pass(10 * time.Second)
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(d.read(d.path), before) {
			t.Errorf("the file has %q", d.read(d.path))
		}
		d.said(1, "file too large")
		pass(time.Minute)
		d.said(2, "sink written again")
		d.whole(0, d.path)
		d.halt()
	})
}

// TestSinkIsNotAsItWas: a file that somebody has cut, replaced or added to, or that is of
// another chain, is not written to: it is said, and stays as it is. Once it is moved away
// the rest goes to a new one, and what is missing has a name.
func TestSinkIsNotAsItWas(t *testing.T) {
	const unlike = "does not follow the one before it: it is record "
	for _, tc := range []struct {
		name   string
		change func([]byte) []byte
		line   int
		why    string
	}{
		{"cut at a record", func(b []byte) []byte { return b[:bytes.LastIndexByte(b[:len(b)-1], '\n')+1] }, 1, unlike + "7, and record 6 is missing"},
		{"cut within a record", func(b []byte) []byte { return b[:len(b)-10] }, 6, "is cut off"},
		{"added to", func(b []byte) []byte { return append(b, "{}\n"...) }, 7, "is not a record"},
		{"added to, within a line", func(b []byte) []byte { return append(b, `{"seq":6`...) }, 1, "is another record than the one that is cut off where a file before ends"},
		{"a record twice", func(b []byte) []byte { return append(b, b[bytes.LastIndexByte(b[:len(b)-1], '\n')+1:]...) }, 7, unlike + "6 once more"},
		{"replaced", func([]byte) []byte { return []byte("something else\n") }, 1, "is not a record"},
		{"replaced by something as long", func(b []byte) []byte { return append(bytes.Repeat([]byte("x"), len(b)-1), '\n') }, 1, "does not match its hash"},
		{"its end is changed", func(b []byte) []byte { b[len(b)-4]++; return b }, 6, "does not match its hash"},
		{"replaced by something longer", func(b []byte) []byte { return bytes.Repeat([]byte("something else\n"), 1000) }, 1, "is not a record"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDrain(t)
				d.add(denials(5)...)
				pass(2 * time.Second)
				changed := tc.change(d.read(d.path))
				if err := os.WriteFile(d.path, changed, 0o600); err != nil {
					t.Fatal(err)
				}
				d.add(denials(5)...)
				pass(5 * time.Minute)
				d.said(1, `is not as it was left after record 6; move it away`)
				if !bytes.Equal(d.read(d.path), changed) {
					t.Errorf("it was written to: %q", d.read(d.path))
				}
				d.halt()
				d.start() // finds the same
				pass(5 * time.Minute)
				d.said(2, `is not as it was left after record 6; move it away`)
				old := d.away(".old")
				pass(2 * time.Minute)
				d.said(3, `msg="sink written again" copied=12`)
				_, err := audit.Evidence{}.Verify(bytes.NewReader(d.read(old)), bytes.NewReader(d.read(d.path)))
				var bad *audit.BadRecord
				if !errors.As(err, &bad) || bad.Line != tc.line || bad.Why != tc.why {
					t.Errorf("%+v, want line %d %s", bad, tc.line, tc.why)
				}
				d.halt()
			})
		})
	}
}

// TestSinkOfARestoredLedger: where the store is an older copy, the file has records that
// the store never had. The two are not mixed.
func TestSinkOfARestoredLedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDrain(t)
		d.add(denials(5)...)
		pass(2 * time.Second)
		d.halt()
		d.Store.Close()
		saved := d.read(d.Path)
		d.start()
		d.add(denials(5)...)
		pass(2 * time.Second)
		d.halt()
		d.Store.Close()
		file := d.read(d.path)
		if err := errors.Join(os.WriteFile(d.Path, saved, 0o600), os.Remove(d.Path+".lock")); err != nil {
			t.Fatal(err)
		}
		d.Now = d.Now.Add(time.Hour)
		d.start()
		pass(5 * time.Minute)
		d.said(1, `is not as it was left after record 6; move it away`)
		if !bytes.Equal(d.read(d.path), file) {
			t.Error("it was written to")
		}
		old := d.away(".old")
		pass(time.Minute)
		_, err := audit.Evidence{}.Verify(bytes.NewReader(d.read(old)), bytes.NewReader(d.read(d.path)))
		var bad *audit.BadRecord
		if !errors.As(err, &bad) || *bad != (audit.BadRecord{File: 2, Line: 1, Why: "is another record 7 than the one in a file before"}) {
			t.Errorf("%+v", bad)
		}
		d.halt()
	})
}

// TestSinkOfAChangedAudit: a record that does not follow the one before it is not copied,
// and none after it.
func TestSinkOfAChangedAudit(t *testing.T) {
	for name, tc := range map[string]struct {
		change string
		record int
	}{
		"the next is changed":    {`UPDATE audit SET line = replace(line, 'user:7', 'user:8') WHERE seq = 9`, 9},
		"a later one is changed": {`UPDATE audit SET line = replace(line, 'user:7', 'user:8') WHERE seq = 11`, 11},
		"the next is missing":    {`DELETE FROM audit WHERE seq = 9`, 9},
		"a later one is missing": {`DELETE FROM audit WHERE seq = 12`, 12},
		"all are missing":        {`DELETE FROM audit WHERE seq >= 9`, 9},
		"another was copied":     {`UPDATE copied SET hash = zeroblob(32)`, 9},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDrain(t)
				d.add(denials(7)...)
				pass(2 * time.Second)
				d.halt()
				d.add(denials(5)...)
				err := d.Store.Commit(t.Context(), func(tx *store.Tx) error { _, err := tx.Exec(tc.change); return err })
				if err != nil {
					t.Fatal(err)
				}
				if d.sink, err = auditlog.NewSink(t.Context(), auditlog.SinkConfig{Store: d.Store, Path: d.path, Log: slog.New(slog.NewTextHandler(&d.log, nil))}); err != nil {
					t.Fatal(err)
				}
				ended := make(chan struct{})
				go func() { d.sink.Run(t.Context()); close(ended) }()
				pass(5 * time.Second)
				<-ended
				d.said(1, fmt.Sprintf(`msg="audit was changed" record=%d copied=%d`, tc.record, tc.record-1))
				if head, err := audit.Verify(bytes.NewReader(d.read(d.path))); err != nil || head.Seq != uint64(tc.record)-1 {
					t.Errorf("copied up to %d, %v", head.Seq, err)
				}
			})
		})
	}
}
