package store

import (
	"path/filepath"
	"syscall"
	"testing"
)

// TestUnlock: a lock that was given up is free, though a child process that has just
// begun still has the file open.
func TestUnlock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	f, err := lockFile(path)
	if err != nil {
		t.Fatal(err)
	}
	child, err := syscall.Dup(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(child)
	if _, err := lockFile(path); err == nil {
		t.Error("two have the lock")
	}
	if err := unlock(f); err != nil {
		t.Fatal(err)
	}
	again, err := lockFile(path)
	if err != nil {
		t.Fatalf("it was given up: %v", err)
	}
	unlock(again)
}
