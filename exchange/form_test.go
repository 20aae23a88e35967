package exchange_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"net/url"
	"testing"
	"time"

	golangjwt "github.com/golang-jwt/jwt/v5"
	"github.com/google/go-cmp/cmp"

	"onbehalf.internal/broker/exchange"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/secret"
)

// TestForm is what each field of a profile puts into the form.
func TestForm(t *testing.T) {
	const assertion = "urn:ietf:params:oauth:grant-type:jwt-bearer"
	for _, tc := range []struct {
		name   string
		change func(*policy.Profile)
		typ    string // of the subject
		form   url.Values
	}{
		{"Entra on-behalf-of", func(p *policy.Profile) {
			p.GrantType, p.SubjectParam, p.SubjectTokenType, p.RequestedTokenType, p.AudienceParam = assertion, "assertion", "omit", "omit", "omit"
			p.ExtraParams = url.Values{"requested_token_use": {"on_behalf_of"}}
		}, "urn:x", url.Values{"grant_type": {assertion}, "assertion": {subjectToken}, "requested_token_use": {"on_behalf_of"}, "scope": {"files.read files.list"}}},
		{"resource in place of audience", func(p *policy.Profile) {
			p.AudienceParam, p.Resource, p.Audience = "resource", []string{"https://b.example", audience}, []string{"other"}
		}, "", url.Values{"resource": {audience, "https://b.example"}, "audience": {"other"}}},
		{"several audiences", func(p *policy.Profile) { p.Audience = []string{"a", audience} }, "", url.Values{"audience": {audience, "a"}}},
		{"comma between scopes", func(p *policy.Profile) { p.ScopeSeparator = "," }, "", url.Values{"scope": {"files.read,files.list"}}},
		{"the subject's own type", func(p *policy.Profile) { p.SubjectTokenType = "urn:x:profile" }, "urn:x:subject", url.Values{"subject_token_type": {"urn:x:subject"}}},
		{"another token type", func(p *policy.Profile) { p.RequestedTokenType = "urn:x:jwt" }, "", url.Values{"requested_token_type": {"urn:x:jwt"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newProvider(t, says(answer()))
			o := p.order(func(o *exchange.Order) {
				o.Scopes, o.Profile.Client.Auth = []string{"files.read", "files.list"}, "anonymous"
				tc.change(o.Profile)
			})
			p.client().OrderWith(t.Context(), o, exchange.Subject{Token: secret.New(subjectToken), Type: tc.typ}, exchange.Key{})
			want := url.Values{"grant_type": {"urn:ietf:params:oauth:grant-type:token-exchange"}, "subject_token": {subjectToken},
				"subject_token_type": {accessToken}, "requested_token_type": {accessToken}, "audience": {audience}, "scope": {"files.read files.list"}}
			if tc.form.Has("assertion") {
				want = url.Values{}
			}
			if tc.form.Has("resource") && !tc.form.Has("audience") {
				want.Del("audience")
			}
			for name, values := range tc.form {
				want[name] = values
			}
			if diff := cmp.Diff(want, p.requests()[0].form); diff != "" {
				t.Errorf("form (-want +got):\n%s", diff)
			}
		})
	}
}

// TestIssuedType is what an answer may say it is, by what was asked for.
func TestIssuedType(t *testing.T) {
	const jwtType = "urn:ietf:params:oauth:token-type:jwt"
	for _, tc := range []struct {
		name, asked, issued string
		optional            bool
		want                fault.Reason
	}{
		{"as asked", jwtType, quote(jwtType), false, fault.None},
		{"another", jwtType, quote(accessToken), false, fault.WrongTokenType},
		{"absent, required", "", "", false, fault.WrongTokenType},
		{"absent, optional", "omit", "", true, fault.None},
		{"said, optional", "omit", quote(accessToken), true, fault.None},
		{"another, optional", "omit", quote(jwtType), true, fault.WrongTokenType},
	} {
		t.Run(tc.name, func(t *testing.T) {
			try(t, func(o *exchange.Order) {
				o.Profile.RequestedTokenType, o.Profile.Response.IssuedTypeOptional = tc.asked, tc.optional
			}, says(answer("issued_token_type", tc.issued)), tc.want)
		})
	}
}

// TestNarrowed: fewer scopes than were asked for are enough with all of those
// that the profile requires.
func TestNarrowed(t *testing.T) {
	for _, tc := range []struct {
		name, scope, token string // of the answer; in the token; "": not said
		required           []string
		prefix             string
		want               fault.Reason
		scopes             []string
		narrowed           bool
	}{
		{"all", `"r w"`, "", []string{"r"}, "", fault.None, []string{"r", "w"}, false},
		{"enough", `"r"`, "", []string{"r"}, "", fault.None, []string{"r"}, true},
		{"not enough", `"w"`, "", []string{"r"}, "", fault.ScopeNarrowed, nil, false},
		{"nothing required", `"r"`, "", nil, "", fault.ScopeNarrowed, nil, false},
		{"the token says fewer", `"r w"`, `"r"`, []string{"r"}, "", fault.None, []string{"r"}, true},
		{"the answer says fewer", `"r"`, `"r w"`, []string{"r"}, "", fault.None, []string{"r"}, true},
		{"the token says too few", `"r w"`, `"w"`, []string{"r"}, "", fault.ScopeNarrowed, nil, false},
		{"more beside enough", `"r admin"`, "", []string{"r"}, "", fault.ScopeWidened, nil, false},
		{"an extra one is required", `"email r"`, "", []string{"email"}, "", fault.None, []string{"email", "r"}, true},
		{"with a prefix in the answer alone", `"api://x/r api://x/w"`, `"r w"`, nil, "api://x/", fault.None, []string{"r", "w"}, false},
		{"with another prefix", `"api://y/r api://x/w"`, "", nil, "api://x/", fault.ScopeWidened, nil, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			text := issuedToken
			change := func(o *exchange.Order) {
				o.Scopes = []string{tc.prefix + "r", tc.prefix + "w"}
				r := &o.Profile.Response
				r.RequiredScopes, r.AllowedExtraScopes, r.ScopePrefix = tc.required, []string{"email"}, tc.prefix
				if tc.token != "" {
					r.TokenFormat = "jwt"
				}
			}
			if tc.token != "" {
				text = jwt("scope", tc.token)
			}
			issued := try(t, change, says(answer("scope", tc.scope, "access_token", quote(text))), tc.want)
			if !cmp.Equal(issued.Scopes, tc.scopes) || issued.Narrowed != tc.narrowed {
				t.Errorf("scopes %q, narrowed %v", issued.Scopes, issued.Narrowed)
			}
		})
	}
	commas := func(o *exchange.Order) { o.Scopes, o.Profile.ScopeSeparator = []string{"r", "w"}, "," }
	try(t, commas, says(answer("scope", `"w,r"`)), fault.None)
}

