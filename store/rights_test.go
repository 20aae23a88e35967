package store_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

const nobody = 65534

// TestRights opens files and folders that the broker's user may not write. Root
// may write everything: the process that opens gives that up first, and everything
// is nobody's then.
func TestRights(t *testing.T) {
	for _, tc := range []struct {
		name         string
		folder, file os.FileMode
		log          os.FileMode // of -wal, which is there then
		want         string
	}{
		{name: "as it should be", folder: 0o700, file: 0o600, want: "open"},
		{name: "a file that cannot be written", folder: 0o700, file: 0o400, want: "permission denied"},
		{name: "a folder that cannot be written", folder: 0o500, file: 0o600, want: "its folder cannot be written: the broker's user needs that"},
		{name: "a log that cannot be written", folder: 0o700, file: 0o600, log: 0o400, want: "cannot be"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := leave(t, tc.log == 0, leftRows)
			folder, err := os.MkdirTemp("", "rights")
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(folder)
			other := left{t, filepath.Join(folder, "broker.db"), l.id}
			for suffix, mode := range map[string]os.FileMode{"": tc.file, "-wal": tc.log, ".lock": 0o600} {
				other.take(l.path+suffix, suffix)
				if mode != 0 {
					give(t, other.path+suffix, mode)
				}
			}
			give(t, folder, tc.folder)
			defer os.Chmod(folder, 0o700) // or it cannot be emptied
			out := child(t, "open-unprivileged", other.path)
			if !strings.Contains(out, tc.want) || tc.want != "open" && !strings.Contains(out, other.path) {
				t.Errorf("it says %s, want %s", out, tc.want)
			}
		})
	}
}

// give makes a file nobody's, where its owner would be root.
func give(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	err := os.Chmod(path, mode)
	if err == nil && os.Getuid() == 0 {
		err = os.Chown(path, nobody, nobody)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func dropRoot() {
	if os.Getuid() != 0 {
		return
	}
	for _, err := range []error{syscall.Setgroups(nil), syscall.Setgid(nobody), syscall.Setuid(nobody)} {
		if err != nil {
			panic(err)
		}
	}
}
