package session_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/egress"
	"onbehalf.internal/broker/exchange"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/internal/devvault"
	"onbehalf.internal/broker/secret/canary"
	"onbehalf.internal/broker/session"
)

// A quiet rig lives in a bubble: its provider needs no network, and every clock
// is the bubble's. One token of its provider is good for as long as life says.
type quiet struct {
	*rig
	life   time.Duration
	status int    // of the answers; 0: 200
	asked  func() // while an exchange is out
	issued []string
	ended  []string // by revocation
}

func bubble(t *testing.T, life time.Duration, f func(t *testing.T, q *quiet)) {
	synctest.Test(t, func(t *testing.T) {
		q := &quiet{life: life}
		x := &exchange.Client{HTTP: func(egress.Host) *http.Client { return &http.Client{Transport: q} }}
		q.rig = rigWith(t, "https://identity.test", "the-subject-token-of-user-7", x)
		q.Manager.Now = time.Now
		q.with("response: {token_format: opaque, audience_unverified: true, max_ttl: 1h}", "")
		f(t, q)
	})
}

func (q *quiet) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	q.serve(w, r)
	return w.Result(), nil
}

func (q *quiet) serve(w http.ResponseWriter, r *http.Request) {
	if q.asked != nil {
		q.asked()
	}
	w.Header().Set("Content-Type", "application/json")
	r.ParseForm()
	switch {
	case q.status != 0:
		w.WriteHeader(q.status)
	case r.URL.Path == "/revoke":
		q.ended = append(q.ended, r.PostForm.Get("token"))
	case r.PostForm.Get("subject_token") != q.subject:
		w.WriteHeader(http.StatusBadRequest)
	default:
		token := fmt.Sprintf("exchanged-token-%d-of-user-7", len(q.issued))
		q.issued = append(q.issued, token)
		fmt.Fprintf(w, `{"access_token":%q,"issued_token_type":"urn:ietf:params:oauth:token-type:access_token","token_type":"Bearer","expires_in":%.0f}`, token, q.life.Seconds())
	}
}

// epochOf is the epoch that the session's audit records name.
func epochOf(s *session.Session) string {
	var rec audit.Record
	s.Describe(&rec)
	return rec.Epoch
}

