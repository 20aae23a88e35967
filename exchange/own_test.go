package exchange_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"onbehalf.internal/broker/exchange"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/secret"
	"onbehalf.internal/broker/secret/canary"
)

// own makes o an order in which the broker itself is the subject, as policy loads
// one, and changes it.
func own(change func(*exchange.Order)) func(*exchange.Order) {
	return func(o *exchange.Order) {
		q := o.Profile
		q.GrantType, q.RequestedTokenType, q.AudienceParam = "client_credentials", policy.Omit, policy.Omit
		q.Response = policy.Response{TokenFormat: "jwt", IssuedTypeOptional: true}
		if change != nil {
			change(o)
		}
	}
}

// ownAnswer is what RFC 6749 §4.4.3 has for an answer, with members changed.
func ownAnswer(token string, changes ...string) http.HandlerFunc {
	return says(answer(append([]string{"access_token", quote(token), "issued_token_type", "", "refresh_token", "", "scope", ""}, changes...)...))
}

// TestBrokerIsSubject: nobody's credential is in the request, and what comes back
// is held against the grant like any other token.
func TestBrokerIsSubject(t *testing.T) {
	format := func(f string) func(*exchange.Order) {
		return func(o *exchange.Order) {
			o.Profile.Response.TokenFormat, o.Profile.Response.AudienceUnverified = f, true
		}
	}
	for _, tc := range []struct {
		name   string
		change func(*exchange.Order)
		answer http.HandlerFunc
		want   fault.Reason
	}{
		{"as asked for", nil, ownAnswer(jwt()), fault.None},
		{"opaque", format("opaque"), ownAnswer(issuedToken), fault.None},
		{"of the type by name", nil, ownAnswer(jwt(), "issued_token_type", quote(accessToken)), fault.None},
		{"the sub that is pinned", func(o *exchange.Order) { o.Subject = "user-7" }, ownAnswer(jwt()), fault.None},
		{"another sub", func(o *exchange.Order) { o.Subject = "nightly" }, ownAnswer(jwt()), fault.WrongSubject},
		{"opaque, and the sub is pinned", func(o *exchange.Order) { o.Subject = "nightly"; format("opaque")(o) }, ownAnswer(issuedToken), fault.WrongSubject},
		{"for another server", nil, ownAnswer(jwt("aud", `"mcp-mail"`)), fault.WrongAudience},
		{"for one more", nil, ownAnswer(jwt("aud", `["mcp-files","mcp-mail"]`)), fault.WrongAudience},
		{"for nobody", nil, ownAnswer(jwt("aud", "")), fault.WrongAudience},
		{"with more scope", nil, ownAnswer(jwt(), "scope", `"files.read admin"`), fault.ScopeWidened},
		{"with more scope in the token", nil, ownAnswer(jwt("scope", `"files.read admin"`)), fault.ScopeWidened},
		{"of no lifetime", nil, ownAnswer(jwt(), "expires_in", ""), fault.LifetimeTooShort},
		{"over", nil, ownAnswer(jwt("exp", "1796040000")), fault.LifetimeTooShort},
		{"no bearer", nil, ownAnswer(jwt(), "token_type", `"DPoP"`), fault.WrongTokenType},
		{"an ID token", nil, ownAnswer(jwt(), "issued_token_type", `"urn:ietf:params:oauth:token-type:id_token"`), fault.WrongTokenType},
		{"an opaque one where a JWT is expected", nil, ownAnswer(issuedToken), fault.WrongTokenType},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newProvider(t, tc.answer)
			canary.Run(t, func(c *canary.Cage) {
				issued, err := p.client().OrderWith(t.Context(), p.order(own(tc.change)), exchange.Subject{}, exchange.Key{Text: secret.New(clientSecret)})
				c.Value("error", err)
				c.Value("issued", issued)
				wantReason(t, err, tc.want)
				if err == nil && (issued.Token.IsZero() || issued.Expires.Sub(now) != 5*time.Minute || !cmp.Equal(issued.Scopes, []string{"files.read"})) {
					t.Errorf("issued %+v", issued)
				}
			}, clientSecret, issuedToken, jwt())
			want := url.Values{"grant_type": {"client_credentials"}, "scope": {"files.read"}, "client_id": {"broker"}, "client_secret": {clientSecret}}
			all := p.requests()
			if len(all) != 1 {
				t.Fatalf("%d requests, want exactly 1", len(all))
			}
			if diff := cmp.Diff(want, all[0].form); diff != "" {
				t.Errorf("form (-want +got):\n%s", diff)
			}
		})
	}
}

