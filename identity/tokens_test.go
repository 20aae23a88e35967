package identity_test

import (
	"crypto"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/identity"
)

const (
	records     = "https://broker.example.org/mcp/records"
	tokenHeader = `{"alg":"ES256","typ":"at+jwt","kid":"k1"}`
	tokenClaims = `{"iss":"https://login.example.org","sub":"7","aud":"https://broker.example.org/mcp/records","client_id":"desk","scope":"mcp openid","iat":1800000000,"exp":1800003600,"jti":"j-1"}`
)

// fronted is the rig with people who come with access tokens.
func fronted(t *testing.T, change func(*identity.Tokens)) *rig {
	t.Helper()
	r := newRig(t)
	tokens := identity.Tokens{Issuer: "https://login.example.org", Keys: r.keys, Subjects: []string{"user:7", "user:8"}, Scopes: []string{"mcp"},
		Admin: identity.Claim{Name: "groups", Value: "admins"}}
	change(&tokens)
	entries := append(r.entries(), identity.CallerConfig{ID: "desks", Roles: []identity.Role{identity.Operate}, Tokens: &tokens})
	d, err := identity.NewDirectory(entries, func() time.Time { return r.now })
	if err != nil {
		t.Fatal(err)
	}
	r.Directory = d
	return r
}

func unchanged(*identity.Tokens) {}

func bearer(token string) http.Header { return http.Header{"Authorization": {"Bearer " + token}} }

// TestTokenClaims: each row changes one thing of a token that is believed.
func TestTokenClaims(t *testing.T) {
	r := fronted(t, unchanged)
	const (
		aud, iss = `"aud":"` + records + `"`, `"iss":"https://login.example.org"`
		exp, iat = `"exp":1800003600`, `"iat":1800000000`
		sub, jti = `"sub":"7"`, `"jti":"j-1"`
		typ      = `"typ":"at+jwt"`
		client   = `"client_id":"desk"`
		scope    = `"scope":"mcp openid"`
	)
	for _, row := range []struct {
		old, new string
		reason   fault.Reason
		detail   string
	}{
		{"", "", fault.None, ""},
		{aud, `"aud":["` + records + `"]`, fault.None, ""},
		{typ, `"typ":"application/at+jwt"`, fault.None, ""},
		{scope, `"scope":"mcp"`, fault.None, ""},
		{iat, iat + `,"nbf":1800000000`, fault.None, ""},
		{exp, `"exp":1800086400`, fault.None, ""},

		{typ, `"typ":"JWT"`, fault.AssertionInvalid, "typ is not at+jwt"},
		{typ + ",", ``, fault.AssertionInvalid, "typ is not at+jwt"},
		{typ, `"typ":"dpop+jwt"`, fault.AssertionInvalid, "typ is not at+jwt"},
		{typ, `"typ":"at+jwt","crit":["b64"]`, fault.AssertionInvalid, "crit"},
		{typ, `"typ":"at+jwt","jwk":{}`, fault.AssertionInvalid, "jwk"},
		{`"alg":"ES256"`, `"alg":"none"`, fault.AssertionInvalid, ""},
		{`"alg":"ES256"`, `"alg":"HS256"`, fault.AssertionInvalid, ""},
		{`"kid":"k1"`, `"kid":"k9"`, fault.AssertionInvalid, "no key"},
		{aud, `"aud":"https://broker.example.org/mcp/archive"`, fault.AssertionInvalid, "aud"},
		{aud, `"aud":"https://broker.example.org/mcp/records/"`, fault.AssertionInvalid, "aud"},
		{aud, `"aud":"https://broker.example.org"`, fault.AssertionInvalid, "aud"},
		{aud, `"aud":["` + records + `","https://other.example.org"]`, fault.AssertionInvalid, "aud must be this address alone"},
		{aud + ",", ``, fault.AssertionInvalid, "missing"},
		{iss, `"iss":"https://other.example.org"`, fault.AssertionInvalid, "iss is nobody"},
		{iss, `"iss":"https://login.example.org/"`, fault.AssertionInvalid, "iss is nobody"},
		{iss, `"iss":"https://gateway.example.org"`, fault.AssertionInvalid, "iss is nobody"},
		{iss + ",", ``, fault.AssertionInvalid, "iss is nobody"},
		{iss, iss + `,"ISS":"x"`, fault.AssertionInvalid, "another spelling of iss"},
		{exp, `"exp":1799999940`, fault.AssertionInvalid, "expired"},
		{exp + ",", ``, fault.AssertionInvalid, "missing"},
		{exp, `"exp":1800086401`, fault.AssertionInvalid, "24 hours"},
		{iat + ",", ``, fault.AssertionInvalid, "iat or exp is missing"},
		{iat, `"iat":1800000061`, fault.AssertionInvalid, "iat lies ahead"},
		{iat, iat + `,"nbf":1800000061`, fault.AssertionInvalid, "not valid yet"},
		{client + ",", ``, fault.AssertionInvalid, "client_id or jti"},
		{"," + jti, ``, fault.AssertionInvalid, "client_id or jti"},
		{client, client + `,"cnf":{"jkt":"x"}`, fault.AssertionInvalid, "bound to a key"},
		{client, client + `,"sub":"8"`, fault.AssertionInvalid, "iss is nobody"},
		{client, client + `,"Client_ID":"x"`, fault.AssertionInvalid, "another spelling of client_id"},
		{scope, `"scope":"openid mcp.read"`, fault.InsufficientScope, "scope"},
		{scope + ",", ``, fault.InsufficientScope, "scope"},
		{scope, `"scope":["mcp"]`, fault.InsufficientScope, "scope"},
		{sub, `"sub":"9"`, fault.ActorNotAllowed, "not among the subjects"},
		{sub, `"sub":"user:7"`, fault.ActorInvalid, "holds no id"},
		{sub, `"sub":7`, fault.ActorInvalid, "holds no id"},
		{sub + ",", ``, fault.ActorInvalid, "holds no id"},
	} {
		header, claims := strings.Replace(tokenHeader, row.old, row.new, 1), tokenClaims
		if header == tokenHeader && row.old != "" {
			claims = replace(t, tokenClaims, row.old, row.new)
		}
		c, a, err := r.Token(bearer(r.sign(t, header, claims)), records)
		if got := reasonOf(err); got != row.reason || err != nil && !strings.Contains(err.Error(), row.detail) {
			t.Errorf("%s for %s: %v, want %q %q", row.new, row.old, err, row.reason, row.detail)
		}
		if ok := err == nil; ok != (c.ID() == "desks") || ok != (a.String() == "user:7") || ok == c.IsZero() || ok == a.IsZero() || a.JTI() != "" {
			t.Errorf("%s: caller %q, actor %q, jti %q", row.new, c.ID(), a, a.JTI())
		}
	}
}

