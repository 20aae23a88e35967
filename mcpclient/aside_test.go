package mcpclient_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/internal/testhttp"
	"onbehalf.internal/broker/mcpclient"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/secret/canary"
)

// TestPing: a legacy server's ping is answered on another connection while its
// stream is open, behind the gate, with the id that it came with.
func TestPing(t *testing.T) {
	for _, id := range []string{`1`, `"a"`, `-7.5`, `"` + strings.Repeat("x", 254) + `"`} {
		answered := make(chan question, 1)
		s := legacy(func(w http.ResponseWriter, q question) {
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, "data: {\"jsonrpc\":\"2.0\",\"id\":"+id+",\"method\":\"ping\"}\n\n")
			w.(http.Flusher).Flush()
			select {
			case <-answered:
				io.WriteString(w, `data: {"jsonrpc":"2.0","id":"`+q.id+`","result":`+good+"}\n\n")
			case <-q.gone:
			}
		})
		var reply question
		s.lines["POST"] = []answer{func(w http.ResponseWriter, q question) { reply = q; w.WriteHeader(202); answered <- q }}
		rep := call(t, mcpclient.New(mcpclient.Config{}), s.server(t, policy.EraLegacy), open())
		if rep.Outcome.State != fault.Succeeded || reply.body != `{"jsonrpc":"2.0","id":`+id+`,"result":{}}` {
			t.Errorf("id %.20s: %+v, answered with %s", id, rep.Outcome, reply.body)
		}
		if reply.header.Get("Authorization") != "Bearer "+token || reply.header.Get("Mcp-Session-Id") != "s-1" {
			t.Errorf("id %.20s: headers %v", id, reply.header)
		}
		if !slices.ContainsFunc(rep.Legs, legOf("ping")) {
			t.Errorf("id %.20s: legs %+v, want a ping", id, rep.Legs)
		}
	}
}

// TestPingWithoutAnAnswer: neither a refused credential nor a server that does
// not take our answer keeps the stream's answer from us; a flood of pings is not
// answered one by one.
func TestPingWithoutAnAnswer(t *testing.T) {
	ping := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	reply := `{"jsonrpc":"2.0","id":"$ID","result":` + good + `}`
	flood := stream(append(slices.Repeat([]string{ping}, 900), reply)...)
	for name, brk := range map[string]func(*script, *mcpclient.Gate){
		"a flood": func(*script, *mcpclient.Gate) {},
		"no credential": func(_ *script, g *mcpclient.Gate) {
			inner := g.Credential
			g.Credential = func(ctx context.Context, leg string) (mcpclient.Credential, error) {
				if leg == "ping" {
					return mcpclient.Credential{}, fault.New("test", fault.HoldGone, "")
				}
				return inner(ctx, leg)
			}
		},
		"no answer to the answer": func(s *script, _ *mcpclient.Gate) {
			s.lines["POST"] = []answer{func(_ http.ResponseWriter, q question) { <-q.gone }}
		},
		"a panic": func(_ *script, g *mcpclient.Gate) {
			inner := g.Credential
			g.Credential = func(ctx context.Context, leg string) (mcpclient.Credential, error) {
				if leg == "ping" {
					panic(token)
				}
				return inner(ctx, leg)
			}
		},
	} {
		s, gate := legacy(flood), open()
		brk(s, &gate)
		if rep := call(t, mcpclient.New(mcpclient.Config{}), s.server(t, policy.EraLegacy), gate); rep.Outcome.State != fault.Succeeded {
			t.Errorf("%s: %+v", name, rep.Outcome)
		}
		if n := s.count("POST"); n > 900 {
			t.Errorf("%s: %d answers", name, n)
		}
	}
}

// TestProgress: asked for only when somebody wants it, and passed on as long as
// it increases.
func TestProgress(t *testing.T) {
	note := func(params string) string {
		return `{"jsonrpc":"2.0","method":"notifications/progress","params":` + params + `}`
	}
	mine := func(rest string) string { return note(`{"progressToken":"$ID",` + rest + `}`) }
	long := strings.Repeat("ä", 600)
	answer := stream(
		mine(`"progress":1,"total":4,"message":"one"`),
		mine(`"progress":1`),
		mine(`"progress":0.5`),
		mine(`"progress":"2"`),
		mine(`"progress":1e400`),
		mine(`"message":"no number"`),
		note(`{"progressToken":"other","progress":9}`),
		note(`{"progress":9}`),
		note(`[]`),
		`{"jsonrpc":"2.0","method":"notifications/message","params":{"progressToken":"$ID","progress":9}}`,
		mine(`"progress":2.5,"message":"`+token+`"`),
		mine(`"progress":3,"message":"`+long+`"`),
		mine(`"progress":4,"message":7`),
		`{"jsonrpc":"2.0","id":"$ID","result":`+good+`}`,
	)
	for _, era := range []policy.Era{policy.EraModern, policy.EraLegacy} {
		canary.Run(t, func(c *canary.Cage) {
			s := legacy(answer)
			talk := mcpclient.New(mcpclient.Config{}).Open(s.server(t, era))
			defer talk.Close()
			var got []mcpclient.Progress
			wanted := search
			wanted.Progress = func(p mcpclient.Progress) { got = append(got, p) }
			rep := talk.CallTool(within(t, 5*time.Second), wanted, open())
			want := []mcpclient.Progress{{1, 4, "one"}, {2.5, 0, ""}, {3, 0, strings.Repeat("ä", 512)}, {4, 0, ""}}
			if diff := cmp.Diff(want, got); diff != "" || rep.Outcome.State != fault.Succeeded {
				t.Errorf("%s: %+v (-want +got):\n%s", era, rep.Outcome, diff)
			}
			c.Value("progress", got)
			talk.CallTool(within(t, 5*time.Second), search, open())
			first, second := s.asked[len(s.asked)-2], s.asked[len(s.asked)-1]
			if !strings.Contains(first.body, fmt.Sprintf(`"progressToken":%q`, first.id)) || strings.Contains(second.body, "progressToken") {
				t.Errorf("%s: asked with %s, and where nobody wants it with %s", era, first.body, second.body)
			}
		}, token)
	}
}

