package store_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/store"
)

// TestFilesTakenAway: what goes into a file that has no name any more is gone with the
// process. Nobody is told that it is on disk, and nothing more is written.
func TestFilesTakenAway(t *testing.T) {
	take := map[string]func(path string) error{
		"removed":  os.Remove,
		"moved":    func(path string) error { return os.Rename(path, path+".old") },
		"replaced": func(path string) error { return errors.Join(os.Remove(path), os.WriteFile(path, nil, 0o600)) },
	}
	for _, suffix := range []string{"", "-wal", ".lock"} {
		for name, take := range take {
			t.Run("broker.db"+suffix+" "+name, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "broker.db")
				s := open(t, store.Config{Path: path})
				if err := s.Commit(t.Context(), nil, audit.Record{Kind: audit.Decision}); err != nil {
					t.Fatal(err)
				}
				if err := take(path + suffix); err != nil {
					t.Fatal(err)
				}
				for range 2 {
					if err := s.Commit(t.Context(), nil, audit.Record{Kind: audit.Sending}); fault.ReasonOf(err) != fault.StoreFailed {
						t.Errorf("Commit = %v", err)
					}
				}
				if s.Err() == nil {
					t.Error("the store goes on")
				}
			})
		}
	}
}
