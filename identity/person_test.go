package identity_test

import (
	"crypto"
	"crypto/elliptic"
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/golang-jwt/jwt/v5"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/identity"
	"onbehalf.internal/broker/secret"
)

const (
	loginIssuer  = "https://login.example.org"
	personClaims = `{"iss":"https://login.example.org","sub":"8","aud":"ui","iat":1800000000,"exp":1800003600,"nonce":"n-1",` +
		`"groups":["auditors","approvers","staff"],"email":"eight@example.org","email_verified":true}`
)

// signingIn has people sign in, besides the gateway and the auditor.
func (r *rig) signingIn(change func(*identity.CallerConfig)) []identity.CallerConfig {
	c := identity.CallerConfig{ID: "people", Roles: []identity.Role{identity.Audit, identity.Approve}, SignIn: &identity.SignIn{
		Issuer: loginIssuer, ClientID: "ui", Subjects: []string{"user:"},
		Audit: identity.Claim{Name: "groups", Value: "auditors"}, Approve: identity.Claim{Name: "groups", Value: "approvers"},
		Admin: identity.Claim{Name: "groups", Value: "admins"},
	}}
	if change != nil {
		change(&c)
	}
	return append(r.entries(), c)
}

// person signs in with claims, replaced in parts.
func (r *rig) person(t testing.TB, d *identity.Directory, oldnew ...string) (identity.Person, error) {
	t.Helper()
	claims := personClaims
	for i := 0; i < len(oldnew); i += 2 {
		claims = replace(t, claims, oldnew[i], oldnew[i+1])
	}
	return d.Person(t.Context(), secret.New(r.sign(t, goodHeader, claims)), "n-1", r.keys)
}

// is says in one line what became of a person.
func is(p identity.Person, err error) string {
	if err != nil {
		return string(fault.ReasonOf(err))
	}
	words := []string{p.String()}
	for _, role := range []identity.Role{identity.Operate, identity.Approve, identity.Audit, identity.Admin} {
		if p.Caller().Has(role) {
			words = append(words, string(role))
		}
	}
	if a, may := p.Approver(); may && a.Admin() {
		words = append(words, "administrator")
	}
	return strings.Join(words, " ")
}

