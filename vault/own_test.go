package vault_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/internal/devvault"
	"onbehalf.internal/broker/secret"
	"onbehalf.internal/broker/vault"
)

// perOperation is a config with a token for each operation.
func (b *box) perOperation() vault.Config {
	conf := b.config()
	conf.PerOperation = true
	return conf
}

// A slow answers requests of one method, under one path, after a while.
type slow struct {
	next           http.RoundTripper
	method, prefix string
	by             time.Duration
}

func (s slow) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == s.method && strings.HasPrefix(req.URL.Path, "/v1/"+s.prefix) {
		select {
		case <-time.After(s.by):
		case <-req.Context().Done():
			return nil, req.Context().Err()
		}
	}
	return s.next.RoundTrip(req)
}

// With a token for each operation, one can be killed and the others go on. The drop
// is the end of the token.
func TestEachOperationHasItsOwnEpoch(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		c, _ := run(t, b.perOperation())
		ready(t, c)
		killed, other := mustHold(t, c), mustHold(t, c)
		if killed.Epoch() == other.Epoch() || b.Live("broker-op") != 3 { // the one that shows that minting works
			t.Fatalf("%d epochs live, the two are %q and %q", b.Live("broker-op"), killed.Epoch(), other.Epoch())
		}
		if !b.Revoke(killed.Epoch()) {
			t.Fatal("no token has that accessor")
		}
		if _, err := killed.Read(t.Context()); fault.ReasonOf(err) != fault.HoldGone {
			t.Errorf("Read of the killed = %v", err)
		}
		if _, err := other.Read(t.Context()); err != nil {
			t.Errorf("Read of the other = %v", err)
		}
		for _, h := range []*vault.Hold{killed, other} {
			if err := h.Drop(t.Context()); err != nil || h.State() != vault.Dropped {
				t.Errorf("Drop = %v, %q", err, h.State())
			}
		}
		if b.Live("broker-op") != 1 || b.Residue() != 0 || b.Count("DELETE", "") != 0 {
			t.Errorf("%d epochs live, %d entries, %d deletes", b.Live("broker-op"), b.Residue(), b.Count("DELETE", ""))
		}
		if err := c.Ready(); err != nil {
			t.Error(err)
		}
	})
}

// The mint is on its way while its operation does something else, and Put waits for
// what is left of it. Where epochs are shared, Reserve asks for nothing.
func TestAMintRunsBesideTheExchange(t *testing.T) {
	for _, row := range []struct {
		name  string
		own   bool
		mints int           // by Reserve
		waits time.Duration // in Put, after a second of something else
	}{{"epochs are shared", false, 0, 0}, {"an epoch for each", true, 1, 2 * time.Second}} {
		t.Run(row.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *box) {
				conf := b.config()
				conf.PerOperation = row.own
				conf.Transport = slow{b, "PUT", "auth/token/create/", 3 * time.Second}
				c, _ := run(t, conf)
				ready(t, c)
				before := b.Count("PUT", "auth/token/create/")
				h := c.Reserve(t.Context())
				time.Sleep(time.Second)
				began := time.Now()
				if err := h.Put(t.Context(), secret.New("token-of-an-operation")); err != nil || time.Since(began) != row.waits {
					t.Errorf("Put = %v after %v, want %v", err, time.Since(began), row.waits)
				}
				if n := b.Count("PUT", "auth/token/create/") - before; n != row.mints {
					t.Errorf("%d mints, want %d", n, row.mints)
				}
				if err := h.Put(t.Context(), secret.New("another")); fault.ReasonOf(err) != fault.HoldFailed {
					t.Errorf("a second Put = %v", err)
				}
				if err := h.Drop(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// What was minted for nothing is revoked, whenever its operation gives up.
func TestWhatIsReservedForNothingIsRevoked(t *testing.T) {
	for _, row := range []struct {
		name   string
		takes  time.Duration // the mint
		brk    func(*box)
		after  time.Duration // the mint began
		reason fault.Reason  // of the drop
	}{
		{"the mint is done", 0, nothing, time.Second, ""},
		{"the mint is awaited", time.Second, nothing, 0, ""},
		{"the mint takes too long", 4 * time.Second, nothing, 0, fault.VaultUnreachable},
		{"the mint fails", 0, fails(1, "PUT", "auth/token/create/"), time.Second, ""},
		{"the mint fails late", 4 * time.Second, fails(1, "PUT", "auth/token/create/"), 0, fault.VaultUnreachable},
		{"the revocation fails", 0, fails(2, "POST", "auth/token/revoke-self"), time.Second, fault.VaultUnexpected},
	} {
		t.Run(row.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *box) {
				conf := b.perOperation()
				conf.Transport = slow{b, "PUT", "auth/token/create/", row.takes}
				c, _ := run(t, conf)
				ready(t, c)
				row.brk(b)
				h := c.Reserve(t.Context())
				time.Sleep(row.after)
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				defer cancel()
				if err := h.Drop(ctx); (err == nil) != (row.reason == "") || err != nil && fault.ReasonOf(err) != row.reason {
					t.Errorf("Drop = %v, want %q", err, row.reason)
				}
				if _, err := h.Read(t.Context()); fault.ReasonOf(err) != fault.HoldGone {
					t.Errorf("Read = %v", err)
				}
				time.Sleep(10 * time.Second)
				if c.Pending() != 0 || b.Live("broker-op") != 1 {
					t.Errorf("%d pending, %d epochs live", c.Pending(), b.Live("broker-op"))
				}
			})
		})
	}
}

// lateAnswers is what Vault does at once and tells after a second.
type lateAnswers struct{ next http.RoundTripper }

func (l lateAnswers) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := l.next.RoundTrip(req)
	select {
	case <-time.After(time.Second):
		return resp, err
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
}

// The mint does not end with its operation: the token would live, and nobody know it.
func TestAMintOutlivesItsOperation(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		conf := b.perOperation()
		conf.Transport = lateAnswers{b}
		c, _ := run(t, conf)
		ready(t, c)
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		h := c.Reserve(ctx)
		if err := h.Put(ctx, secret.New("token")); fault.ReasonOf(err) != fault.VaultUnreachable || h.State() != vault.None {
			t.Errorf("Put = %v, %q", err, h.State())
		}
		if err := h.Drop(t.Context()); err != nil || h.Epoch() == "" || b.Live("broker-op") != 1 {
			t.Errorf("Drop = %v in epoch %q, %d live", err, h.Epoch(), b.Live("broker-op"))
		}
	})
}