// TestRequireSubject: nothing is sent for a grant that names no subject.
func TestRequireSubject(t *testing.T) {
	p := newProvider(t, says(answer()))
	o := p.order(func(o *exchange.Order) { o.Profile.Response.RequireSubject = true })
	_, err := p.client().Order(t.Context(), o, secret.New(subjectToken), secret.New(clientSecret))
	if wantReason(t, err, fault.WrongSubject); len(p.requests()) != 0 {
		t.Error("a request was sent")
	}
}

// TestBound: a token that is bound to a certificate is ours only if the
// certificate is.
func TestBound(t *testing.T) {
	der := []byte("a certificate, to whoever computes its thumbprint")
	sum := sha256.Sum256(der)
	ours := base64.RawURLEncoding.EncodeToString(sum[:])
	chain := secret.New(string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	for _, tc := range []struct {
		name, cnf   string
		certificate secret.Text
		want        fault.Reason
		bound       bool
	}{
		{"not bound", "", chain, fault.None, false},
		{"to ours", `{"x5t#S256":"` + ours + `"}`, chain, fault.None, true},
		{"to another", `{"x5t#S256":"bwcK0esc3ACC3DB2Y5_lESsXE8o9ltc05O89jdN-dg2"}`, chain, fault.WrongBinding, false},
		{"to one, and we have none", `{"x5t#S256":"` + ours + `"}`, secret.Text{}, fault.WrongBinding, false},
		{"to none, and we have none", `{"x5t#S256":""}`, secret.Text{}, fault.WrongBinding, false},
		{"to a DPoP key", `{"jkt":"0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I"}`, chain, fault.WrongBinding, false},
		{"to ours and a DPoP key", `{"x5t#S256":"` + ours + `","jkt":"x"}`, chain, fault.WrongBinding, false},
		{"to something", `{}`, chain, fault.WrongBinding, false},
		{"to a text", `"x"`, chain, fault.ExchangeMalformed, false},
		{"to a number", `{"x5t#S256":7}`, chain, fault.ExchangeMalformed, false},
	} {
		p := newProvider(t, says(answer("access_token", quote(jwt("cnf", tc.cnf)))))
		o := p.order(response(func(r *policy.Response) { r.TokenFormat = "jwt" }))
		issued, err := p.client().OrderWith(t.Context(), o, exchange.Subject{Token: secret.New(subjectToken)}, exchange.Key{Text: secret.New(clientSecret), Certificate: tc.certificate})
		wantReason(t, err, tc.want)
		if issued.Bound != tc.bound {
			t.Errorf("%s: bound %v", tc.name, issued.Bound)
		}
	}
}

// TestSignedElsewhere: an assertion whose key stays where it is.
func TestSignedElsewhere(t *testing.T) {
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	elsewhere := func(_ context.Context, input []byte) ([]byte, error) {
		return golangjwt.SigningMethodES256.Sign(string(input), crypto.Signer(key))
	}
	away := fault.New("vault.Sign", fault.VaultSealed, "")
	for _, tc := range []struct {
		name, alg string
		sign      func(context.Context, []byte) ([]byte, error)
		want      fault.Reason
	}{
		{"signed", "ES256", elsewhere, fault.None},
		{"no alg", "", elsewhere, fault.ProviderConfig},
		{"no such alg", "none", elsewhere, fault.ProviderConfig},
		{"nobody signs", "ES256", func(context.Context, []byte) ([]byte, error) { return nil, away }, fault.VaultSealed},
	} {
		p := newProvider(t, says(answer()))
		o := p.order(func(o *exchange.Order) {
			o.Profile.Client = policy.Client{ID: "broker", Auth: "private_key_jwt", Alg: tc.alg, Kid: "k", Audience: "token_endpoint", AssertionTTL: 20 * time.Second}
		})
		_, err := p.client().OrderWith(t.Context(), o, exchange.Subject{Token: secret.New(subjectToken)}, exchange.Key{Sign: tc.sign})
		wantReason(t, err, tc.want)
		if err != nil {
			if len(p.requests()) != 0 || tc.want == fault.VaultSealed && !errors.Is(err, away) {
				t.Errorf("%s: %d requests, %v", tc.name, len(p.requests()), err)
			}
			continue
		}
		claims := golangjwt.MapClaims{}
		if _, err := golangjwt.ParseWithClaims(p.requests()[0].form.Get("client_assertion"), claims, func(*golangjwt.Token) (any, error) { return key.Public(), nil },
			golangjwt.WithTimeFunc(func() time.Time { return now })); err != nil || claims["exp"] != float64(now.Add(20*time.Second).Unix()) {
			t.Errorf("%s: %v, exp %v", tc.name, err, claims["exp"])
		}
	}
}
