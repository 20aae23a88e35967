//go:build real

package crash

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"

	"onbehalf.internal/broker/internal/devmcp"
)

// A trap kills the broker when a counterpart has a certain request of it: before the
// counterpart has acted, or when it has, in place of its answer.
type trap struct {
	request string // see nameOf
	after   bool
	pass    atomic.Int64 // how many such requests go through first
	kill    func()
	sprung  chan struct{}
}

// trapAt reads "before tools/call", or "after GET /v1/cubbyhole/op/ 2" for the second.
func trapAt(at string, kill func()) *trap {
	when, request, _ := strings.Cut(at, " ")
	t := &trap{request: request, after: when == "after", kill: kill, sprung: make(chan struct{})}
	if n := len(request) - 2; request[n] == ' ' {
		t.request = request[:n]
		t.pass.Store(int64(request[n+1] - '1'))
	}
	return t
}

// around puts the site's trap, if one is set, before a counterpart.
func (s *site) around(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t := s.trap.Load()
		if t == nil || t.request != nameOf(r) || t.pass.Add(-1) != -1 {
			next.ServeHTTP(w, r)
			return
		}
		if t.after {
			next.ServeHTTP(httptest.NewRecorder(), r)
		}
		t.kill()
		close(t.sprung)
		panic(http.ErrAbortHandler)
	})
}

// nameOf is what a row of the matrix calls a request: the MCP method, or the HTTP
// method and the path without an operation's part.
func nameOf(r *http.Request) string {
	const holds = "/v1/cubbyhole/op/"
	switch {
	case r.URL.Path == "/mcp" && r.Method == http.MethodPost:
		return devmcp.MethodOf(r)
	case strings.HasPrefix(r.URL.Path, holds):
		return r.Method + " " + holds
	}
	return r.Method + " " + r.URL.Path
}
