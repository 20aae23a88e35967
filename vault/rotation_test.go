package vault_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/internal/devvault"
	"onbehalf.internal/broker/secret"
	"onbehalf.internal/broker/vault"
	"onbehalf.internal/broker/vault/vaulttest"
)

// A thousand operations while the epoch is replaced, and minting takes three seconds:
// none is lost, none waits, and of the old epoch nothing is left.
func TestABurstAcrossARotation(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		conf := b.config()
		conf.Transport = slow{b, "PUT", "auth/token/create/", 3 * time.Second}
		c, _ := run(t, conf)
		ready(t, c)
		time.Sleep(29 * time.Second)
		var mu sync.Mutex
		used := map[string]int{}
		var all sync.WaitGroup
		for i := range 1000 {
			time.Sleep(8 * time.Millisecond)
			all.Go(func() {
				began := time.Now()
				h, err := vaulttest.Hold(context.Background(), c, secret.New(fmt.Sprint("token-", i)))
				if err != nil || time.Since(began) != 0 {
					t.Errorf("Hold = %v after %v", err, time.Since(began))
					return
				}
				for range 3 {
					time.Sleep(200 * time.Millisecond)
					if got, err := h.Read(context.Background()); err != nil || got.Reveal() != fmt.Sprint("token-", i) {
						t.Errorf("Read = %v", err)
					}
				}
				if err := h.Drop(context.Background()); err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				used[h.Epoch()]++
			})
		}
		all.Wait()
		synctest.Wait()
		if len(used) != 2 || b.Live("broker-op") != 1 || b.Residue() != 0 || c.Pending() != 0 {
			t.Errorf("%d epochs were used, %d live, %d entries, %d pending", len(used), b.Live("broker-op"), b.Residue(), c.Pending())
		}
	})
}

// While minting fails, the last epoch takes holds until its life less the skew is
// over; what is held then can be read up to the end.
func TestMintingFailsForLonger(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		c, _ := run(t, b.config())
		ready(t, c)
		born := time.Now()
		b.Fail("PUT", "auth/token/create/", -1, devvault.Failure{})
		at := func(after time.Duration) { time.Sleep(time.Until(born.Add(after))) }

		at(73*time.Second - time.Millisecond)
		if err := c.Ready(); err != nil {
			t.Errorf("Ready = %v", err)
		}
		h := mustHold(t, c)
		at(73 * time.Second)
		if err := c.Ready(); fault.ReasonOf(err) != fault.VaultNotReady || !strings.Contains(err.Error(), "no live epoch: vault.mint: vault_unexpected") {
			t.Errorf("Ready = %v", err)
		}
		if _, err := vaulttest.Hold(t.Context(), c, secret.New("token")); fault.ReasonOf(err) != fault.VaultNotReady {
			t.Errorf("Hold = %v", err)
		}
		at(75*time.Second - time.Millisecond)
		if _, err := h.Read(t.Context()); err != nil {
			t.Errorf("Read before the end = %v", err)
		}
		at(75 * time.Second)
		if _, err := h.Read(t.Context()); fault.ReasonOf(err) != fault.HoldGone {
			t.Errorf("Read after the end = %v", err)
		}
		b.Mend()
		time.Sleep(12 * time.Second)
		mustHold(t, c)
	})
}

// An epoch is of no use for longer than its login lives, also where the epoch is a
// hold's own.
func TestAnEpochDiesWithItsLogin(t *testing.T) {
	for _, own := range []bool{false, true} {
		t.Run(fmt.Sprint("per operation ", own), func(t *testing.T) {
			bubble(t, func(t *testing.T, b *box) {
				token, _ := b.Mint(devvault.NewToken{Policies: []string{"broker"}, TTL: 100 * time.Second})
				born := time.Now()
				at := func(after time.Duration) { time.Sleep(time.Until(born.Add(after))) }
				conf := b.config()
				conf.Token, conf.PerOperation = secret.New(token), own
				c, _ := run(t, conf)
				ready(t, c)
				at(98*time.Second - time.Millisecond)
				h := mustHold(t, c)
				at(99 * time.Second) // lives are told in whole seconds
				late := c.Reserve(t.Context())
				if err := late.Put(t.Context(), secret.New("token")); fault.ReasonOf(err) != fault.VaultNotReady || late.State() != vault.None {
					t.Errorf("Put = %v, %q", err, late.State())
				}
				if err := late.Drop(t.Context()); err != nil {
					t.Errorf("Drop of what was not put = %v", err)
				}
				at(100*time.Second - time.Millisecond)
				if _, err := h.Read(t.Context()); err != nil {
					t.Errorf("Read before the end = %v", err)
				}
				at(100 * time.Second)
				if _, err := h.Read(t.Context()); fault.ReasonOf(err) != fault.HoldGone {
					t.Errorf("Read after the end = %v", err)
				}
			})
		})
	}
}

