// Package storetest is a store for the tests of what stands on it: one file that one
// process after the other opens, under a clock that only the test moves.
package storetest

import (
	"bytes"
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/store"
)

// Noon is what the clock of a [File] says at first.
var Noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// A File is a database and the process that has it open.
type File struct {
	Store *store.Store
	Path  string
	Now   time.Time
	Fail  func(store.Moment, []audit.Record) error // breaks commits, see [store.Config]; nil: none

	t testing.TB
}

// New is a file that is not there yet, in a folder of its own.
func New(t testing.TB) *File {
	f := &File{Path: filepath.Join(t.TempDir(), "broker.db"), Now: Noon, t: t}
	t.Cleanup(f.leave)
	return f
}

// leave has nobody left who has the file open.
func (f *File) leave() {
	if f.Store != nil {
		f.Store.Close()
	}
}

// Reopen is what a new process does, after the one before died.
func (f *File) Reopen() {
	f.t.Helper()
	f.leave()
	var err error
	f.Store, err = store.Open(f.t.Context(), store.Config{Path: f.Path, Now: f.Clock,
		Tamper: func(at store.Moment, records []audit.Record) error {
			if f.Fail == nil {
				return nil
			}
			return f.Fail(at, records)
		}})
	if err != nil {
		f.t.Fatal(err)
	}
}

// Clock says what time it is.
func (f *File) Clock() time.Time { return f.Now }

// Audit is the chain of s as lines of JSON, verified.
func Audit(t testing.TB, s *store.Store) string {
	t.Helper()
	var lines bytes.Buffer
	if err := s.Export(context.Background(), &lines); err != nil {
		t.Fatal(err)
	}
	text := lines.String()
	if _, err := audit.Verify(&lines); err != nil {
		t.Fatal(err)
	}
	return text
}

// Records is [Audit] as what the lines say.
func Records(t testing.TB, s *store.Store) (list []map[string]any) {
	t.Helper()
	for line := range strings.Lines(Audit(t, s)) {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatal(err)
		}
		list = append(list, m)
	}
	return list
}