// Where the operation and Run drop a hold at the same time, its end is told once.
func TestTheEndIsToldOnce(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		conf := b.config()
		conf.Transport = slow{b, "DELETE", "", 3 * time.Second}
		c, _ := run(t, conf)
		ready(t, c)
		h := mustHold(t, c)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := h.Drop(ctx); err == nil {
			t.Fatal("Drop = nil")
		}
		told := 0
		h.WhenEnded(func(vault.State) { told++ })
		if err := h.Drop(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(10 * time.Second)
		if n := b.Count("DELETE", ""); n != 2 || told != 1 {
			t.Errorf("told %d times of %d deletes, want once of two", told, n)
		}
	})
}

// An operation whose login has died gets its epoch from the next one.
func TestAMintFindsADeadLogin(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		conf := b.loggedIn(t)
		conf.PerOperation = true
		c, _ := run(t, conf)
		ready(t, c)
		b.RevokeAll("approle:broker")
		if err := mustHold(t, c).Drop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// An epoch of one hold is dropped with whatever is in it, so the put's fault is all
// that its operation has to know.
func TestPutFailsInItsOwnEpoch(t *testing.T) {
	for _, row := range failures {
		t.Run(row.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *box) {
				c, _ := run(t, b.perOperation())
				ready(t, c)
				b.Fail("POST", "cubbyhole/", 1, row.failure)
				h := c.Reserve(t.Context())
				if err := h.Put(t.Context(), secret.New("token-of-an-operation")); fault.ReasonOf(err) != row.reason {
					t.Errorf("Put = %v, want %s", err, row.reason)
				}
				if err := h.Drop(t.Context()); err != nil || h.State() != vault.Dropped || b.Residue() != 0 || b.Live("broker-op") != 1 {
					t.Errorf("Drop = %v, %q, %d entries, %d epochs live", err, h.State(), b.Residue(), b.Live("broker-op"))
				}
			})
		})
	}
}

func TestDropFailsInItsOwnEpoch(t *testing.T) {
	for _, row := range failures {
		t.Run(row.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *box) {
				c, _ := run(t, b.perOperation())
				ready(t, c)
				h := mustHold(t, c)
				b.Fail("POST", "auth/token/revoke-self", 3, row.failure)
				err := h.Drop(t.Context())
				if row.name == "403" { // it is dead; that is what was asked for
					if err != nil || h.State() != vault.Dropped {
						t.Errorf("Drop = %v, %q", err, h.State())
					}
					return
				}
				if fault.ReasonOf(err) != row.reason || h.State() != vault.Pending {
					t.Errorf("Drop = %v, %q, want %s", err, h.State(), row.reason)
				}
				time.Sleep(40 * time.Second)
				if h.State() != vault.Dropped || c.Pending() != 0 || b.Residue() != 0 || b.Live("broker-op") != 1 {
					t.Errorf("later it is %q, %d pending, %d entries, %d epochs live", h.State(), c.Pending(), b.Residue(), b.Live("broker-op"))
				}
			})
		})
	}
}

func TestRunGivesBackWhatOperationsHold(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		c, stop := run(t, b.perOperation())
		ready(t, c)
		h := mustHold(t, c)
		stop()
		if b.Live("broker-op") != 0 || b.Residue() != 0 {
			t.Errorf("%d epochs and %d entries are left", b.Live("broker-op"), b.Residue())
		}
		if err := h.Drop(t.Context()); err != nil || h.State() != vault.Dropped {
			t.Errorf("Drop after the end = %v, %q", err, h.State())
		}
	})
}

