//go:build real

package servers

import (
	"context"
	"encoding/json"
	"net/netip"
	"net/url"
	"os"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/internal/counterparts"
	"onbehalf.internal/broker/internal/testhttp"
	"onbehalf.internal/broker/mcpclient"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/secret"
)

// patience is the budget of what has to succeed on a busy machine. Every slow
// tool takes longer.
const patience = 20 * time.Second

// seen is what the tables compare of a report.
type seen struct {
	Outcome fault.Outcome
	Era     policy.Era
	Version string
	Legs    []string
}

func compare(t *testing.T, name string, got mcpclient.Report, want seen) {
	t.Helper()
	is := seen{got.Outcome, got.Era, got.Version, nil}
	for _, l := range got.Legs {
		is.Legs = append(is.Legs, l.Name)
	}
	if diff := cmp.Diff(want, is); diff != "" {
		t.Errorf("%s (-want +got):\n%s\n%s", name, diff, got.Result)
	}
}

func declare(t *testing.T, address string, era policy.Era, versions []string) *policy.Server {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	loopback := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	return &policy.Server{ID: "records", URL: u, Era: era, Versions: versions, AllowCIDRs: loopback}
}

// gate lets everything through with a bearer token, which no counterpart looks at.
func gate() mcpclient.Gate {
	return mcpclient.Gate{
		Credential: func(context.Context, string) (mcpclient.Credential, error) {
			return mcpclient.Credential{Header: "Authorization", Value: secret.New("canary-7Hq2mZx9LwP4vRt6"), ReadAt: time.Now()}, nil
		},
		Sending: func(context.Context) error { return nil },
	}
}

// callOnce is one operation of a client that remembers nothing.
func callOnce(t *testing.T, s *policy.Server, c counterparts.ToolCall) mcpclient.Report {
	t.Helper()
	talk := mcpclient.New(mcpclient.Config{}).Open(s)
	defer talk.Close()
	return call(t, talk, c, patience)
}

func call(t *testing.T, talk *mcpclient.Conversation, c counterparts.ToolCall, budget time.Duration) mcpclient.Report {
	t.Helper()
	out := mcpclient.Call{Tool: c.Tool}
	if c.Arguments != nil {
		b, err := json.Marshal(c.Arguments)
		if err != nil {
			t.Fatal(err)
		}
		out.Arguments = b
	}
	ctx, cancel := context.WithTimeout(t.Context(), budget)
	defer cancel()
	return talk.CallTool(ctx, out, gate())
}

func list(t *testing.T, talk *mcpclient.Conversation) (tools int, _ mcpclient.Report) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	all, report := talk.ListTools(ctx, gate(), nil)
	return len(all.Tools), report
}

// leavesNothing fails the test if it ends with more goroutines or descriptors
// than there are now. Both take a moment to go after a connection is closed. The
// garbage collector rests meanwhile: it closes what was forgotten.
func leavesNothing(t *testing.T) {
	t.Helper()
	testhttp.Client.CloseIdleConnections() // those that waited for a counterpart
	collect := debug.SetGCPercent(-1)
	goroutines, descriptors := runtime.NumGoroutine(), openFiles(t)
	t.Cleanup(func() {
		defer debug.SetGCPercent(collect)
		poll := time.NewTicker(5 * time.Millisecond)
		defer poll.Stop()
		late := time.After(5 * time.Second)
		for runtime.NumGoroutine() > goroutines || openFiles(t) > descriptors {
			select {
			case <-poll.C:
			case <-late:
				stacks := make([]byte, 64<<10)
				t.Errorf("%d goroutines and %d descriptors more than at first:\n%s", runtime.NumGoroutine()-goroutines,
					openFiles(t)-descriptors, stacks[:runtime.Stack(stacks, true)])
				return
			}
		}
	})
}

// openFiles counts this process's descriptors, where the system shows them.
func openFiles(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/dev/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}