// TestPersonClaims: what of an ID token is believed, and what it makes of a person.
func TestPersonClaims(t *testing.T) {
	r := newRig(t)
	const both, failed, denied = "user:8 approve audit", "sign_in_failed", "sign_in_denied"
	const aud, groups = `"aud":"ui"`, `["auditors","approvers","staff"]`
	for _, row := range []struct{ old, new, want string }{
		{`"sub"`, `"sub"`, both},

		// for whom, from whom
		{aud, `"aud":["ui"]`, both},
		{aud, `"aud":"ui","azp":"ui"`, both},
		{aud, `"aud":["ui","records"],"azp":"ui"`, both},
		{aud, `"aud":["ui","records"]`, failed},
		{aud, `"aud":["ui","records"],"azp":"records"`, failed},
		{aud, `"aud":"ui","azp":"records"`, failed},
		{aud, `"aud":"ui","azp":["ui"]`, failed},
		{aud, `"aud":"records","azp":"ui"`, failed},
		{aud, `"aud":[]`, failed},
		{aud, `"aud":"UI"`, failed},
		{aud + ",", "", failed},
		{`"iss":"https://login.example.org"`, `"iss":"https://login.example.org/"`, failed},
		{`"iss":"https://login.example.org"`, `"iss":"https://other.example.org"`, failed},
		{`"iss":"https://login.example.org",`, "", failed},

		// when; noon is 1800000000
		{"1800003600", "1799999999", failed},
		{`,"exp":1800003600`, "", failed},
		{`"exp":1800003600`, `"exp":"1800003600"`, failed},
		{`"iat":1800000000`, `"iat":1800000060`, both},
		{`"iat":1800000000`, `"iat":1800000061`, failed},
		{`"iat":1800000000`, `"iat":1799990000`, both},
		{`"iat":1800000000,`, "", failed},
		{`"sub"`, `"nbf":1800003000,"sub"`, failed},

		// to what
		{`"nonce":"n-1"`, `"nonce":"n-2"`, failed},
		{`"nonce":"n-1"`, `"nonce":""`, failed},
		{`"nonce":"n-1",`, "", failed},
		{`"nonce":"n-1"`, `"nonce":["n-1"]`, failed},

		// one answer to each question
		{`"sub":"8"`, `"sub":"8","sub":"9"`, failed},
		{`"nonce":"n-1"`, `"nonce":"n-2","Nonce":"n-1"`, failed},
		{`"sub":"8"`, `"sub":"8","SUB":"9"`, failed},
		{`"groups"`, `"Groups":["auditors"],"groups"`, failed},
		{`"email_verified"`, `"Email_verified":true,"email_verified"`, failed},

		// who
		{`"sub":"8"`, `"sub":"auth0|8"`, denied},
		{`"sub":"8"`, `"sub":"a b"`, denied},
		{`"sub":"8"`, `"sub":" 8"`, denied},
		{`"sub":"8"`, `"sub":"8\u202e"`, denied},
		{`"sub":"8"`, `"sub":"` + strings.Repeat("8", 129) + `"`, denied},
		{`"sub":"8"`, `"sub":"user:8"`, denied},
		{`"sub":"8"`, `"sub":""`, failed},
		{`"sub":"8"`, `"sub":8`, failed},
		{`"sub":"8",`, "", failed},

		// with what
		{groups, `["auditors"]`, "user:8 audit"},
		{groups, `["approvers"]`, "user:8 approve"},
		{groups, `"auditors"`, "user:8 audit"},
		{groups, `["approvers","admins"]`, "user:8 approve administrator"},
		{groups, `["auditors","admins"]`, "user:8 audit"},
		{groups, `["auditors","operate","admin"]`, "user:8 audit"},
		{groups, `"auditors approvers"`, denied},
		{groups, `["Auditors"]`, denied},
		{groups, `[["auditors"]]`, denied},
		{groups, `{"auditors":true}`, denied},
		{groups, `[]`, denied},
		{groups, `null`, denied},
		{`"groups":` + groups + ",", "", denied},
	} {
		if got := is(r.person(t, r.directory(t, r.signingIn(nil)), row.old, row.new)); got != row.want {
			t.Errorf("%s for %s: %s, want %s", row.new, row.old, got, row.want)
		}
	}
}

// TestPersonEntry: the same token, and what the entry makes of it.
func TestPersonEntry(t *testing.T) {
	r := newRig(t)
	set := func(change func(*identity.SignIn)) func(*identity.CallerConfig) {
		return func(c *identity.CallerConfig) { change(c.SignIn) }
	}
	byEmail := set(func(s *identity.SignIn) { s.Person = "email" })
	for _, row := range []struct {
		name     string
		change   func(*identity.CallerConfig)
		old, new string
		want     string
	}{
		{"a list with the person", set(func(s *identity.SignIn) { s.Subjects = []string{"user:8"} }), "", "", "user:8 approve audit"},
		{"a list of others", set(func(s *identity.SignIn) { s.Subjects = []string{"user:9"} }), "", "", "sign_in_denied"},
		{"an entry that audits", func(c *identity.CallerConfig) {
			c.Roles, c.SignIn.Approve, c.SignIn.Admin = c.Roles[:1], identity.Claim{}, identity.Claim{}
		}, "", "", "user:8 audit"},
		{"another claim", set(func(s *identity.SignIn) { s.Audit, s.Approve = identity.Claim{Name: "roles", Value: "a"}, s.Audit }), "", "", "user:8 approve"},
		{"another client", set(func(s *identity.SignIn) { s.ClientID = "ui2" }), "", "", "sign_in_failed"},
		{"another issuer", set(func(s *identity.SignIn) { s.Issuer = "https://other.example.org" }), "", "", "sign_in_failed"},
		{"by email", byEmail, "", "", "user:eight@example.org approve audit"},
		{"by an email that is not verified", byEmail, `"email_verified":true`, `"email_verified":false`, "sign_in_denied"},
		{"by an email that says so in text", byEmail, `"email_verified":true`, `"email_verified":"true"`, "sign_in_denied"},
		{"by an email of which nothing is said", byEmail, `,"email_verified":true`, "", "sign_in_denied"},
		{"by an email that is none", byEmail, `"eight@example.org"`, `"eight <eight@example.org>"`, "sign_in_denied"},
		{"by an email that is not there", byEmail, `"email":"eight@example.org",`, "", "sign_in_denied"},
		{"by a claim that is a list", set(func(s *identity.SignIn) { s.Person = "groups" }), "", "", "sign_in_denied"},
		{"by a claim that has two spellings", set(func(s *identity.SignIn) { s.Person = "oid" }), `"groups"`, `"oid":"8","OID":"9","groups"`, "sign_in_failed"},
		// The library takes this spelling for Google's.
		{"Google's other issuer", set(func(s *identity.SignIn) { s.Issuer = "https://accounts.google.com" }),
			`"https://login.example.org"`, `"accounts.google.com"`, "sign_in_failed"},
	} {
		var oldnew []string
		if row.old != "" {
			oldnew = []string{row.old, row.new}
		}
		if got := is(r.person(t, r.directory(t, r.signingIn(row.change)), oldnew...)); got != row.want {
			t.Errorf("%s: %s, want %s", row.name, got, row.want)
		}
	}
	if _, err := r.person(t, r.Directory); reason(err) != fault.SignInFailed {
		t.Errorf("where nobody signs in: %v", err)
	}
}

