package store

import "testing"

func TestSuitable(t *testing.T) {
	for _, tc := range []struct {
		version, journal string
		synchronous      int
		ok               bool
	}{
		{"3.51.3", "wal", 2, true},
		{"3.54.1", "wal", 3, true},
		{"4.0.0", "wal", 2, true},

		{"3.51.2", "wal", 2, false},
		{"3.9.9", "wal", 2, false},
		{"", "wal", 2, false},
		{"3.54.1", "delete", 2, false},
		{"3.54.1", "memory", 2, false},
		{"3.54.1", "wal", 1, false},
	} {
		if err := suitable(tc.version, tc.journal, tc.synchronous); (err == nil) != tc.ok {
			t.Errorf("suitable(%q, %q, %d) = %v, want ok %v", tc.version, tc.journal, tc.synchronous, err, tc.ok)
		}
	}
}
