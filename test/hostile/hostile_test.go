// Package hostile_test has the MCP client meet every behaviour of the hostile
// server, and compares what the client says with what the server saw.
package hostile_test

import (
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/mcpclient"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/secret"
	"onbehalf.internal/broker/secret/canary"
	"onbehalf.internal/broker/strictjson"
	"onbehalf.internal/broker/test/hostile/server"
)

const token = "canary-9Kd4wQxTz7LmB2vR"

// TestHostileServer is the table: every behaviour, in every era it plays.
//
// Whatever the row, the token is in no output, nobody but the server heard from
// the client, every connection is closed when the conversation is, and
// goroutines, descriptors and memory are what they were, or bounded.
func TestHostileServer(t *testing.T) {
	s := start(t)
	out := &network{}
	table := rows(t)
	before := countAll(t)
	memory := watchMemory()
	canary.Run(t, func(c *canary.Cage) {
		t.Run("rows", func(t *testing.T) {
			for _, r := range table {
				t.Run(r.name(), func(t *testing.T) {
					t.Parallel()
					meet(t, c, s, out, r)
				})
			}
		})
	}, token, server.Foreign)
	if peak := memory.stop(); peak > 64<<20 {
		t.Errorf("%d MiB over idle at the peak, want 64 at most", peak>>20)
	} else {
		t.Logf("%d rows of %d behaviours, %.1f MiB over idle at the peak", len(table), len(server.All()), float64(peak)/(1<<20))
	}
	leftovers(t, s, out)
	if after, ok := before.settled(t); !ok {
		t.Errorf("%+v at the end, want no more than %+v", after, before)
	}
}

// leftovers are about whom the client spoke to, and whether it has hung up.
func leftovers(t *testing.T, s *server.Server, out *network) {
	t.Helper()
	for _, who := range s.Strayed() {
		t.Errorf("the other host heard from the client: %s", who)
	}
	within(10*time.Second, func() bool { return len(s.Open()) == 0 })
	for _, run := range s.Open() {
		t.Errorf("%s: a connection is still open", run)
	}
	if len(out.conns) == 0 {
		t.Error("nobody dialled: nothing was watched")
	}
	for addr := range out.addrs {
		if "http://"+addr != s.URL {
			t.Errorf("the client dialled %s", addr)
		}
	}
}

func start(t *testing.T) *server.Server {
	t.Helper()
	s, err := server.Start("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// An observation is what both sides say of one operation.
type observation struct {
	outcome  fault.Outcome
	result   strictjson.Raw
	tools    int
	invalid  int
	progress []float64
	took     time.Duration

	seen []server.Request
	ran  int
}

// meet plays a row and reports what is wrong about it. A deadline that is meant
// for one leg may pass before that leg where the machine is busy: then the row
// has tested something else, and it is played again with twice the time.
func meet(t *testing.T, c *canary.Cage, s *server.Server, out *network, r row) {
	t.Helper()
	for n := 0; ; n++ {
		got := r.play(t, c, s, out, fmt.Sprintf("%s-%s-%d", r.pin, r.idle, n))
		if r.reached(got) || r.budget() > 3*time.Second {
			for _, wrong := range r.complaints(got) {
				t.Error(wrong)
			}
			return
		}
		r.slower++
	}
}

func (r row) play(t *testing.T, c *canary.Cage, s *server.Server, out *network, name string) (got observation) {
	run := s.Run(r.Name, name)
	talk := mcpclient.New(mcpclient.Config{Dial: out.dial}).Open(declare(t, s.Endpoint(r.Name, name), r.pin))
	ctx, cancel := context.WithTimeout(t.Context(), r.budget())
	defer cancel()

	began := time.Now()
	var rep mcpclient.Report
	if r.lists() {
		got.tools, got.invalid, rep = listed(ctx, c, talk)
	} else {
		rep = talk.CallTool(ctx, r.call(c, &got), open())
	}
	got.took = time.Since(began)
	rep.Legs = append(rep.Legs, farewell(ctx, talk)...)
	talk.Close()

	got.outcome, got.result = rep.Outcome, rep.Result
	rep.Result = nil
	c.Value(r.name(), rep)
	if form, found := canary.Find(got.result, token); found {
		t.Errorf("the token is in the result, %s", form)
	}
	got.seen, got.ran = run.Requests(), run.Ran()
	return got
}

func (r row) call(c *canary.Cage, got *observation) mcpclient.Call {
	arguments := `{"q":"` + strings.Repeat("a", max(1, r.arguments)) + `"}`
	call := mcpclient.Call{Tool: "search", Arguments: []byte(arguments), Context: "user:7", Idle: r.idle}
	if r.progress != nil {
		call.Progress = func(p mcpclient.Progress) {
			c.Value(r.name()+" progress", p)
			got.progress = append(got.progress, p.Done)
			if len(p.Message) > 1024 {
				got.progress = append(got.progress, -1)
			}
		}
	}
	return call
}

func listed(ctx context.Context, c *canary.Cage, talk *mcpclient.Conversation) (tools, invalid int, rep mcpclient.Report) {
	l, rep := talk.ListTools(ctx, open(), nil)
	for _, tool := range l.Tools {
		c.Bytes("tool", tool)
	}
	return len(l.Tools), len(l.Invalid), rep
}

// farewell ends the conversation with a legacy server and returns its legs.
func farewell(ctx context.Context, talk *mcpclient.Conversation) []audit.Leg {
	return talk.Farewell(ctx, open())()
}

func declare(t *testing.T, address string, era policy.Era) *policy.Server {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return &policy.Server{ID: "hostile", URL: u, Era: era, AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
}

// open is a gate at which everything is well.
func open() mcpclient.Gate {
	return mcpclient.Gate{
		Credential: func(context.Context, string) (mcpclient.Credential, error) {
			return mcpclient.Credential{Header: "Authorization", Value: secret.New(token), ReadAt: time.Now()}, nil
		},
		Sending: func(context.Context) error { return nil },
	}
}