// TestPersonSignature: who has signed, with what, and what the header says.
func TestPersonSignature(t *testing.T) {
	r := newRig(t)
	d := r.directory(t, r.signingIn(nil))
	good := r.sign(t, goodHeader, personClaims)
	parts := strings.Split(good, ".")
	for _, row := range []struct {
		name, token string
		ok          bool
	}{
		{"good", good, true},
		{"ES384", sign(t, jwt.SigningMethodES384, r.p384, `{"alg":"ES384","kid":"k2"}`, personClaims), true},
		{"RS256", sign(t, jwt.SigningMethodRS256, r.rsa, `{"alg":"RS256","kid":"k3"}`, personClaims), true},
		{"EdDSA", sign(t, jwt.SigningMethodEdDSA, r.ed, `{"alg":"EdDSA","kid":"k4"}`, personClaims), true},
		{"a header with a thumbprint", r.sign(t, `{"alg":"ES256","typ":"JWT","kid":"k1","x5t":"abc"}`, personClaims), true},
		{"none", sign(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, `{"alg":"none","kid":"k1"}`, personClaims) + "AA", false},
		{"HS256 with the client's secret", sign(t, jwt.SigningMethodHS256, []byte("the client's secret, 32 bytes long"), `{"alg":"HS256","kid":"k1"}`, personClaims), false},
		{"RS384", sign(t, jwt.SigningMethodRS384, r.rsa, `{"alg":"RS384","kid":"k3"}`, personClaims), false},
		{"another's key", sign(t, jwt.SigningMethodES256, r.foreign, goodHeader, personClaims), false},
		{"another kid", r.sign(t, `{"alg":"ES256","kid":"k2"}`, personClaims), false},
		{"no kid", r.sign(t, `{"alg":"ES256"}`, personClaims), false},
		{"a key of its own", r.sign(t, `{"alg":"ES256","kid":"k1","jwk":{}}`, personClaims), false},
		{"an extension", r.sign(t, `{"alg":"ES256","kid":"k1","crit":["b64"]}`, personClaims), false},
		{"an access token", r.sign(t, `{"alg":"ES256","kid":"k1","typ":"at+jwt"}`, personClaims), false},
		{"other claims", parts[0] + "." + strings.Split(r.sign(t, goodHeader, replace(t, personClaims, `"8"`, `"9"`)), ".")[1] + "." + parts[2], false},
		{"cut", good[:len(good)-4], false},
		{"a line break", good + "\n", false},
		{"nothing", "", false},
		{"32 KiB", r.sign(t, goodHeader, replace(t, personClaims, `"groups"`, `"x":"`+strings.Repeat("x", 32<<10)+`","groups"`)), false},
	} {
		p, err := d.Person(t.Context(), secret.New(row.token), "n-1", r.keys)
		if (err == nil) != row.ok || !row.ok && reason(err) != fault.SignInFailed || p.IsZero() == row.ok {
			t.Errorf("%s: %v, %v", row.name, p, err)
		}
		if err != nil && (strings.Contains(err.Error(), "eight@") || len(parts[2]) > 9 && strings.Contains(err.Error(), parts[2])) {
			t.Errorf("%s: the token is in %v", row.name, err)
		}
	}
	if _, err := d.Person(t.Context(), secret.New(good), "", r.keys); reason(err) != fault.SignInFailed {
		t.Errorf("no nonce to hold it against: %v", err)
	}
	if _, err := d.Person(t.Context(), secret.New(r.sign(t, goodHeader, replace(t, personClaims, `"nonce":"n-1",`, ""))), "", r.keys); reason(err) != fault.SignInFailed {
		t.Errorf("no nonce on either side: %v", err)
	}
	// A set of keys that is laxer than ours does not make another algorithm good.
	lax := &oidc.StaticKeySet{PublicKeys: []crypto.PublicKey{r.rsa.Public()}}
	if _, err := d.Person(t.Context(), secret.New(sign(t, jwt.SigningMethodRS384, r.rsa, `{"alg":"RS384","kid":"k3"}`, personClaims)), "n-1", lax); reason(err) != fault.SignInFailed {
		t.Errorf("RS384 by other keys: %v", err)
	}
}

