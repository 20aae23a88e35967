package mcpclient_test

import (
	"context"
	"net/http"
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

func legOf(name string) func(audit.Leg) bool {
	return func(l audit.Leg) bool { return l.Name == name }
}

// TestBudget: one deadline, and every leg is granted what is left of it.
func TestBudget(t *testing.T) {
	s := time.Second
	for _, r := range []struct {
		name  string
		took  []time.Duration // by initialize, initialized, tools/call
		want  []time.Duration // granted
		cause fault.Reason
	}{
		{"nothing spent", []time.Duration{0, 0, 0}, []time.Duration{20 * s, 20 * s, 20 * s}, ""},
		{"handshake 4 s and 2 s", []time.Duration{4 * s, 2 * s, 0}, []time.Duration{20 * s, 16 * s, 14 * s}, ""},
		{"5, 1, 2", []time.Duration{5 * s, 1 * s, 2 * s}, []time.Duration{20 * s, 15 * s, 14 * s}, ""},
		{"18.5 s and 1.2 s", []time.Duration{18500 * time.Millisecond, 1200 * time.Millisecond, 0}, []time.Duration{20 * s, 1500 * time.Millisecond, 300 * time.Millisecond}, ""},
		{"19 s and 0.7 s", []time.Duration{19 * s, 700 * time.Millisecond, 0}, []time.Duration{20 * s, 1 * s, 300 * time.Millisecond}, ""},
		{"12 s and 9 s", []time.Duration{12 * s, 9 * s, 0}, []time.Duration{20 * s, 8 * s}, fault.WallClock},
		{"20 s", []time.Duration{21 * s, 0, 0}, []time.Duration{20 * s}, fault.WallClock},
	} {
		t.Run(r.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := legacy(result(good))
				for i, method := range []string{initialize, initialized, toolsCall} {
					server.lines[method] = []answer{after(r.took[i], server.lines[method][0])}
				}
				rep := bubbleCall(t, server, policy.EraLegacy, open(), 20*s)
				var granted []time.Duration
				for _, leg := range rep.Legs {
					granted = append(granted, leg.Budget)
				}
				if diff := cmp.Diff(r.want, granted); diff != "" {
					t.Errorf("granted (-want +got):\n%s", diff)
				}
				if rep.Outcome.Cause != r.cause {
					t.Errorf("cause %q, want %q", rep.Outcome.Cause, r.cause)
				}
			})
		})
	}
}

// TestSpentOrFired: a budget that was spent before a leg is told apart from one
// that ran out under it, and from a caller who gave up.
func TestSpentOrFired(t *testing.T) {
	slowRecord := func(d time.Duration) func(*mcpclient.Gate) {
		return func(g *mcpclient.Gate) {
			g.Sending = func(context.Context) error { time.Sleep(d); return nil }
		}
	}
	slowVault := func(d time.Duration) func(*mcpclient.Gate) {
		return func(g *mcpclient.Gate) {
			inner := g.Credential
			g.Credential = func(ctx context.Context, leg string) (mcpclient.Credential, error) {
				time.Sleep(d)
				return inner(ctx, leg)
			}
		}
	}
	for _, r := range []struct {
		name  string
		call  answer
		brk   func(*mcpclient.Gate)
		want  fault.Outcome
		calls int
		took  time.Duration
	}{
		{"in time", after(time.Second, result(good)), nil, fault.Outcome{State: fault.Succeeded, Ran: fault.RanYes, Evidence: fault.EvidencePeer}, 1, time.Second},
		{"no answer", after(time.Hour, result(good)), nil, fault.Doubt(fault.WallClock), 1, 2 * time.Second},
		{"answer that does not end", hang(raw("application/json", `{"jsonrpc":`)), nil, fault.Doubt(fault.WallClock), 1, 2 * time.Second},
		{"stream that says nothing", hang(raw("text/event-stream", ": hi\n\n")), nil, fault.Doubt(fault.WallClock), 1, 2 * time.Second},
		{"bad status, body that does not come", hang(withHeader("Content-Length", "99", status(500, "{"))), nil, fault.Doubt(fault.Intermediary), 1, time.Second},
		{"spent while it was recorded", result(good), slowRecord(2 * time.Second), fault.NotSentBecause(fault.CheckStale), 0, 2 * time.Second},
		{"spent while the credential was read", result(good), slowVault(2 * time.Second), fault.NotSentBecause(fault.BudgetSpent), 0, 2 * time.Second},
	} {
		t.Run(r.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := modern(r.call)
				gate := open()
				if r.brk != nil {
					r.brk(&gate)
				}
				began := time.Now()
				rep := bubbleCall(t, s, policy.EraModern, gate, 2*time.Second)
				if rep.Outcome != r.want || s.count(toolsCall) != r.calls {
					t.Errorf("%+v after %d calls, want %+v after %d", rep.Outcome, s.count(toolsCall), r.want, r.calls)
				}
				if took := time.Since(began); took != r.took {
					t.Errorf("took %v, want %v", took, r.took)
				}
			})
		})
	}
}

func TestNoBudgetNoLeg(t *testing.T) {
	cancelled, cancel := context.WithCancel(within(t, time.Hour))
	cancel()
	for name, r := range map[string]struct {
		ctx  context.Context
		want fault.Reason
	}{
		"spent":       {within(t, 0), fault.BudgetSpent},
		"no deadline": {context.Background(), fault.BudgetSpent},
		"cancelled":   {cancelled, fault.CallerCancelled},
	} {
		s := modern(result(good))
		gate := open()
		gate.Credential = func(context.Context, string) (mcpclient.Credential, error) {
			t.Errorf("%s: a credential was asked for", name)
			return mcpclient.Credential{}, nil
		}
		talk := mcpclient.New(mcpclient.Config{}).Open(s.server(t, policy.EraModern))
		rep := talk.CallTool(r.ctx, search, gate)
		talk.Close()
		if rep.Outcome != fault.NotSentBecause(r.want) || len(s.methods()) != 0 {
			t.Errorf("%s: %+v, want not_sent because %q", name, rep.Outcome, r.want)
		}
	}
}

func TestCancelledUnderWay(t *testing.T) {
	ctx, cancel := context.WithCancel(within(t, time.Hour))
	s := modern(func(_ http.ResponseWriter, q question) { cancel(); <-q.gone })
	talk := mcpclient.New(mcpclient.Config{}).Open(s.server(t, policy.EraModern))
	defer talk.Close()
	if rep := talk.CallTool(ctx, search, open()); rep.Outcome != fault.Doubt(fault.CallerCancelled) {
		t.Errorf("%+v, want in doubt, caller_cancelled", rep.Outcome)
	}
}

// bubbleCall is call inside a synctest bubble.
func bubbleCall(t *testing.T, s *script, era policy.Era, g mcpclient.Gate, budget time.Duration) mcpclient.Report {
	t.Helper()
	c := mcpclient.New(mcpclient.Config{Dial: testhttp.OnPipes(t, s).Dial})
	talk := c.Open(declare(t, "http://mcp.test/mcp", era))
	defer talk.Close()
	return talk.CallTool(within(t, budget), search, g)
}