func reasonOf(err error) fault.Reason {
	if err == nil {
		return fault.None
	}
	return fault.ReasonOf(err)
}

// TestTokenSettings: what the operator may set otherwise, and what of a token follows.
func TestTokenSettings(t *testing.T) {
	for _, row := range []struct {
		name   string
		change func(*identity.Tokens)
		old    string // of the claims
		new    string
		actor  string // empty: refused
		admin  bool
	}{
		{"an administrator", unchanged, `"sub"`, `"groups":["staff","admins"],"sub"`, "user:7", true},
		{"no administrator", unchanged, `"sub"`, `"groups":["staff"],"sub"`, "user:7", false},
		{"an audience of its own", func(s *identity.Tokens) { s.Audience = "api://broker" }, records, "api://broker", "user:7", false},
		{"this, and a token for the address", func(s *identity.Tokens) { s.Audience = "api://broker" }, `"sub"`, `"sub"`, "", false},
		{"another claim", func(s *identity.Tokens) { s.Person = "uid" }, `"sub":"7"`, `"sub":"x","uid":"8"`, "user:8", false},
		{"email", func(s *identity.Tokens) { s.Person, s.Subjects = "email", []string{"user:"} }, `"sub"`, `"email":"a@example.org","email_verified":true,"sub"`, "user:a@example.org", false},
		{"email that nobody has verified", func(s *identity.Tokens) { s.Person, s.Subjects = "email", []string{"user:"} }, `"sub"`, `"email":"a@example.org","sub"`, "", false},
	} {
		r := fronted(t, row.change)
		_, a, err := r.Token(bearer(r.sign(t, tokenHeader, replace(t, tokenClaims, row.old, row.new))), records)
		if a.String() != row.actor || a.Admin() != row.admin || (err == nil) != (row.actor != "") {
			t.Errorf("%s: %q, admin %v, %v", row.name, a, a.Admin(), err)
		}
	}
	plain := fronted(t, func(s *identity.Tokens) { s.Type = "JWT" })
	for header, want := range map[string]bool{goodHeader: true, tokenHeader: false, `{"alg":"ES256","kid":"k1"}`: false} {
		claims := replace(t, replace(t, tokenClaims, `"client_id":"desk",`, ``), `,"jti":"j-1"`, ``)
		if _, _, err := plain.Token(bearer(plain.sign(t, header, claims)), records); (err == nil) != want {
			t.Errorf("typ JWT, %s: %v", header, err)
		}
	}
}