// TestReopen: what ran out by its own time is made anew, what somebody ended is
// not, and each time the record says what became of the holds.
func TestReopen(t *testing.T) {
	const (
		short = time.Minute      // a token that its epoch outlives
		long  = 10 * time.Minute // one that outlives its epoch
		epoch = 75 * time.Second
		skew  = 2 * time.Second
		anew  = "drop subject exchange hold"
	)
	at := func(d time.Duration, f func(*quiet, *session.Session)) func(*quiet, *session.Session) {
		return func(q *quiet, s *session.Session) {
			time.Sleep(d)
			f(q, s)
		}
	}
	nothing := func(*quiet, *session.Session) {}
	kill := func(q *quiet, s *session.Session) { q.vault.Revoke(epochOf(s)) }
	disable := func(q *quiet, _ *session.Session) { q.Policy.Swap(q.load("false")) }
	fails := func(method, path string, f devvault.Failure) func(*quiet, *session.Session) {
		return func(q *quiet, _ *session.Session) { q.vault.Fail(method, path, 1, f) }
	}
	for _, tc := range []struct {
		name   string
		life   time.Duration
		change func(*quiet, *session.Session) // between the first leg and the second
		to     time.Duration                  // when the second leg asks, after the first
		reason fault.Reason
		legs   string // of the reopening
		hold   string // what Close says
	}{
		{"nothing ran out", short, nothing, short - skew - 1, fault.None, "", "dropped"},
		{"the token ran out", short, nothing, short - skew, fault.None, anew, "dropped"},
		{"the token ran out long ago", short, nothing, 70 * time.Second, fault.None, anew, "dropped"},
		{"the epoch stands", long, nothing, epoch - skew - 1, fault.None, "", "dropped"},
		{"the epoch is about to end", long, nothing, epoch - skew, fault.None, anew, "dropped"},
		{"the epoch has just ended", long, nothing, epoch, fault.None, anew, "dropped"},
		{"the epoch is forgotten", long, nothing, 3 * time.Minute, fault.None, anew, "dropped"},
		{"both ran out", short, nothing, 3 * time.Minute, fault.None, anew, "dropped"},

		{"the epoch was revoked", long, kill, 10 * time.Second, fault.HoldGone, "", "dropped"},
		{"the epoch was revoked, then the token ran out", short, kill, short, fault.HoldGone, "", "dropped"},
		{"the epoch was revoked, then its time came", long, kill, 3 * time.Minute, fault.HoldGone, "", "dropped"},
		{"the epoch was revoked right before the last look", long, at(epoch-time.Second-1, kill), epoch, fault.HoldGone, "", "dropped"},
		{"nobody could ask whether the epoch was revoked", long, at(epoch-2*time.Second, func(q *quiet, _ *session.Session) {
			q.vault.Seal(true)
			time.Sleep(3 * time.Second)
			q.vault.Seal(false)
		}), 2 * time.Minute, fault.HoldGone, "", "dropped"},
		{"the hold is gone, and the token ran out", short, at(short, fails("GET", "cubbyhole", devvault.Failure{Status: 404, Body: `{"errors":[]}`})),
			short, fault.HoldGone, "", "dropped"},
		{"another token is there, and ours ran out", short, at(short, fails("GET", "cubbyhole", devvault.Failure{Status: 200, Body: `{"data":{"token":"x"}}`})),
			short, fault.HoldChanged, "", "dropped"},
		{"Vault is sealed", short, func(q *quiet, _ *session.Session) { q.vault.Seal(true) }, short, fault.VaultSealed, "", "pending"},
		{"Vault is sealed, and the epoch lapsed", long, at(epoch, func(q *quiet, _ *session.Session) { q.vault.Seal(true) }), epoch, fault.VaultSealed, "", "pending"},

		{"the grant is gone", short, disable, short, fault.GrantRevoked, "", "dropped"},
		{"the grant goes while it is opened", short, func(q *quiet, _ *session.Session) { q.asked = func() { q.Policy.Swap(q.load("false")) } },
			short, fault.GrantRevoked, anew, "dropped"},
		{"the subject credential is gone", short, func(q *quiet, _ *session.Session) { q.vault.PutSecret("kv", "broker/subject", nil) },
			short, fault.CredentialMissing, "drop subject", "dropped"},
		{"the provider refuses", short, func(q *quiet, _ *session.Session) { q.status = 500 }, short, fault.ProviderError, "drop subject exchange", "dropped"},
		{"the new token cannot be held", short, at(short, fails("POST", "cubbyhole", devvault.Failure{})), short, fault.VaultUnexpected, anew, "pending"},
		{"the old hold cannot be dropped", short, at(short, fails("DELETE", "cubbyhole", devvault.Failure{})), short, fault.None, anew, "pending"},
		{"the new token is too short", short, func(q *quiet, _ *session.Session) { q.life = skew }, short, fault.LifetimeTooShort, anew, "dropped"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, tc.life, func(t *testing.T, q *quiet) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				s, err := q.Open(ctx, q.decide("records", false))
				q.must(err)
				began, first := time.Now(), epochOf(s)
				_, err = s.Token(ctx, "initialize")
				q.must(err)
				tc.change(q, s)
				time.Sleep(tc.to - time.Since(began))
				exchanges := len(q.issued)
				cred, err := s.Token(ctx, "tools/call")
				if reasonOf(err) != tc.reason || names(cred.Legs) != tc.legs {
					t.Errorf("%v after legs %q, want %q after %q", err, names(cred.Legs), tc.reason, tc.legs)
				}
				if names(s.Legs()) != "subject exchange hold" {
					t.Errorf("the session's own legs: %q", names(s.Legs()))
				}
				if n := len(q.issued) - exchanges; n > 1 || n == 1 && !strings.Contains(tc.legs, "exchange") {
					t.Errorf("%d exchanges", n)
				}
				if err == nil && (cred.Value.Reveal() != q.issued[len(q.issued)-1] || !cred.ReadAt.Equal(time.Now())) {
					t.Error("another token, or read at another time")
				}
				if err == nil {
					described(t, q, s)
				}
				if tc.legs == anew && tc.reason == fault.None && time.Since(began) > 31*time.Second && epochOf(s) == first {
					t.Error("the new hold is in the old epoch")
				}
				// What is pending may go with its epoch, whose time has come, before Close looks.
				if tc.reason != fault.None && tc.legs != "" && tc.reason != fault.LifetimeTooShort && tc.hold != "pending" {
					q.asked, q.status, q.life = nil, 0, long
					q.Policy.Swap(q.load("true"))
					if cred, err := s.Token(ctx, "tools/call"); err == nil || cred.Legs != nil {
						t.Errorf("after a reopening that failed there is another: %v, legs %q", err, names(cred.Legs))
					}
				}
				if got := s.Close(ctx); got != tc.hold {
					t.Errorf("Close says %q, want %q", got, tc.hold)
				}
				held := tc.legs == "" || tc.reason == fault.None || tc.reason == fault.LifetimeTooShort
				if dropped := strings.HasSuffix(names(s.Legs()), "drop"); dropped != held {
					t.Errorf("legs %q at the end", names(s.Legs()))
				}
				q.vault.Seal(false)
				time.Sleep(2 * time.Minute)
				if n := q.vault.Residue(); n != 0 {
					t.Errorf("%d holds left", n)
				}
			})
		})
	}
}

