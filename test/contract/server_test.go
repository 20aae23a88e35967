package contract

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// A profile is a kind of connection.
type profile struct {
	name      string
	modern    bool   // 2026-07-28; else a handshake first
	session   string // that the server issues; "": none
	delegated bool   // every leg with an exchanged token; else no credential at all
	class     string // that the operator declares
	approval  bool   // likewise; see check.calls
}

var profiles = []profile{
	{name: "stateless", class: "publicContent", approval: true},
	{name: "session", session: "sess-conformance", class: "internalConfiguration"},
	{name: "modern", modern: true, class: "sourceCode", approval: true},
	{name: "delegated", session: "sess-delegated", delegated: true, class: "systemDiagnostics"},
}

// version is the protocol version that the server of a profile chooses.
func (p profile) version() string {
	if p.modern {
		return "2026-07-28"
	}
	return "2025-03-26"
}

// A question is a request as it arrived.
type question struct {
	method string // of JSON-RPC, or of HTTP where there is none
	id     json.RawMessage
	params struct {
		Name      string
		Arguments json.RawMessage
		Cursor    *string
	}
	header http.Header
	body   string
	gone   <-chan struct{} // closed when the client has hung up
}

type answer func(w http.ResponseWriter, q question)

// A server is a small honest MCP server. It asks for its session and its credential,
// takes no other, and echoes the id of every request. What it is asked is written down.
type server struct {
	profile
	URL    string
	accept func(token string) bool // of a delegated server

	mu      sync.Mutex // guards what follows
	asked   []question
	scripts map[string]answer // :: method → what answers in place of the server
	pages   func(cursor *string) string
	framed  bool // every result is an event among others
}

const search = `{"name":"search","description":"Finds records.","inputSchema":{"type":"object","properties":{"q":{"type":"string"}}}}`

func newServer(t *testing.T, p profile) *server {
	s := &server{profile: p, scripts: map[string]answer{}}
	s.lists(search)
	h := httptest.NewServer(s)
	s.URL = h.URL + "/mcp"
	t.Cleanup(h.Close)
	return s
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	q := question{header: r.Header, body: string(body), gone: r.Context().Done()}
	var m struct {
		ID     json.RawMessage
		Method string
		Params *json.RawMessage
	}
	json.Unmarshal(body, &m)
	if q.method, q.id = m.Method, m.ID; m.Method == "" {
		q.method = r.Method
	}
	if m.Params != nil {
		json.Unmarshal(*m.Params, &q.params)
	}
	s.mu.Lock()
	s.asked = append(s.asked, q)
	script := s.scripts[q.method]
	s.mu.Unlock()
	switch {
	case !s.welcome(w, q):
	case script != nil:
		script(w, q)
	default:
		s.serve(w, q)
	}
}

// welcome asks for the credential and the session.
func (s *server) welcome(w http.ResponseWriter, q question) bool {
	token, bearer := strings.CutPrefix(q.header.Get("Authorization"), "Bearer ")
	if bearer != s.delegated || bearer && !s.accept(token) {
		w.WriteHeader(http.StatusUnauthorized)
		return false
	}
	want := s.session
	if q.method == "server/discover" || q.method == "initialize" {
		want = ""
	}
	if got := q.header.Get("Mcp-Session-Id"); got != want {
		w.WriteHeader(http.StatusBadRequest)
		return false
	}
	return true
}

// serve is the server as its revision has it.
func (s *server) serve(w http.ResponseWriter, q question) {
	const who = `{"name":"conformance","version":"1.2.3"}`
	switch q.method {
	case "server/discover":
		if s.modern {
			s.result(w, q, `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"_meta":{"io.modelcontextprotocol/serverInfo":`+who+`}}`)
			return
		}
		reply(w, q, `"error":{"code":-32601,"message":"Method not found"}`)
	case "initialize":
		if s.session != "" {
			w.Header().Set("Mcp-Session-Id", s.session)
		}
		s.result(w, q, `{"protocolVersion":"`+s.version()+`","capabilities":{"tools":{}},"serverInfo":`+who+`}`)
	case "notifications/initialized", "notifications/cancelled":
		w.WriteHeader(http.StatusAccepted)
	case "tools/list":
		s.mu.Lock()
		pages := s.pages
		s.mu.Unlock()
		s.result(w, q, pages(q.params.Cursor))
	case "tools/call":
		s.result(w, q, `{"content":[{"type":"text","text":"found"}]}`)
	case http.MethodDelete:
	default:
		w.WriteHeader(http.StatusTeapot)
	}
}

// result answers with a result.
func (s *server) result(w http.ResponseWriter, q question, result string) {
	s.mu.Lock()
	framed := s.framed
	s.mu.Unlock()
	if !framed {
		reply(w, q, `"result":`+result)
		return
	}
	event(w, fmt.Sprintf(": a comment\n\nevent: message\nid: 7\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\"}\r\n\r\ndata: {\"jsonrpc\":\"2.0\",\ndata: \"id\":%s,\"result\":%s}\n\n", q.id, result))
}

// reply answers with the id of the question.
func reply(w http.ResponseWriter, q question, member string) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,%s}`, q.id, member)
}

func event(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "text/event-stream")
	io.WriteString(w, text)
}

// answers makes a script of its result.
func (s *server) answers(result string) answer {
	return func(w http.ResponseWriter, q question) { s.result(w, q, result) }
}

func status(code int) answer {
	return func(w http.ResponseWriter, _ question) { w.WriteHeader(code) }
}

// never answers until the client has hung up.
func never(_ http.ResponseWriter, q question) { <-q.gone }

// on answers a method with a script from now on; nil takes it away.
func (s *server) on(method string, script answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.scripts[method] = script
}

// held answers a method as ever, once release was called. arrived tells of each that waits.
func (s *server) held(method string) (arrived <-chan struct{}, release func()) {
	waits, released := make(chan struct{}, 8), make(chan struct{})
	s.on(method, func(w http.ResponseWriter, q question) {
		waits <- struct{}{}
		select {
		case <-released:
			s.serve(w, q)
		case <-q.gone:
		}
	})
	return waits, sync.OnceFunc(func() { close(released) })
}

// lists has the server list these tools on one page; each is the JSON of one.
func (s *server) lists(tools ...string) { s.walks(func(*string) string { return page("", tools...) }) }

// walks has the server list what pages says.
func (s *server) walks(pages func(cursor *string) string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pages = pages
}

// frames has the server answer with event streams from now on.
func (s *server) frames() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.framed = true
}

// page is a result of tools/list; no cursor ends the list.
func page(next string, tools ...string) string {
	if next != "" {
		next = fmt.Sprintf(`,"nextCursor":%q`, next)
	}
	return `{"resultType":"complete","tools":[` + strings.Join(tools, ",") + `]` + next + `}`
}

// tool is the JSON of a tool with that schema.
func tool(name, schema string) string {
	return fmt.Sprintf(`{"name":%q,"description":"Does it.","inputSchema":%s}`, name, schema)
}

const anything = `{"type":"object"}`

// questions returns what was asked so far.
func (s *server) questions() []question {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]question(nil), s.asked...)
}

// methods are those of what was asked since the first so many.
func (s *server) methods(since int) (all []string) {
	for _, q := range s.questions()[since:] {
		all = append(all, q.method)
	}
	return all
}

// of returns the questions of one method.
func (s *server) of(method string) (all []question) {
	for _, q := range s.questions() {
		if q.method == method {
			all = append(all, q)
		}
	}
	return all
}
