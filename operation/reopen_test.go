package operation_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/brokertest"
	"onbehalf.internal/broker/internal/devmcp"
)

// TestReopened: a server that takes its time in the handshake outlives the token, or
// the epoch of the hold. The call then leaves with a token of its own, once; not where
// somebody revoked the epoch meanwhile.
func TestReopened(t *testing.T) {
	const before = "subject exchange hold server/discover initialize notifications/initialized "
	for _, tc := range []struct {
		name   string
		config func(yaml string) string
		epochs string // how long they live; "": as they do
		held   time.Duration
		killed bool
		state  string
		legs   string
	}{
		{"the token ran out", shortTokens, "", 3200 * time.Millisecond, false, "succeeded", before + "drop subject exchange hold tools/call drop"},
		{"the token ran out, and the epoch was revoked", shortTokens, "", 3200 * time.Millisecond, true, "not_sent", before + "tools/call drop"},
		{"the epoch ran out", nil, "6s", 6200 * time.Millisecond, false, "succeeded", before + "drop subject exchange hold tools/call drop"},
		{"the epoch was revoked before it would have run out", nil, "6s", 6200 * time.Millisecond, true, "not_sent", before + "tools/call drop"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel() // they wait; nothing else runs beside them
			rig := brokertest.New(t, &brokertest.Options{Config: func(yaml string) string {
				if tc.config != nil {
					yaml = tc.config(yaml)
				}
				return strings.Replace(yaml, "timeout: 5s", "timeout: 20s", 1)
			}})
			if tc.epochs != "" {
				shorten(t, rig, tc.epochs)
			}
			exchanges, drops := rig.Provider.Exchanges(), rig.Vault.Count("DELETE", holds)
			arrived := holdFor(t, rig.Archive, "notifications/initialized", tc.held)
			got := make(chan brokertest.Answer, 1)
			go func() {
				a, err := rig.Do(t.Context(), brokertest.Call{Server: "archive"})
				if err != nil {
					t.Error(err)
				}
				got <- a
			}()
			<-arrived
			if tc.killed {
				rig.Vault.RevokeAll("broker-op")
			}
			a := <-got
			if string(a.State) != tc.state || a.LegNames() != tc.legs || a.Hold != "dropped" {
				t.Fatalf("%s", a.Body)
			}
			if err := rig.Stop(); err != nil {
				t.Fatal(err)
			}
			if n := partings(rig.Archive); n == 0 != tc.killed { // without a hold the server is not told
				t.Errorf("the server was told %d times that the session is over", n)
			}
			end := outcome(t, rig)
			if tc.killed {
				if a.Cause != "hold_gone" || a.Retry != "safe" || rig.Provider.Exchanges() != exchanges+1 || rig.Archive.Arrived("tools/call") != 0 {
					t.Errorf("%d exchanges: %s", rig.Provider.Exchanges()-exchanges, a.Body)
				}
				return
			}
			issued := rig.Provider.Issued()
			if len(issued) != exchanges+2 || rig.Archive.Calls("whoami") != 1 || rig.Vault.Count("DELETE", holds) != drops+2 {
				t.Errorf("%d exchanges, %d runs, %d drops", len(issued)-exchanges, rig.Archive.Calls("whoami"), rig.Vault.Count("DELETE", holds)-drops)
			}
			if end.Token != audit.DigestOf(issued[len(issued)-1]).String() || strings.TrimSuffix(end.names(), " drop") != strings.TrimSuffix(tc.legs, " drop") {
				t.Errorf("the audit says token %.8s, legs %s", end.Token, end.names())
			}
			tokens := rig.Archive.Tokens() // of discover, initialize, initialized, the call, the end
			for i, token := range tokens {
				if want := issued[exchanges+i/3]; token != want {
					t.Errorf("request %d of %d came with another token", i+1, len(tokens))
				}
			}
		})
	}
}

// TestFarewellOpensNothing: a token that ran out during the call is not asked for
// anew to say goodbye.
func TestFarewellOpensNothing(t *testing.T) {
	rig := brokertest.New(t, &brokertest.Options{Config: shortTokens})
	holdFor(t, rig.Archive, "tools/call", 3200*time.Millisecond)
	a := rig.Call(t, brokertest.Call{Server: "archive"})
	if a.State != "succeeded" || a.Hold != "dropped" {
		t.Fatalf("%s", a.Body)
	}
	if err := rig.Stop(); err != nil {
		t.Fatal(err)
	}
	if n := rig.Provider.Exchanges(); n != 1 || partings(rig.Archive) != 0 {
		t.Errorf("%d exchanges, %d partings, want one and none", n, partings(rig.Archive))
	}
}

// holdFor holds requests with this method back for so long after the first has
// arrived, which it tells.
func holdFor(t *testing.T, mcp *devmcp.Server, method string, d time.Duration) (arrived chan bool) {
	arrived = make(chan bool)
	release := mcp.Hold(method)
	go func() {
		defer close(arrived)
		if err := mcp.Await(t.Context(), func() bool { return mcp.Arrived(method) > 0 }); err != nil {
			t.Error(err)
		}
		time.AfterFunc(d, release)
	}()
	return arrived
}

func shortTokens(yaml string) string {
	return strings.Replace(yaml, "require_act: broker", "require_act: broker, max_ttl: 5s", 1)
}

// shorten has the epochs live for so long from now on, and waits until one does.
func shorten(t *testing.T, rig *brokertest.Rig, life string) {
	t.Helper()
	req, err := http.NewRequest("POST", "http://vault/v1/auth/token/roles/broker-op", strings.NewReader(
		`{"allowed_policies":"broker-op","token_no_default_policy":true,"token_explicit_max_ttl":"`+life+`"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Vault-Token", rig.Vault.RootToken())
	res, err := rig.Vault.RoundTrip(req)
	if err != nil || res.StatusCode >= 300 {
		t.Fatal(res, err)
	}
	rig.Vault.RevokeAll("broker-op")
	for rig.Call(t, brokertest.Call{}).State != "succeeded" { // the first finds its epoch dead, and another is made
	}
}

// An ending is what the audit says of an operation's outcome.
type ending struct {
	Kind  audit.Kind
	Token string
	Legs  []audit.Leg
}

func (e ending) names() string {
	var names []string
	for _, l := range e.Legs {
		names = append(names, l.Name)
	}
	return strings.Join(names, " ")
}

// outcome is the last one in rig's audit.
func outcome(t *testing.T, rig *brokertest.Rig) (last ending) {
	t.Helper()
	for line := range strings.Lines(rig.Audit(t)) {
		var e ending
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		if e.Kind == audit.Outcome {
			last = e
		}
	}
	return last
}
