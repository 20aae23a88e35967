package vault_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/internal/devvault"
	"onbehalf.internal/broker/secret"
	"onbehalf.internal/broker/vault"
	"onbehalf.internal/broker/vault/vaulttest"
)

// What is due after each way in which Vault's answer to a put, a read and a drop
// can go wrong. A put that may have been stored is dropped by Run, and a drop
// that may not have happened is repeated: "later" is what Pending says at once.
var failures = []struct {
	name    string
	failure devvault.Failure
	reason  fault.Reason // of the put and the drop
	read    fault.Reason // "": the same
	later   int          // pending after a put that failed like this
	gone    bool         // the drop takes it as gone
}{
	{"cut before", devvault.Failure{Cut: true}, fault.VaultUnreachable, "", 1, false},
	{"cut after", devvault.Failure{Cut: true, After: true}, fault.VaultUnreachable, "", 1, false},
	{"silent before", devvault.Failure{Hang: true}, fault.VaultUnreachable, "", 1, false},
	{"silent after", devvault.Failure{Hang: true, After: true}, fault.VaultUnreachable, "", 1, false},
	{"500 before", devvault.Failure{}, fault.VaultUnexpected, "", 1, false},
	{"500 after", devvault.Failure{After: true}, fault.VaultUnexpected, "", 1, false},
	{"503", vaultSays(503), fault.VaultSealed, "", 1, false},
	{"472", vaultSays(472), fault.VaultUnexpected, "", 0, false},
	{"429", vaultSays(429), fault.VaultRateLimited, "", 0, false},
	{"412", vaultSays(412), fault.VaultUnexpected, "", 0, false},
	{"400", vaultSays(400), fault.VaultUnexpected, "", 0, false},
	{"403", vaultSays(403), fault.VaultDenied, fault.HoldGone, 0, true},
	{"404", vaultSays(404), fault.VaultUnexpected, fault.HoldGone, 0, true},
	{"403 of somebody else", devvault.Failure{Status: 403, Body: `{"message":"no"}`}, fault.VaultUnexpected, "", 1, false},
	{"404 of somebody else", devvault.Failure{Status: 404, Type: "text/html", Body: "<html>"}, fault.VaultUnexpected, "", 1, false},
	{"404 with JSON of somebody else", devvault.Failure{Status: 404, Body: `{"message":"no route"}`}, fault.VaultUnexpected, "", 1, false},
	{"404 without a body", devvault.Failure{Status: 404}, fault.VaultUnexpected, "", 1, false},
	{"404 with errors twice", devvault.Failure{Status: 404, Body: `{"errors":[],"errors":[]}`}, fault.VaultUnexpected, "", 1, false},
	{"200", devvault.Failure{Status: 200, Body: `{"data":{}}`}, fault.VaultUnexpected, fault.HoldChanged, 1, false},
	{"200 without data", devvault.Failure{Status: 200, Body: `{"data":null,"warnings":["x"]}`}, fault.VaultUnexpected, "", 1, false},
	{"200 without a body", devvault.Failure{Status: 200}, fault.VaultUnexpected, "", 1, false},
	{"200, another value", devvault.Failure{Status: 200, Body: `{"data":{"token":"another"}}`}, fault.VaultUnexpected, fault.HoldChanged, 1, false},
	{"200, another case", devvault.Failure{Status: 200, Body: `{"data":{"Token":"token-of-an-operation"}}`}, fault.VaultUnexpected, fault.HoldChanged, 1, false},
	{"200, not a string", devvault.Failure{Status: 200, Body: `{"data":{"token":["token-of-an-operation"]}}`}, fault.VaultUnexpected, fault.HoldChanged, 1, false},
	{"200, cut short", devvault.Failure{Status: 200, Body: `{"data":{"token":"token-of-an-oper`}, fault.VaultUnexpected, "", 1, false},
	{"200, over a megabyte", devvault.Failure{Status: 200, Body: `{"data":{"token":"token-of-an-operation"}}` + strings.Repeat(" ", 1<<20)}, fault.VaultUnexpected, "", 1, false},
	{"202", vaultSays(202), fault.VaultUnexpected, "", 1, false},
	{"301", devvault.Failure{Status: 301, Location: "http://elsewhere.test/"}, fault.VaultUnexpected, "", 1, false},
	{"304", devvault.Failure{Status: 304}, fault.VaultUnexpected, "", 1, false},
	{"307", devvault.Failure{Status: 307, Location: "http://elsewhere.test/"}, fault.VaultUnexpected, "", 1, false},
	{"307 with JSON", devvault.Failure{Status: 307, Body: `{"data":{"token":"token-of-an-operation"}}`}, fault.VaultUnexpected, "", 1, false},
	{"308", devvault.Failure{Status: 308, Location: "http://elsewhere.test/"}, fault.VaultUnexpected, "", 1, false},
}

func vaultSays(status int) devvault.Failure {
	return devvault.Failure{Status: status, Body: `{"errors":["foreign text"]}`}
}

