package mcpclient_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/internal/testhttp"
	"onbehalf.internal/broker/mcpclient"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/secret"
)

// onTLS serves s to clients that may show a certificate.
func (s *script) onTLS(t *testing.T) *policy.Server {
	t.Helper()
	h := httptest.NewUnstartedServer(s)
	h.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	h.StartTLS()
	t.Cleanup(h.Close)
	server := declare(t, h.URL+"/mcp", policy.EraLegacy)
	server.CA = x509.NewCertPool()
	server.CA.AddCert(h.Certificate())
	return server
}

// TestCertificate: every leg of a conversation leaves over a connection that shows
// the certificate of its credential: the handshake, the call, the answer to a ping,
// both words of the farewell; and none shows one that it has not.
func TestCertificate(t *testing.T) {
	a, b := testhttp.SelfSigned(t, "a"), testhttp.SelfSigned(t, "b")
	always := func(c *tls.Certificate) func(string) *tls.Certificate {
		return func(string) *tls.Certificate { return c }
	}
	fromTheCall := func(leg string) *tls.Certificate {
		if leg == initialize || leg == initialized {
			return a
		}
		return b
	}
	for _, r := range []struct {
		name       string
		before     func() *tls.Certificate // a Gate's Certificate
		credential func(leg string) *tls.Certificate
		handshake  string
		rest       string
		dials      int
	}{
		{"bound", func() *tls.Certificate { return a }, always(a), "a", "a", 4}, // one for the ping, one for a word, one after the cut
		{"not bound", func() *tls.Certificate { return nil }, always(nil), "", "", 4},
		{"known with the credential alone", nil, always(a), "a", "a", 0},
		{"another one from the call on", func() *tls.Certificate { return a }, fromTheCall, "a", "b", 0},
		{"bound no more", func() *tls.Certificate { return a }, always(nil), "", "", 0},
	} {
		t.Run(r.name, func(t *testing.T) {
			pinged := make(chan bool, 1)
			s := withFarewell(func(w http.ResponseWriter, q question) {
				w.Header().Set("Content-Type", "text/event-stream")
				io.WriteString(w, "data: {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n\n")
				w.(http.Flusher).Flush()
				select {
				case <-pinged: // and then no answer
				case <-q.gone:
				}
				conn, _, _ := w.(http.Hijacker).Hijack()
				conn.Close()
			})
			s.lines["POST"] = []answer{func(w http.ResponseWriter, q question) { w.WriteHeader(202); pinged <- true }}
			dials := 0
			var mu sync.Mutex
			c := mcpclient.New(mcpclient.Config{Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
				mu.Lock()
				dials++
				mu.Unlock()
				return new(net.Dialer).DialContext(ctx, network, addr)
			}})
			gate := open()
			gate.Certificate = r.before
			gate.Credential = func(_ context.Context, leg string) (mcpclient.Credential, error) {
				return mcpclient.Credential{Header: "Authorization", Value: secret.New(token), ReadAt: time.Now(), Certificate: r.credential(leg)}, nil
			}
			talk := c.Open(s.onTLS(t))
			defer talk.Close()
			if rep := talk.CallTool(within(t, 5*time.Second), search, gate); rep.Outcome != fault.Doubt(fault.ConnectionLost) {
				t.Errorf("%+v", rep.Outcome)
			}
			talk.Farewell(context.Background(), gate)()
			for _, q := range s.asked {
				want := r.rest
				if q.method == initialize || q.method == initialized {
					want = r.handshake
				}
				if q.shown != want {
					t.Errorf("%s: shown %q, want %q", q.method, q.shown, want)
				}
			}
			if got := s.methods(); len(got) != 6 { // the handshake, the call, the ping, two words
				t.Errorf("asked %q", got)
			}
			if r.dials != 0 && dials != r.dials {
				t.Errorf("%d connections, want %d", dials, r.dials)
			}
		})
	}
}

// TestLegsOfACredential: what it took to have a credential again stands before the
// leg that asked, also where none came of it.
func TestLegsOfACredential(t *testing.T) {
	for _, r := range []struct {
		leg  string
		err  error
		want []string
	}{
		{toolsCall, nil, []string{initialize, initialized, "drop", "exchange", "ping", toolsCall}},
		{toolsCall, fault.New("test", fault.ProviderError, ""), []string{initialize, initialized, "drop", "exchange", toolsCall}},
		{initialize, nil, []string{"drop", "exchange", initialize, initialized, "ping", toolsCall}},
		{"ping", nil, []string{initialize, initialized, "drop", "exchange", "ping", toolsCall}},
		{"ping", fault.New("test", fault.ProviderError, ""), []string{initialize, initialized, "drop", "exchange", "ping", toolsCall}},
	} {
		asked := make(chan bool, 1)
		s := legacy(func(w http.ResponseWriter, q question) {
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, "data: {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n\n")
			w.(http.Flusher).Flush()
			<-asked
			io.WriteString(w, `data: {"jsonrpc":"2.0","id":"`+q.id+`","result":`+good+"}\n\n")
		})
		gate := open()
		inner := gate.Credential
		gate.Credential = func(ctx context.Context, leg string) (mcpclient.Credential, error) {
			if leg == "ping" {
				defer func() { asked <- true }()
			}
			cred, err := inner(ctx, leg)
			if leg == r.leg {
				cred.Legs, err = []audit.Leg{{Name: "drop"}, {Name: "exchange"}}, r.err
			}
			return cred, err
		}
		rep := call(t, mcpclient.New(mcpclient.Config{}), s.server(t, policy.EraLegacy), gate)
		var names []string
		for _, l := range rep.Legs {
			names = append(names, l.Name)
		}
		ran := r.err == nil || r.leg == "ping"
		if !slices.Equal(names, r.want) || (rep.Outcome.State == fault.Succeeded) != ran {
			t.Errorf("%s: %+v, legs %q, want %q", r.leg, rep.Outcome, names, r.want)
		}
	}
}
