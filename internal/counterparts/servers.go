package counterparts

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// An MCP is a running MCP server and calls of its own tools. It wants no token
// and looks at none.
type MCP struct {
	URL  string
	Echo ToolCall // works
	Fail ToolCall // its tool runs and fails
	Slow ToolCall // takes seconds; the zero ToolCall where no tool does
}

// A ToolCall is one call of a tool.
type ToolCall struct {
	Tool      string
	Arguments map[string]any
}

// Everything is the conformance server of the official Go SDK. It answers in
// both eras if it is stateless, else in the one with a handshake alone.
func Everything(t testing.TB, stateless bool) *MCP {
	t.Helper()
	path := cached(t, "bin/gosdk-everything-1.8.0", "test/gosdk/build.sh")
	url := serve(t, func(port int) program {
		return program{path: path, args: []string{fmt.Sprintf("-http=127.0.0.1:%d", port), fmt.Sprintf("-stateless=%t", stateless)}}
	})
	return &MCP{
		URL:  url,
		Echo: ToolCall{"test_simple_text", nil},
		Fail: ToolCall{"test_error_handling", nil},
	}
}

// ServerEverything is the everything-server on the TypeScript SDK. It knows
// nothing but the handshake. It gives its environment to anybody who asks, and
// is therefore kept on loopback, which it has no option for.
func ServerEverything(t testing.TB) *MCP {
	t.Helper()
	modules := cached(t, "server-everything-2026.8.31/node_modules", "test/npm/install.sh")
	node, err := exec.LookPath("node")
	if err != nil {
		t.Fatal(err)
	}
	main := filepath.Join(modules, "@modelcontextprotocol", "server-everything", "dist", "index.js")
	loopback := source(t, "test/npm/loopback.mjs")
	url := serve(t, func(port int) program {
		return program{path: node, args: []string{"--import", loopback, main, "streamableHttp"}, env: []string{fmt.Sprintf("PORT=%d", port)}}
	})
	return &MCP{
		URL:  url,
		Echo: ToolCall{"echo", map[string]any{"message": "hello"}},
		Fail: ToolCall{"get-resource-reference", map[string]any{"resourceType": "Text", "resourceId": -1}},
		Slow: ToolCall{"trigger-long-running-operation", map[string]any{"duration": 30, "steps": 1}},
	}
}

// PythonMCP is a server on the official Python SDK.
func PythonMCP(t testing.TB) *MCP {
	t.Helper()
	return python(t, "test/python/mcp_server.py")
}

// FastMCP is a server on FastMCP, which brings an HTTP application of its own.
func FastMCP(t testing.TB) *MCP {
	t.Helper()
	return python(t, "test/python/fastmcp_server.py")
}

func python(t testing.TB, script string) *MCP {
	t.Helper()
	path := cached(t, "python-mcp-2.3.0-fastmcp-4.2.3/bin/python", "test/python/install.sh")
	script = source(t, script)
	url := serve(t, func(port int) program {
		return program{path: path, args: []string{"-I", script, fmt.Sprint(port)}}
	})
	return &MCP{
		URL:  url,
		Echo: ToolCall{"add", map[string]any{"a": 2, "b": 3}},
		Fail: ToolCall{"fail", nil},
		Slow: ToolCall{"slow", map[string]any{"seconds": 30}},
	}
}

// serve runs the server that on returns for a port, and returns its URL. A GET
// without a session is refused by each of them, and that it is refused shows
// that it serves.
func serve(t testing.TB, on func(port int) program) string {
	t.Helper()
	url := func(port int) string { return fmt.Sprintf("http://127.0.0.1:%d/mcp", port) }
	return url(start(t, func(_ string, port int) program {
		p := on(port)
		p.ready = url(port)
		return p
	}))
}

// source is the path of a file of this repository, looked for from the tested
// package's folder upwards.
func source(t testing.TB, name string) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if _, err := os.Stat(path); err == nil {
			return path
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Fatalf("there is no %s above the tested package", name)
		}
		dir = up
	}
}
