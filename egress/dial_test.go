package egress_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"onbehalf.internal/broker/egress"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/internal/testhttp"
)

// TestGate dials for real, with names that lead to special addresses. Nothing
// listens there; had the gate let one through, the reason would be another.
func TestGate(t *testing.T) {
	for _, addr := range []string{
		"127.0.0.1", "0.0.0.0", "10.0.0.1", "169.254.169.254", "168.63.129.16", "100.100.100.200",
		"192.0.2.1", "198.18.0.1", "203.0.113.1", "240.0.0.1", "255.255.255.255",
	} {
		u, _ := url.Parse("https://records.example")
		h := egress.Host{URL: u, Resolver: resolver(func() netip.Addr { return netip.MustParseAddr(addr) })}
		wantReason(t, lineTo(t, h).Ready(t.Context()), fault.HostRefused)
		_, err := egress.NewClient(h, 1).Get("https://records.example/")
		wantReason(t, err, fault.HostRefused)
	}
}

func TestGateByName(t *testing.T) {
	p := listen(t, answering(ok))
	for _, name := range []string{"127.0.0.1", "localhost", "LOCALHOST", "[::ffff:127.0.0.1]"} {
		u, _ := url.Parse("http://" + name + ":" + p.host.URL.Port())
		wantReason(t, lineTo(t, egress.Host{URL: u}).Ready(t.Context()), fault.HostRefused)
	}
	if p.conns.Load() != 0 {
		t.Error("a refused name was connected to")
	}
}

// Plain HTTP stays on this machine, whatever the declaration allows.
func TestPlainHTTPIsLocal(t *testing.T) {
	h := egress.Host{AnyAddress: true, AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}}
	h.URL, _ = url.Parse("http://192.0.2.1:8200")
	wantReason(t, lineTo(t, h).Ready(t.Context()), fault.HostRefused)

	p := listen(t, answering(ok))
	if err := lineTo(t, egress.Host{URL: p.host.URL, AnyAddress: true}).Ready(t.Context()); err != nil {
		t.Errorf("on loopback: %v", err)
	}
}

// TestRebinding: a name that was good when somebody looked leads elsewhere when
// it is dialled.
func TestRebinding(t *testing.T) {
	p := listen(t, answering(ok))
	var asked atomic.Int64
	rebinding := resolver(func() netip.Addr {
		if asked.Add(1) == 1 {
			return netip.MustParseAddr("8.8.8.8")
		}
		return netip.MustParseAddr("127.0.0.1")
	})
	h := egress.Host{Resolver: rebinding}
	h.URL, _ = url.Parse("http://rebind.example:" + p.host.URL.Port())

	looked, err := rebinding.LookupNetIP(t.Context(), "ip4", "rebind.example")
	if err != nil || !h.Allows(looked[0]) {
		t.Fatalf("the first look: %v, %v", looked, err)
	}
	wantReason(t, lineTo(t, h).Ready(t.Context()), fault.HostRefused)
	if p.conns.Load() != 0 || asked.Load() != 2 {
		t.Errorf("%d connections after %d look-ups", p.conns.Load(), asked.Load())
	}
}

func TestConnectFailed(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	err = lineTo(t, hostAt(t, "http://"+ln.Addr().String())).Ready(t.Context())
	wantReason(t, err, fault.ConnectFailed)
	if want := fmt.Sprintf("egress.dial: connect_failed: nothing listens at %q", ln.Addr()); err.Error() != want {
		t.Errorf("error %q, want %q", err, want)
	}
}

