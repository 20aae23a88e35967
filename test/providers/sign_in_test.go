//go:build real

package providers_test

import (
	"context"
	"net/http"
	"net/http/cookiejar"
	"net/netip"
	"testing"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/identity"
	"onbehalf.internal/broker/internal/counterparts"
	"onbehalf.internal/broker/secret"
	"onbehalf.internal/broker/secret/canary"
	"onbehalf.internal/broker/signin"
)

// TestDexSignIn: a person signs in at dex with a password, and what dex says of it
// makes a person here.
func TestDexSignIn(t *testing.T) {
	d := counterparts.Dex(t)
	page := d.Page()
	for _, r := range []struct {
		name         string
		change       func(*identity.SignIn)
		clientSecret string
		want         fault.Reason
		id           string
	}{
		{"by email", func(in *identity.SignIn) { in.Person = "email" }, page.ClientSecret, fault.None, "user:admin@example.com"},
		// dex packs the id and the connector into sub.
		{"by sub", func(*identity.SignIn) {}, page.ClientSecret, fault.None, "user:Cgtjb3Jwb3JhdGUtNxIFbG9jYWw"},
		{"without the scope", func(in *identity.SignIn) { in.Scopes = nil }, page.ClientSecret, fault.SignInDenied, ""},
		{"for somebody else", func(in *identity.SignIn) { in.Subjects = []string{"user:8"} }, page.ClientSecret, fault.SignInDenied, ""},
		{"another secret", func(*identity.SignIn) {}, "another secret", fault.ProviderConfig, ""},
	} {
		t.Run(r.name, func(t *testing.T) {
			is := identity.Claim{Name: "email", Value: "admin@example.com"} // a password's person has no groups there
			in := identity.SignIn{Issuer: page.Issuer, ClientID: page.ClientID, Subjects: []string{"user:"}, Audit: is, Scopes: []string{"email"},
				AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
			r.change(&in)
			directory, err := identity.NewDirectory([]identity.CallerConfig{{ID: "people", Roles: []identity.Role{identity.Audit}, SignIn: &in}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			p := signin.New(signin.Config{Directory: func() *identity.Directory { return directory }, Redirect: page.Redirect,
				Secret: func(context.Context) (secret.Text, error) { return secret.New(r.clientSecret), nil }})
			to, a, err := p.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			jar, err := cookiejar.New(nil)
			if err != nil {
				t.Fatal(err)
			}
			query := d.SignIn(t, &http.Client{Jar: jar}, to).Query()
			canary.Run(t, func(c *canary.Cage) {
				who, err := p.End(t.Context(), a, query)
				c.Value("person", who)
				c.Value("error", err)
				if err == nil && r.want != fault.None || err != nil && fault.ReasonOf(err) != r.want || who.String() != r.id {
					t.Errorf("%q, %v, want %q", who, err, r.want)
				}
			}, query.Get("code"), a.Verifier.Reveal(), a.Nonce.Reveal())
		})
	}
}
