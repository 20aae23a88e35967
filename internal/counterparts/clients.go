package counterparts

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// A Visit is what a client on somebody else's library does: it lists the tools of an MCP
// server and calls whoami.
type Visit struct {
	URL   string
	Mode  string // legacy, auto or a version
	Token string // its bearer
	Key   string // onbehalf/request_key in _meta
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
	out := output(t, []string{"TOKEN=" + v.Token, "KEY=" + v.Key}, program, args...)
	if err := json.Unmarshal(out, &seen); err != nil {
		t.Fatalf("%s: %v in\n%s", filepath.Base(program), err, out)
	}
	return seen
}

// output is what a program prints, which has to end well.
func output(t testing.TB, env []string, program string, args ...string) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = t.TempDir()
	cmd.Env = append([]string{"HOME=" + cmd.Dir, "PATH=" + os.Getenv("PATH")}, env...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s\n%s", filepath.Base(program), err, out, said.Bytes())
	}
	return out
}

// Inspector is the command line of the MCP Inspector, in legacy, modern or auto: what it prints
// for one method. The token is in a file that it reads, as a person would have it.
func Inspector(t testing.TB, v Visit, arguments ...string) []byte {
	t.Helper()
	main := cached(t, "inspector-2.12.0/node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js", "test/mcpclients/install.sh")
	settings, err := json.Marshal(map[string]any{"mcpServers": map[string]any{"broker": map[string]any{
		"type": "streamable-http", "url": v.URL, "headers": map[string]string{"Authorization": "Bearer " + v.Token}}}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "mcp.json")
	if err := os.WriteFile(file, settings, 0o600); err != nil {
		t.Fatal(err)
	}
	return output(t, nil, node22(t), append([]string{main, "--cli", "--config", file, "--server", "broker", "--protocol-era", v.Mode}, arguments...)...)
}
