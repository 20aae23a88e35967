//go:build real

package counterparts_test

import (
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"onbehalf.internal/broker/internal/counterparts"
	"onbehalf.internal/broker/internal/testhttp"
)

// TestServers says hello to each by handshake, which all of them know, and looks
// whether it listens on one address of loopback alone.
func TestServers(t *testing.T) {
	const hello = `{"jsonrpc":"2.0","id":"a","method":"initialize","params":` +
		`{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`
	for _, r := range []struct {
		start func(testing.TB) *counterparts.MCP
		is    string
	}{
		{func(t testing.TB) *counterparts.MCP { return counterparts.Everything(t, true) }, "mcp-conformance-test-server"},
		{func(t testing.TB) *counterparts.MCP { return counterparts.Everything(t, false) }, "mcp-conformance-test-server"},
		{counterparts.ServerEverything, "mcp-servers/everything"},
		{counterparts.PythonMCP, "mcp"},
		{counterparts.FastMCP, "fastmcp"},
	} {
		m := r.start(t)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, m.URL, strings.NewReader(hello))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		resp, err := testhttp.Client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(body), `"name":"`+r.is+`"`) {
			t.Errorf("%s answers %d, %v: %s", r.is, resp.StatusCode, err, body)
		}

		u, err := url.Parse(m.URL)
		if err != nil {
			t.Fatal(err)
		}
		if conn, err := net.Dial("tcp", "127.0.0.2:"+u.Port()); err == nil {
			conn.Close()
			t.Errorf("%s listens on every interface", r.is)
		}
	}
}