func TestPutFails(t *testing.T) {
	for _, row := range failures {
		t.Run(row.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *box) {
				c, _ := run(t, b.config())
				ready(t, c)
				b.Fail("POST", "cubbyhole/", 1, row.failure)
				_, err := vaulttest.Hold(t.Context(), c, secret.New("token-of-an-operation"))
				if fault.ReasonOf(err) != row.reason {
					t.Errorf("Hold = %v, want %s", err, row.reason)
				}
				if n := c.Pending(); n != row.later {
					t.Errorf("%d holds are pending, want %d", n, row.later)
				}
				time.Sleep(5 * time.Second)
				if c.Pending() != 0 || b.Residue() != 0 {
					t.Errorf("later %d holds are pending, and %d entries there", c.Pending(), b.Residue())
				}
				if err := mustHold(t, c).Drop(t.Context()); err != nil {
					t.Errorf("the next operation: %v", err)
				}
			})
		})
	}
}

func TestReadFails(t *testing.T) {
	for _, row := range failures {
		t.Run(row.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *box) {
				c, _ := run(t, b.config())
				ready(t, c)
				h := mustHold(t, c)
				b.Fail("GET", "cubbyhole/", 1, row.failure)
				want := row.read
				if want == "" {
					want = row.reason
				}
				got, err := h.Read(t.Context())
				if fault.ReasonOf(err) != want || !got.IsZero() {
					t.Errorf("Read = %v, want %s and no token", err, want)
				}
				if n := b.Count("GET", "cubbyhole/"); n != 1 {
					t.Errorf("%d reads were sent, want 1", n)
				}
				if err := h.Drop(t.Context()); err != nil || b.Residue() != 0 {
					t.Errorf("Drop = %v, and %d entries there", err, b.Residue())
				}
			})
		})
	}
}

func TestDropFails(t *testing.T) {
	for _, row := range failures {
		t.Run(row.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *box) {
				c, _ := run(t, b.config())
				ready(t, c)
				h := mustHold(t, c)
				b.Fail("DELETE", "cubbyhole/", 3, row.failure)
				err := h.Drop(t.Context())
				if row.gone {
					if err != nil || c.Pending() != 0 {
						t.Errorf("Drop = %v, %d pending, want it gone", err, c.Pending())
					}
					return
				}
				if fault.ReasonOf(err) != row.reason || c.Pending() != 1 {
					t.Errorf("Drop = %v, %d pending, want %s and 1", err, c.Pending(), row.reason)
				}
				time.Sleep(40 * time.Second)
				if c.Pending() != 0 || b.Residue() != 0 {
					t.Errorf("later %d holds are pending, and %d entries there", c.Pending(), b.Residue())
				}
				if err := h.Drop(t.Context()); err != nil {
					t.Errorf("Drop again = %v", err)
				}
			})
		})
	}
}

// Where a hold cannot be dropped at all, it ends with its epoch: revoked when
// it was replaced, or run out.
func TestWhatCannotBeDroppedEndsWithItsEpoch(t *testing.T) {
	for _, row := range []struct {
		name string
		brk  func(b *box)
		sec  int
	}{
		{"the epoch is revoked", func(b *box) { b.Fail("DELETE", "", -1, devvault.Failure{}) }, 50},
		{"the epoch runs out", func(b *box) { b.Fail("", "", -1, devvault.Failure{Cut: true}) }, 90},
	} {
		t.Run(row.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *box) {
				c, _ := run(t, b.config())
				ready(t, c)
				h := mustHold(t, c)
				row.brk(b)
				if err := h.Drop(t.Context()); err == nil {
					t.Error("Drop = nil")
				}
				time.Sleep(10 * time.Second)
				if c.Pending() != 1 || b.Residue() != 1 {
					t.Errorf("%d pending, %d entries, want 1 and 1", c.Pending(), b.Residue())
				}
				time.Sleep(time.Duration(row.sec-10) * time.Second)
				if c.Pending() != 0 || b.Residue() != 0 {
					t.Errorf("%d pending, %d entries after %d s", c.Pending(), b.Residue(), row.sec)
				}
			})
		})
	}
}

// While Vault is away, failed drops do not make Run ask more often.
func TestFailedDropsDoNotHurry(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		c, _ := run(t, b.config())
		ready(t, c)
		holds := make([]*vault.Hold, 200)
		for i := range holds {
			holds[i] = mustHold(t, c)
		}
		b.Seal(true)
		for _, h := range holds {
			time.Sleep(100 * time.Millisecond)
			if err := h.Drop(t.Context()); fault.ReasonOf(err) != fault.VaultSealed {
				t.Fatalf("Drop = %v", err)
			}
		}
		if n := b.Count("DELETE", "") - len(holds); n > 20 {
			t.Errorf("Run sent %d in 20 s", n)
		}
	})
}

