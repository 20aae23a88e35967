package server

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
)

// A Request is what the server saw of one. The token is not in it.
type Request struct {
	HTTP    string            `json:"http"` // the method, and the last segment of a path that is not the endpoint
	RPC     string            `json:"rpc"`  // the JSON-RPC method; "" for DELETE and for an answer
	ID      string            `json:"id,omitempty"`
	Version string            `json:"version,omitempty"` // MCP-Protocol-Version
	Session string            `json:"session,omitempty"` // Mcp-Session-Id
	Method  string            `json:"method,omitempty"`  // Mcp-Method
	Name    string            `json:"name,omitempty"`    // Mcp-Name
	Params  map[string]string `json:"params,omitempty"`  // Mcp-Param-*
	Bearer  bool              `json:"bearer"`            // with a credential
	Ran     bool              `json:"ran"`               // and the tool ran
}

// A Run is a behaviour as one client meets it.
type Run struct {
	behaviour Behaviour
	name      string
	answers   chan struct{} // one for each answer of the client to a request of the server

	mu       sync.Mutex
	requests []Request
	played   map[string]int // leg → steps
}

// Requests returns what came, in the order of arrival.
func (r *Run) Requests() []Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Request(nil), r.requests...)
}

// Ran is how many times the tool ran.
func (r *Run) Ran() (n int) {
	for _, q := range r.Requests() {
		if q.Ran {
			n++
		}
	}
	return n
}

// note enters a request and returns its exchange.
func (r *Run) note(q *http.Request, m message, last string) *exchange {
	seen := Request{
		HTTP: q.Method, RPC: m.Method, ID: string(m.ID),
		Version: q.Header.Get("MCP-Protocol-Version"), Session: q.Header.Get("Mcp-Session-Id"),
		Method: q.Header.Get("Mcp-Method"), Name: q.Header.Get("Mcp-Name"), Params: mirrored(q.Header),
		Bearer: q.Header.Get("Authorization") != "",
	}
	if last != "mcp" {
		seen.HTTP += " " + last
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	x := &exchange{run: r, number: len(r.requests), id: "null", previous: "null", progress: "null"}
	x.token = strings.TrimPrefix(q.Header.Get("Authorization"), "Bearer ")
	if m.ID != nil {
		x.id = seen.ID
	}
	if t := m.Params.Meta.ProgressToken; t != nil {
		x.progress = string(t)
	}
	for _, before := range r.requests {
		if before.ID != "" {
			x.previous = before.ID
		}
	}
	r.requests = append(r.requests, seen)
	q.Context().Value(connKey{}).(*tracked).carries(r.behaviour.Name + "/" + r.name)
	if m.Method == "" && q.Method == http.MethodPost {
		select {
		case r.answers <- struct{}{}:
		default:
		}
	}
	return x
}

func mirrored(h http.Header) (params map[string]string) {
	for name := range h {
		if strings.HasPrefix(name, "Mcp-Param-") {
			if params == nil {
				params = map[string]string{}
			}
			params[name] = h.Get(name)
		}
	}
	return params
}

// next is the step for the next request of a leg.
func (r *Run) next(leg string) step {
	r.mu.Lock()
	defer r.mu.Unlock()
	steps := r.behaviour.steps(leg)
	if len(steps) == 0 {
		return refuse(404, -32601, "null")
	}
	n := min(r.played[leg], len(steps)-1)
	r.played[leg]++
	return steps[n]
}

func (r *Run) ranAt(number int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests[number].Ran = true
}

// A listener makes tracked connections.
type listener struct {
	net.Listener
	server *Server
}

func (l listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &tracked{Conn: conn, server: l.server}
	l.server.mu.Lock()
	defer l.server.mu.Unlock()
	l.server.conns[c] = true
	return c, nil
}

// A tracked connection is in its server's list until it is closed.
type tracked struct {
	net.Conn
	server *Server
	run    string // that it carried a request of; guarded by server.mu
}

func (c *tracked) Close() error {
	c.server.mu.Lock()
	delete(c.server.conns, c)
	c.server.mu.Unlock()
	return c.Conn.Close()
}

func (c *tracked) carries(run string) {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	c.run = run
}

type connKey struct{}

func remember(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// quiet takes what net/http says about clients that hang up.
var quiet = log.New(io.Discard, "", 0)
