package main

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"onbehalf.internal/broker/brokertest"
)

// A reviewer makes bundles of a broker whose audit is signed.
type reviewer struct {
	*brokertest.Rig
	t     *testing.T
	dir   string
	until string
	early string // before any head was signed
}

func newReviewer(t *testing.T) *reviewer {
	rig := brokertest.New(t, &brokertest.Options{SignedAudit: true})
	rig.Call(t, brokertest.Call{})
	early := time.Now().UTC().Format(time.RFC3339Nano)
	if err := rig.Stop(); err != nil { // which signs all there is
		t.Fatal(err)
	}
	if err := rig.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	rig.Call(t, brokertest.Call{})
	r := &reviewer{rig, t, t.TempDir(), time.Now().UTC().Format(time.RFC3339Nano), early}
	if err := os.WriteFile(filepath.Join(r.dir, "bearer"), []byte(rig.AuditorBearer()), 0o600); err != nil {
		t.Fatal(err)
	}
	return r
}

// broker runs the program.
func (r *reviewer) broker(args ...string) (status int, said string) {
	var out bytes.Buffer
	status = run(r.t.Context(), args, world{func(string) string { return "" }, &out, &out, nil})
	return status, out.String()
}

// report makes a bundle and returns its bytes.
func (r *reviewer) report(name string, more ...string) []byte {
	r.t.Helper()
	path := filepath.Join(r.dir, name)
	status, said := r.broker(append([]string{"grants", "report", "--out", path, "--until", r.until}, more...)...)
	if status != 0 {
		r.t.Fatalf("%d %s", status, said)
	}
	made, err := os.ReadFile(path)
	if err != nil || !strings.Contains(said, fmt.Sprintf("%x", sha256.Sum256(made))) {
		r.t.Fatalf("%v; its digest is not in %q", err, said)
	}
	return made
}

func (r *reviewer) live() []string {
	return []string{"--api", r.URL, "--bearer-file", filepath.Join(r.dir, "bearer")}
}

// unpacked is the bundle in a new folder, with change having its hands on it.
func (r *reviewer) unpacked(bundle []byte, change func(dir string)) (dir string) {
	r.t.Helper()
	archive, err := zip.NewReader(bytes.NewReader(bundle), int64(len(bundle)))
	if err != nil {
		r.t.Fatal(err)
	}
	dir = r.t.TempDir()
	for _, f := range archive.File {
		in, err := f.Open()
		if err != nil {
			r.t.Fatal(err)
		}
		text, err := io.ReadAll(in)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, f.Name), text, 0o600)
		}
		if err != nil || !f.Modified.Equal(zipTime) {
			r.t.Fatal(err, f.Modified)
		}
	}
	if change != nil {
		change(dir)
	}
	return dir
}

var shBlock = regexp.MustCompile("(?s)```sh\n(.*?)```")

// follow does what the bundle's own page says: its blocks, word by word.
func (r *reviewer) follow(dir string) error {
	r.t.Helper()
	page, err := os.ReadFile(filepath.Join(dir, "VERIFY.md"))
	blocks := shBlock.FindAllSubmatch(page, -1)
	if err != nil || len(blocks) != 3 {
		r.t.Fatalf("%v, %d blocks", err, len(blocks))
	}
	for _, block := range blocks {
		sh := exec.CommandContext(r.t.Context(), "sh", "-euc", string(block[1]))
		sh.Dir, sh.Env = dir, append(os.Environ(), "KEY="+r.AuditKey)
		if said, err := sh.CombinedOutput(); err != nil {
			return fmt.Errorf("%s%w", said, err)
		}
	}
	return nil
}