// A put that is denied tells as much as a read: the epoch is dead.
func TestAPutFindsADeadEpoch(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		c, _ := run(t, b.config())
		ready(t, c)
		b.RevokeAll("broker-op")
		if _, err := vaulttest.Hold(t.Context(), c, secret.New("token-of-an-operation")); fault.ReasonOf(err) != fault.VaultDenied {
			t.Errorf("Hold = %v", err)
		}
		time.Sleep(2 * time.Second)
		mustHold(t, c)
	})
}

func TestWhatIsHeldMustComeBack(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		c, _ := run(t, b.config())
		ready(t, c)
		for _, bad := range []string{"", "\xff", strings.Repeat("x", 64<<10+1)} {
			if _, err := vaulttest.Hold(t.Context(), c, secret.New(bad)); fault.ReasonOf(err) != fault.HoldFailed {
				t.Errorf("Hold of %d bytes = %v, want hold_failed", len(bad), err)
			}
		}
		if n := b.Count("POST", "cubbyhole/"); n != 0 {
			t.Errorf("%d puts were sent", n)
		}
	})
}

func TestIDs(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		c, _ := run(t, b.config())
		ready(t, c)
		seen := map[string]bool{}
		for range 100 {
			h := mustHold(t, c)
			if !regexp.MustCompile(`^[a-z2-7]{26}$`).MatchString(h.ID()) || seen[h.ID()] {
				t.Fatalf("id %q", h.ID())
			}
			seen[h.ID()] = true
		}
	})
}

// An answer that comes too late is none, even if the caller would have waited.
func TestNoCallWaitsLongerThan5s(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		c, _ := run(t, b.config())
		ready(t, c)
		h := mustHold(t, c)
		b.Fail("", "cubbyhole/", -1, devvault.Failure{Hang: true})
		began := time.Now()
		if _, err := h.Read(context.Background()); fault.ReasonOf(err) != fault.VaultUnreachable || time.Since(began) != 5*time.Second {
			t.Errorf("Read = %v after %v", err, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(context.Background(), 250*time.Millisecond)
		defer cancel()
		began = time.Now()
		if err := h.Drop(ctx); fault.ReasonOf(err) != fault.VaultUnreachable || time.Since(began) != 250*time.Millisecond {
			t.Errorf("Drop = %v after %v", err, time.Since(began))
		}
	})
}

// 64 operations at a time, while epochs are killed. An operation of a killed
// epoch ends with a reason; none gets another's token.
func TestManyOperations(t *testing.T) {
	dev, url := start(t)
	conf := (&box{dev}).config()
	conf.Address, conf.Transport = url, nil
	c, _ := run(t, conf)
	ready(t, c)
	var whole atomic.Int64
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			for round := range 20 {
				if err := c.WaitReady(t.Context()); err != nil {
					t.Error(err)
				}
				err := operate(t.Context(), c, secret.New(fmt.Sprint("token-", i, "-", round)))
				switch fault.ReasonOf(err) {
				case fault.VaultDenied, fault.VaultNotReady, fault.HoldGone: // killed
				default:
					if err != nil {
						t.Error(err)
					}
					whole.Add(1)
				}
				if i == 0 && round%10 == 5 {
					dev.RevokeAll("broker-op")
				}
			}
		})
	}
	wg.Wait()
	if n := whole.Load(); n < 64*20/2 {
		t.Errorf("only %d operations came to their end", n)
	}
	if c.Pending() != 0 || dev.Residue() != 0 {
		t.Errorf("%d holds are pending, %d entries there", c.Pending(), dev.Residue())
	}
}

func operate(ctx context.Context, c *vault.Client, token secret.Text) (err error) {
	h, err := vaulttest.Hold(ctx, c, token)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.Drop(ctx)) }()
	for range 3 {
		got, err := h.Read(ctx)
		if err != nil {
			return err
		}
		if !got.Equal(token) {
			return errors.New("it read another's token")
		}
	}
	return nil
}

// Vault's answer to a read is whatever it is: no token but ours comes out.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"data":{"token":"token-of-an-operation"}}`), 200)
	f.Add([]byte(`{"data":{"token":"another"}}`), 200)
	f.Add([]byte(`{"data":{"token":"token-of-an-operation","token":"x"}}`), 200)
	f.Add([]byte(`{"errors":[]}`), 404)
	f.Fuzz(func(t *testing.T, body []byte, status int) {
		if status < 200 || status > 599 {
			return
		}
		synctest.Test(t, func(t *testing.T) {
			b := &box{devvault.New(devvault.Options{})}
			c, _ := run(t, b.config())
			ready(t, c)
			h := mustHold(t, c)
			b.Fail("GET", "cubbyhole/", 1, devvault.Failure{Status: status, Body: string(body)})
			got, err := h.Read(t.Context())
			if err == nil && (status != 200 || got.Reveal() != "token-of-an-operation") {
				t.Errorf("status %d with another token was accepted", status)
			}
			if e := (*fault.Error)(nil); err != nil && (!errors.As(err, &e) || !e.Reason.Known()) {
				t.Errorf("Read = %v", err)
			}
		})
	})
}
