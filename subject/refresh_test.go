package subject_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"onbehalf.internal/broker/exchange"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/internal/devvault"
	"onbehalf.internal/broker/policy/policytest"
	"onbehalf.internal/broker/secret"
	"onbehalf.internal/broker/secret/canary"
	"onbehalf.internal/broker/subject"
)

const budget = 20 * time.Second

// TestTwoBrokersRefreshOneCredential: 50 operations of two brokers at a time, at a
// provider that ends the family when a token comes twice. Each gets a token of its
// own, and no rotation is lost.
func TestTwoBrokersRefreshOneCredential(t *testing.T) { testTwoBrokers(t, newRig(t)) }

func testTwoBrokers(t *testing.T, r *rig) {
	brokers := []*subject.Resolver{r.broker(), r.broker()}
	var mu sync.Mutex
	access := map[string]bool{}
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			s, err := r.find(brokers[i%2], "user:7", time.Minute)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			access[s.Token.Reveal()] = true
		})
	}
	wg.Wait()
	if len(access) != 50 || r.provider.requests() != 50 {
		t.Errorf("%d tokens by %d requests, want 50 by 50", len(access), r.provider.requests())
	}
	r.settled()
}

// TestRefreshStores: what becomes of the stored token in each way in which a provider
// can answer.
func TestRefreshStores(t *testing.T) {
	answers := func(status int, change func(map[string]any)) func(map[string]any) (int, any) {
		return func(a map[string]any) (int, any) { change(a); return status, a }
	}
	for name, row := range map[string]struct {
		prepare func(*provider)
		want    fault.Reason
	}{
		"rotated": {func(*provider) {}, fault.None},
		"kept":    {func(p *provider) { p.keeps = true }, fault.None},
		"handed back": {func(p *provider) {
			p.keeps = true
			p.alter = answers(200, func(a map[string]any) { a["refresh_token"] = p.current })
		}, fault.None},
		"refused":                   {func(p *provider) { p.killed = true }, fault.SubjectRejected},
		"of no use":                 {func(p *provider) { p.alter = answers(200, func(a map[string]any) { a["token_type"] = "mac" }) }, fault.WrongTokenType},
		"with a token that is none": {func(p *provider) { p.alter = answers(200, func(a map[string]any) { a["access_token"] = "a b" }) }, fault.ExchangeMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				row.prepare(r.provider)
				s, err := r.find(r.broker(), "user:7", budget)
				if reasonOf(err) != row.want || (err == nil) != strings.HasPrefix(s.Token.Reveal(), "access-") {
					t.Errorf("%v, want %q, and a token or none", err, row.want)
				}
				if err == nil && s.Type != "urn:ietf:params:oauth:token-type:access_token" {
					t.Errorf("its type is %q", s.Type)
				}
				if n := r.provider.requests(); n != 1 {
					t.Errorf("%d requests were sent", n)
				}
				r.provider.killed = false
				r.settled()
			})
		})
	}
}