// TestBrokerIsSubjectAsks: the server's audience and more go along as the profile
// says, and each authentication that has a credential does.
func TestBrokerIsSubjectAsks(t *testing.T) {
	ec, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	for method, key := range map[string]string{"basic": clientSecret, "basic_raw": clientSecret, "post": clientSecret, "private_key_jwt": pkcs8(t, ec)} {
		p := newProvider(t, ownAnswer(jwt()))
		o := p.order(own(func(o *exchange.Order) {
			o.Profile.Client.Auth, o.Profile.AudienceParam, o.Profile.Resource = method, "audience", []string{"https://files.example.org/mcp"}
			o.Profile.Client.Audience, o.Profile.ExtraParams = "token_endpoint", url.Values{"organization": {"x"}}
		}))
		if _, err := p.client().OrderWith(t.Context(), o, exchange.Subject{}, exchange.Key{Text: secret.New(key)}); err != nil {
			t.Errorf("%s: %v", method, err)
			continue
		}
		got := p.requests()[0]
		client := clientFields(got.form)
		for name := range client {
			got.form.Del(name)
		}
		want := url.Values{"grant_type": {"client_credentials"}, "scope": {"files.read"}, "audience": {audience}, "resource": {"https://files.example.org/mcp"}, "organization": {"x"}}
		if diff := cmp.Diff(want, got.form); diff != "" {
			t.Errorf("%s: form (-want +got):\n%s", method, diff)
		}
		proof := map[string]bool{"basic": basic(got)[0] == "broker", "basic_raw": basic(got)[1] == clientSecret,
			"post": client.Get("client_secret") == clientSecret, "private_key_jwt": strings.Count(client.Get("client_assertion"), ".") == 2}
		if !proof[method] {
			t.Errorf("%s: the client did not prove itself", method)
		}
	}
}

// TestBrokerIsRefused: where nobody's credential was handed in, none is blamed,
// and the request may leave once more as others may.
func TestBrokerIsRefused(t *testing.T) {
	for _, tc := range []struct {
		name   string
		answer http.HandlerFunc
		times  int
		want   fault.Reason
	}{
		{"zitadel of a wrong assertion", refuses(400, "invalid_grant"), 1, fault.ProviderConfig},
		{"a request that is not understood", refuses(400, "invalid_request"), 1, fault.ProviderConfig},
		{"a client that may not", refuses(403, "access_denied"), 1, fault.ProviderConfig},
		{"a client that it does not know", refuses(401, "invalid_client"), 1, fault.ProviderConfig},
		{"a client without the grant", refuses(400, "unauthorized_client"), 1, fault.ProviderConfig},
		{"a scope", refuses(400, "invalid_scope"), 1, fault.ScopeRejected},
		{"a target", refuses(400, "invalid_target"), 1, fault.TargetRejected},
		{"too much", refuses(429, "invalid_grant"), 1, fault.ProviderRateLimited},
		{"down", answers(503, "", ""), 2, fault.ProviderUnreachable},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newProvider(t, tc.answer)
			_, err := p.client().OrderWith(t.Context(), p.order(own(nil)), exchange.Subject{}, exchange.Key{Text: secret.New(clientSecret)})
			wantReason(t, err, tc.want)
			if n := len(p.requests()); n != tc.times {
				t.Errorf("%d requests, want %d", n, tc.times)
			}
		})
	}
	p := newProvider(t, refuses(400, "invalid_grant"))
	o := p.order(func(o *exchange.Order) { o.Profile.Actor.Source = "client_credentials" })
	_, err := p.client().OrderWith(t.Context(), o, exchange.Subject{Token: secret.New(subjectToken)}, exchange.Key{Text: secret.New(clientSecret)})
	wantReason(t, err, fault.ProviderConfig) // of the actor token
}

// TestNobodysCredential: a credential where none belongs is not dropped in
// silence, and the lack of one is not taken for the broker's own.
func TestNobodysCredential(t *testing.T) {
	p := newProvider(t, ownAnswer(jwt()))
	_, err := p.client().Order(t.Context(), p.order(own(nil)), secret.New(subjectToken), secret.New(clientSecret))
	wantReason(t, err, fault.InternalError)
	_, err = p.client().OrderWith(t.Context(), p.order(nil), exchange.Subject{}, exchange.Key{Text: secret.New(clientSecret)})
	wantReason(t, err, fault.CredentialMissing)
	if n := len(p.requests()); n != 0 {
		t.Errorf("%d requests, want none", n)
	}
}