func TestDialEndsWithContext(t *testing.T) {
	blackHole := func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	for _, tc := range []struct {
		name  string
		limit time.Duration // of the context
		after time.Duration // when it is cancelled
		took  time.Duration
		want  fault.Reason
	}{
		{"deadline", 3 * time.Second, time.Hour, 3 * time.Second, fault.BudgetSpent},
		{"cancelled", time.Hour, time.Second, time.Second, fault.CallerCancelled},
		{"own limit", time.Hour, time.Hour, 10 * time.Second, fault.ConnectFailed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), tc.limit)
				defer cancel()
				defer time.AfterFunc(tc.after, cancel).Stop()
				start := time.Now()
				h := hostAt(t, "http://records.example")
				h.Dial = blackHole
				wantReason(t, egress.NewLine(h).Ready(ctx), tc.want)
				if took := time.Since(start); took != tc.took {
					t.Errorf("took %v, want %v", took, tc.took)
				}
			})
		})
	}
}

// A context that is over dials nothing.
func TestBudgetSpent(t *testing.T) {
	p := listen(t, answering(ok))
	late, cancel := context.WithDeadline(t.Context(), time.Unix(1, 0))
	defer cancel()
	wantReason(t, lineTo(t, p.host).Ready(late), fault.BudgetSpent)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	wantReason(t, lineTo(t, p.host).Ready(gone), fault.CallerCancelled)
	if p.conns.Load() != 0 {
		t.Error("it was dialled")
	}
}

// secure starts a server that counts requests and speaks TLS from one version
// to another; 0 is the library's choice.
func secure(t testing.TB, from, to uint16) (egress.Host, *atomic.Int64) {
	var requests atomic.Int64
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		io.Copy(io.Discard, r.Body)
		fmt.Fprintf(w, "%s resumed=%v sni=%q alpn=%q", r.Proto, r.TLS.DidResume, r.TLS.ServerName, r.TLS.NegotiatedProtocol)
	}))
	s.EnableHTTP2 = true
	s.TLS = &tls.Config{MinVersion: from, MaxVersion: to, NextProtos: []string{"h2", "http/1.1"}}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	h := hostAt(t, s.URL)
	h.CA = x509.NewCertPool()
	h.CA.AddCert(s.Certificate())
	return h, &requests
}

func TestTLS(t *testing.T) {
	good, requests := secure(t, 0, 0)
	named := good // its certificate is for example.com and 127.0.0.1
	named.URL, _ = url.Parse("https://example.com:" + good.URL.Port())
	named.Resolver = resolver(func() netip.Addr { return netip.MustParseAddr("127.0.0.1") })
	_, body, err := exchange(t.Context(), lineTo(t, named), post(named, "{}"))
	if want := `HTTP/1.1 resumed=false sni="example.com" alpn="http/1.1"`; err != nil || body != want {
		t.Errorf("answer %q, %v, want %q", body, err, want)
	}
	if n := requests.Swap(0); n != 1 {
		t.Fatalf("%d requests, want 1", n)
	}

	stranger, misnamed := good, named
	stranger.CA = x509.NewCertPool()
	misnamed.URL, _ = url.Parse("https://records.test:" + good.URL.Port())
	old, _ := secure(t, tls.VersionTLS10, tls.VersionTLS11)
	noTLS := listen(t, func(_ int64, c net.Conn, r *bufio.Reader) { io.WriteString(c, ok) }).host
	noTLS.URL.Scheme = "https"
	for _, tc := range []struct {
		name string
		host egress.Host
		text string
	}{
		{"unknown authority", stranger, fmt.Sprintf("egress.dial: tls_failed: the certificate of %q is of an authority that we do not trust", stranger.URL.Host)},
		{"another name", misnamed, fmt.Sprintf("egress.dial: tls_failed: the certificate of %q is for another name", misnamed.URL.Host)},
		{"old TLS", old, fmt.Sprintf("egress.dial: tls_failed: no TLS 1.2 or newer with %q", old.URL.Host)},
		{"no TLS", noTLS, fmt.Sprintf("egress.dial: tls_failed: no TLS 1.2 or newer with %q", noTLS.URL.Host)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := lineTo(t, tc.host)
			opened := false
			_, err := l.Do(t.Context(), post(tc.host, "{}"), func() error { opened = true; return nil })
			if err == nil || err.Error() != tc.text {
				t.Errorf("line: %v, want %s", err, tc.text)
			}
			if opened || l.Written() != 0 {
				t.Errorf("opened %v, %d bytes written", opened, l.Written())
			}
			_, err = egress.NewClient(tc.host, 1).Do(post(tc.host, "{}"))
			wantReason(t, err, fault.TLSFailed)
		})
	}
	if n := requests.Load(); n != 0 {
		t.Errorf("%d requests reached a server that is not trusted", n)
	}
}

