package mcpclient_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/mcpclient"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/secret"
	"onbehalf.internal/broker/secret/canary"
)

// TestGateOrder: before every leg the connection, then the credential, and
// before tools/call the record; each exactly once.
func TestGateOrder(t *testing.T) {
	var log []string
	s := legacy(result(good))
	for method, lines := range s.lines {
		s.lines[method] = []answer{func(w http.ResponseWriter, q question) { log = append(log, "server "+method); lines[0](w, q) }}
	}
	gate := open()
	inner := gate.Credential
	gate.Credential = func(ctx context.Context, leg string) (mcpclient.Credential, error) {
		log = append(log, "credential "+leg)
		return inner(ctx, leg)
	}
	gate.Sending = func(context.Context) error { log = append(log, "sending"); return nil }
	server := s.server(t, policy.EraLegacy)
	c := mcpclient.New(mcpclient.Config{Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
		log = append(log, "dial")
		return new(net.Dialer).DialContext(ctx, network, addr)
	}})
	call(t, c, server, gate)
	want := []string{
		"dial", "credential initialize", "server initialize",
		"credential notifications/initialized", "server notifications/initialized",
		"credential tools/call", "sending", "server tools/call",
	}
	if diff := cmp.Diff(want, log); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

// TestGateStaysShut: whatever fails before the first byte, the server hears
// nothing of the call and the outcome says so.
func TestGateStaysShut(t *testing.T) {
	ready := func(c mcpclient.Credential) func(*mcpclient.Gate) {
		return func(g *mcpclient.Gate) {
			g.Credential = func(context.Context, string) (mcpclient.Credential, error) { return c, nil }
		}
	}
	bearer := func(v string) func(*mcpclient.Gate) {
		return ready(mcpclient.Credential{Header: "Authorization", Value: secret.New(v), ReadAt: time.Now()})
	}
	fails := func(err error) func(*mcpclient.Gate) {
		return func(g *mcpclient.Gate) {
			g.Credential = func(context.Context, string) (mcpclient.Credential, error) { return mcpclient.Credential{}, err }
		}
	}
	for _, r := range []struct {
		name  string
		brk   func(*mcpclient.Gate)
		cause fault.Reason
	}{
		{"no credential", fails(fault.New("session.Token", fault.HoldGone, "")), fault.HoldGone},
		{"grant removed", fails(fault.New("session.Token", fault.GrantRevoked, "")), fault.GrantRevoked},
		{"an error nobody classified", fails(errors.New(token)), fault.InternalError},
		{"not recorded", func(g *mcpclient.Gate) {
			g.Sending = func(context.Context) error { return fault.New("ledger.Sending", fault.StoreFailed, "") }
		}, fault.StoreFailed},
		{"read too long ago", ready(mcpclient.Credential{ReadAt: time.Now().Add(-time.Minute)}), fault.CheckStale},
		{"never read", ready(mcpclient.Credential{}), fault.CheckStale},
		{"panic in Credential", func(g *mcpclient.Gate) { g.Credential = nil }, fault.InternalError},
		{"panic in Sending", func(g *mcpclient.Gate) { g.Sending = func(context.Context) error { panic(token) } }, fault.InternalError},

		{"line break", bearer(token + "\r\nX-Other: 1"), fault.CredentialRejected},
		{"line feed at the end", bearer(token + "\n"), fault.CredentialRejected},
		{"space", bearer(token + " x"), fault.CredentialRejected},
		{"not ASCII", bearer(token + "é"), fault.CredentialRejected},
		{"NUL", bearer(token + "\x00"), fault.CredentialRejected},
		{"empty", bearer(""), fault.CredentialRejected},
		{"too long", bearer(strings.Repeat("x", 16<<10+1)), fault.CredentialRejected},
		{"a value and no header", ready(mcpclient.Credential{Value: secret.New(token), ReadAt: time.Now()}), fault.CredentialRejected},
		{"a header of the protocol", ready(mcpclient.Credential{Header: "mcp-method", Value: secret.New(token), ReadAt: time.Now()}), fault.CredentialRejected},
		{"not a header", ready(mcpclient.Credential{Header: "X-Key: a", Value: secret.New(token), ReadAt: time.Now()}), fault.InternalError},
	} {
		t.Run(r.name, func(t *testing.T) {
			canary.Run(t, func(c *canary.Cage) {
				s := modern(result(good))
				gate := open()
				r.brk(&gate)
				rep := call(t, mcpclient.New(mcpclient.Config{}), s.server(t, policy.EraModern), gate)
				if rep.Outcome != fault.NotSentBecause(r.cause) {
					t.Errorf("Outcome = %+v, want not_sent because %q", rep.Outcome, r.cause)
				}
				if len(rep.Legs) != 1 || rep.Legs[0].Reason != r.cause {
					t.Errorf("Legs = %+v, want tools/call because %q", rep.Legs, r.cause)
				}
				if n := len(s.methods()); n != 0 {
					t.Errorf("the server got %d requests, want none", n)
				}
				c.Value("report", rep)
			}, token)
		})
	}
}

