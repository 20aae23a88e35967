package counterparts

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"
)

// A Visit is what a client on somebody else's library does: it lists the tools of an MCP
// server and calls whoami.
type Visit struct {
	URL   string
	Mode  string // legacy, auto or a version
	Token string // its bearer, where it does not sign in
	Key   string // onbehalf/request_key in _meta

	SignIn *SignIn // how it comes to a token by itself
}

// A SignIn is what a client brings for it: how it is known, and what it has kept of an earlier one.
type SignIn struct {
	ClientID string          `json:"client_id,omitempty"` // it was registered before; with neither it registers itself
	Document string          `json:"document,omitempty"`  // the address of a document that it is
	Tokens   json.RawMessage `json:"tokens,omitempty"`    // an answer of the token endpoint

	// Browser is opened for the person. It returns where it is sent back to, where the client listens.
	Browser func(ctx context.Context, to string) (back *url.URL, err error) `json:"-"`
}

// A Seen is what it saw.
type Seen struct {
	Version string
	Tools   []string
	Text    string
	IsError bool
	Meta    map[string]any
}

// PythonClient is a client on the official Python SDK, of both eras.
func PythonClient(t testing.TB, v Visit) Seen {
	t.Helper()
	python := cached(t, "python-mcp-2.3.0-fastmcp-4.2.3/bin/python", "test/python/install.sh")
	return v.run(t, python, "-I", source(t, "test/mcpclients/client.py"), v.URL, v.Mode)
}

// TypeScriptClient is a client on one of the official TypeScript libraries: "client", of both
// eras, or "sdk", by handshake alone.
func TypeScriptClient(t testing.TB, library string, v Visit) Seen {
	t.Helper()
	modules := cached(t, "mcpclients-2.4.0", "test/mcpclients/install.sh")
	return v.run(t, node22(t), source(t, "test/mcpclients/client.mjs"), modules, library, v.URL, v.Mode)
}

func node22(t testing.TB) string { return cached(t, "node-22.23.3/bin/node", "test/node22/install.sh") }

// run runs a client to its end. The token goes by its environment: arguments are seen by
// everyone on the machine.
func (v Visit) run(t testing.TB, program string, args ...string) (seen Seen) {
	t.Helper()
	known, err := json.Marshal(v.SignIn)
	if err != nil {
		t.Fatal(err)
	}
	out := v.output(t, []string{"TOKEN=" + v.Token, "KEY=" + v.Key, "SIGN_IN=" + string(known)}, program, args...)
	if err := json.Unmarshal(out, &seen); err != nil {
		t.Fatalf("%s: %v in\n%s", filepath.Base(program), err, out)
	}
	return seen
}

// output is what a program prints, which has to end well.
func (v Visit) output(t testing.TB, env []string, program string, args ...string) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = t.TempDir()
	cmd.Env = append([]string{"HOME=" + cmd.Dir, "PATH=" + os.Getenv("PATH")}, env...)
	var out bytes.Buffer
	cmd.Stdout = &out
	stderr, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	said := v.listen(ctx, cancel, stderr)
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%s: %v\n%s\n%s", filepath.Base(program), err, out.Bytes(), said)
	}
	return out.Bytes()
}

// asked is the address that a program wants opened.
var asked = regexp.MustCompile(`http://\S+[?&]code_challenge=\S+`)

// listen reads what a program says. Where it wants a browser opened, one is, and goes back to it
// at the end; it would wait for ever for one that cannot, and is ended.
func (v Visit) listen(ctx context.Context, end func(), stderr io.Reader) (said []byte) {
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		said = append(append(said, lines.Bytes()...), '\n')
		to := asked.FindString(lines.Text())
		if to == "" || v.SignIn == nil {
			continue
		}
		back, err := v.SignIn.Browser(ctx, to)
		if err == nil {
			_, _, err = open(ctx, browser(nil), back.String(), nil)
		}
		if err != nil {
			said = fmt.Appendf(said, "the browser: %v\n", err)
			end()
		}
	}
	return said
}

// Inspector is the command line of the MCP Inspector, in legacy, modern or auto: what it prints
// for one method. The token is in a file that it reads, as a person would have it.
func Inspector(t testing.TB, v Visit, arguments ...string) []byte {
	t.Helper()
	main := cached(t, "inspector-2.12.0/node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js", "test/mcpclients/install.sh")
	server := map[string]any{"type": "streamable-http", "url": v.URL}
	if v.SignIn == nil {
		server["headers"] = map[string]string{"Authorization": "Bearer " + v.Token}
	}
	settings, err := json.Marshal(map[string]any{"mcpServers": map[string]any{"broker": server}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "mcp.json")
	if err := os.WriteFile(file, settings, 0o600); err != nil {
		t.Fatal(err)
	}
	arguments = append([]string{main, "--cli", "--config", file, "--server", "broker", "--protocol-era", v.Mode}, arguments...)
	if v.SignIn != nil {
		arguments = append(arguments, "--client-id", v.SignIn.ClientID, "--client-metadata-url", v.SignIn.Document,
			"--callback-url", fmt.Sprintf("http://127.0.0.1:%d/callback", mustFreePort(t)))
	}
	// It signs in only where somebody sees it, or it may open a browser: one that does nothing.
	return v.output(t, []string{"MCP_AUTO_OPEN_ENABLED=true", "BROWSER=true"}, node22(t), arguments...)
}
