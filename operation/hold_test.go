package operation_test

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/brokertest"
	"onbehalf.internal/broker/internal/devidp"
	"onbehalf.internal/broker/internal/devvault"
)

const (
	mint   = "auth/token/create/"
	revoke = "auth/token/revoke-self"
)

func perOperation(yaml string) string {
	return strings.Replace(yaml, "hold: {role: broker-op}", "hold: {role: broker-op, per: operation}", 1)
}

// TestATokenForEachOperation is TestEveryStepBroken, for what is another thing with
// `per: operation`.
func TestATokenForEachOperation(t *testing.T) {
	hangs := devvault.Failure{Hang: true}
	for _, row := range []broken{
		{name: "nothing", brk: func(*bench) {},
			status: 200, state: "succeeded", retry: "never", hold: "dropped", ledger: "succeeded", exchanges: 1, ran: 1, calls: 1},
		{name: "4 exchange: refused", brk: func(b *bench) { b.Provider.Break(devidp.Fail(1, 400, "invalid_target")) },
			status: 200, state: "not_sent", cause: "target_rejected", retry: "safe", ledger: "not_sent"},
		{name: "4 exchange: refused, and the mint hangs", brk: func(b *bench) {
			b.Provider.Break(devidp.Fail(1, 400, "invalid_target"))
			b.Vault.Fail("PUT", mint, 1, hangs)
		}, status: 200, state: "not_sent", cause: "target_rejected", retry: "safe", ledger: "not_sent"},
		{name: "4 mint: fails", brk: func(b *bench) { b.Vault.Fail("PUT", mint, 1, devvault.Failure{}) },
			status: 200, state: "not_sent", cause: "vault_unexpected", retry: "safe", ledger: "not_sent", exchanges: 1},
		{name: "4 mint: the answer is lost", brk: func(b *bench) { b.Vault.Fail("PUT", mint, 1, devvault.Failure{After: true, Cut: true}) },
			status: 200, state: "not_sent", cause: "vault_unreachable", retry: "safe", ledger: "not_sent", exchanges: 1},
		{name: "4 mint: hangs", call: brokertest.Call{Timeout: "300ms"}, brk: func(b *bench) { b.Vault.Fail("PUT", mint, 1, hangs) },
			status: 200, state: "not_sent", cause: "vault_unreachable", retry: "safe", ledger: "not_sent", exchanges: 1},
		{name: "4 hold: fails after it is there", brk: func(b *bench) { b.Vault.Fail("POST", holds, 1, devvault.Failure{After: true}) },
			status: 200, state: "not_sent", cause: "vault_unexpected", retry: "safe", hold: "dropped", ledger: "not_sent", exchanges: 1},
		{name: "5 check: an operator has killed it", brk: func(b *bench) {
			b.at("server/discover", func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				b.Vault.RevokeAll("broker-op")
				next.ServeHTTP(w, r)
			})
		}, status: 200, state: "not_sent", cause: "hold_gone", retry: "safe", hold: "dropped", ledger: "not_sent", exchanges: 1},
		{name: "7 drop fails", brk: func(b *bench) { b.Vault.Fail("POST", revoke, -1, devvault.Failure{}) },
			status: 200, state: "succeeded", retry: "never", hold: "pending", ledger: "succeeded", exchanges: 1, ran: 1, calls: 1},
	} {
		row.conf = perOperation
		t.Run(row.name, row.run)
	}
}

// TestPendingHoldEnds: the answer said "pending"; later the row and the audit say
// how it ended, whoever saw to that.
func TestPendingHoldEnds(t *testing.T) {
	for _, tc := range []struct {
		name string
		conf func(string) string
		brk  func(*bench)
		ends func(*bench) // then the broker is stopped
		hold string
	}{
		{"the drop is repeated", nil, func(b *bench) { b.Vault.Fail("DELETE", holds, 2, devvault.Failure{}) }, settles, "dropped"},
		{"its token is revoked later", perOperation, func(b *bench) { b.Vault.Fail("POST", revoke, 2, devvault.Failure{}) }, settles, "dropped"},
		{"a put that failed is dropped", nil, func(b *bench) { b.Vault.Fail("POST", holds, 1, devvault.Failure{After: true}) }, settles, "dropped"},
		{"the broker stops", nil, func(b *bench) { b.Vault.Fail("DELETE", holds, -1, devvault.Failure{}) }, func(*bench) {}, "dropped"},
		{"the next broker waits", nil, func(b *bench) { b.Vault.Fail("", "", -1, devvault.Failure{}) }, func(b *bench) {
			b.must(b.Stop())
			b.Vault.Mend()
			b.must(b.Restart(b.t.Context()))
			settles(b)
		}, "expired_with_epoch"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := &bench{Rig: brokertest.New(t, &brokertest.Options{Config: tc.conf, Leftover: 10 * time.Millisecond}), t: t}
			release := b.Records.Hold("tools/call") // or the drop is before what breaks it
			answered := make(chan brokertest.Answer, 1)
			go func() {
				a, err := b.Do(context.Background(), brokertest.Call{Key: "k"})
				if err != nil {
					t.Error(err)
				}
				answered <- a
			}()
			if tc.name == "a put that failed is dropped" {
				tc.brk(b)
			} else {
				b.must(b.Records.Await(t.Context(), func() bool { return b.Records.Arrived("tools/call") == 1 }))
				tc.brk(b)
			}
			release()
			if a := <-answered; a.Hold != "pending" {
				t.Fatalf("%s", a.Body)
			}
			tc.ends(b)
			b.must(b.Stop())
			if got := drops(t, b.Rig); !slices.Equal(got, []string{"pending", tc.hold}) {
				t.Errorf("the audit says %q, want pending and %q", got, tc.hold)
			}
			b.Vault.Mend()
			b.must(b.Restart(t.Context()))
			if a := b.Get(t, "/v1/operations?request_key=k", brokertest.Call{}); a.Hold != tc.hold {
				t.Errorf("the ledger says %q, want %q", a.Hold, tc.hold)
			}
		})
	}
}

// settles waits until the hold is gone, as the ledger has it.
func settles(b *bench) {
	ctx, cancel := context.WithTimeout(b.t.Context(), 20*time.Second)
	defer cancel()
	for slices.Contains([]string{"held", "pending"}, b.Get(b.t, "/v1/operations?request_key=k", brokertest.Call{}).Hold) {
		if ctx.Err() != nil {
			b.t.Fatal("it is pending for ever")
		}
	}
}

// drops are the words of the audit's records of drops.
func drops(t *testing.T, rig *brokertest.Rig) (all []string) {
	t.Helper()
	for line := range strings.Lines(rig.Audit(t)) {
		var r struct {
			Kind      audit.Kind
			Operation string
			Actor     string
			Hold      string
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		if r.Kind == audit.Drop {
			all = append(all, r.Hold)
			if r.Operation == "" || r.Actor != "user:7" {
				t.Errorf("of whom: %s", line)
			}
		}
	}
	return all
}