// TestPersonSpeaks: what a person is to the rest of the broker.
func TestPersonSpeaks(t *testing.T) {
	r := newRig(t)
	d := r.directory(t, r.signingIn(nil))
	p, err := r.person(t, d)
	if err != nil {
		t.Fatal(err)
	}
	if p.Caller().ID() != "people" || p.Caller().IsZero() {
		t.Errorf("caller %q", p.Caller().ID())
	}
	a, may := p.Approver()
	if !may || a.String() != "user:8" || a.Issuer() != loginIssuer || a.JTI() != "" || a.Admin() {
		t.Errorf("approver %q of %q, jti %q, %v", a, a.Issuer(), a.JTI(), may)
	}
	auditor, err := r.person(t, d, `["auditors","approvers","staff"]`, `["auditors"]`)
	if err != nil {
		t.Fatal(err)
	}
	if a, may := auditor.Approver(); may || a != (identity.Approver{}) {
		t.Errorf("who only audits approves as %q", a)
	}
	for name, header := range map[string]http.Header{"asserted": {"Broker-Actor": {"user:8"}}, "signed": {"Broker-Actor-Assertion": {r.sign(t, goodHeader, goodClaims)}}} {
		if _, err := d.Actor(p.Caller(), header); reason(err) != fault.ActorNotAllowed {
			t.Errorf("%s: it speaks for an actor: %v", name, err)
		}
	}
	if _, err := d.Approver(p.Caller(), http.Header{"Broker-Approver-Assertion": {r.sign(t, goodHeader, approverClaims)}}); reason(err) != fault.ApproverNotAllowed {
		t.Errorf("it brings approvers: %v", err)
	}
	if d.Speaks("people", "user:8") != fault.RoleMissing || d.Actors("people") != nil || d.Proves("people", "user:8") {
		t.Error("the entry operates for somebody")
	}
	nobody := identity.Person{}
	if _, may := nobody.Approver(); may || !nobody.IsZero() || !nobody.Caller().IsZero() || nobody.Caller().ID() != "" {
		t.Error("the zero Person is somebody")
	}
	if printed := fmt.Sprintf("%+v %#v", p, p); strings.Contains(printed, "eight@example.org") || strings.Contains(printed, "staff") {
		t.Errorf("its claims are in %s", printed)
	}
}