// TestIdleWindow: what says nothing for as long as the window is cut off, before
// the deadline; every byte extends it, never past the deadline.
func TestIdleWindow(t *testing.T) {
	drip := func(every time.Duration, times int, last string) answer {
		return func(w http.ResponseWriter, q question) {
			w.Header().Set("Content-Type", "text/event-stream")
			for range times {
				io.WriteString(w, ": still here\n")
				w.(http.Flusher).Flush()
				select {
				case <-time.After(every):
				case <-q.gone:
				}
			}
			io.WriteString(w, strings.ReplaceAll(last, "$ID", q.id))
		}
	}
	reply := "data: {\"jsonrpc\":\"2.0\",\"id\":\"$ID\",\"result\":" + good + "}\n\n"
	s := time.Second
	for _, r := range []struct {
		name string
		call answer
		idle time.Duration
		want fault.Outcome
		took time.Duration
	}{
		{"silence", after(time.Hour, result(good)), 3 * s, fault.Doubt(fault.Idle), 3 * s},
		{"just in time", after(3*s-1, result(good)), 3 * s, succeeded, 3*s - 1},
		{"no window", after(9*s, result(good)), 0, succeeded, 9 * s},
		{"a window longer than the budget", after(time.Hour, result(good)), time.Minute, fault.Doubt(fault.WallClock), 10 * s},
		{"a head, then silence", hang(raw("text/event-stream", "")), 3 * s, fault.Doubt(fault.Idle), 3 * s},
		{"a late head, then silence", after(2*s, hang(raw("text/event-stream", ""))), 3 * s, fault.Doubt(fault.Idle), 5 * s},
		{"bytes extend it", drip(2*s, 4, reply), 3 * s, succeeded, 8 * s},
		{"but not past the deadline", drip(2*s, 9, reply), 3 * s, fault.Doubt(fault.WallClock), 10 * s},
		{"bytes, then silence", drip(4*s, 9, reply), 3 * s, fault.Doubt(fault.Idle), 3 * s},
		{"half a body", hang(raw("application/json", "{")), 3 * s, fault.Doubt(fault.Idle), 3 * s},
	} {
		t.Run(r.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := modern(r.call)
				talk := mcpclient.New(mcpclient.Config{Dial: testhttp.OnPipes(t, server).Dial}).Open(declare(t, "http://mcp.test/mcp", policy.EraModern))
				defer talk.Close()
				impatient := search
				impatient.Idle = r.idle
				began := time.Now()
				rep := talk.CallTool(within(t, 10*s), impatient, open())
				if took := time.Since(began); rep.Outcome != r.want || took != r.took {
					t.Errorf("%+v after %v, want %+v after %v", rep.Outcome, took, r.want, r.took)
				}
			})
		})
	}
}

// TestBlackHole: a server that says nothing, in each era and at each leg. The
// operation ends with its deadline, the farewell and the connection included.
func TestBlackHole(t *testing.T) {
	never := func(_ http.ResponseWriter, q question) { <-q.gone }
	for _, r := range []struct {
		era policy.Era
		leg string
	}{
		{policy.EraModern, toolsCall}, {policy.EraAuto, probe}, {policy.EraLegacy, initialize}, {policy.EraLegacy, initialized}, {policy.EraLegacy, toolsCall},
	} {
		t.Run(string(r.era)+"/"+r.leg, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := withFarewell(result(good))
				s.lines[r.leg], s.lines[cancelled], s.lines[deletion] = []answer{never}, []answer{never}, []answer{never}
				talk := mcpclient.New(mcpclient.Config{Dial: testhttp.OnPipes(t, s).Dial}).Open(declare(t, "http://mcp.test/mcp", r.era))
				began := time.Now()
				rep := talk.CallTool(within(t, 2*time.Second), search, open())
				wait := talk.Farewell(context.Background(), open())
				if took := time.Since(began); took != 2*time.Second || rep.Outcome.Cause != fault.WallClock {
					t.Errorf("%+v after %v, want wall_clock after 2 s", rep.Outcome, took)
				}
				wait()
				talk.Close()
			})
		})
	}
}