// TestCertificate: a peer that asks for a certificate gets ours, and of a host
// that was given none it gets none.
func TestCertificate(t *testing.T) {
	var seen atomic.Int64
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		seen.Store(int64(len(r.TLS.PeerCertificates)))
	}))
	s.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	s.StartTLS()
	t.Cleanup(s.Close)
	h := hostAt(t, s.URL)
	h.CA = x509.NewCertPool()
	h.CA.AddCert(s.Certificate())
	with := h
	with.Certificate = &s.TLS.Certificates[0]
	for want, host := range []egress.Host{h, with} {
		if _, _, err := exchange(t.Context(), lineTo(t, host), post(host, "{}")); err != nil || seen.Load() != int64(want) {
			t.Errorf("%v, %d certificates, want %d", err, seen.Load(), want)
		}
	}
}

// TestShow: what a Line shows can change between its requests. A connection that
// showed another certificate, or none, is not used, and none that shows one is
// resumed or resumes.
func TestShow(t *testing.T) {
	conns := new(int)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := "none"
		if c := r.TLS.PeerCertificates; len(c) > 0 {
			name = c[0].Subject.CommonName
		}
		fmt.Fprintf(w, "%s resumed=%v dial=%d", name, r.TLS.DidResume, *conns)
	}))
	s.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	s.StartTLS()
	t.Cleanup(s.Close)
	h := hostAt(t, s.URL)
	h.CA = x509.NewCertPool()
	h.CA.AddCert(s.Certificate())
	h.Sessions = tls.NewLRUClientSessionCache(4)
	conns = countDials(&h)
	l := lineTo(t, h)
	a, b := testhttp.SelfSigned(t, "a"), testhttp.SelfSigned(t, "b")
	again := *a
	for _, step := range []struct {
		show *tls.Certificate
		want string
	}{
		{nil, "none resumed=false dial=1"},
		{nil, "none resumed=false dial=1"},
		{a, "a resumed=false dial=2"},
		{&again, "a resumed=false dial=2"},
		{b, "b resumed=false dial=3"},
		{nil, "none resumed=true dial=4"},
		{a, "a resumed=false dial=5"},
	} {
		l.Show(step.show)
		_, body, err := exchange(t.Context(), l, post(h, "{}"))
		if err != nil || body != step.want {
			t.Errorf("answer %q, %v, want %q", body, err, step.want)
		}
	}
}

func TestTLSResumes(t *testing.T) {
	h, _ := secure(t, 0, 0)
	h.Sessions = tls.NewLRUClientSessionCache(1)
	for _, want := range []string{"resumed=false", "resumed=true"} {
		_, body, err := exchange(t.Context(), lineTo(t, h), post(h, "{}"))
		if err != nil || body[len("HTTP/1.1 "):][:len(want)] != want {
			t.Errorf("answer %q, %v, want %s", body, err, want)
		}
	}
}

// A TLS 1.3 server sends session tickets after the handshake, unasked: they do
// not make a fresh connection look dead.
func TestTicketsAreNotAnAnswer(t *testing.T) {
	h, _ := secure(t, tls.VersionTLS13, tls.VersionTLS13)
	dials := countDials(&h)
	l := lineTo(t, h)
	for range 3 {
		if err := l.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, _, err := exchange(t.Context(), l, post(h, "{}")); err != nil {
			t.Fatal(err)
		}
	}
	if *dials != 1 {
		t.Errorf("%d connections, want 1", *dials)
	}
}