// How a hold ends that could not be dropped at once, and who is told: once, and of
// the end that it was.
func TestWhenEnded(t *testing.T) {
	for _, row := range []struct {
		name string
		own  bool
		brk  func(b *box)
		do   func(b *box, stop func())
		want vault.State
	}{
		{"dropped later", false, fails(2, "DELETE", ""), sleep(20 * time.Second), vault.Dropped},
		{"its epoch is revoked", false, fails(-1, "DELETE", ""), sleep(50 * time.Second), vault.Dropped},
		{"its epoch runs out", false, fails(-1, "", ""), sleep(90 * time.Second), vault.Expired},
		{"the broker ends", false, fails(-1, "DELETE", ""), func(_ *box, stop func()) { stop() }, vault.Dropped},
		{"the broker ends, Vault is away", false, fails(-1, "", ""), func(_ *box, stop func()) { stop() }, ""},
		{"its own is revoked later", true, fails(2, "POST", "auth/token/revoke-self"), sleep(20 * time.Second), vault.Dropped},
		{"its own runs out", true, fails(-1, "POST", "auth/token/revoke-self"), sleep(90 * time.Second), vault.Expired},
		{"the broker ends with its own", true, fails(1, "POST", "auth/token/revoke-self"), func(_ *box, stop func()) { stop() }, vault.Dropped},
	} {
		t.Run(row.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *box) {
				conf := b.config()
				conf.PerOperation = row.own
				c, stop := run(t, conf)
				ready(t, c)
				h := mustHold(t, c)
				row.brk(b)
				if err := h.Drop(t.Context()); err == nil || h.State() != vault.Pending {
					t.Fatalf("Drop = %v, %q", err, h.State())
				}
				var told []vault.State
				h.WhenEnded(func(s vault.State) { told = append(told, s) })
				row.do(b, stop)
				synctest.Wait()
				if row.want == "" {
					if len(told) != 0 {
						t.Errorf("told %q of what nobody knows", told)
					}
					return
				}
				if len(told) != 1 || told[0] != row.want || h.State() != row.want {
					t.Errorf("told %q, and it is %q, want %q once", told, h.State(), row.want)
				}
				h.WhenEnded(func(s vault.State) { told = append(told, s) })
				if len(told) != 2 || told[1] != row.want {
					t.Errorf("asked again: %q", told)
				}
			})
		})
	}
}

func fails(n int, method, prefix string) func(*box) {
	return func(b *box) { b.Fail(method, prefix, n, devvault.Failure{}) }
}

// Vault begins to count when it mints, which may be long after it was asked and long
// before its answer is here. Nothing is told to be over before it is.
func TestNothingIsOverTooEarly(t *testing.T) {
	for _, row := range []struct {
		name string
		own  bool
		line func(*box) http.RoundTripper
	}{
		{"minted late", false, func(b *box) http.RoundTripper { return slow{b, "PUT", "auth/token/create/", 4 * time.Second} }},
		{"minted late for one", true, func(b *box) http.RoundTripper { return slow{b, "PUT", "auth/token/create/", 4 * time.Second} }},
		{"answered late", false, func(b *box) http.RoundTripper { return lateAnswers{b} }},
	} {
		t.Run(row.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *box) {
				conf := b.config()
				conf.PerOperation, conf.Transport = row.own, row.line(b)
				c, _ := run(t, conf)
				ready(t, c)
				h := mustHold(t, c)
				fails(-1, "DELETE", "")(b)
				fails(-1, "POST", "auth/token/revoke-self")(b)
				if err := h.Drop(t.Context()); err == nil {
					t.Fatal("Drop = nil")
				}
				residue := -1
				h.WhenEnded(func(vault.State) { residue = b.Residue() })
				time.Sleep(100 * time.Second)
				if h.State() != vault.Expired || residue != 0 {
					t.Errorf("it is %q, and %d entries were there when that was told", h.State(), residue)
				}
			})
		})
	}
}

func nothing(*box) {}

func sleep(d time.Duration) func(*box, func()) {
	return func(*box, func()) { time.Sleep(d) }
}

// A put that Vault refused has left nothing; one that was not answered may have.
func TestStateAfterPut(t *testing.T) {
	for _, row := range failures {
		t.Run(row.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *box) {
				c, _ := run(t, b.config())
				ready(t, c)
				b.Fail("POST", "cubbyhole/", 1, row.failure)
				h := c.Reserve(t.Context())
				err := h.Put(t.Context(), secret.New("token-of-an-operation"))
				want := vault.None
				if row.later == 1 {
					want = vault.Pending
				}
				if err == nil || h.State() != want {
					t.Errorf("Put = %v, %q, want %q", err, h.State(), want)
				}
			})
		})
	}
	bubble(t, func(t *testing.T, b *box) {
		b.Seal(true)
		c, _ := run(t, b.config())
		h := c.Reserve(t.Context())
		if err := h.Put(t.Context(), secret.New("token")); fault.ReasonOf(err) != fault.VaultNotReady || h.State() != vault.None || h.Epoch() != "" {
			t.Errorf("Put without an epoch = %v, %q", err, h.State())
		}
		if err := h.Drop(t.Context()); err != nil || len(b.Requests()) > 1 {
			t.Errorf("Drop = %v, and %d requests", err, len(b.Requests()))
		}
	})
}
