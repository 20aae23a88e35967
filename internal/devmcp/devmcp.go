// Package devmcp is an MCP server for demos and tests. It speaks one of the two
// eras over Streamable HTTP: the stateless one (2026-07-28), or the one with
// sessions (up to 2025-11-25).
//
// It asks every request for a credential, offers five tools that show who
// called and what became of a call, keeps a record of what arrived, and breaks
// where a test wants it to, or where the caller does: [Endings] of the tool drop. The protocol itself is the official SDK's, so that
// the broker's own client is not tried against its author's reading alone.
//
// It keeps every token that it was shown, in the open, see [Server.Tokens]:
// it has no place in production.
package devmcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Options say what the server asks for. Verify, or Header with Value, is
// required.
type Options struct {
	Legacy bool   // sessions, up to 2025-11-25; false: stateless, 2026-07-28
	Addr   string // "": a free port on 127.0.0.1

	// Verify says whose bearer token this is, or that it is not good here.
	Verify func(token string) (Identity, error)

	// MutualTLS makes it https. Clients are asked for a certificate, and a token that
	// is bound to one is good over that alone (RFC 8705 §3).
	MutualTLS bool

	// Header and Value, if set, take the place of the bearer token: a server
	// of the old kind, with one fixed credential for everybody.
	Header, Value string
}

// An Identity is what a good token says.
type Identity struct {
	Subject  string   `json:"subject"`
	Audience []string `json:"audience,omitempty"`
	Actor    string   `json:"actor,omitempty"` // act.sub of RFC 8693 §4.1
	Bound    string   `json:"-"`               // x5t#S256 of the certificate that the token is bound to; "": none
}

// A Request is what arrived, and how it was answered. It holds no token.
type Request struct {
	HTTPMethod string
	Method     string // JSON-RPC; "" for GET, DELETE, and where it was never read
	Version    string // the MCP-Protocol-Version header
	HasSession bool
	Subject    string // "" before the credential was found good
	Shown      string // x5t#S256 of the client's certificate; "": none
	Status     int    // 0: no answer, or not yet
}

// A Server is running from [Start] to [Server.Close].
type Server struct {
	URL string // the MCP endpoint
	CA  []byte // with MutualTLS: who vouches for it, in PEM

	opts Options
	mcp  http.Handler
	http *http.Server

	mu        sync.Mutex // guards all below
	conns     int
	visits    []*visit
	calls     map[string]int // by tool
	cancelled int            // calls of slow
	jobs      map[string]int // by job: how often drop did it
	holds     []*hold
	breakage  func(http.Handler) http.Handler
	changed   chan struct{} // closed, and made anew, when one of the above changes
}

// A visit is one HTTP request.
type visit struct {
	Request
	token    string
	identity Identity
	conn     net.Conn
}

type hold struct {
	method   string
	released chan struct{}
}

// Start starts a server on opts.Addr.
func Start(opts Options) (*Server, error) {
	if opts.Verify == nil && (opts.Header == "" || opts.Value == "") {
		return nil, errors.New("devmcp: Verify, or Header and Value, must be set")
	}
	ln, err := net.Listen("tcp", cmp.Or(opts.Addr, "127.0.0.1:0"))
	if err != nil {
		return nil, err
	}
	s := &Server{
		URL:     "http://" + ln.Addr().String() + "/mcp",
		opts:    opts,
		calls:   map[string]int{},
		jobs:    map[string]int{},
		changed: make(chan struct{}),
	}
	if opts.MutualTLS {
		s.URL = "https" + strings.TrimPrefix(s.URL, "http")
		if ln, err = s.secure(ln); err != nil {
			return nil, err
		}
	}
	s.mcp = s.protocol()
	mux := http.NewServeMux()
	mux.HandleFunc("/mcp", s.serve)
	s.http = &http.Server{
		Handler: mux,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			s.note(func() { s.conns++ })
			return context.WithValue(ctx, connKey{}, c)
		},
	}
	go s.http.Serve(ln)
	return s, nil
}

// protocol is the SDK's part.
func (s *Server) protocol() http.Handler {
	versions := []string{"2026-07-28"}
	if s.opts.Legacy {
		versions = []string{"2025-11-25", "2025-06-18", "2025-03-26"}
	}
	server := mcp.NewServer(
		&mcp.Implementation{Name: "devmcp", Version: "1"},
		&mcp.ServerOptions{SupportedProtocolVersions: versions, Capabilities: &mcp.ServerCapabilities{}})
	s.addTools(server)
	return mcp.NewStreamableHTTPHandler(
		func(*http.Request) *mcp.Server { return server },
		&mcp.StreamableHTTPOptions{Stateless: !s.opts.Legacy, PropagateRequestCancellation: true})
}

// Close ends every connection at once.
func (s *Server) Close() error { return s.http.Close() }

// Connections returns how many connections were made to it.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conns
}

// Calls returns how often a tool really ran: begun, whatever came after.
func (s *Server) Calls(tool string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[tool]
}

// Done returns how often drop has done a job, as the tool job says it.
func (s *Server) Done(job string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.jobs[job]
}

// Cancelled returns how often the tool slow was cancelled in its sleep.
func (s *Server) Cancelled() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cancelled
}

// Requests returns what has arrived so far, in order.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]Request, len(s.visits))
	for i, v := range s.visits {
		all[i] = v.Request
	}
	return all
}

// Tokens returns the credential of every request that brought one, in order:
// for a search for leaks elsewhere.
func (s *Server) Tokens() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for _, v := range s.visits {
		if v.token != "" {
			all = append(all, v.token)
		}
	}
	return all
}

// Arrived returns how many requests with this JSON-RPC method have arrived.
func (s *Server) Arrived(method string) (n int) {
	for _, r := range s.Requests() {
		if r.Method == method {
			n++
		}
	}
	return n
}

// Await waits until holds is true. It asks again whenever something has arrived,
// run or been answered.
func (s *Server) Await(ctx context.Context, holds func() bool) error {
	for {
		s.mu.Lock()
		changed := s.changed // before asking, so that no change is missed
		s.mu.Unlock()
		if holds() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Break puts f around the server, credential check included, from the next
// request on; nil takes it away. f may answer in the server's place, or call
// next and spoil what comes of it; panic(http.ErrAbortHandler) cuts the
// connection. [MethodOf] tells it which leg it has before it.
func (s *Server) Break(f func(next http.Handler) http.Handler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.breakage = f
}

// List has the server list these tools in place of its own, each the JSON of one. It
// takes the place of what [Server.Break] put there.
func (s *Server) List(tools ...string) {
	s.Break(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked := peek(r)
			if asked.Method != "tools/list" {
				next.ServeHTTP(w, r)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete","tools":[%s]}}`, asked.ID, strings.Join(tools, ","))
		})
	})
}

// Hold makes requests with this JSON-RPC method wait, read but not looked at,
// until release is called. It may be called more than once.
func (s *Server) Hold(method string) (release func()) {
	h := &hold{method, make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holds = append(s.holds, h)
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.holds = slices.DeleteFunc(s.holds, func(x *hold) bool { return x == h })
		close(h.released)
	})
}
