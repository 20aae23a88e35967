package vaulttest

import (
	"testing"
	"time"

	"onbehalf.internal/broker/secret"
	"onbehalf.internal/broker/vault"
)

// clientLapses: an epoch that ran out and one that was revoked look the same
// afterwards; the Client has looked before.
func (r *rig) clientLapses(t *testing.T) {
	c := r.start(t, func(conf *vault.Config) { conf.Role = "suite-lapsing" })
	hold := func(other string) (h *vault.Hold) {
		eventually(t, 5*time.Second, "a hold", func() (ok bool) {
			var err error
			h, err = Hold(t.Context(), c, secret.New("token-of-an-operation"))
			return err == nil && h.Epoch() != other
		})
		return h
	}
	left := hold("")
	killed := hold(left.Epoch())
	r.want(t, 204, r.RootToken, "POST", "auth/token/revoke-accessor", document{"accessor": killed.Epoch()})
	eventually(t, 10*time.Second, "the end of both epochs", func() bool { return time.Now().After(killed.Ends()) })
	for _, h := range []*vault.Hold{left, killed} {
		if _, err := h.Read(t.Context()); err == nil {
			t.Error("it can be read after its epoch's end")
		}
	}
	if !left.Lapsed() || killed.Lapsed() {
		t.Errorf("lapsed: %v of the one that ran out, %v of the one that was revoked", left.Lapsed(), killed.Lapsed())
	}
}
