package mcpclient_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"onbehalf.internal/broker/mcpclient"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/secret"
)

const token = "canary-7Hq2mZx9LwP4vRt6"

// A script is a small MCP server. It answers each method with the next line of
// its script, the last one for ever, and writes down what it was asked.
type script struct {
	lines map[string][]answer

	mu    sync.Mutex
	asked []question
}

type question struct {
	method, id string
	header     http.Header
	body       string
	shown      string          // the name in the client's certificate; "" without one
	gone       <-chan struct{} // closed when the client has hung up
}

type answer func(w http.ResponseWriter, q question)

func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var m struct {
		ID     json.RawMessage
		Method string
	}
	json.Unmarshal(body, &m)
	if m.Method == "" {
		m.Method = r.Method // an answer to a ping, or the end of a session
	}
	q := question{m.Method, strings.Trim(string(m.ID), `"`), r.Header, string(body), "", r.Context().Done()}
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		q.shown = r.TLS.PeerCertificates[0].Subject.CommonName
	}
	s.mu.Lock()
	s.asked = append(s.asked, q)
	lines := s.lines[q.method]
	if len(lines) > 1 {
		s.lines[q.method] = lines[1:]
	}
	s.mu.Unlock()
	if len(lines) == 0 {
		http.Error(w, "nothing in the script", http.StatusTeapot)
		return
	}
	lines[0](w, q)
}

// methods returns what was asked, in order.
func (s *script) methods() (all []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.asked {
		all = append(all, q.method)
	}
	return all
}

func (s *script) count(method string) (n int) {
	for _, m := range s.methods() {
		if m == method {
			n++
		}
	}
	return n
}

// modern and legacy are servers that do what the revisions say, with one tool.
func modern(call ...answer) *script {
	return &script{lines: map[string][]answer{
		"server/discover": {result(`{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{}}`)},
		"tools/list":      {result(`{"resultType":"complete","tools":[{"name":"search","inputSchema":{"type":"object"}}]}`)},
		"tools/call":      call,
	}}
}

func legacy(call ...answer) *script {
	return &script{lines: map[string][]answer{
		"server/discover":           {status(400, `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad Request: Server not initialized"}}`)},
		"initialize":                {withSession("s-1", result(`{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"x","version":"1"}}`))},
		"notifications/initialized": {status(202, "")},
		"tools/list":                {result(`{"tools":[{"name":"search","inputSchema":{"type":"object"}}]}`)},
		"tools/call":                call,
	}}
}

const good = `{"content":[{"type":"text","text":"ok"}]}`

// raw answers with status 200 and body, in which $ID is the id of the question.
func raw(kind, body string) answer {
	return func(w http.ResponseWriter, q question) {
		w.Header().Set("Content-Type", kind)
		io.WriteString(w, strings.ReplaceAll(body, "$ID", q.id))
	}
}

func result(r string) answer {
	return raw("application/json", `{"jsonrpc":"2.0","id":"$ID","result":`+r+`}`)
}

func rpcError(e string) answer {
	return raw("application/json", `{"jsonrpc":"2.0","id":"$ID","error":`+e+`}`)
}

// stream sends every message as an event.
func stream(messages ...string) answer {
	return raw("text/event-stream", "data: "+strings.Join(messages, "\n\ndata: ")+"\n\n")
}

func status(code int, body string) answer {
	return func(w http.ResponseWriter, q question) {
		if body != "" {
			w.Header().Set("Content-Type", "application/json")
		}
		w.WriteHeader(code)
		io.WriteString(w, body)
	}
}

// statusCode answers with an error code in the body.
func statusCode(code, rpc int) answer {
	return status(code, fmt.Sprintf(`{"jsonrpc":"2.0","id":null,"error":{"code":%d,"message":"no"}}`, rpc))
}

func withHeader(name, value string, a answer) answer {
	return func(w http.ResponseWriter, q question) {
		w.Header().Set(name, value)
		a(w, q)
	}
}

func withSession(id string, a answer) answer { return withHeader("Mcp-Session-Id", id, a) }

// cut sends the first bytes of an answer and drops the connection.
func cut(first string) answer {
	return func(w http.ResponseWriter, q question) {
		conn, _, _ := w.(http.Hijacker).Hijack()
		io.WriteString(conn, strings.ReplaceAll(first, "$ID", q.id))
		conn.Close()
	}
}

// hang sends a first piece and then nothing, until the client has hung up.
func hang(a answer) answer {
	return func(w http.ResponseWriter, q question) {
		a(w, q)
		w.(http.Flusher).Flush()
		<-q.gone
	}
}

// after answers when d has gone by.
func after(d time.Duration, a answer) answer {
	return func(w http.ResponseWriter, q question) {
		select {
		case <-time.After(d):
			a(w, q)
		case <-q.gone:
		}
	}
}

// server declares s as an operator would, listening on loopback.
func (s *script) server(t testing.TB, era policy.Era) *policy.Server {
	t.Helper()
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	return declare(t, h.URL+"/mcp", era)
}

func declare(t testing.TB, address string, era policy.Era) *policy.Server {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return &policy.Server{ID: "records", URL: u, Era: era, AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
}

// open is a gate at which everything is well.
func open() mcpclient.Gate {
	return mcpclient.Gate{
		Credential: func(context.Context, string) (mcpclient.Credential, error) {
			return mcpclient.Credential{Header: "Authorization", Value: secret.New(token), ReadAt: time.Now()}, nil
		},
		Sending: func(context.Context) error { return nil },
	}
}

// within returns a context with the deadline of an operation.
func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

var search = mcpclient.Call{Tool: "search", Arguments: []byte(`{"q":"a"}`)}

// call opens a conversation with s, calls the tool and closes.
func call(t testing.TB, c *mcpclient.Client, s *policy.Server, g mcpclient.Gate) mcpclient.Report {
	t.Helper()
	talk := c.Open(s)
	defer talk.Close()
	return talk.CallTool(within(t, time.Minute), search, g)
}