// described: the record names the newest token.
func described(t *testing.T, q *quiet, s *session.Session) {
	t.Helper()
	var rec audit.Record
	s.Describe(&rec)
	if rec.Token != audit.DigestOf(q.issued[len(q.issued)-1]) {
		t.Error("the record names another token")
	}
	if rec.Epoch == "" {
		t.Error("the record names no epoch")
	}
}

// TestReopenRevokes: where the profile revokes, the old token is ended before the
// next is asked for, and the next after Close; nothing depends on it.
func TestReopenRevokes(t *testing.T) {
	const anew = "drop revoke subject exchange hold"
	for _, tc := range []struct {
		name       string
		life, wait time.Duration
		brk        func(*quiet)
		reason     fault.Reason // of the revocation
		token      fault.Reason // of the leg
		legs       string
		ended      int
		revoke     string // what Revoke says after Close
	}{
		{"the token ran out", time.Minute, time.Minute, func(*quiet) {}, fault.None, fault.None, anew, 1, "revoked"},
		{"the epoch ran out, and the token with it", time.Hour, 2 * time.Minute, func(*quiet) {}, fault.HoldGone, fault.None, anew, 0, "revoked"},
		{"the provider does not revoke", time.Minute, time.Minute, func(q *quiet) {
			q.asked = func() { q.status, q.asked = 500, func() { q.status = 0 } } // the first alone
		}, fault.ProviderError, fault.None, anew, 0, "revoked"},
		{"there is no next token", time.Minute, time.Minute, func(q *quiet) { q.vault.PutSecret("kv", "broker/subject", nil) },
			fault.None, fault.CredentialMissing, "drop revoke subject", 1, ""},
		{"the next token cannot be held", time.Minute, time.Minute, func(q *quiet) { q.vault.Fail("POST", "cubbyhole", 1, devvault.Failure{}) },
			fault.None, fault.VaultUnexpected, anew, 1, "revoked"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, tc.life, func(t *testing.T, q *quiet) {
				q.with(q.response, revokes)
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				s, err := q.Open(ctx, q.decide("records", false))
				q.must(err)
				time.Sleep(tc.wait)
				tc.brk(q)
				cred, err := s.Token(ctx, "tools/call")
				if reasonOf(err) != tc.token || names(cred.Legs) != tc.legs {
					t.Fatalf("%v after legs %q", err, names(cred.Legs))
				}
				if got := cred.Legs[1].Reason; got != tc.reason || len(q.ended) != tc.ended {
					t.Errorf("revocation: reason %q, %d tokens ended", got, len(q.ended))
				}
				if tc.ended == 1 && q.ended[0] != q.issued[0] {
					t.Error("another token was ended")
				}
				s.Close(ctx)
				if got := s.Revoke(ctx); got != tc.revoke {
					t.Errorf("Revoke says %q, want %q", got, tc.revoke)
				}
				if tc.revoke == "revoked" && q.ended[len(q.ended)-1] != q.issued[len(q.issued)-1] {
					t.Error("the newest token was not ended")
				}
			})
		})
	}
}

