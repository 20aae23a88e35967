package vault

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"onbehalf.internal/broker/ownfile"
)

func TestReadSecret(t *testing.T) {
	put := func(text string, mode fs.FileMode) func(string) error {
		return func(path string) error {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				return err
			}
			return os.Chmod(path, mode)
		}
	}
	for name, r := range map[string]struct {
		make func(path string) error
		says string // "": it reads "word"
	}{
		"a word":            {put("word", 0o600), ""},
		"a line":            {put(" word\r\n", 0o400), ""},
		"two lines":         {put("word\nword", 0o600), "does not hold one line"},
		"a NUL":             {put("word\x00", 0o600), "does not hold one line"},
		"not UTF-8":         {put("word\xff", 0o600), "does not hold one line"},
		"empty":             {put("", 0o600), "is empty"},
		"blank":             {put(" \n", 0o600), "is empty"},
		"long":              {put(strings.Repeat("w", 64<<10+1), 0o600), "longer than 64 KiB"},
		"absent":            {func(string) error { return nil }, "does not exist"},
		"a folder":          {func(p string) error { return os.Mkdir(p, 0o700) }, "not a regular file"},
		"a pipe":            {func(p string) error { return syscall.Mkfifo(p, 0o600) }, "not a regular file"},
		"the group's":       {put("word", 0o640), "chmod 600"},
		"everybody's":       {put("word", 0o604), "chmod o-r"},
		"a link":            {func(p string) error { return link(p, 0o600) }, ""},
		"a link to a broad": {func(p string) error { return link(p, 0o604) }, "chmod o-r"},
	} {
		path := filepath.Join(t.TempDir(), "secret")
		if err := r.make(path); err != nil {
			t.Fatal(err)
		}
		got, err := readSecret(path, ownfile.Ours)
		if (err == nil) != (r.says == "") || err != nil && (!strings.Contains(err.Error(), r.says) || !strings.Contains(err.Error(), path)) {
			t.Errorf("%s: %v, want %q", name, err, r.says)
		}
		if err == nil && got.Reveal() != "word" {
			t.Errorf("%s: something else was read", name)
		}
		if err != nil && strings.Contains(strings.ReplaceAll(err.Error(), path, ""), "word") {
			t.Errorf("%s: what is in it is told", name)
		}
	}
}

// link lays a file out as Kubernetes projects one.
func link(path string, mode fs.FileMode) error {
	target := filepath.Join(filepath.Dir(path), "..data")
	if err := os.WriteFile(target, []byte("word\n"), 0o600); err != nil {
		return err
	}
	if err := os.Chmod(target, mode); err != nil {
		return err
	}
	return os.Symlink(target, path)
}
