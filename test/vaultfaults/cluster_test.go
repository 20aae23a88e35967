//go:build real && soak

package vaultfaults

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"onbehalf.internal/broker/brokertest"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/internal/realvault"
)

const (
	callers   = 16
	stepDowns = 24
	budget    = 5 * time.Second
	cleanUp   = 5 * time.Second // 3 for the drop, as brokertest has it, and the commits
)

// A tally is what became of the operations under load.
type tally struct {
	mu         sync.Mutex // guards all below
	operations int
	sent       int // succeeded, or unknown
	overBudget int
	slowest    time.Duration
	ends       map[string]int // by state, cause and hold
	untyped    []string       // answers that are no outcome, or a wrong one
}

func (c *tally) add(a brokertest.Answer, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.operations++
	c.slowest = max(c.slowest, took)
	if took > budget+cleanUp {
		c.overBudget++
	}
	if a.State != "not_sent" {
		c.sent++
	}
	c.ends[strings.Join(strings.Fields(fmt.Sprint(a.State, " ", a.Cause, " hold=", a.Hold)), " ")]++
	typed := a.State == "succeeded" || a.State == "not_sent" && a.Retry == "safe" &&
		(strings.HasPrefix(string(a.Cause), "vault_") || slices.Contains([]fault.Reason{fault.HoldGone, fault.CheckStale, fault.BudgetSpent}, a.Cause))
	if a.Status != 200 || !typed {
		c.untyped = append(c.untyped, string(a.Body))
	}
}

// TestLeaderStepsDown: 16 callers, and every two seconds the leader of three nodes
// gives up being it. The broker knows one node, which leads at times and forwards at
// others. Every operation succeeds, or ends for a reason before its call is sent.
func TestLeaderStepsDown(t *testing.T) {
	nodes := realvault.StartCluster(t, 3)
	brokers := successor(t, nodes)
	rig := brokertest.New(t, &brokertest.Options{Vault: nodes[brokers].Addr, VaultToken: nodes[0].Token})
	c := &tally{ends: map[string]int{}}
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() { load(ctx, t, rig, c, i) })
	}
	done, ours := stepDown(t, nodes, brokers)
	stop()
	all.Wait()
	arrived := rig.Records.Arrived("tools/call") + rig.Archive.Arrived("tools/call")
	settle(t, rig, nodes)
	twice := arrived - c.sent
	fmt.Printf("vaultfaults: cluster: %d step-downs (%d of the broker's node), %d operations, %d succeeded, %d typed ends, %d double sends, %d over budget, slowest %v\n",
		done, ours, c.operations, c.sent, c.operations-c.sent, twice, c.overBudget, c.slowest.Round(time.Millisecond))
	for _, end := range slices.Sorted(maps.Keys(c.ends)) {
		fmt.Printf("  %6d %s\n", c.ends[end], end)
	}
	if done < 20 || ours < 5 || c.operations < 100 || arrived == 0 {
		t.Error("too little happened to show anything")
	}
	if twice != 0 || c.overBudget != 0 || len(c.untyped) != 0 {
		t.Errorf("%d double sends, %d over budget, %d untyped: %q", twice, c.overBudget, len(c.untyped), c.untyped[:min(5, len(c.untyped))])
	}
}

// successor makes the leader step down and returns who leads then: between two nodes
// the lead mostly goes to and fro.
func successor(t *testing.T, nodes []*realvault.Node) (next int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	first := slices.IndexFunc(nodes, (*realvault.Node).Leads)
	if first < 0 || !nodes[first].StepDown(t) {
		t.Fatal("nobody leads")
	}
	await(ctx, t, "another leads", func() bool {
		next = slices.IndexFunc(nodes, (*realvault.Node).Leads)
		return next >= 0 && next != first
	})
	return next
}

// load is one caller, that goes on at once after a success and waits a little after
// anything else.
func load(ctx context.Context, t *testing.T, rig *brokertest.Rig, c *tally, i int) {
	for n := i; ctx.Err() == nil; n++ {
		call := brokertest.Call{Server: []string{"records", "archive"}[n%2], Timeout: budget.String()}
		began := time.Now()
		a, err := rig.Do(context.Background(), call)
		if err != nil {
			t.Errorf("no answer of the broker: %v", err)
			return
		}
		c.add(a, time.Since(began))
		if a.State != "succeeded" {
			pause(ctx, 100*time.Millisecond)
		}
	}
}

// stepDown makes the leader step down, again and again, and says how often, and how
// often it was the broker's node.
func stepDown(t *testing.T, nodes []*realvault.Node, brokers int) (done, ours int) {
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	for done < stepDowns && ctx.Err() == nil {
		pause(ctx, 2*time.Second)
		for i, n := range nodes {
			if !n.Leads() || !n.StepDown(t) {
				continue
			}
			done++
			if i == brokers {
				ours++
			}
			break
		}
	}
	return done, ours
}

// settle waits until all is well again, and looks for holds that were left.
func settle(t *testing.T, rig *brokertest.Rig, nodes []*realvault.Node) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var leader *realvault.Node
	await(ctx, t, "somebody leads", func() bool {
		i := slices.IndexFunc(nodes, (*realvault.Node).Leads)
		if i >= 0 {
			leader = nodes[i]
		}
		return i >= 0
	})
	if err := rig.Broker.WaitReady(ctx); err != nil {
		t.Error(err)
	}
	await(ctx, t, "no hold is left", func() bool { return leader.Residue(t) == 0 })
	if a := rig.Call(t, brokertest.Call{}); a.State != "succeeded" {
		t.Errorf("when all is well again: %s", a.Body)
	}
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