// TestWriteBack: how Vault takes what replaces the token, and what the operation is told.
func TestWriteBack(t *testing.T) {
	const path = "kv/data/" + refreshPath
	for name, row := range map[string]struct {
		after func(*rig) // when the provider has rotated
		want  fault.Reason
		stays string // what is stored instead of the provider's token
	}{
		"at once":                    {func(*rig) {}, fault.None, ""},
		"cut before":                 {func(r *rig) { r.vault.Fail("PATCH", path, 1, devvault.Failure{Cut: true}) }, fault.None, ""},
		"cut after":                  {func(r *rig) { r.vault.Fail("PATCH", path, 1, devvault.Failure{Cut: true, After: true}) }, fault.None, ""},
		"500 after":                  {func(r *rig) { r.vault.Fail("PATCH", path, 1, devvault.Failure{After: true}) }, fault.None, ""},
		"silent, then there":         {func(r *rig) { r.vault.Fail("PATCH", path, 1, devvault.Failure{Hang: true}) }, fault.None, ""},
		"429 for a while":            {func(r *rig) { r.vault.Fail("", path, 5, devvault.Failure{Status: 429, Body: `{"errors":[]}`}) }, fault.None, ""},
		"sealed for five seconds":    {func(r *rig) { r.vault.Seal(true); time.AfterFunc(5*time.Second, func() { r.vault.Seal(false) }) }, fault.None, ""},
		"another field was written":  {func(r *rig) { r.ask("PATCH", path, `{"data":{"note":"kept"}}`) }, fault.None, ""},
		"our claim was removed":      {func(r *rig) { r.ask("PATCH", path, `{"data":{"refresh_claim":null}}`) }, fault.None, ""},
		"the person logged in again": {func(r *rig) { r.ask("PUT", path, `{"data":{"refresh":"of-another-login","note":"kept"}}`) }, fault.CredentialChanged, "of-another-login"},
		"sealed":                     {func(r *rig) { r.vault.Seal(true) }, fault.RotationLost, ""},
		"gone":                       {func(r *rig) { r.ask("DELETE", "kv/metadata/"+refreshPath, "") }, fault.RotationLost, ""},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.provider.after = func() { row.after(r) }
				s, err := r.find(r.broker(), "user:7", time.Minute)
				if reasonOf(err) != row.want || err != nil && !s.Token.IsZero() {
					t.Errorf("%v, want %q", err, row.want)
				}
				switch {
				case row.want == fault.None:
					r.settled()
				case row.stays != "":
					if fields, _ := r.stored(); fields["refresh"] != row.stays {
						t.Error("what was stored meanwhile is gone")
					}
				}
			})
		})
	}
}

// TestRotationLost: the provider rotates and Vault does not take the new token for as
// long as that is tried. The operation says so; so does each that follows, without
// asking the provider, until another token is stored.
func TestRotationLost(t *testing.T) {
	canary.Run(t, func(c *canary.Cage) {
		bubble(t, func(t *testing.T, r *rig) {
			c.Plant(clientSecret)
			s := r.broker()
			r.provider.after = func() { r.vault.Seal(true) }
			began := time.Now()
			_, err := r.find(s, "user:7", time.Minute)
			const want = `subject.Refresh: rotation_lost: the last try ended with vault_sealed; "vault:kv/broker/refresh/7#refresh" at version 2 is spent, and what replaced it is lost: store another refresh token there`
			if err == nil || err.Error() != want || time.Since(began) != 10*time.Second {
				t.Errorf("after %v: %v\nwant %s", time.Since(began), err, want)
			}
			c.Value("lost", err)
			if _, err := r.find(s, "user:7", budget); fault.ReasonOf(err) != fault.VaultSealed {
				t.Errorf("while Vault is sealed: %v", err)
			}
			r.vault.Seal(false)
			for range 3 {
				_, err := r.find(s, "user:7", budget)
				if fault.ReasonOf(err) != fault.RotationLost {
					t.Errorf("when Vault is back: %v", err)
				}
				c.Value("still lost", err)
			}
			if n := r.provider.requests(); n != 1 || r.provider.isKilled() {
				t.Errorf("%d requests: a spent token was sent", n)
			}

			r.provider.after = nil
			r.ask("PATCH", "kv/data/"+refreshPath, fmt.Sprintf(`{"data":{"refresh":%q}}`, r.provider.token()))
			if _, err := r.find(s, "user:7", budget); err != nil {
				t.Errorf("when another is stored: %v", err)
			}
			r.settled()
			c.Plant(r.provider.secrets()...)
			c.Value("resolver", s)
		})
	})
}

// TestTheOperationEndsBeforeItsRefresh: what the provider gives is stored all the same.
func TestTheOperationEndsBeforeItsRefresh(t *testing.T) {
	for name, row := range map[string]struct {
		end  func(context.Context) (context.Context, context.CancelFunc)
		want fault.Reason
	}{
		"its deadline": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Second)
		}, fault.WallClock},
		"given up": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(time.Second, cancel)
			return ctx, cancel
		}, fault.CallerCancelled},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				s := r.broker()
				r.provider.before = func() { time.Sleep(3 * time.Second) }
				ctx, cancel := row.end(context.Background())
				defer cancel()
				began := time.Now()
				token, err := s.Subject(ctx, r.decide("user:7"), key)
				if reasonOf(err) != row.want || !token.Token.IsZero() || time.Since(began) != time.Second {
					t.Errorf("after %v: %v", time.Since(began), err)
				}
				short, stop := context.WithTimeout(context.Background(), time.Second)
				defer stop()
				if s.Drain(short) == nil {
					t.Error("it is drained while a refresh is under way")
				}
				if err := s.Drain(context.Background()); err != nil {
					t.Error(err)
				}
				r.settled()
				if _, err := r.find(s, "user:7", budget); err != nil {
					t.Errorf("the next operation: %v", err)
				}
				r.settled()
			})
		})
	}
}

