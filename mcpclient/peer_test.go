package mcpclient_test

import (
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/internal/devmcp"
	"onbehalf.internal/broker/mcpclient"
	"onbehalf.internal/broker/policy"
)

// TestPeer speaks to a server that others wrote, in both eras.
func TestPeer(t *testing.T) {
	for _, r := range []struct {
		name   string
		legacy bool
		era    policy.Era
		path   []string
	}{
		{"modern", false, policy.EraModern, []string{toolsCall}},
		{"modern, first contact", false, policy.EraAuto, []string{probe, toolsCall}},
		{"legacy", true, policy.EraLegacy, []string{initialize, initialized, toolsCall}},
		{"legacy, first contact", true, policy.EraAuto, []string{probe, initialize, initialized, toolsCall}},
	} {
		t.Run(r.name, func(t *testing.T) {
			peer, err := devmcp.Start(devmcp.Options{Legacy: r.legacy, Verify: func(got string) (devmcp.Identity, error) {
				if got != token {
					t.Errorf("the peer got %q", got)
				}
				return devmcp.Identity{Subject: "user:7"}, nil
			}})
			if err != nil {
				t.Fatal(err)
			}
			defer peer.Close()
			talk := mcpclient.New(mcpclient.Config{}).Open(declare(t, peer.URL, r.era))
			defer talk.Close()
			rep := talk.CallTool(within(t, 5*time.Second), mcpclient.Call{Tool: "whoami"}, open())
			if rep.Outcome.State != fault.Succeeded || !strings.Contains(string(rep.Result), "user:7") {
				t.Errorf("%+v %s, want user:7", rep.Outcome, rep.Result)
			}
			var path []string
			for _, q := range peer.Requests() {
				path = append(path, q.Method)
			}
			if diff := cmp.Diff(r.path, path); diff != "" {
				t.Errorf("path (-want +got):\n%s", diff)
			}
			tools, listed := talk.ListTools(within(t, 5*time.Second), open(), nil)
			if len(tools.Tools) == 0 {
				t.Errorf("no tools: %+v", listed)
			}
		})
	}
}

// TestPeerOutcomes: what the server really did, and what we say of it.
func TestPeerOutcomes(t *testing.T) {
	peer, err := devmcp.Start(devmcp.Options{Verify: func(string) (devmcp.Identity, error) { return devmcp.Identity{Subject: "user:7"}, nil }})
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	for _, r := range []struct {
		tool, arguments string
		budget          time.Duration
		want            fault.Outcome
		ran             int
	}{
		{"fail", `{}`, 5 * time.Second, fault.Outcome{State: fault.ToolError, Ran: fault.RanYes, Evidence: fault.EvidencePeer, Cause: fault.ToolFailed}, 1},
		{"drop", `{"job":"a"}`, 5 * time.Second, fault.Doubt(fault.ConnectionLost), 1},
		{"slow", `{"seconds":60}`, 200 * time.Millisecond, fault.Doubt(fault.WallClock), 1},
		{"absent", `{}`, 5 * time.Second, fault.Doubt(fault.StatusUnclear), 0},
	} {
		talk := mcpclient.New(mcpclient.Config{}).Open(declare(t, peer.URL, policy.EraModern))
		rep := talk.CallTool(within(t, r.budget), mcpclient.Call{Tool: r.tool, Arguments: []byte(r.arguments)}, open())
		talk.Close()
		if rep.Outcome != r.want || peer.Calls(r.tool) != r.ran {
			t.Errorf("%s: %+v after %d runs, want %+v after %d", r.tool, rep.Outcome, peer.Calls(r.tool), r.want, r.ran)
		}
	}
}

// TestTLS: the next operation resumes the TLS session on a connection of its
// own, and a server that we do not trust gets no request.
func TestTLS(t *testing.T) {
	s := modern(result(good))
	var resumed []bool
	var requests atomic.Int32
	h := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		resumed = append(resumed, r.TLS.DidResume)
		s.ServeHTTP(w, r)
	}))
	defer h.Close()
	server := declare(t, h.URL, policy.EraModern)
	c := mcpclient.New(mcpclient.Config{})
	if rep := call(t, c, server, open()); rep.Outcome != fault.NotSentBecause(fault.TLSFailed) || requests.Load() != 0 {
		t.Errorf("%+v after %d requests, want tls_failed after none", rep.Outcome, requests.Load())
	}
	server.CA = x509.NewCertPool()
	server.CA.AddCert(h.Certificate())
	for range 2 {
		if rep := call(t, c, server, open()); rep.Outcome.State != fault.Succeeded {
			t.Errorf("%+v", rep.Outcome)
		}
	}
	if !slices.Equal(resumed, []bool{false, true}) {
		t.Errorf("resumed: %v, want false, true", resumed)
	}
}
