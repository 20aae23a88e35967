package mcpfacade_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"onbehalf.internal/broker/brokertest"
	"onbehalf.internal/broker/fault"
)

// eras are the versions that clients are told to speak: one of each era.
var eras = []string{"2025-11-25", "2026-07-28"}

// rig is a broker that MCP clients come to, with both servers imported.
func newRig(t testing.TB, o brokertest.Options) *brokertest.Rig {
	t.Helper()
	config := o.Config
	o.Config = func(yaml string) string {
		yaml = brokertest.Fronted(yaml)
		if config != nil {
			yaml = config(yaml)
		}
		return yaml
	}
	r := brokertest.New(t, &o)
	for _, server := range []string{"records", "archive"} {
		if a := r.Admin(t, "POST", "/v1/servers/"+server+"/import", "", nil); a.Status != http.StatusOK {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
	}
	return r
}

func resource(server string) string { return brokertest.Origin + "/mcp/" + server }

// A client is the library's client, as one person at one server.
type client struct {
	*mcp.ClientSession
	t     testing.TB
	token string
	heard chan mcp.ProgressNotificationParams
}

func connect(t testing.TB, r *brokertest.Rig, era, person, server string) *client {
	t.Helper()
	return connectBy(t, r, era, person, server, func(*http.Request) {})
}

// A way changes requests as something between a client and the broker would.
type way struct {
	brokertest.Front
	change func(*http.Request)
}

func (w way) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	w.change(r)
	return w.Front.RoundTrip(r)
}

func connectBy(t testing.TB, r *brokertest.Rig, era, person, server string, change func(*http.Request)) *client {
	t.Helper()
	c := &client{t: t, token: r.Token(person, resource(server), nil), heard: make(chan mcp.ProgressNotificationParams, 16)}
	program := mcp.NewClient(&mcp.Implementation{Name: "desk", Version: "1"}, &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, p *mcp.ProgressNotificationClientRequest) { c.heard <- *p.Params }})
	transport := &mcp.StreamableClientTransport{Endpoint: resource(server), MaxRetries: -1,
		HTTPClient: &http.Client{Transport: way{brokertest.Front{Rig: r, Token: c.token}, change}}}
	var err error
	if c.ClientSession, err = program.Connect(t.Context(), transport, &mcp.ClientSessionOptions{ProtocolVersion: era}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// call makes a call; a key that is not empty goes with it.
func (c *client) call(tool string, arguments any, key string) told {
	c.t.Helper()
	return c.callIn(c.t.Context(), tool, arguments, key)
}

func (c *client) callIn(ctx context.Context, tool string, arguments any, key string) told {
	c.t.Helper()
	p := &mcp.CallToolParams{Name: tool, Arguments: arguments}
	if key != "" {
		p.Meta = mcp.Meta{"onbehalf/request_key": key}
	}
	res, err := c.CallTool(ctx, p)
	if err != nil {
		c.t.Fatalf("%s: %v", tool, err)
	}
	return read(c.t, res)
}

// told is what a client was told of a call.
type told struct {
	*mcp.CallToolResult
	Text    string
	Key, ID string
	Outcome struct {
		State    fault.State
		Ran      fault.Ran
		Evidence fault.Evidence
		Retry    fault.Retry
		Cause    fault.Reason
		Replayed bool
	}
	Refusal struct {
		Kind   fault.Kind
		Reason fault.Reason
		Detail string
	}
}

func read(t testing.TB, res *mcp.CallToolResult) told {
	t.Helper()
	a := told{CallToolResult: res}
	for _, c := range res.Content {
		if text, ok := c.(*mcp.TextContent); ok {
			a.Text += text.Text + "\n"
		}
	}
	a.Key, _ = res.Meta["onbehalf/request_key"].(string)
	a.ID, _ = res.Meta["onbehalf/operation_id"].(string)
	for name, into := range map[string]any{"onbehalf/outcome": &a.Outcome, "onbehalf/refusal": &a.Refusal} {
		raw, err := json.Marshal(res.Meta[name])
		if err == nil {
			err = json.Unmarshal(raw, into)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return a
}

// An answer is one of HTTP.
type answer struct {
	Status int
	Header http.Header
	Body   string
	Reason fault.Reason
}

// send makes a request of HTTP as the façade's clients do; headers add to it and change it.
func send(t testing.TB, r *brokertest.Rig, method, address, token, body string, headers map[string]string) answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Accept", "application/json, text/event-stream")
	for name, value := range headers {
		req.Header.Set(name, value)
	}
	var transport http.RoundTripper = brokertest.Front{Rig: r, Token: token}
	if host, other := headers["Host"]; other {
		transport = elsewhere{host, strings.TrimPrefix(r.URL, "http://"), token}
	}
	res, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	a := answer{Status: res.StatusCode, Header: res.Header, Body: string(text)}
	var problem struct{ Reason fault.Reason }
	if json.Unmarshal(text, &problem) == nil {
		a.Reason = problem.Reason
	}
	return a
}

// elsewhere says another Host than the address that a token is for.
type elsewhere struct{ host, address, token string }

func (e elsewhere) RoundTrip(r *http.Request) (*http.Response, error) {
	r.URL.Scheme, r.URL.Host, r.Host = "http", e.address, e.host
	r.Header.Set("Authorization", "Bearer "+e.token)
	return http.DefaultTransport.RoundTrip(r)
}

const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`
