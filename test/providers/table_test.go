//go:build interop

package providers_test

import (
	"crypto/rand"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/internal/counterparts"
	"onbehalf.internal/broker/secret/canary"
)

var update = flag.Bool("update", false, "write docs/providers.md anew")

// A column is one thing that is tried at each provider. It runs one exchange.
type column struct {
	title string
	run   func(*testing.T, provider) ending
}

// columns are those of the first table. The subject that has to expire was
// issued when the test began.
func columns(expiring map[string]subject) []column {
	with := func(change func(provider) func(*profile)) func(*testing.T, provider) ending {
		return func(t *testing.T, p provider) ending {
			good := p.good(t)
			change(p)(&good)
			return watched(t, good)
		}
	}
	given := func(subject func(*testing.T, provider) string) func(*testing.T, provider) ending {
		return func(t *testing.T, p provider) ending {
			good := p.good(t)
			good.subject = subject(t, p)
			return watched(t, good)
		}
	}
	return []column{
		{"as it should be", with(func(provider) func(*profile) { return func(*profile) {} })},
		{"wrong audience", with(func(p provider) func(*profile) { return p.wrongAudience })},
		{"wrong scope", with(func(p provider) func(*profile) { return p.wrongScope })},
		{"wrong client secret", with(func(p provider) func(*profile) { return p.wrongSecret })},
		{"a text that is no token", given(func(*testing.T, provider) string { return "nobody." + rand.Text() })},
		{"revoked subject", given(func(t *testing.T, p provider) string { return p.revoked(t) })},
		{"expired subject", given(func(t *testing.T, p provider) string { return expiring[p.name].expired(t) })},
	}
}

// authColumns are those of the second table.
func authColumns() (cs []column) {
	for _, auth := range []string{"basic", "post", "private_key_jwt", "mtls"} {
		cs = append(cs, column{auth, func(t *testing.T, p provider) ending {
			good := p.good(t)
			p.auths[auth](&good)
			return watched(t, good)
		}})
	}
	return cs
}

// watched makes an exchange from which no secret may come out.
func watched(t *testing.T, p profile) (e ending) {
	t.Helper()
	d := p.decide(t)
	planted := []string{p.subject}
	if len(p.key) >= 12 { // a shorter one is not to be told from chance
		planted = append(planted, p.key)
	}
	canary.Run(t, func(c *canary.Cage) {
		e = p.by(t, d)
		c.Value("error", e.err)
		c.Value("issued", e.issued)
	}, planted...)
	if e.reason == fault.None && !e.issued.Expires.After(time.Now()) {
		t.Errorf("granted, but over at %v", e.issued.Expires)
	}
	return e
}

// A subject is a token and when it is over.
type subject struct {
	token string
	end   time.Time
}

// expired waits for the end. A provider counts in whole seconds, and its clock
// is ours.
func (s subject) expired(t *testing.T) string {
	t.Helper()
	over := time.NewTimer(time.Until(s.end.Add(1500 * time.Millisecond)))
	defer over.Stop()
	select {
	case <-over.C:
	case <-t.Context().Done():
		t.Fatal("ended before the subject did")
	}
	return s.token
}

// TestTable is provider × case, and provider × client authentication.
func TestTable(t *testing.T) {
	kc, op := counterparts.Keycloak(t), counterparts.OIDCProvider(t)
	providers := []provider{dex(t, kc), zitadel(t, kc), engine(t, kc), oidcProvider(t, op), keycloak(t, kc)}
	expiring := map[string]subject{}
	for _, p := range providers {
		token, life := p.expiring(t)
		expiring[p.name] = subject{token, time.Now().Add(life)}
	}
	t.Run("more of Keycloak", func(t *testing.T) { testKeycloak(t, providers[4], kc) })
	t.Run("more of zitadel's example", func(t *testing.T) { testZitadel(t, providers[1]) })
	t.Run("more of zitadel's engine", func(t *testing.T) { testEngine(t, providers[2]) })
	t.Run("more of oidc-provider", func(t *testing.T) { testOIDCProvider(t, providers[3], op) })

	logins := fill(t, "client authentication", providers, authColumns(), documentedAuth)
	cases := fill(t, "case", providers, columns(expiring), documented)
	hold(t, document(cases, logins))
	fmt.Printf("interop: %d client authentications, %d as documented\n", logins.cells(), logins.asDocumented)
	fmt.Printf("interop: %d cells, %d as documented\n", cases.cells(), cases.asDocumented)
}

// A table is what was run, cell by cell.
type table struct {
	columns      []column
	providers    []provider
	endings      [][]ending // by column, by provider
	expected     map[string][]cell
	asDocumented int
}

func (tb table) cells() int { return len(tb.columns) * len(tb.providers) }

// fill tries every column at every provider, column by column: the last one waits.
func fill(t *testing.T, name string, providers []provider, cs []column, expected map[string][]cell) table {
	t.Helper()
	tb := table{columns: cs, providers: providers, endings: make([][]ending, len(cs)), expected: expected}
	for i, c := range cs {
		for _, p := range providers {
			var e ending
			t.Run(fmt.Sprintf("%s %s at %s", name, c.title, p.name), func(t *testing.T) {
				e = c.run(t, p)
				if want := expected[p.name][i]; e.reason != want.reason || e.said != want.said {
					t.Errorf("ended as %q after %q (%v), documented is %q after %q", e.reason, e.said, e.err, want.reason, want.said)
				}
				if !t.Failed() { // counted in here: a test that -run leaves out counts for nothing
					tb.asDocumented++
				}
			})
			tb.endings[i] = append(tb.endings[i], e)
		}
	}
	return tb
}

// hold compares the document with the run, or writes it.
func hold(t *testing.T, text string) {
	t.Helper()
	const path = "../../docs/providers.md"
	if *update {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	stands, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(stands) != text {
		t.Errorf("%s is not what this run found; -update writes it anew. Found:\n%s", path, text)
	}
}