// A provider that does not answer is given up after ten seconds, and the stored token
// is free again: whether it is spent only the provider knows.
func TestAProviderThatDoesNotAnswer(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		s := r.broker()
		r.provider.before = func() { time.Sleep(15 * time.Second) }
		began := time.Now()
		if _, err := r.find(s, "user:7", time.Minute); err == nil || time.Since(began) != 10*time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		if fields, _ := r.stored(); fields["refresh_claim"] != nil {
			t.Error("a claim was left")
		}
		time.Sleep(time.Minute) // until the provider has had its say
	})
}

// A defect ends one operation, not the broker.
func TestAPanicInARefresh(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		s := r.broker()
		r.provider.panics = true
		if _, err := r.find(s, "user:7", budget); fault.ReasonOf(err) != fault.InternalError {
			t.Errorf("%v", err)
		}
		r.provider.panics = false
		if _, err := r.find(s, "user:7", budget); err != nil {
			t.Errorf("the next operation: %v", err)
		}
		r.settled()
	})
}

// TestOneAtATime: operations that come meanwhile wait, each within its own budget, and
// send nothing where that ends. Other credentials are not held up.
func TestOneAtATime(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		s := r.broker()
		r.provider.before = func() { time.Sleep(2 * time.Second) }
		results := make(chan error, 3)
		for _, budget := range []time.Duration{time.Minute, time.Minute, time.Second} {
			go func() { _, err := r.find(s, "user:7", budget); results <- err }()
			synctest.Wait()
		}
		if _, err := r.find(s, "user:8", time.Millisecond); err != nil {
			t.Errorf("another credential: %v", err)
		}
		if err := <-results; fault.ReasonOf(err) != fault.BudgetSpent {
			t.Errorf("the one without time: %v", err)
		}
		if n := r.provider.requests(); n != 0 {
			t.Errorf("%d requests have got there", n)
		}
		for range 2 {
			if err := <-results; err != nil {
				t.Error(err)
			}
		}
		if n := r.provider.requests(); n != 2 {
			t.Errorf("%d requests, want 2", n)
		}
		r.settled()
	})
}

// TestSomebodyElsesClaim is respected while it may be of a broker that lives: until it
// has been seen unchanged for 30 s, over as many operations as that takes.
func TestSomebodyElsesClaim(t *testing.T) {
	claim := func(r *rig, id string) {
		r.ask("PATCH", "kv/data/"+refreshPath, fmt.Sprintf(`{"data":{"refresh_claim":%q}}`, id))
	}
	for name, row := range map[string]struct {
		meanwhile func(*rig)
		ends      []fault.Reason // of operations of 20 s, one after the other
		took      time.Duration
	}{
		"it goes": {func(r *rig) {
			time.AfterFunc(5*time.Second, func() { r.ask("PATCH", "kv/data/"+refreshPath, `{"data":{"refresh_claim":null}}`) })
		}, []fault.Reason{fault.None}, 5 * time.Second},
		"it stays": {func(*rig) {}, []fault.Reason{fault.BudgetSpent, fault.None}, 30 * time.Second},
		"another comes": {func(r *rig) {
			time.AfterFunc(25*time.Second, func() { claim(r, "a-third-broker") })
		}, []fault.Reason{fault.BudgetSpent, fault.BudgetSpent, fault.None}, 55 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				s := r.broker()
				claim(r, "another-broker")
				began := time.Now()
				row.meanwhile(r)
				for i, want := range row.ends {
					if _, err := r.find(s, "user:7", budget); reasonOf(err) != want {
						t.Errorf("operation %d: %v, want %q", i+1, err, want)
					}
				}
				if took := time.Since(began).Round(time.Second); took != row.took {
					t.Errorf("it took %v, want %v", took, row.took)
				}
				if n := r.provider.requests(); n != 1 {
					t.Errorf("%d requests", n)
				}
				r.settled()
			})
		})
	}
}

