package mcpclient_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/internal/testhttp"
	"onbehalf.internal/broker/mcpclient"
	"onbehalf.internal/broker/policy"
)

const (
	cancelled = "notifications/cancelled"
	deletion  = "DELETE"
)

// part makes a call of s and says farewell.
func part(t testing.TB, s *script, era policy.Era, g, farewell mcpclient.Gate) (mcpclient.Report, []audit.Leg) {
	t.Helper()
	talk := mcpclient.New(mcpclient.Config{}).Open(s.server(t, era))
	defer talk.Close()
	rep := talk.CallTool(within(t, 500*time.Millisecond), search, g)
	return rep, talk.Farewell(context.Background(), farewell)()
}

// withFarewell is a legacy server that can be parted from.
func withFarewell(call ...answer) *script {
	s := legacy(call...)
	s.lines[cancelled], s.lines[deletion] = []answer{status(202, "")}, []answer{status(200, "")}
	return s
}

// TestFarewell: who is told what, and that each word is a leg behind the gate.
func TestFarewell(t *testing.T) {
	silent := func(_ http.ResponseWriter, q question) { <-q.gone }
	stateless := func(call answer) *script {
		s := withFarewell(call)
		s.lines[initialize] = []answer{result(`{"protocolVersion":"2025-11-25","capabilities":{}}`)}
		return s
	}
	notInitialized := withFarewell()
	notInitialized.lines[initialized] = []answer{status(500, "")}
	foreign := withFarewell()
	foreign.lines[initialize] = []answer{withSession("s-1", result(`{"protocolVersion":"1999-01-01","capabilities":{}}`))}
	silentFromTheStart := withFarewell()
	silentFromTheStart.lines[initialize] = []answer{silent}

	for _, r := range []struct {
		name string
		s    *script
		era  policy.Era
		want []string // in no order: two words leave on two connections
	}{
		{"an answer", withFarewell(result(good)), policy.EraLegacy, []string{deletion}},
		{"a failed tool", withFarewell(result(`{"content":[],"isError":true}`)), policy.EraLegacy, []string{deletion}},
		{"a refusal", withFarewell(status(403, "")), policy.EraLegacy, []string{deletion}},
		{"a bad gateway", withFarewell(status(502, "")), policy.EraLegacy, []string{deletion}},
		{"no answer", withFarewell(silent), policy.EraLegacy, []string{cancelled, deletion}},
		{"cut", withFarewell(cut("")), policy.EraLegacy, []string{cancelled, deletion}},
		{"a stream that ends", withFarewell(raw("text/event-stream", "")), policy.EraLegacy, []string{cancelled, deletion}},
		{"another id", withFarewell(raw("application/json", `{"jsonrpc":"2.0","id":"x","result":{}}`)), policy.EraLegacy, []string{cancelled, deletion}},
		{"the session is gone", withFarewell(status(404, "")), policy.EraLegacy, nil},
		{"no session", stateless(result(good)), policy.EraLegacy, nil},
		{"no session, no answer", stateless(silent), policy.EraLegacy, []string{cancelled}},
		{"a handshake that broke off", notInitialized, policy.EraLegacy, []string{deletion}},
		{"a version that nobody speaks", foreign, policy.EraLegacy, []string{deletion}},
		{"initialize is never cancelled", silentFromTheStart, policy.EraLegacy, nil},
		{"modern", modern(result(good)), policy.EraModern, nil},
		{"modern, no answer", modern(silent), policy.EraModern, nil},
	} {
		t.Run(r.name, func(t *testing.T) {
			var asked []string
			farewell := open()
			inner := farewell.Credential
			farewell.Credential = func(ctx context.Context, leg string) (mcpclient.Credential, error) {
				asked = append(asked, leg)
				return inner(ctx, leg)
			}
			_, legs := part(t, r.s, r.era, open(), farewell)
			got := map[string]int{}
			for _, m := range r.s.methods() {
				if m == cancelled || m == deletion {
					got[m]++
				}
			}
			want := map[string]int{}
			var names []string
			for _, m := range r.want {
				want[m]++
				names = append(names, strings.ToLower(m))
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("the server got (-want +got):\n%s", diff)
			}
			var entered []string
			for _, leg := range legs {
				entered = append(entered, leg.Name)
			}
			if diff := cmp.Diff(names, entered) + cmp.Diff(names, asked); diff != "" {
				t.Errorf("legs and credentials (-want +got):\n%s", diff)
			}
		})
	}
}

