package ownfile

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Who may read what besides the broker, and who may write it.
func TestGuards(t *testing.T) {
	type row struct {
		mode                   fs.FileMode
		isOwn                  bool
		ours, agents, anybodys string // what is wrong; "": nothing
	}
	for _, r := range []row{
		{0o600, true, "", "", ""},
		{0o400, true, "", "", ""},
		{0o440, false, "", "", ""}, // a Secret with fsGroup: root's
		{0o640, false, "", "", ""}, // an Agent's sink, of another user
		{0o640, true, "by its group, and holds", "", ""},
		{0o440, true, "by its group, and holds", "", ""},
		{0o644, false, "by everybody, and holds", "by everybody, and holds", ""}, // a projected token without fsGroup
		{0o644, true, "by everybody, and holds", "by everybody, and holds", ""},
		{0o604, true, "by everybody, and holds", "by everybody, and holds", ""},
		{0o660, false, "chmod go-w", "chmod go-w", "chmod go-w"},
		{0o620, true, "chmod go-w", "chmod go-w", "chmod go-w"},
		{0o602, true, "chmod go-w", "chmod go-w", "chmod go-w"},
		{0o600 | fs.ModeDir, true, "not a regular file", "not a regular file", "not a regular file"},
		{0o600 | fs.ModeNamedPipe, true, "not a regular file", "not a regular file", "not a regular file"},
	} {
		for g, want := range map[Guard]string{Ours: r.ours, Agents: r.agents, Anybodys: r.anybodys} {
			if got := g.judge(r.mode, r.isOwn); (got == "") != (want == "") || !strings.Contains(got, want) {
				t.Errorf("guard %d, mode %v, own %v: %q, want %q", g, r.mode, r.isOwn, got, want)
			}
		}
	}
}

// Whose a file is: ours, or not. Root gives one away; for others the root folder is not theirs.
func TestOwn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	is := func(path string) bool {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return own(info)
	}
	if !is(path) {
		t.Error("our own file is taken for another's")
	}
	another := "/"
	if os.Geteuid() == 0 {
		another = path
		if err := os.Chown(path, 4711, -1); err != nil {
			t.Fatal(err)
		}
	}
	if is(another) {
		t.Error("another's file is taken for ours")
	}
}
