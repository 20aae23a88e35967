// Package canary is the test harness that looks for a planted secret in
// everything a piece of code puts out.
//
//	canary.Run(t, func(c *canary.Cage) {
//		svc := New(c.Logger(), ...)      // logs are watched
//		_, err := svc.Do(...)
//		c.Value("error", err)            // formatted under every verb
//		c.Bytes("answer", body)
//		c.File(dbPath)                   // read when the function has ended
//	}, planted...)
//
// Run fails the test when a planted secret, or a piece of twelve bytes from its middle
// on, shows up in plain, hex, base64, URL- or JSON-escaped form in standard output,
// standard error, the logger, a watched value, file, body or a panic.
//
// It swaps os.Stdout and os.Stderr: tests that use it must not run in parallel
// with others of the same process.
package canary

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// A Cage collects what is watched while the function runs.
type Cage struct {
	mu      sync.Mutex
	planted []string
	seen    []sample
	files   []string
	log     bytes.Buffer
}

type sample struct {
	name string
	data []byte
}

// Plant adds secrets that are known only while the function runs.
func (c *Cage) Plant(secrets ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.planted = append(c.planted, secrets...)
}

// Bytes watches b.
func (c *Cage) Bytes(name string, b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = append(c.seen, sample{name, bytes.Clone(b)})
}

// Value watches v as fmt and JSON print it, an error as its whole chain.
func (c *Cage) Value(name string, v any) {
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		c.Bytes(name+" "+verb, fmt.Appendf(nil, verb, v))
	}
	if b, err := json.Marshal(v); err == nil {
		c.Bytes(name+" json", b)
	}
}

// File watches the file or every file below the folder at path, as it is when
// the function has ended.
func (c *Cage) File(path string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.files = append(c.files, path)
}

// Writer returns a writer that watches what is written to it.
func (c *Cage) Writer() io.Writer { return cageWriter{c} }

// Logger returns a logger at the lowest level whose lines are watched.
func (c *Cage) Logger() *slog.Logger {
	return slog.New(slog.NewJSONHandler(c.Writer(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}

type cageWriter struct{ c *Cage }

func (w cageWriter) Write(p []byte) (int, error) {
	w.c.mu.Lock()
	defer w.c.mu.Unlock()
	return w.c.log.Write(p)
}

// Run runs f and fails t for every place where one of the planted secrets shows up.
func Run(t testing.TB, f func(c *Cage), planted ...string) {
	t.Helper()
	for _, leak := range Leaks(t, f, planted...) {
		t.Error(leak)
	}
}

// Leaks runs f and returns a line for every place where a planted secret shows
// up. A panic of f is watched and counts as a failure of its own.
func Leaks(t testing.TB, f func(c *Cage), planted ...string) []string {
	t.Helper()
	c := &Cage{planted: planted}
	var leaks []string
	out, panicked := capture(t, func() { f(c) })
	c.seen = append(c.seen, sample{"standard output and error", out}, sample{"log", c.log.Bytes()})
	if panicked != nil {
		c.seen = append(c.seen, sample{"panic", fmt.Appendf(nil, "%v", panicked)})
		leaks = append(leaks, fmt.Sprintf("canary: the function panicked: %T", panicked))
	}
	for _, path := range c.files {
		c.seen = append(c.seen, readAll(t, path)...)
	}
	if len(c.planted) == 0 {
		leaks = append(leaks, "canary: nothing was planted")
	}
	for _, s := range c.seen {
		for i, secret := range c.planted {
			if form, ok := Find(s.data, secret); ok {
				leaks = append(leaks, fmt.Sprintf("canary: secret %d is in %s, %s", i+1, s.name, form))
			}
		}
	}
	return leaks
}

// Find looks for secret in data and says in which form it is there.
func Find(data []byte, secret string) (form string, found bool) {
	if len(secret) < 12 {
		panic("canary: a planted secret has 12 bytes or more, to be told from chance")
	}
	for _, f := range forms(secret) {
		if bytes.Contains(data, []byte(f.text)) {
			return f.name, true
		}
	}
	return "", false
}

type form struct{ name, text string }

func forms(secret string) []form {
	quoted, _ := json.Marshal(secret)
	list := []form{
		{"plain", secret},
		{"JSON-escaped", strings.Trim(string(quoted), `"`)},
		{"URL-escaped", url.QueryEscape(secret)},
		{"path-escaped", url.PathEscape(secret)},
		{"hex", hex.EncodeToString([]byte(secret))},
		{"upper-case hex", strings.ToUpper(hex.EncodeToString([]byte(secret)))},
		{"its first half", secret[:max(12, len(secret)/2)]},
		{"its second half", secret[len(secret)-max(12, len(secret)/2):]},
	}
	// Inside a larger text base64 depends on where the secret starts: encode at
	// each of the three offsets and drop the characters that mix with neighbours.
	for offset := range 3 {
		for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			text := enc.EncodeToString(append(make([]byte, offset), secret...))
			from := (offset*8 + 5) / 6
			to := (offset + len(secret)) * 8 / 6
			list = append(list, form{"base64", text[from:to]})
		}
	}
	return list
}

func readAll(t testing.TB, path string) (all []sample) {
	t.Helper()
	err := filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(p)
		all = append(all, sample{"file " + filepath.Base(p), b})
		return err
	})
	if err != nil {
		t.Errorf("canary: reading a watched file: %v", err)
	}
	return all
}

// capture runs f with standard output and error going into a pipe.
func capture(t testing.TB, f func()) (out []byte, panicked any) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, stderr, logger := os.Stdout, os.Stderr, slog.Default()
	os.Stdout, os.Stderr = w, w
	slog.SetDefault(slog.New(slog.NewTextHandler(w, nil)))
	read := make(chan []byte)
	go func() { b, _ := io.ReadAll(r); read <- b }()
	func() {
		defer func() {
			panicked = recover()
			os.Stdout, os.Stderr = stdout, stderr
			slog.SetDefault(logger)
			w.Close()
		}()
		f()
	}()
	return <-read, panicked
}
