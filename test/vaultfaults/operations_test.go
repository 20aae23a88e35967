package vaultfaults

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"onbehalf.internal/broker/brokertest"
	"onbehalf.internal/broker/internal/devvault"
	"onbehalf.internal/broker/internal/testhttp"
	"onbehalf.internal/broker/secret/canary"
)

// An end is what is left of an operation: what its caller got, and what was sent.
type end struct {
	State, Cause, Retry, Hold string
	Puts, Reads, Drops        int // requests to Vault; of the drops those before the answer
	Calls                     int // tools/call requests at the MCP server
}

// A step is one request that an operation makes of Vault, and what follows from
// each reading of its answer.
type step struct {
	name   string
	server string
	plan   plan
	ends   map[reading]end
	except map[string]end // by the answer's name

	believed int // cells after which the hold is taken as gone and may be there
}

func notSent(cause, hold string, puts, reads, drops int) end {
	return end{"not_sent", cause, "safe", hold, puts, reads, drops, 0}
}

func steps() []step {
	otherKinds := func(reads int) map[string]end {
		return map[string]end{"200 of other kinds": notSent("hold_changed", "dropped", 1, reads, 1)}
	}
	list := []step{
		{name: "credential", server: "records", plan: plan{method: "GET", prefix: subject7}, ends: map[reading]end{
			foreign: notSent("vault_unexpected", "", 0, 0, 0),
			lost:    notSent("vault_unreachable", "", 0, 0, 0),
			sealed:  notSent("vault_sealed", "", 0, 0, 0),
			empty:   notSent("credential_missing", "", 0, 0, 0),
			other:   notSent("subject_rejected", "", 0, 0, 0), // the provider's word: Vault's cannot be doubted
			nothing: notSent("vault_unexpected", "", 0, 0, 0),
			refused: notSent("vault_unexpected", "", 0, 0, 0),
			denied:  notSent("vault_denied", "", 0, 0, 0),
			absent:  notSent("credential_missing", "", 0, 0, 0),
			limited: notSent("vault_rate_limited", "", 0, 0, 0),
		}},
		{name: "put", server: "records", plan: plan{method: "POST", prefix: holds}, ends: map[reading]end{
			// It may be there: it is dropped later, and the answer does not say that it is gone.
			foreign: notSent("vault_unexpected", "pending", 1, 0, 0),
			lost:    notSent("vault_unreachable", "pending", 1, 0, 0),
			sealed:  notSent("vault_sealed", "pending", 1, 0, 0),
			empty:   notSent("vault_unexpected", "pending", 1, 0, 0),
			other:   notSent("vault_unexpected", "pending", 1, 0, 0),
			nothing: notSent("hold_gone", "dropped", 1, 1, 1), // the check before the first leg finds out
			// Vault refused: nothing is there.
			refused: notSent("vault_unexpected", "", 1, 0, 0),
			denied:  notSent("vault_denied", "", 1, 0, 0),
			absent:  notSent("vault_unexpected", "", 1, 0, 0),
			limited: notSent("vault_rate_limited", "", 1, 0, 0),
		}},
		{name: "drop", server: "records", plan: plan{method: "DELETE", prefix: holds, newest: true}, ends: dropEnds(1), believed: 3},
		{name: "drop, legacy", server: "archive", plan: plan{method: "DELETE", prefix: holds, newest: true}, ends: dropEnds(4), believed: 3},
		{name: "read before the one leg, modern", server: "records", plan: plan{method: "GET", prefix: holds, nth: 1}, ends: readEnds(1), except: otherKinds(1)},
	}
	for k, leg := range []string{"initialize", "notifications/initialized", "tools/call"} {
		reads := k + 1
		if reads > 1 { // there is a session at the server by now, and the farewell to it has a check of its own
			reads++
		}
		list = append(list, step{name: "read before " + leg + ", legacy", server: "archive",
			plan: plan{method: "GET", prefix: holds, nth: k + 1}, ends: readEnds(reads), except: otherKinds(reads)})
	}
	return list
}

func readEnds(reads int) map[reading]end {
	return map[reading]end{
		foreign: notSent("vault_unexpected", "dropped", 1, reads, 1),
		lost:    notSent("vault_unreachable", "dropped", 1, reads, 1),
		sealed:  notSent("vault_sealed", "dropped", 1, reads, 1),
		empty:   notSent("vault_unexpected", "dropped", 1, reads, 1),
		other:   notSent("hold_changed", "dropped", 1, reads, 1),
		nothing: notSent("vault_unexpected", "dropped", 1, reads, 1),
		refused: notSent("vault_unexpected", "dropped", 1, reads, 1),
		denied:  notSent("hold_gone", "dropped", 1, reads, 1),
		absent:  notSent("hold_gone", "dropped", 1, reads, 1),
		limited: notSent("vault_rate_limited", "dropped", 1, reads, 1),
	}
}

func dropEnds(reads int) map[reading]end {
	gone := end{"succeeded", "", "never", "dropped", 1, reads, 1, 1}
	later := end{"succeeded", "", "never", "pending", 1, reads, 1, 1}
	return map[reading]end{
		foreign: later, lost: later, sealed: later, empty: later, other: later, refused: later, limited: later,
		nothing: gone, denied: gone, absent: gone,
	}
}

