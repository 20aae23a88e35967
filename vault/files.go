package vault

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/secret"
)

// A guard says who besides the broker may read a file. Writing it is nobody
// else's business, whatever is in it: who writes it chooses as whom we log in.
type guard int

const (
	// ours is for a secret that is the broker's alone. Its group may read it where
	// somebody else owns it: Kubernetes makes a Secret root's and lets a pod in by
	// fsGroup. An owner needs no group.
	ours guard = iota
	// agents is for the sink of a Vault Agent, which it makes 0640 of its own accord.
	agents
	// anybodys is for a certificate, and for the token of a service account: Kubernetes
	// makes that 0644 or 0640 in a container where nobody else is.
	anybodys
)

// judge says what is wrong with a file's mode, as the rest of a sentence.
func (g guard) judge(mode fs.FileMode, isOwn bool) string {
	switch {
	case !mode.IsRegular():
		return "is not a regular file"
	case mode&0o022 != 0:
		return "can be written by its group or by everybody, who could have the broker log in as somebody else; chmod go-w it"
	case g == anybodys:
		return ""
	case mode&0o004 != 0:
		return "can be read by everybody, and holds a secret; chmod o-r it (a Secret of Kubernetes: defaultMode 0440, with fsGroup)"
	case g == ours && isOwn && mode&0o040 != 0:
		return "can be read by its group, and holds a secret; chmod 600 it (a group may read what another user owns: there it is what lets the broker in)"
	}
	return ""
}

const maxFile = 64 << 10 // the longest JWT and any chain of certificates fit

// readFile reads a file that proves who we are: anew each time, since whoever
// keeps it fresh replaces it. It looks at the open file and not at its name again,
// follows links (a projected file is one), and does not wait for the writer of a
// named pipe.
func readFile(path string, g guard) ([]byte, error) {
	refuse := func(what string) ([]byte, error) {
		return nil, fault.New("vault.login", fault.VaultNotReady, fmt.Sprintf("%q %s", path, what))
	}
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
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	switch {
	case err != nil:
		return refuse("cannot be read")
	case len(b) > maxFile:
		return refuse("is longer than 64 KiB")
	}
	return b, nil
}

func own(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return !ok || int(st.Uid) == os.Geteuid()
}

// readSecret reads one line; space around it is not part of it.
func readSecret(path string, g guard) (secret.Text, error) {
	b, err := readFile(path, g)
	if err != nil {
		return secret.Text{}, err
	}
	line := strings.TrimSpace(string(b))
	what := ""
	switch {
	case line == "":
		what = "is empty"
	case !utf8.ValidString(line) || strings.ContainsFunc(line, unicode.IsControl):
		what = "does not hold one line of text"
	default:
		return secret.New(line), nil
	}
	return secret.Text{}, fault.New("vault.login", fault.VaultNotReady, fmt.Sprintf("%q %s", path, what))
}
