package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// A server answers like those of the suite, in both eras, and writes down what
// it was asked.
type server struct {
	tools   string            // the list
	results map[string]string // by tool; the rest end well
	locked  bool              // 401 to everything
	token   string            // 401 to whoever comes without it; empty: nobody needs one
	session string            // of a handshake

	asked []string
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		s.asked = append(s.asked, r.Method+" "+r.Header.Get("Mcp-Session-Id"))
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	body, _ := io.ReadAll(r.Body)
	var m struct {
		ID, Method string
		Params     struct {
			Name            string
			Arguments       json.RawMessage
			ProtocolVersion string
		}
	}
	json.Unmarshal(body, &m)
	s.asked = append(s.asked, strings.TrimSpace(fmt.Sprintf("%s %s %s%s", m.Method, m.Params.Name, m.Params.Arguments, m.Params.ProtocolVersion)))
	result := `{"content":[]}`
	switch {
	case s.locked, s.token != "" && r.Header.Get("Authorization") != "Bearer "+s.token:
		w.WriteHeader(http.StatusUnauthorized)
		return
	case m.ID == "":
		w.WriteHeader(http.StatusAccepted)
		return
	case m.Method == "initialize":
		w.Header().Set("Mcp-Session-Id", s.session)
		result = fmt.Sprintf(`{"protocolVersion":%q,"capabilities":{},"serverInfo":{"name":"x","version":"1"}}`, m.Params.ProtocolVersion)
	case m.Method == "tools/list":
		result = `{"tools":[` + s.tools + `]}`
	case s.results[m.Params.Name] != "":
		result = s.results[m.Params.Name]
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%q,"result":%s}`, m.ID, result)
}

func tool(name string) string {
	return fmt.Sprintf(`{"name":%q,"inputSchema":{"type":"object"}}`, name)
}

const (
	modern       = "2026-07-28"
	focal        = `{"name":"json_schema_2020_12_tool","inputSchema":{"$schema":"x", "n":1.50}}`
	asks         = `{"resultType":"input_required","requestState":"s"}`
	listAlone    = "tools/list"
	handshakeOld = "initialize  2025-06-18"
	handshake    = "initialize  2025-11-25"
	initialized  = "notifications/initialized"
)

func TestRun(t *testing.T) {
	for _, tc := range []struct {
		name                       string
		server                     server
		version, scenario, context string
		asked                      []string
		ended                      string // "" is as it should
	}{
		{name: "every listed tool, in order", version: modern, server: server{tools: tool("b") + "," + tool("add_numbers")},
			asked: []string{listAlone, "tools/call b {}", `tools/call add_numbers {"a":5,"b":3}`}},
		{name: "no tool", version: modern, asked: []string{listAlone}},
		{name: "the calls of the context alone", version: modern, server: server{tools: tool("a")}, context: `{"toolCalls":[{"name":"c","arguments":{"x":1.0}}]}`,
			asked: []string{listAlone, `tools/call c {"x":1.0}`}},
		{name: "a context without calls", version: modern, server: server{tools: tool("a")}, context: `{"client_id":"x"}`,
			asked: []string{listAlone, "tools/call a {}"}},
		{name: "the schema goes back as it came", version: modern, server: server{tools: focal + "," + tool("json_schema_echo")},
			asked: []string{listAlone, "tools/call json_schema_2020_12_tool {}", `tools/call json_schema_echo {"schema":{"$schema":"x","n":1.50}}`}},
		{name: "by handshake if nothing is said", asked: []string{handshake, initialized, listAlone}},
		{name: "in the version that is said", version: "2025-06-18", asked: []string{handshakeOld, initialized, listAlone}},
		{name: "a session that it leaves, heard or not", server: server{session: "s-1"}, asked: []string{handshake, initialized, listAlone, "DELETE s-1"}},
		{name: "guarded", version: modern, scenario: "auth/x", server: server{locked: true}, asked: []string{listAlone}},
		{name: "an ending that is no success and should not be", version: modern, server: server{tools: tool("test_mrtr_no_state"), results: map[string]string{"test_mrtr_no_state": asks}},
			asked: []string{listAlone, "tools/call test_mrtr_no_state {}"}},

		{name: "a tool fails", version: modern, server: server{tools: tool("a") + "," + tool("b"), results: map[string]string{"a": `{"content":[],"isError":true}`}},
			asked: []string{listAlone, "tools/call a {}"}, ended: `tools/call "a" ended tool_error with cause "tool_failed", want ""`},
		{name: "a success that should be none", version: modern, server: server{tools: tool("test_mrtr_no_state")},
			asked: []string{listAlone, "tools/call test_mrtr_no_state {}"}, ended: `tools/call "test_mrtr_no_state" ended succeeded with cause "", want "unsupported_continuation"`},
		{name: "guarded and open all the same", version: modern, scenario: "auth/x", server: server{tools: tool("a")},
			asked: []string{listAlone}, ended: `tools/list ended succeeded with cause "", want "unauthorized"`},
		{name: "locked and not guarded", version: modern, scenario: "tools_call", server: server{locked: true},
			asked: []string{listAlone}, ended: `tools/list ended not_sent with cause "unauthorized", want ""`},
		{name: "a tool without a schema", version: modern, server: server{tools: `{"name":"a"}`},
			asked: []string{listAlone}, ended: "a listed tool has no name or no input schema"},
		{name: "a context that is none", version: modern, context: `{"toolCalls":`,
			asked: []string{listAlone}, ended: "MCP_CONFORMANCE_CONTEXT is not what the suite says it is"},
		{name: "a version that nobody speaks", version: "1999-01-01", ended: `tools/list ended not_sent with cause "version_unsupported", want ""`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := httptest.NewServer(&tc.server)
			defer h.Close()
			env := map[string]string{
				"MCP_CONFORMANCE_PROTOCOL_VERSION": tc.version, "MCP_CONFORMANCE_SCENARIO": tc.scenario, "MCP_CONFORMANCE_CONTEXT": tc.context,
			}
			ctx, cancel := context.WithTimeout(t.Context(), budget)
			defer cancel()
			var out bytes.Buffer
			err := run(ctx, []string{h.URL + "/mcp"}, func(name string) string { return env[name] }, &out)
			if (err == nil) != (tc.ended == "") || err != nil && err.Error() != tc.ended {
				t.Errorf("run ended %v, want %q", err, tc.ended)
			}
			if said := strings.HasSuffix(out.String(), "as it should\n"); said != (tc.ended == "") {
				t.Errorf("it said %q", out.String())
			}
			if !slices.Equal(tc.server.asked, tc.asked) {
				t.Errorf("the server was asked %q, want %q", tc.server.asked, tc.asked)
			}
		})
	}
}

func TestUsage(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want string
	}{
		{nil, "usage: driver <server URL>"},
		{[]string{"http://127.0.0.1:1", "more"}, "usage: driver <server URL>"},
		{[]string{"http://[::1"}, "the server URL is not a URL"},
	} {
		if err := run(t.Context(), tc.args, func(string) string { return "" }, io.Discard); err == nil || err.Error() != tc.want {
			t.Errorf("run(%q) = %v, want %q", tc.args, err, tc.want)
		}
	}
}