// TestTokenHeader: one header, one token, of one of the issuer's keys.
func TestTokenHeader(t *testing.T) {
	r := fronted(t, unchanged)
	good := r.sign(t, tokenHeader, tokenClaims)
	foreign := sign(t, jwt.SigningMethodES256, r.foreign, tokenHeader, tokenClaims)
	long := r.sign(t, tokenHeader, replace(t, tokenClaims, "desk", strings.Repeat("d", 16<<10)))
	for _, row := range []struct {
		name   string
		header http.Header
		want   fault.Reason
	}{
		{"good", bearer(good), fault.None},
		{"none", http.Header{}, fault.CallerUnknown},
		{"two", http.Header{"Authorization": {"Bearer " + good, "Bearer " + good}}, fault.CallerUnknown},
		{"another scheme", http.Header{"Authorization": {"DPoP " + good}}, fault.CallerUnknown},
		{"lower case", http.Header{"Authorization": {"bearer " + good}}, fault.CallerUnknown},
		{"a bearer of the API", bearer(gatewayBearer), fault.AssertionInvalid},
		{"signed by another", bearer(foreign), fault.AssertionInvalid},
		{"without signature", bearer(good[:strings.LastIndex(good, ".")+1]), fault.AssertionInvalid},
		{"too long", bearer(long), fault.AssertionInvalid},
		{"an assertion of an actor", bearer(r.sign(t, goodHeader, goodClaims)), fault.AssertionInvalid},
	} {
		if _, _, err := r.Token(row.header, records); reasonOf(err) != row.want {
			t.Errorf("%s: %v, want %q", row.name, err, row.want)
		} else if err != nil && strings.Contains(err.Error(), good) {
			t.Errorf("%s: the error holds the token", row.name)
		}
	}
	if _, err := r.Caller(bearer(good)); reasonOf(err) != fault.CallerUnknown {
		t.Errorf("an access token at the API: %v", err)
	}
	if _, err := r.assert(t, good); reasonOf(err) != fault.AssertionInvalid {
		t.Errorf("an access token as an assertion: %v", err)
	}
}

// TestTokenStill: what a newer configuration no longer believes.
func TestTokenStill(t *testing.T) {
	r := fronted(t, unchanged)
	c, a, err := r.Token(bearer(r.sign(t, tokenHeader, tokenClaims)), records)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name   string
		change func(*identity.Tokens)
		want   fault.Reason
	}{
		{"nothing", unchanged, fault.None},
		{"all people", func(s *identity.Tokens) { s.Subjects = []string{"user:"} }, fault.None},
		{"others", func(s *identity.Tokens) { s.Subjects = []string{"user:8"} }, fault.ActorNotAllowed},
		{"another issuer", func(s *identity.Tokens) { s.Issuer = "https://x.example.org" }, fault.AssertionInvalid},
		{"another audience", func(s *identity.Tokens) { s.Audience = "api://broker" }, fault.AssertionInvalid},
		{"another claim", func(s *identity.Tokens) { s.Person = "uid" }, fault.AssertionInvalid},
		{"other keys", func(s *identity.Tokens) { s.Keys = keySet(t, map[string]crypto.PublicKey{"k1": r.foreign.Public()}) }, fault.AssertionInvalid},
	} {
		d := fronted(t, func(s *identity.Tokens) { s.Keys = r.keys; row.change(s) })
		if got := d.Still(c, identity.Operate, a); got != row.want {
			t.Errorf("%s: %q, want %q", row.name, got, row.want)
		}
		if got := d.Still(c, identity.Audit, a); got != fault.RoleMissing {
			t.Errorf("%s: another role: %q", row.name, got)
		}
	}
	if got := newRig(t).Still(c, identity.Operate, a); got != fault.CallerUnknown {
		t.Errorf("the entry is gone: %q", got)
	}
	if got := r.Still(c, identity.Operate, identity.Actor{}); got != fault.None {
		t.Errorf("no actor: %q", got)
	}
	named, err := r.Actor(r.caller(t, gatewayBearer), http.Header{"Broker-Actor": {"service:nightly"}})
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Still(c, identity.Operate, named); got != fault.ActorNotAllowed {
		t.Errorf("an actor that another caller has named: %q", got)
	}
	if got := []fault.Reason{r.Speaks("desks", "user:7"), r.Speaks("desks", "user:9")}; !slices.Equal(got, []fault.Reason{fault.None, fault.ActorNotAllowed}) {
		t.Errorf("speaks: %q", got)
	}
	if got := r.Actors("desks"); !slices.Equal(got, []string{"user:7", "user:8"}) || !r.Proves("desks", "user:7") || r.Proves("desks", "user:9") {
		t.Errorf("actors: %q", got)
	}
	if got := r.Fronts(); len(got) != 1 || got[0].Issuer != "https://login.example.org" {
		t.Errorf("fronts: %d", len(got))
	}
}