// A claim of our own that a failed write has left is in nobody's way.
func TestOurOwnClaimIsLeft(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		s := r.broker()
		r.vault.Fail("PATCH", "kv/", 1, devvault.Failure{Cut: true, After: true})
		if _, err := r.find(s, "user:7", budget); fault.ReasonOf(err) != fault.VaultUnreachable || r.provider.requests() != 0 {
			t.Errorf("the claim's answer was lost: %v", err)
		}
		began := time.Now()
		if _, err := r.find(s, "user:7", budget); err != nil || time.Since(began) != 0 {
			t.Errorf("the next operation, after %v: %v", time.Since(began), err)
		}
		r.settled()
	})
}

// Nothing is claimed, and nothing sent, where it cannot come to an end.
func TestNothingIsSent(t *testing.T) {
	noKey := func(context.Context) (exchange.Key, error) {
		return exchange.Key{}, fault.New("test", fault.VaultSealed, "")
	}
	for name, row := range map[string]struct {
		actor string
		key   func(context.Context) (exchange.Key, error)
		brk   func(*rig)
		want  fault.Reason
	}{
		"in KV version 1":       {"user:1", key, func(*rig) {}, fault.CredentialUnversioned},
		"no client key":         {"user:7", noKey, func(*rig) {}, fault.VaultSealed},
		"no such secret":        {"user:7", key, func(r *rig) { r.ask("DELETE", "kv/metadata/"+refreshPath, "") }, fault.CredentialMissing},
		"no right to write":     {"user:7", key, func(r *rig) { r.vault.Fail("PATCH", "kv/", -1, devvault.Failure{Status: 403, Body: `{"errors":[]}`}) }, fault.VaultDenied},
		"Vault says 400 always": {"user:7", key, func(r *rig) { r.vault.Fail("PATCH", "kv/", -1, devvault.Failure{Status: 400, Body: `{"errors":[]}`}) }, fault.VaultUnexpected},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				s := r.broker()
				_, before := r.stored()
				row.brk(r)
				ctx, cancel := context.WithTimeout(context.Background(), budget)
				defer cancel()
				if _, err := s.Subject(ctx, r.decide(row.actor), row.key); reasonOf(err) != row.want {
					t.Errorf("%v, want %q", err, row.want)
				}
				if n := r.provider.requests(); n != 0 {
					t.Errorf("%d requests were sent", n)
				}
				if name != "no such secret" {
					if _, after := r.stored(); after != before {
						t.Errorf("the secret went from version %d to %d", before, after)
					}
				}
			})
		})
	}
}

// No secret is in an error, whatever breaks.
func TestNoSecret(t *testing.T) {
	canary.Run(t, func(c *canary.Cage) {
		bubble(t, func(t *testing.T, r *rig) {
			s := r.broker()
			c.Plant(clientSecret, policytest.Bearer)
			echo := r.provider.token() + clientSecret
			for name, brk := range map[string]func(){
				"500":    func() { r.vault.Fail("", "kv/", 1, devvault.Failure{}) },
				"a page": func() { r.vault.Fail("PATCH", "kv/", 1, devvault.Failure{Status: 200, Type: "text/html", Body: echo}) },
				"an echo": func() {
					r.provider.alter = func(map[string]any) (int, any) { return 400, map[string]any{"error": echo} }
				},
				"an echoed token": func() {
					r.provider.alter = func(a map[string]any) (int, any) { a["access_token"] = echo + " "; return 200, a }
				},
			} {
				brk()
				token, err := r.find(s, "user:7", budget)
				c.Value(name+": token", token)
				c.Value(name+": error", err)
				r.vault.Mend()
				r.provider.alter = nil
			}
			token, err := r.find(s, "user:7", budget)
			c.Value("token", token)
			c.Value("error", err)
			c.Value("resolver", s)
			c.Plant(r.provider.secrets()...)
			c.Plant(secret.New("planted-so-that-there-is-one").Reveal())
		})
	})
}