func TestFreshness(t *testing.T) {
	now := time.Now()
	for _, r := range []struct {
		age  time.Duration
		want fault.State
	}{
		{0, fault.Succeeded},
		{time.Second, fault.Succeeded},
		{time.Second + 1, fault.NotSent},
	} {
		gate := open()
		at := now
		gate.Credential = func(context.Context, string) (mcpclient.Credential, error) {
			return mcpclient.Credential{ReadAt: at}, nil
		}
		gate.Sending = func(context.Context) error { now = now.Add(r.age); return nil } // a slow disk
		c := mcpclient.New(mcpclient.Config{Now: func() time.Time { return now }})
		if rep := call(t, c, modern(result(good)).server(t, policy.EraModern), gate); rep.Outcome.State != r.want {
			t.Errorf("after %v: %+v, want %q", r.age, rep.Outcome, r.want)
		}
	}
}

func TestCredentialPlacement(t *testing.T) {
	for _, r := range []struct {
		header, name, want string
	}{
		{"Authorization", "Authorization", "Bearer " + token},
		{"authorization", "Authorization", "Bearer " + token},
		{"X-Api-Key", "X-Api-Key", token},
		{"", "Authorization", ""},
	} {
		s := modern(result(good))
		gate := open()
		gate.Credential = func(context.Context, string) (mcpclient.Credential, error) {
			c := mcpclient.Credential{Header: r.header, ReadAt: time.Now()}
			if r.header != "" {
				c.Value = secret.New(token)
			}
			return c, nil
		}
		call(t, mcpclient.New(mcpclient.Config{}), s.server(t, policy.EraModern), gate)
		if got := s.asked[0].header.Get(r.name); got != r.want {
			t.Errorf("header %q: %s = %q, want %q", r.header, r.name, got, r.want)
		}
	}
}

func TestCallThatCannotBePut(t *testing.T) {
	for name, call := range map[string]mcpclient.Call{
		"no tool":                 {},
		"tool is not UTF-8":       {Tool: "\xff"},
		"arguments not an object": {Tool: "a", Arguments: []byte(`[]`)},
		"arguments not JSON":      {Tool: "a", Arguments: []byte(`{`)},
		"a member twice":          {Tool: "a", Arguments: []byte(`{"a":1,"a":2}`)},
	} {
		s := modern(result(good))
		talk := mcpclient.New(mcpclient.Config{}).Open(s.server(t, policy.EraModern))
		rep := talk.CallTool(within(t, time.Second), call, open())
		talk.Close()
		if rep.Outcome != fault.NotSentBecause(fault.MalformedRequest) || len(s.methods()) != 0 {
			t.Errorf("%s: %+v, want not_sent, malformed_request", name, rep.Outcome)
		}
	}
}

// TestPanicAfterSending: where the gate stood open, nobody knows.
func TestPanicAfterSending(t *testing.T) {
	canary.Run(t, func(c *canary.Cage) {
		s := modern(result(good))
		server := s.server(t, policy.EraModern)
		client := mcpclient.New(mcpclient.Config{Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			return panicking{conn}, err
		}})
		rep := call(t, client, server, open())
		if rep.Outcome != fault.Doubt(fault.InternalError) || !slices.ContainsFunc(rep.Legs, legOf(toolsCall)) {
			t.Errorf("%+v, want in doubt, internal_error", rep)
		}
		c.Value("report", rep)
	}, token)
}

