package session_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/internal/devidp"
	"onbehalf.internal/broker/internal/devvault"
	"onbehalf.internal/broker/vault"
)

func perOperation(c *vault.Config) { c.PerOperation = true }

const (
	mint   = "auth/token/create/broker-op"
	revoke = "auth/token/revoke-self"
)

// TestHoldEnds: what Close says of a session that came so far and not further, in an
// epoch that others hold in and in one of its own; and that Vault has nothing of it
// then, but where it says so.
func TestHoldEnds(t *testing.T) {
	brk := func(method, prefix string, status int) func(*rig) {
		return func(r *rig) {
			r.vault.Fail(method, prefix, 1, devvault.Failure{Status: status, Body: `{"errors":[]}`})
		}
	}
	refused := func(r *rig) { r.provider.Break(devidp.Fail(1, 400, "invalid_target")) }
	for _, tc := range []struct {
		name   string
		own    bool
		brk    func(*rig)
		reason fault.Reason // of Open
		legs   string       // at the end
		hold   string       // as Close says
		mints  int
	}{
		{"shared", false, func(*rig) {}, fault.None, "subject exchange hold drop", "dropped", 0},
		{"shared, no subject credential", false, brk("GET", "kv/data/broker/subject", 404), fault.CredentialMissing, "subject", "", 0},
		{"shared, exchange refused", false, refused, fault.TargetRejected, "subject exchange", "", 0},
		{"shared, put refused", false, brk("POST", "cubbyhole/", 429), fault.VaultRateLimited, "subject exchange hold", "", 0},
		{"shared, put unclear", false, brk("POST", "cubbyhole/", 500), fault.VaultUnexpected, "subject exchange hold", "pending", 0},
		{"shared, drop fails", false, brk("DELETE", "cubbyhole/", 500), fault.None, "subject exchange hold drop", "pending", 0},

		{"own", true, func(*rig) {}, fault.None, "subject exchange hold drop", "dropped", 1},
		{"own, no subject credential", true, brk("GET", "kv/data/broker/subject", 404), fault.CredentialMissing, "subject", "", 0},
		{"own, exchange refused", true, refused, fault.TargetRejected, "subject exchange", "", 1},
		{"own, mint fails", true, brk("PUT", mint, 500), fault.VaultUnexpected, "subject exchange hold", "", 1},
		{"own, mint denied", true, brk("PUT", mint, 403), fault.VaultDenied, "subject exchange hold", "", 1},
		{"own, put refused", true, brk("POST", "cubbyhole/", 429), fault.VaultRateLimited, "subject exchange hold drop", "dropped", 1},
		{"own, put unclear", true, brk("POST", "cubbyhole/", 500), fault.VaultUnexpected, "subject exchange hold drop", "dropped", 1},
		{"own, drop fails", true, brk("POST", revoke, 500), fault.None, "subject exchange hold drop", "pending", 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, func(c *vault.Config) { c.PerOperation = tc.own })
			before := r.vault.Count("PUT", mint)
			tc.brk(r)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			s, err := r.Open(ctx, r.decide("records", false))
			if reasonOf(err) != tc.reason {
				t.Errorf("Open = %v, want %q", err, tc.reason)
			}
			var rec audit.Record
			s.Describe(&rec)
			if (rec.Epoch != "") != (tc.hold != "") {
				t.Errorf("the record names epoch %q", rec.Epoch)
			}
			if got := s.Close(ctx); got != tc.hold || names(s.Legs()) != tc.legs || s.Holds() != (tc.hold != "") {
				t.Errorf("Close says %q with legs %q, Holds %v, want %q with %q", got, names(s.Legs()), s.Holds(), tc.hold, tc.legs)
			}
			if again := s.Close(ctx); again != "" {
				t.Errorf("Close again says %q", again)
			}
			if tc.hold == "pending" {
				gone := make(chan string, 1)
				s.WhenGone(func(hold string) { gone <- hold })
				if got := <-gone; got != "dropped" {
					t.Errorf("later it is %q", got)
				}
			}
			if n := r.vault.Count("PUT", mint) - before; n != tc.mints {
				t.Errorf("%d mints, want %d", n, tc.mints)
			}
			if r.vault.Live("broker-op") != 1 || r.vault.Residue() != 0 {
				t.Errorf("%d epochs live, %d entries", r.vault.Live("broker-op"), r.vault.Residue())
			}
		})
	}
}

// TestMintBesideTheExchange: the provider has not answered yet when Vault has minted.
func TestMintBesideTheExchange(t *testing.T) {
	minted := make(chan struct{}, 2)
	r := newRig(t, perOperation, func(c *vault.Config) { c.Transport = answered{c.Transport, mint, minted} })
	<-minted // what the Client shows itself ready with
	r.provider.Break(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			select {
			case <-minted:
			case <-req.Context().Done():
			}
			next.ServeHTTP(w, req)
		})
	})
	ctx, s := r.open(r.decide("records", false))
	if got := s.Close(ctx); got != "dropped" {
		t.Errorf("Close says %q", got)
	}
}

// An answered says when a request has been.
type answered struct {
	http.RoundTripper
	path string
	told chan<- struct{}
}

func (a answered) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := a.RoundTripper.RoundTrip(req)
	if strings.HasSuffix(req.URL.Path, a.path) {
		a.told <- struct{}{}
	}
	return res, err
}
