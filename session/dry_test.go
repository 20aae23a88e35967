package session_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/exchange"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/policy/policytest"
	"onbehalf.internal/broker/secret/canary"
)

// decideDry allows a dry exchange.
func (r *rig) decideDry(server string) policy.Decision {
	r.t.Helper()
	q, err := policytest.Ask(r.Policy.Current(), "user:7", server, "")
	r.must(err)
	d, err := r.Policy.Current().DecideDry(q.Caller, server, r.now)
	r.must(err)
	return d
}

// A willing provider answers every request for a token alike, and remembers what it
// was asked for and to revoke.
type willing struct {
	mu      sync.Mutex
	asked   []string // grant_type, and which tokens were handed in
	revoked []string
}

func (w *willing) start(t *testing.T, status int, answer string) (issuer string) {
	s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if req.URL.Path == "/revoke" {
			w.revoked = append(w.revoked, req.PostFormValue("token"))
			return
		}
		w.asked = append(w.asked, req.PostFormValue("grant_type")+" "+req.PostFormValue("subject_token"))
		rw.Header().Set("Content-Type", "application/json")
		rw.WriteHeader(status)
		fmt.Fprint(rw, answer)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// TestDryExchange: nobody's credential is handed in, nothing is held, what is issued
// all the same is revoked.
func TestDryExchange(t *testing.T) {
	const (
		token  = "token-for-nobody-4711"
		issues = `{"access_token":"` + token + `","token_type":"Bearer","expires_in":60,"issued_token_type":"urn:ietf:params:oauth:token-type:access_token"}`
		opaque = "response: {token_format: opaque, audience_unverified: true}"
		own    = "    grant_type: client_credentials\n    audience_param: audience\n"
	)
	for _, tc := range []struct {
		name    string
		own     bool // the broker itself is the subject
		status  int
		answer  string
		reason  fault.Reason // "": as it should be
		revoked bool
		before  func(*rig)
	}{
		{"refused", false, 400, `{"error":"invalid_request"}`, "", false, nil},
		{"refused as a grant", false, 400, `{"error":"invalid_grant"}`, "", false, nil},
		{"not known as a client", false, 401, `{"error":"invalid_client"}`, fault.ProviderConfig, false, nil},
		{"given to anybody", false, 200, issues, fault.WrongSubject, true, nil},
		{"given to anybody, and not what was asked for", false, 200, strings.Replace(issues, "60", "1", 1), fault.LifetimeTooShort, true, nil},
		{"a page", false, 200, "<html>", fault.ExchangeMalformed, false, nil},
		{"the broker's own", true, 200, issues, "", true, nil},
		{"the broker's own, refused", true, 400, `{"error":"invalid_request"}`, fault.ProviderConfig, false, nil},
		{"the broker's own, not as asked for", true, 200, strings.Replace(issues, `,"issued`, `,"scope":"read admin","issued`, 1), fault.ScopeWidened, true, nil},
		{"no key", false, 400, `{"error":"invalid_request"}`, fault.VaultSealed, false, func(r *rig) { r.vault.Seal(true) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			canary.Run(t, func(c *canary.Cage) {
				c.Plant(clientSecret, token)
				p := &willing{}
				r := rigWith(t, p.start(t, tc.status, tc.answer), "subject-4711-of-user-7", exchange.New(nil))
				r.edit = func(text string) string {
					if tc.own {
						text = strings.Replace(text, "    allowed_audiences: [mcp]\n", own+"    allowed_audiences: [mcp]\n", 1)
						text = strings.Replace(text, `credential: "vault:kv/broker/subject#v", `, "", 1)
					}
					return text
				}
				r.with(opaque, revokes)
				if tc.before != nil {
					tc.before(r)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				s, err := r.DryExchange(ctx, r.decideDry("records"))
				if tc.reason == "" && err != nil || tc.reason != "" && fault.ReasonOf(err) != tc.reason {
					t.Errorf("%v, want %q", err, tc.reason)
				}
				c.Value("error", err)
				c.Value("session", s)
				var rec audit.Record
				s.Describe(&rec)
				if (rec.Token == audit.DigestOf(token)) != tc.revoked || (len(p.revoked) == 1 && p.revoked[0] == token) != tc.revoked {
					t.Errorf("the record has token %s, %d were revoked", rec.Token, len(p.revoked))
				}
				for _, asked := range p.asked {
					if strings.Contains(asked, "subject-4711") || strings.Contains(asked, "nobody.") == tc.own {
						t.Errorf("asked for %q", asked)
					}
				}
				if _, err := s.Token(ctx, "tools/list"); fault.ReasonOf(err) != fault.SessionClosed {
					t.Errorf("a token is handed out: %v", err)
				}
				if r.vault.Residue() != 0 || r.vault.Count("", "cubbyhole/") != 0 || r.vault.Count("GET", "kv/data/broker/subject") != 0 {
					t.Error("something was held, or the actor's credential read")
				}
			})
		})
	}
}

// TestDryStaysDry: a decision on a dry exchange opens no session, and no other decision
// makes a dry exchange.
func TestDryStaysDry(t *testing.T) {
	r := newRig(t)
	s, err := r.Open(t.Context(), r.decideDry("records"))
	if fault.ReasonOf(err) != fault.SessionClosed {
		t.Errorf("Open = %v", err)
	}
	if _, err := s.Token(t.Context(), "tools/list"); err == nil {
		t.Error("it hands out a token")
	}
	for _, d := range []policy.Decision{r.decide("records", false), r.decide("records", true)} {
		if _, err := r.DryExchange(t.Context(), d); fault.ReasonOf(err) != fault.NoGrant {
			t.Errorf("DryExchange = %v", err)
		}
	}
	if len(r.provider.Issued()) != 0 || r.vault.Count("", "cubbyhole/") != 0 {
		t.Error("something was issued or held")
	}
}

// TestDryStands: what was revoked since is not asked.
func TestDryStands(t *testing.T) {
	r := newRig(t)
	d := r.decideDry("records")
	r.edit = func(text string) string {
		return strings.Replace(text, "    enabled: true\n    data_class", "    enabled: false\n    data_class", 1)
	}
	r.Policy.Swap(r.load("true"))
	if _, err := r.DryExchange(t.Context(), d); fault.ReasonOf(err) != fault.GrantRevoked || len(r.provider.Requests()) != 0 {
		t.Errorf("%v, %d requests", err, len(r.provider.Requests()))
	}
}
