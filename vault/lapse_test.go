package vault_test

import (
	"testing"
	"time"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/internal/devvault"
)

// TestLapsed: only an epoch that Vault knew until right before its end has run
// out by its own time.
func TestLapsed(t *testing.T) {
	const life = 75 * time.Second
	for _, tc := range []struct {
		name   string
		at     time.Duration // after the hold
		brk    func(*box, string)
		lapsed bool
		looks  int // after brk; -1: as it may be
	}{
		{"it ran out", 0, func(*box, string) {}, true, 1},
		{"revoked at once", 0, func(b *box, epoch string) { b.Revoke(epoch) }, false, 1},
		{"revoked right before the look", life - lastLook - 1, func(b *box, epoch string) { b.Revoke(epoch) }, false, 1},
		{"Vault is sealed at the look", 60 * time.Second, func(b *box, _ string) { b.Seal(true) }, false, -1},
		{"the look fails", 60 * time.Second, func(b *box, _ string) { b.Fail("GET", "cubbyhole/", -1, devvault.Failure{}) }, false, -1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *box) {
				c, _ := run(t, b.config())
				ready(t, c)
				h := mustHold(t, c)
				if left := time.Until(h.Ends()); left != life || h.Lapsed() {
					t.Fatalf("it ends in %v, want %v; lapsed %v", left, life, h.Lapsed())
				}
				time.Sleep(tc.at)
				looks := b.Count("GET", "cubbyhole/")
				tc.brk(b, h.Epoch())
				time.Sleep(life - tc.at - 1)
				if h.Lapsed() {
					t.Error("it lapsed before its end")
				}
				time.Sleep(10 * time.Second) // long after it is forgotten
				if h.Lapsed() != tc.lapsed {
					t.Errorf("lapsed is %v", h.Lapsed())
				}
				if n := b.Count("GET", "cubbyhole/") - looks; tc.looks >= 0 && n != tc.looks {
					t.Errorf("%d looks, want %d", n, tc.looks)
				}
			})
		})
	}
}

const lastLook = time.Second

// TestNobodyLooksWithoutHolds: an epoch that nobody needs costs nothing more.
func TestNobodyLooksWithoutHolds(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		c, _ := run(t, b.config())
		ready(t, c)
		h := mustHold(t, c)
		if err := h.Drop(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.Fail("PUT", "auth/token/create/", -1, devvault.Failure{}) // no other epoch takes its place
		time.Sleep(10 * time.Minute)
		if n := b.Count("GET", "cubbyhole/"); n != 0 {
			t.Errorf("%d looks", n)
		}
		if _, err := h.Read(t.Context()); fault.ReasonOf(err) != fault.HoldGone {
			t.Errorf("Read = %v", err)
		}
	})
}