// TestTokenEntries: entries that could not work, or by which one thing would pass for
// another.
func TestTokenEntries(t *testing.T) {
	r := newRig(t)
	for _, row := range []struct {
		name   string
		change func([]identity.CallerConfig) []identity.CallerConfig
		want   string // empty: accepted
	}{
		{"good", func(c []identity.CallerConfig) []identity.CallerConfig { return c }, ""},
		{"with a bearer", func(c []identity.CallerConfig) []identity.CallerConfig {
			c[2].BearerSHA256 = [][32]byte{{1}}
			return c
		}, "have a place beside it"},
		{"with actors", func(c []identity.CallerConfig) []identity.CallerConfig {
			c[2].Asserted = []string{"user:7"}
			return c
		}, "have a place beside it"},
		{"with sign_in", func(c []identity.CallerConfig) []identity.CallerConfig {
			c[2].SignIn = &identity.SignIn{Issuer: "x", ClientID: "y", Subjects: []string{"user:"}}
			return c
		}, "have a place beside it"},
		{"another role", func(c []identity.CallerConfig) []identity.CallerConfig {
			c[2].Roles = append(c[2].Roles, identity.Admin)
			return c
		}, "the role is operate"},
		{"no key", func(c []identity.CallerConfig) []identity.CallerConfig {
			c[2].Tokens.Keys = identity.KeySet{}
			return c
		}, "no key"},
		{"no subjects", func(c []identity.CallerConfig) []identity.CallerConfig { c[2].Tokens.Subjects = nil; return c }, "no subjects"},
		{"services", func(c []identity.CallerConfig) []identity.CallerConfig {
			c[2].Tokens.Subjects = []string{"service:"}
			return c
		}, "people are"},
		{"the audience of assertions", func(c []identity.CallerConfig) []identity.CallerConfig {
			c[2].Tokens.Issuer, c[2].Tokens.Audience = "https://gateway.example.org", "broker"
			return c
		}, "those of assertions"},
		{"the issuer of assertions", func(c []identity.CallerConfig) []identity.CallerConfig {
			c[2].Tokens.Issuer = "https://gateway.example.org"
			return c
		}, ""},
		{"twice", func(c []identity.CallerConfig) []identity.CallerConfig {
			again := c[2]
			again.ID = "more"
			return append(c, again)
		}, "nobody could say whose a token is"},
		{"twice, for others", func(c []identity.CallerConfig) []identity.CallerConfig {
			again, tokens := c[2], *c[2].Tokens
			tokens.Audience = "api://broker"
			again.ID, again.Tokens = "more", &tokens
			return append(c, again)
		}, ""},
		{"the client of people who sign in", func(c []identity.CallerConfig) []identity.CallerConfig {
			c[2].Tokens.Audience = "page"
			return append(c, identity.CallerConfig{ID: "people", Roles: []identity.Role{identity.Audit}, SignIn: &identity.SignIn{
				Issuer: "https://login.example.org", ClientID: "page", Subjects: []string{"user:"}, Audit: identity.Claim{Name: "groups", Value: "x"}}})
		}, "issuer and client id of sign_in"},
	} {
		entries := append(r.entries(), identity.CallerConfig{ID: "desks", Roles: []identity.Role{identity.Operate},
			Tokens: &identity.Tokens{Issuer: "https://login.example.org", Keys: r.keys, Subjects: []string{"user:"}}})
		_, err := identity.NewDirectory(row.change(entries), nil)
		if (err == nil) != (row.want == "") || err != nil && !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v, want %q", row.name, err, row.want)
		}
	}
}