// replaced is a change of a file; forged is one whose digest was replaced, too.
func replaced(t *testing.T, name, old, fresh string) func(dir string) {
	return func(dir string) {
		path := filepath.Join(dir, name)
		text, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(text), old) {
			t.Fatalf("%s has no %q, %v", name, old, err)
		}
		if err := os.WriteFile(path, []byte(strings.Replace(string(text), old, fresh, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func forged(t *testing.T, name, old, fresh string) func(dir string) {
	return func(dir string) {
		digest := func() string {
			text, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			return fmt.Sprintf("%x", sha256.Sum256(text))
		}
		before := digest()
		replaced(t, name, old, fresh)(dir)
		replaced(t, "SHA256SUMS", before, digest())(dir)
	}
}

// TestReport: what is made twice is the same to the byte, its own page says how to verify
// it, and by that each change of a file is found.
func TestReport(t *testing.T) {
	r := newReviewer(t)
	signed := append(r.live(), "--key", r.AuditKey)
	bundle := r.report("a.zip", signed...)
	if again := r.report("b.zip", signed...); !bytes.Equal(bundle, again) {
		t.Error("the same until the same time is not the same")
	}
	if err := r.follow(r.unpacked(bundle, nil)); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(string){
		"a grant":                  replaced(t, "grants.csv", "user:7", "user:8"),
		"a grant in JSON":          replaced(t, "grants.json", "user:7", "user:8"),
		"a record":                 replaced(t, "audit.jsonl", "user:7", "user:8"),
		"a head":                   replaced(t, "heads", "onbehalf", "onbehalx"),
		"the manifest":             replaced(t, "manifest.json", `"verified": true`, `"verified": TRUE`),
		"the page":                 replaced(t, "VERIFY.md", "None of them", "None of those"),
		"a record and its digest":  forged(t, "audit.jsonl", "user:7", "user:8"),
		"no start, and its digest": forged(t, "audit.jsonl", `{"seq":1,`, `{"seq":2,`),
		"a head and its digest":    forged(t, "heads", "onbehalf", "onbehalx"),
	} {
		if err := r.follow(r.unpacked(bundle, change)); err == nil {
			t.Errorf("%s was changed, and nothing said so", name)
		}
	}
}

// TestReportOfFiles: from files it is the same each time, also without heads.
func TestReportOfFiles(t *testing.T) {
	r := newReviewer(t)
	export := filepath.Join(r.dir, "export.jsonl")
	status, lines := r.broker(append([]string{"audit", "export"}, r.live()...)...)
	if err := os.WriteFile(export, []byte(lines), 0o600); err != nil || status != 0 {
		t.Fatal(err, lines)
	}
	files := []string{"--config", r.ConfigPath, "--audit", export}
	bundle := r.report("a.zip", files...)
	if again := r.report("b.zip", files...); !bytes.Equal(bundle, again) {
		t.Error("the same until the same time is not the same")
	}
	if err := r.follow(r.unpacked(bundle, nil)); err != nil {
		t.Fatal(err)
	}
	withHeads := r.report("c.zip", append(files, "--heads", r.HeadsPath(), "--key", r.AuditKey)...)
	if err := r.follow(r.unpacked(withHeads, nil)); err != nil {
		t.Fatal(err)
	}
	r.until = r.early
	before := r.unpacked(r.report("e.zip", append(files, "--heads", r.HeadsPath(), "--key", r.AuditKey)...), nil)
	if _, err := os.Stat(filepath.Join(before, "heads")); err == nil {
		t.Error("there are heads of records that are not there")
	}
	if err := r.follow(before); err != nil {
		t.Error(err)
	}
	r.refused(export, lines)
}

// refused: what is not whole is not made into evidence, and nothing is replaced.
func (r *reviewer) refused(export, lines string) {
	out := filepath.Join(r.dir, "d.zip")
	made := func(until string, more ...string) (int, string) {
		r.t.Helper()
		status, said := r.broker(append([]string{"grants", "report", "--out", out, "--config", r.ConfigPath, "--audit", export, "--until", until}, more...)...)
		if _, err := os.Stat(out); err == nil {
			r.t.Errorf("%v: there is a bundle", more)
		}
		return status, said
	}
	signed := []string{"--heads", r.HeadsPath(), "--key", r.AuditKey}
	if status, said := made("2020-01-01"); status != 2 || !strings.Contains(said, "no record before it") {
		r.t.Error(status, said)
	}
	for what, text := range map[string]string{"tampered": strings.Replace(lines, "user:7", "user:8", 1), "cut": lines[:strings.Index(lines, "\n")+1]} {
		if err := os.WriteFile(export, []byte(text), 0o600); err != nil {
			r.t.Fatal(err)
		}
		if status, said := made(r.until, signed...); status != 1 || !strings.HasPrefix(said, "not whole: ") {
			r.t.Error(what, status, said)
		}
	}
	if status, said := r.broker("grants", "report", "--out", filepath.Join(r.dir, "a.zip"), "--api", r.URL, "--bearer-file", filepath.Join(r.dir, "bearer")); status != 2 || !strings.Contains(said, "there already") {
		r.t.Error(status, said)
	}
	for _, more := range [][]string{{"--until", "noon"}, {"--heads", export}, {"--key", "x"}, {"--bearer-file", r.ConfigPath}} {
		if status, said := r.broker(append([]string{"grants", "report", "--out", out, "--api", r.URL, "--bearer-file", filepath.Join(r.dir, "bearer")}, more...)...); status != 2 {
			r.t.Error(more, status, said)
		}
	}
}