// TestStillPerson: what a newer file makes of a person who has signed in, and of its
// word about a call.
func TestStillPerson(t *testing.T) {
	r := newRig(t)
	p, err := r.person(t, r.directory(t, r.signingIn(nil)))
	if err != nil {
		t.Fatal(err)
	}
	set := func(change func(*identity.SignIn)) func(*identity.CallerConfig) {
		return func(c *identity.CallerConfig) { change(c.SignIn) }
	}
	for _, row := range []struct {
		name     string
		change   func(*identity.CallerConfig)
		want     string
		approves bool
	}{
		{"nothing", nil, "user:8 approve audit", true},
		{"the person, alone", set(func(s *identity.SignIn) { s.Subjects = []string{"user:8"} }), "user:8 approve audit", true},
		{"others", set(func(s *identity.SignIn) { s.Subjects = []string{"user:9"} }), "sign_in_denied", false},
		{"another group audits", set(func(s *identity.SignIn) { s.Audit.Value = "chief" }), "user:8 approve", true},
		// Its word of before stands: the claims that gave it are not written down.
		{"another group approves", set(func(s *identity.SignIn) { s.Approve.Value = "chief" }), "user:8 audit", true},
		{"staff is administrators", set(func(s *identity.SignIn) { s.Admin.Value = "staff" }), "user:8 approve audit administrator", true},
		{"neither", set(func(s *identity.SignIn) { s.Audit.Value, s.Approve.Value = "chief", "chief" }), "sign_in_denied", true},
		{"nobody approves", func(c *identity.CallerConfig) {
			c.Roles, c.SignIn.Approve, c.SignIn.Admin = c.Roles[:1], identity.Claim{}, identity.Claim{}
		}, "user:8 audit", false},
		{"another issuer", set(func(s *identity.SignIn) { s.Issuer = "https://other.example.org" }), "sign_in_failed", false},
		{"another client", set(func(s *identity.SignIn) { s.ClientID = "ui2" }), "sign_in_failed", true},
		{"another claim names people", set(func(s *identity.SignIn) { s.Person = "email" }), "sign_in_failed", true},
		{"the entry is another", func(c *identity.CallerConfig) { c.ID = "others" }, "sign_in_failed", false},
		{"the entry is a program", func(c *identity.CallerConfig) {
			c.SignIn, c.BearerSHA256 = nil, [][32]byte{sha256.Sum256([]byte("a bearer"))}
		}, "sign_in_failed", false},
	} {
		d := r.directory(t, r.signingIn(row.change))
		now, err := d.StillPerson(p)
		if got := is(now, err); got != row.want {
			t.Errorf("%s: %s, want %s", row.name, got, row.want)
		}
		if got := d.Approves("people", loginIssuer, "user:8"); got != row.approves {
			t.Errorf("%s: approves %v", row.name, got)
		}
		want := fault.CallerUnknown
		if err == nil {
			if want = fault.RoleMissing; now.Caller().Has(identity.Audit) {
				want = fault.None
			}
		}
		if got := d.Still(p.Caller(), identity.Audit, identity.Actor{}); got != want {
			t.Errorf("%s: Still = %q, want %q", row.name, got, want)
		}
	}
	d := r.directory(t, r.signingIn(nil))
	actor, err := d.Actor(r.caller(t, gatewayBearer), http.Header{"Broker-Actor": {"service:nightly"}})
	if err != nil {
		t.Fatal(err)
	}
	if got := d.Still(p.Caller(), identity.Audit, actor); got != fault.ActorNotAllowed {
		t.Errorf("with an actor: %q", got)
	}
	if got := d.Still(p.Caller(), identity.Operate, identity.Actor{}); got != fault.RoleMissing {
		t.Errorf("to operate: %q", got)
	}
	for _, who := range [][3]string{{"gateway", loginIssuer, "user:8"}, {"people", "https://people.example.org", "user:8"}, {"people", loginIssuer, "service:8"}, {"", loginIssuer, "user:8"}} {
		if d.Approves(who[0], who[1], who[2]) {
			t.Errorf("%v approves", who)
		}
	}
}