// TestSubjectIsNotAloneToBlame: the detail of a rejected subject says who else may
// be meant, and no other detail does.
func TestSubjectIsNotAloneToBlame(t *testing.T) {
	for code, want := range map[string]bool{"invalid_grant": true, "invalid_request": true, "access_denied": true, "invalid_target": false, "invalid_client": false} {
		p := newProvider(t, refuses(400, code))
		_, err := p.client().Order(t.Context(), p.order(nil), secret.New(subjectToken), secret.New(clientSecret))
		if got := strings.Contains(err.Error(), "of the client's authentication or of the target"); got != want {
			t.Errorf("%s: %v", code, err)
		}
	}
}

// TestRefused: an access token that fails a check comes back to be revoked, and
// nothing else does: a subject or a refresh token must not be ended.
func TestRefused(t *testing.T) {
	token := jwt()
	for _, tc := range []struct {
		name    string
		change  func(*exchange.Order)
		answer  http.HandlerFunc
		want    fault.Reason
		refused string
	}{
		{"good", nil, says(answer("access_token", quote(token))), fault.None, ""},
		{"for another server", nil, says(answer("access_token", quote(jwt("aud", `"mcp-mail"`)))), fault.WrongAudience, jwt("aud", `"mcp-mail"`)},
		{"with more scope", nil, says(answer("access_token", quote(token), "scope", `"files.read admin"`)), fault.ScopeWidened, token},
		{"of another", func(o *exchange.Order) { o.Subject = "user-8" }, says(answer("access_token", quote(token))), fault.WrongSubject, token},
		{"nearly over", nil, says(answer("access_token", quote(token), "expires_in", "1")), fault.LifetimeTooShort, token},
		{"no JWT", nil, says(answer()), fault.WrongTokenType, issuedToken},
		{"not verified", func(o *exchange.Order) {
			o.Profile.Response.TokenFormat, o.Profile.Response.JWKS = "jwt_verified", &url.URL{Scheme: "http", Host: "127.0.0.1:1", Path: "/keys"}
		}, says(answer("access_token", quote(token))), fault.KeysUnavailable, token},
		{"the subject token", nil, says(answer("access_token", quote(subjectToken))), fault.ExchangeMalformed, ""},
		{"a refresh token", nil, says(answer("access_token", quote(refreshToken), "issued_token_type", `"urn:ietf:params:oauth:token-type:refresh_token"`)), fault.WrongTokenType, ""},
		{"no bearer", nil, says(answer("access_token", quote(token), "token_type", `"N_A"`)), fault.WrongTokenType, ""},
		{"no answer that can be read", nil, says(answer("access_token", quote(token), "expires_in", `"soon"`)), fault.ExchangeMalformed, ""},
		{"refused", nil, refuses(400, "invalid_grant"), fault.SubjectRejected, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newProvider(t, tc.answer)
			c := p.client()
			o := p.order(func(o *exchange.Order) {
				o.Profile.Response = policy.Response{TokenFormat: "jwt"}
				if tc.change != nil {
					tc.change(o)
				}
			})
			canary.Run(t, func(cage *canary.Cage) {
				issued, err := c.Order(t.Context(), o, secret.New(subjectToken), secret.New(clientSecret))
				cage.Value("error", err)
				cage.Value("issued", issued)
				wantReason(t, err, tc.want)
				if issued.Refused.Reveal() != tc.refused {
					t.Error("another token is to be revoked, or none")
				}
				if err != nil && (!issued.Token.IsZero() || issued.Scopes != nil || !issued.Expires.IsZero()) {
					t.Errorf("more beside an error than what is to be revoked: %+v", issued)
				}
			}, subjectToken, clientSecret, issuedToken, refreshToken, token)
		})
	}
}

// TestSecondStepRefused: of two steps it is the second whose token is to be
// revoked; what the first one issued is no access token.
func TestSecondStepRefused(t *testing.T) {
	elsewhere := jwt("aud", `"mcp-mail"`)
	for name, tc := range map[string]struct{ first, refused string }{
		"second": {jwt("aud", quote(second)), elsewhere},
		"first":  {jwt("aud", `"https://elsewhere.example.org"`), ""},
	} {
		p := newProvider(t, at(map[string]http.HandlerFunc{
			"/token":  says(answer("access_token", quote(tc.first), "issued_token_type", quote(idJAG), "token_type", `"N_A"`)),
			"/second": says(answer("access_token", quote(elsewhere), "issued_token_type", "")),
		}))
		key := exchange.Key{Text: secret.New(clientSecret), Then: func(context.Context) (exchange.Key, error) { return exchange.Key{Text: secret.New("x")}, nil }}
		issued, err := p.client().OrderWith(t.Context(), bridged(p), exchange.Subject{Token: secret.New(subjectToken)}, key)
		if wantReason(t, err, fault.WrongAudience); issued.Refused.Reveal() != tc.refused {
			t.Errorf("%s: another token is to be revoked, or none", name)
		}
	}
}
