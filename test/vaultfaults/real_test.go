//go:build real

package vaultfaults

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"onbehalf.internal/broker/brokertest"
	"onbehalf.internal/broker/internal/realvault"
)

// faults counts what was done to Vault, for the line at the end.
var faults atomic.Int64

func startReal(t *testing.T) (*brokertest.Rig, *realvault.Node) {
	t.Helper()
	n := realvault.StartNode(t)
	rig := brokertest.New(t, &brokertest.Options{Vault: n.Addr, VaultToken: n.Token})
	for _, server := range []string{"records", "archive"} {
		if a := rig.Call(t, brokertest.Call{Server: server}); a.State != "succeeded" {
			t.Fatalf("nothing is wrong: %s", a.Body)
		}
	}
	return rig, n
}

// TestVaultFailsBetweenTwoLegs: Vault is sealed, or killed, while an operation waits
// for its server's answer to `initialize`. The next leg is not sent. When Vault is
// back the broker is, by itself, and the hold is gone.
func TestVaultFailsBetweenTwoLegs(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name  string
		fail  func(*testing.T, *realvault.Node)
		mend  func(*testing.T, *realvault.Node)
		cause string
	}{
		{"sealed", func(t *testing.T, n *realvault.Node) { n.Seal(t) }, func(t *testing.T, n *realvault.Node) { n.Unseal(t) }, "vault_sealed"},
		{"killed", func(_ *testing.T, n *realvault.Node) { n.Kill() }, func(t *testing.T, n *realvault.Node) { n.Restart(t) }, "vault_unreachable"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			faults.Add(1)
			rig, n := startReal(t)
			before := rig.Archive.Arrived("initialize")
			sent := rig.Archive.Arrived("tools/call")
			release := rig.Archive.Hold("initialize")
			defer release()
			answer := make(chan brokertest.Answer, 1)
			go func() {
				a, err := rig.Do(context.Background(), brokertest.Call{Server: "archive", Timeout: "10s"})
				if err != nil {
					t.Error(err)
				}
				answer <- a
			}()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			if err := rig.Archive.Await(ctx, func() bool { return rig.Archive.Arrived("initialize") == before+1 }); err != nil {
				t.Fatal(err)
			}
			row.fail(t, n)
			release()
			a := <-answer
			if a.State != "not_sent" || string(a.Cause) != row.cause || a.Retry != "safe" || a.Hold != "pending" || rig.Archive.Arrived("tools/call") != sent {
				t.Errorf("%s", a.Body)
			}
			away(t, rig, row.cause)
			row.mend(t, n)
			back(t, rig, n)
		})
	}
}

// TestVaultRestartsWhileIdle: no operation is under way when Vault is killed; the
// connections to it are dead when it is back, and that is nobody's problem.
func TestVaultRestartsWhileIdle(t *testing.T) {
	t.Parallel()
	faults.Add(1)
	rig, n := startReal(t)
	n.Kill()
	away(t, rig, "vault_unreachable")
	n.Restart(t)
	back(t, rig, n)
}

// away is an operation while Vault is.
func away(t *testing.T, rig *brokertest.Rig, cause string) {
	t.Helper()
	a := rig.Call(t, brokertest.Call{Timeout: "5s"})
	if a.Status != 200 || a.State != "not_sent" || string(a.Cause) != cause || a.Retry != "safe" || a.Hold != "" {
		t.Errorf("while Vault is away: %s", a.Body)
	}
}

// back waits until the broker is ready by itself: then operations go on, and no
// hold is left.
func back(t *testing.T, rig *brokertest.Rig, n *realvault.Node) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	await(ctx, t, "no hold is left", func() bool { return n.Leads() && n.Residue(t) == 0 })
	if err := rig.Broker.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	for _, server := range []string{"records", "archive"} {
		if a := rig.Call(t, brokertest.Call{Server: server}); a.State != "succeeded" || a.Hold != "dropped" {
			t.Errorf("when Vault is back: %s", a.Body)
		}
	}
	if err := rig.Stop(); err != nil {
		t.Error(err)
	}
	if left := n.Residue(t); left != 0 {
		t.Errorf("%d holds are left", left)
	}
}

func TestMain(m *testing.M) {
	m.Run()
	if n := faults.Load(); n > 0 {
		fmt.Printf("vaultfaults: real: %d faults of Vault itself\n", n)
	}
}
