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
	"onbehalf.internal/broker/secret/canary"
)

const revokes = "    revoke: {mode: best_effort, endpoint: PROVIDER/revoke}\n"

// with puts a profile with more in it in force.
func (r *rig) with(response, more string) {
	r.t.Helper()
	r.response, r.more = response, more
	r.Policy.Swap(r.load("true"))
}

// TestRevoke: the exchanged token is ended at the provider, after the drop and
// never before Close.
func TestRevoke(t *testing.T) {
	for _, tc := range []struct {
		name    string
		server  string
		more    string
		before  func(*rig) // between Open and Close
		between func(*rig) // between Close and Revoke
		want    string
		reason  fault.Reason // of the leg; "" with no leg: none
		ended   bool         // the token is not good any more
	}{
		{"revoked", "records", revokes, nil, nil, "revoked", fault.None, true},
		{"not asked for", "records", "", nil, nil, "", fault.None, false},
		{"a legacy server", "old", revokes, nil, nil, "", fault.None, false},
		{"the grant is gone", "records", revokes, func(r *rig) { r.Policy.Swap(r.load("false")) }, nil, "revoked", fault.None, true},
		{"the hold cannot be read", "records", revokes, func(r *rig) { r.vault.Seal(true) }, nil, "failed", fault.HoldGone, false},
		{"the provider fails", "records", revokes, nil, func(r *rig) { r.provider.Break(devidp.Fail(1, 503, "")) }, "failed", fault.ProviderUnreachable, false},
		{"the provider does not answer", "records", revokes, nil, func(r *rig) { r.provider.Break(devidp.CutBefore) }, "failed", fault.ProviderUnreachable, false},
		{"the client key cannot be read", "records", revokes, nil, func(r *rig) { r.now = r.now.Add(2 * time.Minute); r.vault.Seal(true) }, "failed", fault.VaultSealed, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			canary.Run(t, func(c *canary.Cage) {
				r := newRig(t)
				r.with("response: {token_format: jwt}", tc.more)
				ctx, s := r.open(r.decide(tc.server, false))
				if got := s.Revoke(ctx); got != "" || r.revocations() != 0 {
					t.Errorf("before Close: %q, %d requests", got, r.revocations())
				}
				if tc.before != nil {
					tc.before(r)
				}
				s.Close(ctx)
				if tc.between != nil {
					tc.between(r)
				}
				ctx, cancel := context.WithCancel(ctx)
				cancel() // the operation is over
				got := s.Revoke(ctx)
				leg := s.Legs()[max(0, len(s.Legs())-1):] // its budget is measured by a clock that stands still
				if got != tc.want || got != "" && (leg[0].Name != "revoke" || leg[0].Reason != tc.reason || leg[0].Budget > 3*time.Second) {
					t.Errorf("Revoke says %q, want %q; last leg %+v", got, tc.want, leg)
				}
				if strings.Contains(names(s.Legs()), "revoke") != (tc.want != "") {
					t.Errorf("legs %s", names(s.Legs()))
				}
				if again := s.Revoke(ctx); again != "" {
					t.Errorf("a second time: %q", again)
				}
				for _, token := range r.provider.Issued() {
					c.Plant(token)
					if _, _, _, err := r.provider.Verify(token, "mcp"); (err != nil) != tc.ended {
						t.Errorf("the token: %v", err)
					}
				}
				c.Plant(clientSecret, r.subject)
				c.Value("session", s)
				c.Value("legs", s.Legs())
			})
		})
	}
}

func (r *rig) revocations() (n int) {
	for _, req := range r.provider.Requests() {
		if req.Path == "/revoke" {
			n++
		}
	}
	return n
}

// TestRevokeWithoutHold: a token that was issued and could not be held is ended
// as well.
func TestRevokeWithoutHold(t *testing.T) {
	r := newRig(t)
	r.with("response: {token_format: jwt}", revokes)
	r.vault.Fail("POST", "cubbyhole", 1, devvault.Failure{Status: http.StatusInternalServerError})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	s, err := r.Open(ctx, r.decide("records", false))
	if err == nil {
		t.Fatal("it was held")
	}
	s.Close(ctx)
	if got := s.Revoke(ctx); got != "revoked" || len(r.provider.Issued()) != 1 {
		t.Fatalf("Revoke says %q, %d tokens", got, len(r.provider.Issued()))
	}
	if _, _, _, err := r.provider.Verify(r.provider.Issued()[0], "mcp"); err == nil {
		t.Error("the token is still good")
	}
}

