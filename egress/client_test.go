package egress_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"onbehalf.internal/broker/egress"
	"onbehalf.internal/broker/fault"
)

// No redirect is followed, by either way out: it is the answer.
func TestRedirectIsAnAnswer(t *testing.T) {
	var elsewhere atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	t.Cleanup(other.Close)
	for _, status := range []int{301, 302, 303, 307, 308} {
		p := listen(t, answering(fmt.Sprintf("HTTP/1.1 %d Moved\r\nLocation: %s/take\r\nContent-Length: 0\r\n\r\n", status, other.URL)))
		got, _, err := exchange(t.Context(), lineTo(t, p.host), post(p.host, "{}"))
		if err != nil || got != status {
			t.Errorf("line: %d, %v, want %d", got, err, status)
		}
		for idle := range 2 {
			res, err := egress.NewClient(p.host, idle).Do(post(p.host, "{}"))
			if err != nil || res.StatusCode != status {
				t.Errorf("client, %d idle: %v, %v, want %d", idle, res, err, status)
			}
		}
	}
	for _, location := range []string{"http://[::1", "://", "//[", ""} {
		p := listen(t, answering("HTTP/1.1 302 Found\r\nLocation: "+location+"\r\nContent-Length: 0\r\n\r\n"))
		for idle := range 2 {
			if res, err := egress.NewClient(p.host, idle).Do(post(p.host, "{}")); err != nil || res.StatusCode != 302 {
				t.Errorf("Location %q, %d idle: %v, %v, want 302", location, idle, res, err)
			}
		}
	}
	if elsewhere.Load() != 0 {
		t.Errorf("%d requests went where the redirects said", elsewhere.Load())
	}
}

// TestMain names a proxy for all tests: net/http reads the environment once.
func TestMain(m *testing.M) {
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"} {
		os.Setenv(name, "http://127.0.0.1:1")
	}
	os.Exit(m.Run())
}

// The environment's proxy is not used. The name is one that it would be used for.
func TestNoProxy(t *testing.T) {
	targets := make(chan string, 2)
	p := listen(t, func(_ int64, c net.Conn, r *bufio.Reader) {
		if req, err := http.ReadRequest(r); err == nil {
			targets <- req.RequestURI
			io.WriteString(c, ok)
		}
	})
	h := p.host
	h.URL, _ = url.Parse("http://records.example:" + p.host.URL.Port())
	h.Resolver = resolver(func() netip.Addr { return netip.MustParseAddr("127.0.0.1") })
	if _, _, err := exchange(t.Context(), lineTo(t, h), post(h, "{}")); err != nil {
		t.Error(err)
	}
	if _, err := egress.NewClient(h, 1).Do(post(h, "{}")); err != nil {
		t.Error(err)
	}
	for range 2 {
		if target := <-targets; target != "/mcp" {
			t.Errorf("request for %q: a proxy is asked like that", target)
		}
	}
}

func TestClientConnections(t *testing.T) {
	for _, tc := range []struct {
		idle  int
		conns int64
	}{{0, 3}, {1, 1}} {
		p := listen(t, func(_ int64, c net.Conn, r *bufio.Reader) {
			for take(r) {
				io.WriteString(c, ok)
			}
		})
		client := egress.NewClient(p.host, tc.idle)
		for range 3 {
			res, err := client.Get(p.host.URL.String())
			if err != nil {
				t.Fatal(err)
			}
			io.Copy(io.Discard, res.Body)
			res.Body.Close()
		}
		if n := p.conns.Load(); n != tc.conns {
			t.Errorf("idle %d: %d connections for 3 requests, want %d", tc.idle, n, tc.conns)
		}
		client.CloseIdleConnections()
	}
}

func TestClientOverTLS(t *testing.T) {
	h, requests := secure(t, 0, 0)
	res, err := egress.NewClient(h, 1).Do(post(h, "{}"))
	if err != nil || res.StatusCode != 200 || res.Proto != "HTTP/1.1" || requests.Load() != 1 {
		t.Errorf("%v, %v", res, err)
	}
}

