package devmcp

import (
	"bytes"
	"context"
	"crypto/subtle"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
)

// visitHeader leads a tool back to the request that called it: the SDK hands
// on headers, and its contexts are not the request's in both eras.
const visitHeader = "Devmcp-Visit"

const bodyLimit = 8 << 20

type connKey struct{}

// serve records a request before anything can break, and the status that the
// client sees.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	number, v := s.enter(r)
	answer := &recorder{ResponseWriter: w, begun: func(status int) { s.note(func() { v.Status = status }) }}
	r.Header.Set(visitHeader, strconv.Itoa(number))
	s.broken(http.HandlerFunc(s.answer)).ServeHTTP(answer, r)
}

func (s *Server) enter(r *http.Request) (number int, v *visit) {
	v = &visit{token: s.credential(r)}
	v.HTTPMethod = r.Method
	v.Version = r.Header.Get("Mcp-Protocol-Version")
	v.Shown = shown(r)
	v.HasSession = r.Header.Get("Mcp-Session-Id") != ""
	v.conn, _ = r.Context().Value(connKey{}).(net.Conn)
	s.note(func() {
		number = len(s.visits)
		s.visits = append(s.visits, v)
	})
	return number, v
}

// note changes what is guarded, and wakes who waits for a change.
func (s *Server) note(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	close(s.changed)
	s.changed = make(chan struct{})
}

// visitOf returns the visit that h belongs to.
func (s *Server) visitOf(h http.Header) *visit {
	s.mu.Lock()
	defer s.mu.Unlock()
	number, err := strconv.Atoi(h.Get(visitHeader))
	if err != nil || number >= len(s.visits) {
		panic("devmcp: internal error: a request that never came in")
	}
	return s.visits[number]
}

func (s *Server) broken(next http.Handler) http.Handler {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.breakage == nil {
		return next
	}
	return s.breakage(next)
}

// answer is the server as it is when nothing is broken.
func (s *Server) answer(w http.ResponseWriter, r *http.Request) {
	v := s.visitOf(r.Header)
	method := MethodOf(r)
	s.note(func() { v.Method = method })
	if err := s.waitForRelease(r.Context(), method); err != nil {
		return
	}
	who, ok := s.authenticate(v.token)
	if !ok || who.Bound != "" && who.Bound != v.Shown {
		// RFC 6750 §3.1
		w.Header().Set("WWW-Authenticate", `Bearer error="invalid_token"`)
		http.Error(w, "no credential that is good here", http.StatusUnauthorized)
		return
	}
	s.note(func() { v.identity, v.Subject = who, who.Subject })
	if !s.ambiguous(w, r) {
		s.mcp.ServeHTTP(w, r)
	}
}

// MethodOf returns the JSON-RPC method of r, or "". It reads the body and puts
// it back.
func MethodOf(r *http.Request) string { return peek(r).Method }

// A message is as much of a request as is looked at before the SDK.
type message struct {
	ID     json.RawMessage
	Method string
	Params struct {
		Name      string
		Arguments json.RawMessage
	}
}

// peek reads the body of r and puts it back. What it cannot read stays zero.
func peek(r *http.Request) (m message) {
	body, err := io.ReadAll(io.LimitReader(r.Body, bodyLimit))
	r.Body = io.NopCloser(bytes.NewReader(body))
	if err == nil {
		json.Unmarshal(body, &m)
	}
	return m
}

func (s *Server) waitForRelease(ctx context.Context, method string) error {
	for _, h := range s.held() {
		if h.method != method {
			continue
		}
		select {
		case <-h.released:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (s *Server) held() []*hold {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*hold(nil), s.holds...)
}

// credential returns what r brings. Two Authorization headers are none.
func (s *Server) credential(r *http.Request) string {
	if s.opts.Header != "" {
		return r.Header.Get(s.opts.Header)
	}
	values := r.Header.Values("Authorization")
	if len(values) != 1 {
		return ""
	}
	token, _ := strings.CutPrefix(values[0], "Bearer ")
	if token == values[0] {
		return ""
	}
	return token
}

func (s *Server) authenticate(token string) (Identity, bool) {
	if token == "" {
		return Identity{}, false
	}
	if s.opts.Header != "" {
		same := subtle.ConstantTimeCompare([]byte(token), []byte(s.opts.Value)) == 1
		return Identity{Subject: "everybody"}, same
	}
	who, err := s.opts.Verify(token)
	return who, err == nil
}

// A recorder tells of the status of an answer before the first byte leaves.
type recorder struct {
	http.ResponseWriter
	begun func(status int)
}

func (r *recorder) WriteHeader(status int) {
	r.tell(status)
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(p []byte) (int, error) {
	r.tell(http.StatusOK)
	return r.ResponseWriter.Write(p)
}

func (r *recorder) tell(status int) {
	if r.begun != nil && status >= 200 {
		r.begun(status)
		r.begun = nil
	}
}

// Unwrap lets http.ResponseController through, for flushing and hijacking.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
