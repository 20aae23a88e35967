// Package ownfile reads the files that make the broker who it is: what it logs in
// with, and the keys of what it keeps. Each has a [Guard], which says who else may
// read it.
package ownfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// A Guard says who besides the broker may read a file. Writing it is nobody
// else's business, whatever is in it: who writes it chooses as whom the broker logs in,
// or what it seals with.
type Guard int

const (
	// Ours is for a secret that is the broker's alone. Its group may read it where
	// somebody else owns it: Kubernetes makes a Secret root's and lets a pod in by
	// fsGroup. An owner needs no group.
	Ours Guard = iota
	// Agents is for the sink of a Vault Agent, which it makes 0640 of its own accord.
	Agents
	// Anybodys is for a certificate, and for the token of a service account: Kubernetes
	// makes that 0644 or 0640 in a container where nobody else is.
	Anybodys
)

// judge says what is wrong with a file's mode, as the rest of a sentence.
func (g Guard) judge(mode fs.FileMode, isOwn bool) string {
	switch {
	case !mode.IsRegular():
		return "is not a regular file"
	case mode&0o022 != 0:
		return "can be written by its group or by everybody, who could put something else in it; chmod go-w it"
	case g == Anybodys:
		return ""
	case mode&0o004 != 0:
		return "can be read by everybody, and holds a secret; chmod o-r it (a Secret of Kubernetes: defaultMode 0440, with fsGroup)"
	case g == Ours && isOwn && mode&0o040 != 0:
		return "can be read by its group, and holds a secret; chmod 600 it (a group may read what another user owns: there it is what lets the broker in)"
	}
	return ""
}

const most = 64 << 10 // the longest JWT and any chain of certificates fit

// Read reads such a file: anew each time, since whoever keeps it fresh replaces it.
// It looks at the open file and not at its name again, follows links (a projected
// file is one), and does not wait for the writer of a named pipe. An error names
// the file and says what is wrong with it, and nothing of what is in it.
func Read(path string, g Guard) ([]byte, error) {
	refuse := func(what string) ([]byte, error) { return nil, fmt.Errorf("%q %s", path, what) }
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return refuse("does not exist")
	case err != nil:
		return refuse("cannot be opened by this process")
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return refuse("cannot be looked at")
	}
	if what := g.judge(info.Mode(), own(info)); what != "" {
		return refuse(what)
	}
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	switch {
	case err != nil:
		return refuse("cannot be read")
	case len(b) > most:
		return refuse("is longer than 64 KiB")
	}
	return b, nil
}

func own(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return !ok || int(st.Uid) == os.Geteuid()
}