// TestReopenEachTime: a session may be opened anew for one leg after another, and
// keeps nothing of what it had.
func TestReopenEachTime(t *testing.T) {
	canary.Run(t, func(c *canary.Cage) {
		bubble(t, 10*time.Second, func(t *testing.T, q *quiet) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			s, err := q.Open(ctx, q.decide("records", false))
			q.must(err)
			for range 5 {
				time.Sleep(10 * time.Second)
				cred, err := s.Token(ctx, "tools/list")
				q.must(err)
				c.Value("legs", cred.Legs)
				if again, err := s.Token(ctx, "tools/list"); err != nil || again.Legs != nil {
					t.Errorf("the next leg: %v, legs %q", err, names(again.Legs))
				}
				if q.vault.Residue() != 1 {
					t.Errorf("%d holds", q.vault.Residue())
				}
			}
			if n := q.vault.Count("GET", "kv/data/broker/subject"); n != 6 || len(q.issued) != 6 {
				t.Errorf("the subject credential was read %d times for %d tokens, want 6", n, len(q.issued))
			}
			c.Plant(append(q.issued, q.subject)...)
			c.Value("session", s)
			if got := s.Close(ctx); got != "dropped" || q.vault.Residue() != 0 {
				t.Errorf("Close says %q, %d holds left", got, q.vault.Residue())
			}
		})
	})
}

// TestReopenWithinTheBudget: it spends the operation's time and no other.
func TestReopenWithinTheBudget(t *testing.T) {
	bubble(t, time.Minute, func(t *testing.T, q *quiet) {
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
		defer cancel()
		s, err := q.Open(ctx, q.decide("records", false))
		q.must(err)
		time.Sleep(89 * time.Second)
		q.asked = func() { <-ctx.Done() } // a provider that takes too long
		cred, err := s.Token(ctx, "tools/call")
		if err == nil || names(cred.Legs) != "drop subject exchange hold" || time.Since(q.now) > 90*time.Second {
			t.Errorf("%v after %v, legs %+v", err, time.Since(q.now), cred.Legs)
		}
		for _, leg := range cred.Legs {
			if leg.Budget > time.Second {
				t.Errorf("leg %+v had more than was left", leg)
			}
		}
		if cred, err := s.Parting(context.Background(), "delete"); err == nil || cred.Legs != nil {
			t.Errorf("a farewell after it: %v", err)
		}
	})
}

// TestPartingOpensNothing: a farewell takes what is there, or goes without.
func TestPartingOpensNothing(t *testing.T) {
	for _, tc := range []struct {
		life, wait time.Duration
		reason     fault.Reason
	}{
		{time.Minute, 50 * time.Second, fault.None},
		{time.Minute, 59 * time.Second, fault.LifetimeTooShort},
		{time.Hour, 2 * time.Minute, fault.HoldGone},
	} {
		bubble(t, tc.life, func(t *testing.T, q *quiet) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			s, err := q.Open(ctx, q.decide("records", false))
			q.must(err)
			time.Sleep(tc.wait)
			cred, err := s.Parting(ctx, "delete")
			if reasonOf(err) != tc.reason || cred.Legs != nil || len(q.issued) != 1 {
				t.Errorf("after %v: %v, %d tokens, want %q and one", tc.wait, err, len(q.issued), tc.reason)
			}
			s.Close(ctx)
			if _, err := s.Parting(ctx, "delete"); fault.ReasonOf(err) != fault.SessionClosed {
				t.Errorf("after Close: %v", err)
			}
		})
	}
}