// TestFarewellOnTheWire: what the two words look like.
func TestFarewellOnTheWire(t *testing.T) {
	s := withFarewell(cut(""))
	rep, _ := part(t, s, policy.EraLegacy, open(), open())
	var call, cancel, end question
	for _, q := range s.asked {
		switch q.method {
		case toolsCall:
			call = q
		case cancelled:
			cancel = q
		case deletion:
			end = q
		}
	}
	if rep.Outcome != fault.Doubt(fault.ConnectionLost) || cancel.id != "" ||
		!strings.Contains(cancel.body, `"params":{"requestId":"`+call.id+`","reason":"the client does not wait any longer"}`) {
		t.Errorf("%+v, then %s, want a notification about %s", rep.Outcome, cancel.body, call.id)
	}
	for _, q := range []question{cancel, end} {
		if q.header.Get("Mcp-Session-Id") != "s-1" || q.header.Get("Authorization") != "Bearer "+token || q.header.Get("Mcp-Protocol-Version") != "2025-11-25" {
			t.Errorf("%s with headers %v", q.method, q.header)
		}
	}
	if end.body != "" || end.header.Get("Content-Type") != "" {
		t.Errorf("DELETE with body %q, %v", end.body, end.header)
	}
}

// TestFarewellBehindTheGate: without a credential not a word, nor after a panic.
func TestFarewellBehindTheGate(t *testing.T) {
	for name, g := range map[string]mcpclient.Gate{
		"refused": {Credential: func(context.Context, string) (mcpclient.Credential, error) {
			return mcpclient.Credential{}, fault.New("test", fault.HoldGone, "")
		}},
		"stale": {Credential: func(context.Context, string) (mcpclient.Credential, error) { return mcpclient.Credential{}, nil }},
		"panic": {},
	} {
		s := withFarewell(cut(""))
		_, legs := part(t, s, policy.EraLegacy, open(), g)
		if n := s.count(cancelled) + s.count(deletion); n != 0 {
			t.Errorf("%s: the server got %d words", name, n)
		}
		if len(legs) == 0 || legs[0].Reason == fault.None {
			t.Errorf("%s: legs %+v, want a reason", name, legs)
		}
	}
}

// TestFarewellIsSaidOnce: after it the conversation is over.
func TestFarewellIsSaidOnce(t *testing.T) {
	s := withFarewell(result(good))
	talk := mcpclient.New(mcpclient.Config{}).Open(s.server(t, policy.EraLegacy))
	defer talk.Close()
	talk.CallTool(within(t, 5*time.Second), search, open())
	talk.Farewell(context.Background(), open())()
	talk.Farewell(context.Background(), open())()
	if n := s.count(deletion); n != 1 {
		t.Errorf("%d times, want once", n)
	}
}

// TestFarewellTakesItsTimeAlone: it keeps the hold for a quarter of a second at
// most, and ends within one, whatever a server does.
func TestFarewellTakesItsTimeAlone(t *testing.T) {
	never := func(_ http.ResponseWriter, q question) { <-q.gone }
	slowVault := open()
	inner := slowVault.Credential
	slowVault.Credential = func(ctx context.Context, leg string) (mcpclient.Credential, error) {
		time.Sleep(700 * time.Millisecond)
		return inner(ctx, leg)
	}
	for _, r := range []struct {
		name          string
		gate          mcpclient.Gate
		asked, waited time.Duration
	}{
		{"no answers", open(), 0, time.Second},
		{"slow credentials", slowVault, 250 * time.Millisecond, 1400 * time.Millisecond},
	} {
		t.Run(r.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := withFarewell(cut(""))
				s.lines[cancelled], s.lines[deletion] = []answer{never}, []answer{never}
				talk := mcpclient.New(mcpclient.Config{Dial: testhttp.OnPipes(t, s).Dial}).Open(declare(t, "http://mcp.test/mcp", policy.EraLegacy))
				defer talk.Close()
				talk.CallTool(within(t, 5*time.Second), search, open())
				began := time.Now()
				wait := talk.Farewell(context.Background(), r.gate)
				if took := time.Since(began); took != r.asked {
					t.Errorf("asked for %v, want %v", took, r.asked)
				}
				wait()
				if took := time.Since(began); took > r.waited {
					t.Errorf("took %v, want %v at most", took, r.waited)
				}
			})
		})
	}
}