// TestSignInConfig: what in an entry for people is refused.
func TestSignInConfig(t *testing.T) {
	r := newRig(t)
	role := func(roles ...identity.Role) func(*identity.CallerConfig) {
		return func(c *identity.CallerConfig) { c.Roles = roles }
	}
	for _, row := range []struct {
		want   string
		change func(*identity.CallerConfig)
	}{
		{"neither bearers nor actors", func(c *identity.CallerConfig) { c.BearerSHA256 = [][32]byte{sha256.Sum256([]byte("b"))} }},
		{"neither bearers nor actors", func(c *identity.CallerConfig) { c.Asserted = []string{"user:8"} }},
		{"neither bearers nor actors", func(c *identity.CallerConfig) { c.Signed = r.entries()[0].Signed }},
		{"neither bearers nor actors", func(c *identity.CallerConfig) { c.Approvers = r.people()[1].Approvers }},
		{`role "operate": who signs in can audit`, role(identity.Operate, identity.Audit, identity.Approve)},
		{`role "admin": who signs in can audit`, role(identity.Admin, identity.Audit, identity.Approve)},
		{"no role", role()},
		{"approve: the entry does not have this role", role(identity.Audit)},
		{"role audit: no claim gives it", func(c *identity.CallerConfig) { c.SignIn.Audit = identity.Claim{} }},
		{"admin: without the role approve", func(c *identity.CallerConfig) { c.Roles, c.SignIn.Approve = c.Roles[:1], identity.Claim{} }},
		{"no issuer, or no client id", func(c *identity.CallerConfig) { c.SignIn.Issuer = "" }},
		{"no issuer, or no client id", func(c *identity.CallerConfig) { c.SignIn.ClientID = "" }},
		{"no subjects", func(c *identity.CallerConfig) { c.SignIn.Subjects = nil }},
		{`subject "service:": people`, func(c *identity.CallerConfig) { c.SignIn.Subjects = []string{"service:"} }},
		{`subject "8": people`, func(c *identity.CallerConfig) { c.SignIn.Subjects = []string{"8"} }},
		{`of assertions of caller "gateway"`, func(c *identity.CallerConfig) {
			c.SignIn.Issuer, c.SignIn.ClientID = "https://gateway.example.org", "broker"
		}},
	} {
		if _, err := identity.NewDirectory(r.signingIn(row.change), nil); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%v, want %q", err, row.want)
		}
	}
	two := r.signingIn(nil)
	second := two[2]
	second.ID = "others"
	if _, err := identity.NewDirectory(append(two, second), nil); err == nil || !strings.Contains(err.Error(), `sign_in: caller "people" has one already`) {
		t.Errorf("two doors: %v", err)
	}
	both := r.people()
	both[1].Approvers.Issuer, both[1].Approvers.Audience = loginIssuer, "ui"
	both = append(both, r.signingIn(nil)[2])
	if _, err := identity.NewDirectory(both, nil); err == nil || !strings.Contains(err.Error(), `of assertions of caller "auditor"`) {
		t.Errorf("an approver's audience: %v", err)
	}
}

// TestKeySetVerifies: the same as an [oidc.KeySet].
func TestKeySetVerifies(t *testing.T) {
	r := newRig(t)
	got, err := r.keys.VerifySignature(t.Context(), r.sign(t, goodHeader, personClaims))
	if err != nil || string(got) != personClaims {
		t.Errorf("%s, %v", got, err)
	}
	for name, token := range map[string]string{
		"another's":       sign(t, jwt.SigningMethodES256, r.foreign, goodHeader, personClaims),
		"another curve's": sign(t, jwt.SigningMethodES256, newEC(t, elliptic.P256()), `{"alg":"ES256","kid":"k2"}`, personClaims),
		"none":            sign(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, `{"alg":"none","kid":"k1"}`, personClaims),
		"garbage":         "a.b.c",
		"nothing":         "",
	} {
		if got, err := r.keys.VerifySignature(t.Context(), token); err == nil || got != nil {
			t.Errorf("%s: %s", name, got)
		}
	}
}