// A rig is a broker over a Vault that can answer wrongly.
type rig struct {
	*brokertest.Rig
	vault     *devvault.Server
	proxy     *proxy
	elsewhere atomic.Int64 // requests at a host that nobody may be sent to
	answers   []wrong
	outputs   map[string][]byte // all that the broker puts out, but the log
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{vault: devvault.New(devvault.Options{}), outputs: map[string][]byte{}}
	r.proxy = newProxy(r.vault)
	front := httptest.NewServer(r.proxy)
	t.Cleanup(func() { front.CloseClientConnections(); front.Close() })
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { r.elsewhere.Add(1) }))
	t.Cleanup(elsewhere.Close)
	r.answers = answers(elsewhere.URL)
	r.Rig = brokertest.New(t, &brokertest.Options{Vault: front.URL, VaultToken: r.vault.RootToken(),
		Config: func(yaml string) string {
			yaml = strings.Replace(yaml, "timeout: 5s", "timeout: 1m", 1) // so that it is the client's patience with Vault that ends
			return strings.Replace(yaml, "listen: {", `listen: {metrics: "127.0.0.1:0", `, 1)
		}})
	for _, server := range []string{"records", "archive"} { // so that the first cell finds what all others find
		if a := r.Call(t, brokertest.Call{Server: server}); a.State != "succeeded" {
			t.Fatalf("nothing is wrong: %s", a.Body)
		}
	}
	return r
}

// TestOperations is every wrong answer at every request that an operation makes
// of Vault. One broker takes all of a step, so each cell also shows that the one
// before left nothing behind. Some steps run side by side: they mostly wait.
func TestOperations(t *testing.T) {
	var cells atomic.Int64
	canary.Run(t, func(*canary.Cage) {
		var all sync.WaitGroup
		places := make(chan struct{}, 4)
		for _, s := range steps() {
			places <- struct{}{}
			all.Go(func() {
				defer func() { <-places }()
				t.Run(s.name, func(t *testing.T) {
					r := newRig(t)
					for _, w := range r.answers {
						t.Run(w.name, func(t *testing.T) { r.cell(t, s, w) })
						cells.Add(1)
					}
					r.leave(t, s.believed)
				})
			})
		}
		all.Wait()
	}, marker)
	fmt.Printf("vaultfaults: operations: %d cells, %d steps\n", cells.Load(), len(steps()))
}

// cell is one operation whose step is answered wrongly.
func (r *rig) cell(t *testing.T, s step, w wrong) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := r.Broker.WaitReady(ctx); err != nil {
		t.Fatalf("the cell before left the broker not ready: %v", err)
	}
	plan := s.plan
	plan.many, plan.wrong = 1, w
	call := brokertest.Call{Server: s.server}
	before := r.calls()
	r.proxy.spoil(&plan)
	a, err := r.Do(ctx, call)
	if err != nil {
		t.Fatalf("no answer of the broker: %v", err)
	}
	put := r.proxy.newest()
	got := end{string(a.State), string(a.Cause), string(a.Retry), a.Hold,
		r.proxy.count("POST", holds), r.proxy.count("GET", holds), r.proxy.count("DELETE", put), r.calls() - before}
	if got.Puts == 0 {
		got.Drops = 0
	}
	want, ok := s.except[w.name]
	if !ok {
		want = s.ends[w.reading]
	}
	if got != want || a.Status != http.StatusOK {
		t.Errorf("%d\n got %+v\nwant %+v\n%s", a.Status, got, want, a.Body)
	}
	r.proxy.spoil(nil)
	again := r.Get(t, "/v1/operations/"+a.ID, call)
	if again.State != a.State || again.Cause != a.Cause {
		t.Errorf("retrieved: %s", again.Body)
	}
	r.outputs[w.name], r.outputs[w.name+", retrieved"] = a.Body, again.Body
}

func (r *rig) calls() int { return r.Records.Arrived("tools/call") + r.Archive.Arrived("tools/call") }

// leave looks at what the cells left: nothing in Vault, nothing elsewhere, and no
// secret in the metrics, the audit or the database. believed is how many drops Vault
// may have been wrongly believed to have made: those go with their epoch.
func (r *rig) leave(t *testing.T, believed int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	defer cancel()
	await(ctx, t, "what may have been stored is dropped", func() bool { return r.vault.Residue() <= believed })
	if err := r.Broker.WaitReady(ctx); err != nil {
		t.Error(err)
	}
	r.metrics(t)
	if err := r.Stop(); err != nil {
		t.Error(err)
	}
	if n := r.vault.Live("broker-op"); n != 0 || r.vault.Residue() != 0 {
		t.Errorf("%d epochs live after the end, and %d holds are there", n, r.vault.Residue())
	}
	if n := r.elsewhere.Load(); n != 0 {
		t.Errorf("%d requests reached another host", n)
	}
	r.outputs["audit"] = []byte(r.Audit(t))
	r.search(t)
}

// search looks for secrets, and for what foreign answers said, in all that was
// put out.
func (r *rig) search(t *testing.T) {
	t.Helper()
	r.outputs["log"] = []byte(r.Log())
	var err error
	if r.outputs["database"], err = os.ReadFile(r.DatabasePath()); err != nil {
		t.Fatal(err)
	}
	for _, planted := range slices.Concat([]string{marker}, r.Secrets(), r.proxy.secrets()) {
		for name, data := range r.outputs {
			if form, found := canary.Find(data, planted); found {
				t.Errorf("a secret, or foreign text, is in: %s, %s", name, form)
			}
		}
	}
}

func (r *rig) metrics(t *testing.T) {
	t.Helper()
	res, err := testhttp.Client.Get(r.Broker.MetricsAddress() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil || !bytes.Contains(body, []byte("broker_")) {
		t.Errorf("no metrics: %v", err)
	}
	r.outputs["metrics"] = body
}

// await waits for what the broker or Vault does by itself.
func await(ctx context.Context, t *testing.T, what string, ok func() bool) {
	t.Helper()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for !ok() {
		select {
		case <-poll.C:
		case <-ctx.Done():
			t.Fatalf("not in time: %s", what)
		}
	}
}
