package mcpclient_test

import (
	"context"
	"crypto/x509"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/mcpclient"
	"onbehalf.internal/broker/policy"
)

// TestNeverSentAgain: each of these makes some client send a request again, by
// itself. Here the server hears each call once, on a connection that is new and on
// one that has served before, and what may have run is never called safe.
func TestNeverSentAgain(t *testing.T) {
	moved := func(code int) answer { return withHeader("Location", "/moved", status(code, "")) }
	for _, r := range []struct {
		name   string
		answer answer
		retry  fault.Retry
	}{
		{"closes after working", cut(""), fault.RetryLookFirst},
		{"resets after working", reset(""), fault.RetryLookFirst},
		{"closes in the head", cut("HTTP/1.1 200 OK\r\nContent-"), fault.RetryLookFirst},
		{"resets in the head", reset("HTTP/1.1 200 OK\r\nContent-"), fault.RetryLookFirst},
		{"resets in the body", reset("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"), fault.RetryLookFirst},
		{"408, and closes", cut("HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"), fault.RetryLookFirst},
		{"301", moved(301), fault.RetrySafe},
		{"302", moved(302), fault.RetryLookFirst},
		{"303", moved(303), fault.RetryLookFirst},
		{"307", moved(307), fault.RetrySafe},
		{"308", moved(308), fault.RetrySafe},
		{"401", status(401, ""), fault.RetrySafe},
		{"401 invalid_token", withHeader("WWW-Authenticate", `Bearer error="invalid_token"`, status(401, "")), fault.RetrySafe},
		{"401 Basic", withHeader("WWW-Authenticate", `Basic realm="x"`, status(401, "")), fault.RetrySafe},
		{"403 insufficient_scope", withHeader("WWW-Authenticate", `Bearer error="insufficient_scope", scope="a"`, status(403, "")), fault.RetrySafe},
		{"404", status(404, ""), fault.RetryLookFirst},
		{"421", status(421, ""), fault.RetryLookFirst},
		{"425", status(425, ""), fault.RetryLookFirst},
		{"429, at once", withHeader("Retry-After", "0", status(429, "")), fault.RetryLookFirst},
		{"502", status(502, ""), fault.RetryLookFirst},
		{"503, at once", withHeader("Retry-After", "0", status(503, "")), fault.RetryLookFirst},
		{"504", status(504, ""), fault.RetryLookFirst},
		{"a stream to be resumed", raw("text/event-stream", "id: 7\nretry: 0\ndata:\n\n"), fault.RetryLookFirst},
	} {
		for kind, s := range map[string]*script{
			"new":             modern(r.answer, result(good)),
			"kept":            modern(result(good), r.answer, result(good)),
			"kept, handshake": legacy(r.answer, result(good)),
		} {
			t.Run(r.name+"/"+kind, func(t *testing.T) {
				once(t, s, kind, r.retry)
			})
		}
	}
}

// once makes the call that gets the odd answer, and one before it for "kept".
func once(t *testing.T, s *script, kind string, want fault.Retry) {
	t.Helper()
	era, calls := policy.EraModern, 1
	if s.lines[initialize] != nil {
		era = policy.EraLegacy
	}
	dials := 0
	talk := mcpclient.New(mcpclient.Config{Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
		dials++
		return new(net.Dialer).DialContext(ctx, network, addr)
	}}).Open(s.server(t, era))
	defer talk.Close()
	if kind == "kept" {
		calls++
		if rep := talk.CallTool(within(t, 5*time.Second), search, open()); rep.Outcome.State != fault.Succeeded {
			t.Fatalf("the call before: %+v", rep.Outcome)
		}
	}
	rep := talk.CallTool(within(t, 5*time.Second), search, open())
	if rep.Outcome.Retry() != want || rep.Result != nil {
		t.Errorf("%+v, so %s, want %s", rep.Outcome, rep.Outcome.Retry(), want)
	}
	handshake := s.count(initialize) + s.count(initialized)
	if n := s.count(toolsCall); n != calls || len(s.methods()) != calls+handshake || handshake > 2 {
		t.Errorf("the server heard %q, want tools/call %d times and nothing else", s.methods(), calls)
	}
	if dials != 1 {
		t.Errorf("%d connections, want 1: it was to be %s", dials, kind)
	}
	for _, q := range s.asked {
		if q.header.Get("Idempotency-Key") != "" || q.header.Get("X-Idempotency-Key") != "" {
			t.Errorf("a header that makes clients and proxies repeat a request: %v", q.header)
		}
	}
}

// reset sends the first bytes of an answer and resets the connection.
func reset(first string) answer {
	return func(w http.ResponseWriter, q question) {
		conn, _, _ := w.(http.Hijacker).Hijack()
		conn.Write([]byte(first))
		conn.(*net.TCPConn).SetLinger(0)
		conn.Close()
	}
}

// TestNoHTTP2: where a server would rather speak HTTP/2, whose frames can make a
// client send again, it is HTTP/1.1 all the same.
func TestNoHTTP2(t *testing.T) {
	s := modern(result(good))
	var spoken atomic.Value
	h := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		spoken.Store(r.Proto)
		s.ServeHTTP(w, r)
	}))
	h.EnableHTTP2 = true
	h.StartTLS()
	defer h.Close()
	server := declare(t, h.URL, policy.EraModern)
	server.CA = x509.NewCertPool()
	server.CA.AddCert(h.Certificate())
	rep := call(t, mcpclient.New(mcpclient.Config{}), server, open())
	if rep.Outcome.State != fault.Succeeded || spoken.Load() != "HTTP/1.1" {
		t.Errorf("%+v by %v", rep.Outcome, spoken.Load())
	}
}