// A login that lives for three minutes is renewed while it has more than an epoch
// needs, so the broker is ready all the time.
func TestAShortLoginIsRenewedInTime(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		token, _ := b.Mint(devvault.NewToken{Policies: []string{"broker"}, TTL: 3 * time.Minute, Renewable: true})
		conf := b.config()
		conf.Token = secret.New(token)
		c, _ := run(t, conf)
		ready(t, c)
		for second := range 3600 {
			time.Sleep(time.Second)
			if err := c.Ready(); err != nil {
				t.Fatalf("after %d s: %v", second, err)
			}
		}
		if n := b.Count("PUT", "auth/token/renew-self"); n > 61 {
			t.Errorf("%d renewals in an hour", n)
		}
	})
}

// Many drops that fail and take long do not keep Run from minting.
func TestDropsDoNotDelayAMint(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		conf := b.config()
		conf.Transport = slow{b, "DELETE", "", 400 * time.Millisecond}
		c, _ := run(t, conf)
		ready(t, c)
		keep := mustHold(t, c) // or the epoch is revoked when it is replaced, and the drops are done
		for range 500 {
			h := mustHold(t, c)
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			if err := h.Drop(ctx); err == nil {
				t.Fatal("Drop = nil")
			}
			cancel()
		}
		for range 70 {
			time.Sleep(time.Second)
			if err := c.Ready(); err != nil {
				t.Fatal(err)
			}
		}
		if n := b.Count("PUT", "auth/token/create/"); n != 3 {
			t.Errorf("%d epochs were minted, want 3", n)
		}
		keep.Drop(t.Context())
	})
}

func TestStats(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		conf := b.config()
		c, err := vault.New(conf)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(vault.Stats{Mints: map[string]uint64{}, Revocations: map[string]uint64{}, Drops: map[string]uint64{}}, c.Stats()); diff != "" {
			t.Errorf("before it runs: %s", diff)
		}
	})
	for _, own := range []bool{false, true} {
		t.Run(fmt.Sprint("per operation ", own), func(t *testing.T) {
			bubble(t, func(t *testing.T, b *box) {
				token, _ := b.Mint(devvault.NewToken{Policies: []string{"broker"}, TTL: time.Hour})
				conf := b.config()
				conf.Token, conf.PerOperation = secret.New(token), own
				c, _ := run(t, conf)
				ready(t, c)
				drop := map[bool]string{false: "cubbyhole/", true: "auth/token/revoke-self"}[own]
				held, dropped, left := mustHold(t, c), mustHold(t, c), mustHold(t, c)
				b.Fail("", drop, 1, devvault.Failure{Status: 429, Body: `{"errors":[]}`})
				if err := left.Drop(t.Context()); err == nil {
					t.Error("Drop = nil")
				}
				if err := dropped.Drop(t.Context()); err != nil {
					t.Error(err)
				}
				time.Sleep(500 * time.Millisecond)
				epochs, mints := 1, uint64(1)
				if own {
					epochs, mints = 3, 4
				}
				want := vault.Stats{Holds: 1, Epochs: epochs, Pending: 1, Oldest: 500 * time.Millisecond, Login: time.Hour - 500*time.Millisecond,
					Mints: map[string]uint64{"ok": mints}, Revocations: map[string]uint64{},
					Drops: map[string]uint64{"ok": 1, "vault_rate_limited": 1}}
				if diff := cmp.Diff(want, c.Stats()); diff != "" {
					t.Error(diff)
				}
				b.Fail("PUT", "auth/token/create/", 1, devvault.Failure{})
				time.Sleep(35 * time.Second)
				s := c.Stats()
				if s.Holds != 1 || s.Pending != 0 || s.Oldest != 0 || s.Drops["ok"] != 2 || s.Mints["ok"] != mints+1 || s.Mints["vault_unexpected"] != 1 || s.Epochs != 2 {
					t.Errorf("after a rotation: %+v", s)
				}
				if err := held.Drop(t.Context()); err != nil {
					t.Error(err)
				}
				synctest.Wait()
				if s := c.Stats(); s.Holds != 0 || s.Epochs != 1 || s.Revocations["ok"] != 1 {
					t.Errorf("at the end: %+v", s)
				}
			})
		})
	}
	bubble(t, func(t *testing.T, b *box) {
		c, _ := run(t, b.config()) // root lives for ever
		ready(t, c)
		if s := c.Stats(); s.Login != math.MaxInt64 {
			t.Errorf("%+v", s)
		}
		h := mustHold(t, c)
		b.Fail("", "", -1, devvault.Failure{Cut: true})
		h.Drop(t.Context())
		time.Sleep(75*time.Second + 500*time.Millisecond) // over, and not yet forgotten
		if s := c.Stats(); s.Epochs != 0 || s.Pending != 1 {
			t.Errorf("at its end: %+v", s)
		}
		time.Sleep(15 * time.Second)
		if s := c.Stats(); s.Drops["expired_with_epoch"] != 1 || s.Pending != 0 || s.Epochs != 0 {
			t.Errorf("run out: %+v", s)
		}
	})
}