// TestFurtherLegs: each further request of an exchange is a leg of its own, and
// is not sent when the grant no longer stands.
func TestFurtherLegs(t *testing.T) {
	const verified = "response: {token_format: jwt_verified, jwks_url: PROVIDER/keys}"
	r := newRig(t)
	r.with(verified, "")
	for _, want := range []string{"subject exchange jwks hold", "subject exchange hold"} { // the second finds them known
		ctx, s := r.open(r.decide("records", false))
		s.Close(ctx)
		if got := strings.TrimSuffix(names(s.Legs()), " drop"); got != want {
			t.Errorf("legs %q, want %q", got, want)
		}
	}
	r = newRig(t)
	r.with(verified, "")
	r.provider.Alter(func(*devidp.Grant) { r.Policy.Swap(r.load("false")) }) // while the exchange is out
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	s, err := r.Open(ctx, r.decide("records", false))
	if fault.ReasonOf(err) != fault.GrantRevoked || names(s.Legs()) != "subject exchange jwks" {
		t.Errorf("%v, legs %s", err, names(s.Legs()))
	}
	for _, leg := range s.Legs()[1:] {
		if leg.Reason != fault.GrantRevoked {
			t.Errorf("leg %+v", leg)
		}
	}
	for _, req := range r.provider.Requests() {
		if req.Path == "/keys" {
			t.Error("the keys were asked for all the same")
		}
	}
}

// TestNarrowedIsRecorded: the audit shows the scopes that were granted, and says
// where they are fewer than were asked for.
func TestNarrowedIsRecorded(t *testing.T) {
	for _, tc := range []struct {
		granted  string
		narrowed bool
	}{{"email", true}, {"read email", false}, {"read", false}} {
		r := newRig(t)
		r.with("response: {token_format: jwt, required_scopes: [email], allowed_extra_scopes: [email]}", "")
		r.provider.Alter(func(g *devidp.Grant) { g.Scopes = strings.Fields(tc.granted) })
		ctx, s := r.open(r.decide("records", false))
		var rec audit.Record
		s.Describe(&rec)
		if strings.Join(rec.Scopes, " ") != tc.granted || rec.Narrowed != tc.narrowed {
			t.Errorf("granted %q: scopes %q, narrowed %v", tc.granted, rec.Scopes, rec.Narrowed)
		}
		s.Close(ctx)
	}
}

// TestRefusedIsRevoked: a token that was issued and failed a check is ended at the
// provider where the profile says so. The operation's reason stays what it was, and
// no leg ever gets the token.
func TestRefusedIsRevoked(t *testing.T) {
	for _, tc := range []struct {
		name, more string
		breaks     func(*rig)
		want       string
		reason     fault.Reason // of the revocation
	}{
		{"revoked", revokes, nil, "revoked", fault.None},
		{"not asked for", "", nil, "", fault.None},
		{"the provider fails", revokes, func(r *rig) { r.provider.Break(devidp.Fail(1, 503, "")) }, "failed", fault.ProviderUnreachable},
	} {
		t.Run(tc.name, func(t *testing.T) {
			canary.Run(t, func(c *canary.Cage) {
				r := newRig(t)
				r.with("response: {token_format: jwt}", tc.more)
				r.provider.Alter(func(g *devidp.Grant) { g.Audience = []string{"mail"} })
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				s, err := r.Open(ctx, r.decide("records", false))
				if fault.ReasonOf(err) != fault.WrongAudience {
					t.Fatalf("%v, want %s", err, fault.WrongAudience)
				}
				token := r.provider.Issued()[0]
				c.Plant(token, clientSecret, r.subject)
				if got := s.Revoke(ctx); got != "" || s.Holds() {
					t.Errorf("before Close: %q", got)
				}
				if got := s.Close(ctx); got != "" {
					t.Errorf("Close says %q of a hold that never was", got)
				}
				if _, err := s.Token(ctx, "tools/call"); fault.ReasonOf(err) != fault.SessionClosed {
					t.Errorf("a token: %v", err)
				}
				if tc.breaks != nil {
					tc.breaks(r)
				}
				legs := map[string]string{"": "subject exchange", "revoked": "subject exchange revoke", "failed": "subject exchange revoke"}
				got := s.Revoke(ctx)
				if got != tc.want || names(s.Legs()) != legs[tc.want] || s.Legs()[1].Reason != fault.WrongAudience {
					t.Errorf("Revoke says %q, want %q; legs %+v", got, tc.want, s.Legs())
				}
				if last := s.Legs()[len(s.Legs())-1]; tc.want != "" && last.Reason != tc.reason {
					t.Errorf("revoked with %q, want %q", last.Reason, tc.reason)
				}
				if _, _, _, err := r.provider.Verify(token, "mail"); (err != nil) != (tc.want == "revoked") {
					t.Errorf("the token: %v", err)
				}
				var rec audit.Record
				s.Describe(&rec)
				if rec.Token != audit.DigestOf(token) || rec.Scopes != nil {
					t.Errorf("record %+v", rec)
				}
				if again := s.Revoke(ctx); again != "" {
					t.Errorf("a second time: %q", again)
				}
				c.Value("error", err)
				c.Value("session", s)
				c.Value("legs", s.Legs())
				c.Value("record", rec)
			})
		})
	}
}