// TestServerName: the declared name is asked for and must be in the certificate,
// in the place of the host's, which is not good enough then. The request goes to
// the host as before.
func TestServerName(t *testing.T) {
	known, _ := secure(t, 0, 0) // its certificate is for example.com and 127.0.0.1
	unnamed := known
	unnamed.URL, _ = url.Parse("https://records.internal:" + known.URL.Port())
	unnamed.Resolver = resolver(func() netip.Addr { return netip.MustParseAddr("127.0.0.1") })
	for _, tc := range []struct {
		name       string
		host       egress.Host
		serverName string
		want       fault.Reason
		sni        string
	}{
		{"the host is in the certificate", known, "", fault.None, ""}, // an address is not asked for
		{"and so is the name", known, "example.com", fault.None, "example.com"},
		{"but the name is not", known, "example.org", fault.TLSFailed, ""},
		{"the host is not in the certificate", unnamed, "", fault.TLSFailed, ""},
		{"but the name is", unnamed, "example.com", fault.None, "example.com"},
		{"nor is the name", unnamed, "example.org", fault.TLSFailed, ""},
	} {
		tc.host.ServerName = tc.serverName
		for idle := range 2 {
			client := egress.NewClient(tc.host, idle)
			res, err := client.Do(post(tc.host, "{}"))
			if tc.want != fault.None {
				wantReason(t, err, tc.want)
				continue
			}
			if err != nil {
				t.Errorf("%s, %d idle: %v", tc.name, idle, err)
				continue
			}
			said, _ := io.ReadAll(res.Body)
			res.Body.Close()
			client.CloseIdleConnections()
			if want := fmt.Sprintf("sni=%q", tc.sni); !strings.Contains(string(said), want) {
				t.Errorf("%s, %d idle: %s, want %s", tc.name, idle, said, want)
			}
		}
	}
}

// A request without a body has none on the wire either, repeated or not.
func TestClientSendsNoBody(t *testing.T) {
	got := make(chan string, 1)
	p := listen(t, func(_ int64, c net.Conn, r *bufio.Reader) {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		body, _ := io.ReadAll(req.Body)
		got <- fmt.Sprintf("%s %d %q %q %v", req.Method, req.ContentLength, req.TransferEncoding, body, req.Header["Accept-Encoding"])
		io.WriteString(c, ok)
	})
	for _, method := range []string{"GET", "HEAD", "OPTIONS", "DELETE"} {
		req, _ := http.NewRequest(method, p.host.URL.String(), nil)
		res, err := egress.NewClient(p.host, 0).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if line, want := <-got, method+` 0 [] "" [identity]`; line != want {
			t.Errorf("got %s, want %s", line, want)
		}
	}
}

// A Transport repeats what says that it may be repeated, if it has no body.
func TestClientRefusesWhatItWouldRepeat(t *testing.T) {
	p := listen(t, answering(ok))
	for _, name := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
		req, _ := http.NewRequest("POST", p.host.URL.String(), nil)
		req.Header[name] = nil // of no length, and never on the wire
		_, err := egress.NewClient(p.host, 1).Do(req)
		wantReason(t, err, fault.InternalError)
	}
	if p.conns.Load() != 0 {
		t.Error("it was dialled")
	}
}

func TestClientFaults(t *testing.T) {
	const flood = "HTTP/1.1 200 OK\r\nX: %0*d\r\nContent-Length: 0\r\n\r\n"
	half := ok[:len(ok)-1]
	for _, tc := range []struct {
		name, answer string
		hangs        bool // after the answer, until the context is cancelled
		single       fault.Reason
		pooled       fault.Reason // http.Transport has no error of its own for a long head
	}{
		{"long head", fmt.Sprintf(flood, 70<<10, 0), false, fault.ReplyTooLarge, fault.ConnectionLost},
		{"no answer", "", false, fault.ConnectionLost, fault.ConnectionLost},
		{"half a body", half, false, fault.ConnectionLost, fault.ConnectionLost},
		{"hangs", "", true, fault.CallerCancelled, fault.CallerCancelled},
		{"hangs in the body", half, true, fault.CallerCancelled, fault.CallerCancelled},
	} {
		for idle, want := range []fault.Reason{tc.single, tc.pooled} {
			t.Run(fmt.Sprintf("%s, %d idle", tc.name, idle), func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				p := listen(t, func(_ int64, c net.Conn, r *bufio.Reader) {
					take(r)
					io.WriteString(c, tc.answer)
					if tc.hangs {
						cancel()
						io.Copy(io.Discard, c)
					}
				})
				res, err := egress.NewClient(p.host, idle).Do(post(p.host, "{}").WithContext(ctx))
				if err == nil {
					_, err = io.ReadAll(res.Body)
					res.Body.Close()
				}
				wantReason(t, err, want)
			})
		}
	}
}