// TestPanicInALaterCall: what an earlier call of the conversation sent says
// nothing about this one.
func TestPanicInALaterCall(t *testing.T) {
	talk := mcpclient.New(mcpclient.Config{}).Open(modern(result(good)).server(t, policy.EraModern))
	defer talk.Close()
	talk.CallTool(within(t, 5*time.Second), search, open())
	if rep := talk.CallTool(within(t, 5*time.Second), search, mcpclient.Gate{}); rep.Outcome != fault.NotSentBecause(fault.InternalError) {
		t.Errorf("%+v, want not_sent, internal_error", rep.Outcome)
	}
}

// panicking is a connection on which the parser of an answer breaks down.
type panicking struct{ net.Conn }

func (panicking) Read([]byte) (int, error) { panic("parser: " + token) }

// TestConnectionPerOperation: the legs of an operation share a connection, two
// operations never do.
func TestConnectionPerOperation(t *testing.T) {
	dials := 0
	c := mcpclient.New(mcpclient.Config{Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
		dials++
		return new(net.Dialer).DialContext(ctx, network, addr)
	}})
	server := legacy(result(good)).server(t, policy.EraLegacy)
	for want := 1; want <= 2; want++ {
		call(t, c, server, open())
		if dials != want {
			t.Errorf("after %d operations: %d connections", want, dials)
		}
	}
}

// TestReadyAhead: a conversation may dial while nobody has decided yet.
func TestReadyAhead(t *testing.T) {
	s := modern(result(good))
	talk := mcpclient.New(mcpclient.Config{}).Open(s.server(t, policy.EraModern))
	defer talk.Close()
	done := make(chan error)
	go func() { done <- talk.Ready(context.Background()) }()
	rep := talk.CallTool(within(t, 5*time.Second), search, open())
	if err := <-done; err != nil || rep.Outcome.State != fault.Succeeded {
		t.Errorf("Ready = %v, outcome %+v", err, rep.Outcome)
	}
}

// TestRefusedByTheLedger: where "sending" is not on disk, not one byte of two
// thousand calls leaves, on a new connection each and on a kept one, and where it is
// all two thousand arrive.
func TestRefusedByTheLedger(t *testing.T) {
	const times = 2000
	var dials, bytes atomic.Int64
	c := mcpclient.New(mcpclient.Config{Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
		dials.Add(1)
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return counted{conn.(*net.TCPConn), &bytes}, nil
	}})
	shut := open()
	shut.Sending = func(context.Context) error { return fault.New("ledger.Sending", fault.StoreFailed, "") }
	s := modern(result(good))
	server := s.server(t, policy.EraModern)
	kept := c.Open(server)
	defer kept.Close()
	expect := func(rep mcpclient.Report, want fault.Outcome) {
		t.Helper()
		if rep.Outcome != want {
			t.Fatalf("%+v, want %+v", rep.Outcome, want)
		}
	}
	arrived := fault.Outcome{State: fault.Succeeded, Ran: fault.RanYes, Evidence: fault.EvidencePeer}
	expect(kept.CallTool(within(t, 5*time.Second), search, open()), arrived)
	one := bytes.Load()

	for range times {
		expect(call(t, c, server, shut), fault.NotSentBecause(fault.StoreFailed))
		expect(kept.CallTool(within(t, 5*time.Second), search, shut), fault.NotSentBecause(fault.StoreFailed))
	}
	if n := s.count(toolsCall); n != 1 || bytes.Load() != one || dials.Load() != 1+times {
		t.Errorf("refused: %d calls arrived, %d bytes left on %d connections, want 1 call of %d bytes, %d", n, bytes.Load(), dials.Load(), one, 1+times)
	}
	for range times / 2 {
		expect(call(t, c, server, open()), arrived)
		expect(kept.CallTool(within(t, 5*time.Second), search, open()), arrived)
	}
	if n := s.count(toolsCall); n != 1+times || dials.Load() != 1+times+times/2 {
		t.Errorf("allowed: %d calls arrived on %d connections, want %d on %d", n, dials.Load(), 1+times, 1+times+times/2)
	}
}

// A counted connection counts the bytes that leave by it. It can still be asked
// whether it lives, or nobody would keep it.
type counted struct {
	*net.TCPConn
	bytes *atomic.Int64
}

func (c counted) Write(p []byte) (int, error) {
	n, err := c.TCPConn.Write(p)
	c.bytes.Add(int64(n))
	return n, err
}
