// Package check reads the Dockerfile and the compose file as the tools read
// them that run them, and looks at what is promised: who runs, what is in the
// image, what can be written, where no secret is. It builds and starts nothing.
package check

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/linter"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
)

const nonroot = "65532:65532"

// stages reads the Dockerfile; what its linter would say is a failure.
func stages(t *testing.T) map[string]instructions.Stage {
	t.Helper()
	f, err := os.Open("../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	file, err := parser.Parse(f)
	if err != nil {
		t.Fatal(err)
	}
	lint := linter.New(&linter.Config{Warn: func(rule, _, _, message string, _ []parser.Range) {
		t.Errorf("%s: %s", rule, message)
	}})
	list, _, err := instructions.Parse(file.AST, lint)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range file.Warnings {
		t.Error(w.Short)
	}
	byName := map[string]instructions.Stage{}
	for _, s := range list {
		byName[s.Name] = s
	}
	if last := list[len(list)-1].Name; last != "broker" {
		t.Errorf("without --target the image is %q", last)
	}
	return byName
}

// of returns the commands of one kind, in their order.
func of[C instructions.Command](s instructions.Stage) (list []C) {
	for _, c := range s.Commands {
		if c, ok := c.(C); ok {
			list = append(list, c)
		}
	}
	return list
}

// TestImages: a static, shell-less base; a user that is not root; our programs
// and one folder, and nothing else.
func TestImages(t *testing.T) {
	all := stages(t)
	for name, want := range map[string]struct{ entry, cmd, copied string }{
		"broker": {"/broker", "serve --config /etc/broker/profiles.yaml", "/out/broker /out/licenses.txt > /, /out/state > /var/lib/broker"},
		"demo":   {"/demo", "", "/out/broker /out/demo /out/licenses.txt > /"},
	} {
		s := all[name]
		if s.BaseName != "gcr.io/distroless/static-debian12:nonroot" {
			t.Errorf("%s stands on %q", name, s.BaseName)
		}
		users := of[*instructions.UserCommand](s)
		if len(users) != 1 || users[0].User != nonroot {
			t.Errorf("%s: users %v", name, users)
		}
		entry := of[*instructions.EntrypointCommand](s)
		if len(entry) != 1 || entry[0].PrependShell || strings.Join(entry[0].CmdLine, " ") != want.entry {
			t.Errorf("%s: entry points %v", name, entry)
		}
		var cmd []string
		for _, c := range of[*instructions.CmdCommand](s) {
			cmd = append(cmd, c.CmdLine...)
		}
		if strings.Join(cmd, " ") != want.cmd {
			t.Errorf("%s: arguments %q", name, cmd)
		}
		var copied []string
		for _, c := range of[*instructions.CopyCommand](s) {
			copied = append(copied, strings.Join(c.SourcePaths, " ")+" > "+c.DestPath)
			if c.From != "build" {
				t.Errorf("%s: %v comes from %q", name, c.SourcePaths, c.From)
			}
		}
		if strings.Join(copied, ", ") != want.copied {
			t.Errorf("%s: holds %q", name, copied)
		}
		if n := len(of[*instructions.RunCommand](s)) + len(of[*instructions.EnvCommand](s)) + len(of[*instructions.AddCommand](s)) + len(of[*instructions.ExposeCommand](s)); n != 0 {
			t.Errorf("%s: %d commands that do not belong into an image without a shell", name, n)
		}
	}
}

// TestState: the folder of the database belongs to the user, and to nobody
// else.
func TestState(t *testing.T) {
	for _, c := range of[*instructions.CopyCommand](stages(t)["broker"]) {
		if c.DestPath == "/var/lib/broker" && (c.Chown != nonroot || c.Chmod != "0700") {
			t.Errorf("the state's folder: owner %q, mode %q", c.Chown, c.Chmod)
		}
	}
}

// TestBuild: static, stripped, and the same bytes from the same tree.
func TestBuild(t *testing.T) {
	s := stages(t)["build"]
	env := of[*instructions.EnvCommand](s)
	if len(env) != 1 || len(env[0].Env) != 1 || env[0].Env[0].String() != "CGO_ENABLED=0" {
		t.Errorf("environment %v", env)
	}
	runs := of[*instructions.RunCommand](s)
	line := strings.Join(runs[len(runs)-1].CmdLine, " ")
	for _, want := range []string{"-trimpath", "-buildvcs=false", `-ldflags="-s -w -buildid="`, "./cmd/broker ./cmd/demo &&", "sh deploy/release/licenses.sh ./cmd/broker ./cmd/demo >/out/licenses.txt"} {
		if !strings.Contains(line, want) {
			t.Errorf("%q is not in %q", want, line)
		}
	}
	args := of[*instructions.ArgCommand](s)
	if slices.ContainsFunc(args, func(a *instructions.ArgCommand) bool { return len(a.Args) > 0 }) {
		t.Error("a build argument stays in the history of the image")
	}
}
