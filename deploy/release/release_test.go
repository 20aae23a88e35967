// Package release makes a release twice, in two folders and from two build
// caches, and looks at what came out.
package release

import (
	"bytes"
	"debug/buildinfo"
	"debug/elf"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const arch = "amd64" // one of the two: each costs a build from an empty cache

// sources puts what git knows, or would add, into dir.
func sources(t *testing.T, dir string) {
	t.Helper()
	list, err := exec.Command("git", "-C", "../..", "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		t.Fatal(err)
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(list), "\x00"), "\x00") {
		raw, err := os.ReadFile(filepath.Join("../..", name))
		if os.IsNotExist(err) {
			continue // removed, and not yet committed
		}
		to := filepath.Join(dir, name)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(to), 0o755)
		}
		if err == nil {
			err = os.WriteFile(to, raw, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// release makes one in a copy of the tree below dir and returns its folder.
func release(t *testing.T, dir string, env ...string) string {
	t.Helper()
	sources(t, dir)
	cmd := exec.Command("sh", "deploy/release/release.sh", arch)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return filepath.Join(dir, "dist")
}

// TestRelease: two folders give the same bytes, and the sums are theirs.
func TestRelease(t *testing.T) {
	here := release(t, filepath.Join(t.TempDir(), "here"))
	// Whatever the second machine has in its environment and in its cache.
	there := release(t, filepath.Join(t.TempDir(), "another", "place"), "GOCACHE="+t.TempDir(), "GOFLAGS=-tags=crash", "GOAMD64=v3", "CGO_ENABLED=1", "TZ=Asia/Tokyo", "LC_ALL=C")
	list, err := os.ReadDir(here)
	if err != nil || len(list) != 4 {
		t.Fatalf("%d files, %v", len(list), err)
	}
	for _, f := range list {
		a, err := os.ReadFile(filepath.Join(here, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(filepath.Join(there, f.Name())); err != nil || !bytes.Equal(a, b) {
			t.Errorf("%s differs in another folder: %d bytes, %d bytes, %v", f.Name(), len(a), len(b), err)
		}
		if bytes.Contains(a, []byte(filepath.Dir(here))) {
			t.Errorf("%s names the folder that it was made in", f.Name())
		}
	}
	sums := exec.Command("sha256sum", "-c", "--strict", "SHA256SUMS")
	sums.Dir = here
	if out, err := sums.CombinedOutput(); err != nil || bytes.Count(out, []byte(": OK\n")) != 3 {
		t.Errorf("%v\n%s", err, out)
	}
	program, err := filepath.Glob(filepath.Join(here, "broker-*-linux-"+arch))
	if err != nil || len(program) != 1 {
		t.Fatal(program, err)
	}
	static(t, program[0])
	components(t, program[0]+".cdx.json")
	licenses(t, program[0], strings.TrimSuffix(program[0], "-linux-"+arch)+"-licenses.txt")
}

// licenses: the licence of each module that is linked goes with the program.
func licenses(t *testing.T, program, file string) {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range info.Deps {
		if !bytes.Contains(text, []byte("\n==== "+m.Path+" "+m.Version+", LIC")) {
			t.Errorf("the licence of %s %s is missing", m.Path, m.Version)
		}
	}
	if !bytes.Contains(text, []byte("\n==== this program\n\n"+strings.Repeat(" ", 33)+"Apache License\n")) {
		t.Error("our own licence is missing")
	}
}

// static: the program needs no other file, was built by the Go that has no open
// findings, and says its version.
func static(t *testing.T, program string) {
	f, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			t.Errorf("it has a %v: it is not static", p.Type)
		}
	}
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	docker, err := os.ReadFile("../docker/Dockerfile")
	if err != nil || !bytes.Contains(docker, []byte("\nARG GO="+strings.TrimPrefix(info.GoVersion, "go")+"\n")) {
		t.Errorf("built by %s, and the image is not, %v", info.GoVersion, err)
	}
	for _, s := range info.Settings {
		if strings.HasPrefix(s.Key, "vcs") || s.Key == "CGO_ENABLED" && s.Value != "0" || s.Key == "-tags" {
			t.Errorf("built with %s=%s", s.Key, s.Value)
		}
	}
	out, err := exec.Command(program, "version").Output()
	if want := "broker-" + strings.TrimPrefix(strings.TrimSpace(string(out)), "broker ") + "-linux-" + arch; err != nil || filepath.Base(program) != want {
		t.Errorf("%s says %q, %v", filepath.Base(program), out, err)
	}
}

// fitting are the licences of modules that a program under Apache-2.0 may link;
// BSD-Source-Code is what the BSD text of golang.org/x is taken for.
var fitting = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSD-Source-Code", "ISC", "MIT", "MPL-2.0"}

// beside are licences that a person has read about: of what stands in the module, and
// is not linked.
var beside = map[string]string{
	"github.com/modelcontextprotocol/go-sdk": "CC-BY-4.0", // of its documentation; its code is under Apache-2.0, and some of it MIT
}

// components: the list names each module that is linked, with its version and
// its licence, and holds nothing that differs from one time to the next.
func components(t *testing.T, file string) {
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var bom struct {
		BOMFormat  string
		Components []struct {
			Name, Version string
			Evidence      struct {
				Licenses []struct{ License struct{ ID string } }
			}
		}
	}
	if err := json.Unmarshal(raw, &bom); err != nil {
		t.Fatal(err)
	}
	if times := regexp.MustCompile(`"(serialNumber|timestamp)"`).FindAllString(string(raw), -1); times != nil || bom.BOMFormat != "CycloneDX" {
		t.Errorf("format %q, holds %q", bom.BOMFormat, times)
	}
	info, err := buildinfo.ReadFile(strings.TrimSuffix(file, ".cdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]string{}
	for _, c := range bom.Components {
		listed[c.Name] = c.Version
		if c.Name == "std" {
			continue // whose licence the program that makes the list does not look for
		}
		if len(c.Evidence.Licenses) == 0 {
			t.Errorf("%s %s: no licence was found", c.Name, c.Version)
		}
		for _, l := range c.Evidence.Licenses {
			if !slices.Contains(fitting, l.License.ID) && beside[c.Name] != l.License.ID {
				t.Errorf("%s %s is under %q: may it be linked into a program under Apache-2.0?", c.Name, c.Version, l.License.ID)
			}
		}
	}
	for _, m := range info.Deps {
		if listed[m.Path] != m.Version {
			t.Errorf("%s %s is linked, and listed as %q", m.Path, m.Version, listed[m.Path])
		}
	}
	if want := len(info.Deps) + 1; len(listed) != want {
		t.Errorf("%d components, want %d: the modules and the standard library", len(listed), want)
	}
}
