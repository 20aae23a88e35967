package exchange_test

import (
	"context"
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

// legs notes the names of further requests, and refuses one of them.
func legs(refused string, into *[]string) func(context.Context, string, func(context.Context) error) error {
	return func(ctx context.Context, name string, send func(context.Context) error) error {
		*into = append(*into, name)
		if name == refused {
			return fault.New("session.stands", fault.GrantRevoked, "")
		}
		return send(ctx)
	}
}

// TestIntrospection is what is believed of an opaque token.
func TestIntrospection(t *testing.T) {
	said := func(changes ...string) http.HandlerFunc {
		return says(object(map[string]string{"active": "true", "aud": quote(audience), "scope": `"files.read"`, "sub": `"user-7"`, "exp": "1796040100", "iss": quote(issuer)}, changes...))
	}
	for _, tc := range []struct {
		name   string
		answer http.HandlerFunc
		change func(*exchange.Order)
		want   fault.Reason
		life   time.Duration
	}{
		{"active", said(), nil, fault.None, 100 * time.Second},
		{"no exp: what the answer said", said("exp", ""), nil, fault.None, 5 * time.Minute},
		{"not active", says(`{"active":false}`), nil, fault.TokenInactive, 0},
		{"empty", says(`{}`), nil, fault.TokenInactive, 0},
		{"active null", said("active", "null"), nil, fault.TokenInactive, 0},
		{"active in quotes", said("active", `"true"`), nil, fault.TokenInactive, 0},
		{"active 1", said("active", "1"), nil, fault.TokenInactive, 0},
		{"active twice", says(`{"active":true,"active":true}`), nil, fault.ExchangeMalformed, 0},
		{"no aud", said("aud", ""), nil, fault.WrongAudience, 0},
		{"other aud", said("aud", `"mcp-mail"`), nil, fault.WrongAudience, 0},
		{"one aud more", said("aud", `["mcp-files","mcp-mail"]`), nil, fault.WrongAudience, 0},
		{"expected aud", said("aud", `"6f1d"`), response(func(r *policy.Response) { r.ExpectAudience = []string{"6f1d"} }), fault.None, 100 * time.Second},
		{"scope wider", said("scope", `"files.read admin"`), nil, fault.ScopeWidened, 0},
		{"scope narrower", said("scope", `[]`), nil, fault.ScopeNarrowed, 0},
		{"scope no text", said("scope", `7`), nil, fault.ExchangeMalformed, 0},
		{"sub pinned", said(), func(o *exchange.Order) { o.Subject = "user-7" }, fault.None, 100 * time.Second},
		{"sub of another", said(), func(o *exchange.Order) { o.Subject = "user-8" }, fault.WrongSubject, 0},
		{"no sub", said("sub", ""), func(o *exchange.Order) { o.Subject = "user-7" }, fault.WrongSubject, 0},
		{"iss", said(), response(func(r *policy.Response) { r.ExpectIssuer = issuer }), fault.None, 100 * time.Second},
		{"no iss", said("iss", ""), response(func(r *policy.Response) { r.ExpectIssuer = issuer }), fault.WrongIssuer, 0},
		{"act", said("act", `{"sub":"broker"}`), response(func(r *policy.Response) { r.RequireAct = "broker" }), fault.None, 100 * time.Second},
		{"no act", said(), response(func(r *policy.Response) { r.RequireAct = "broker" }), fault.WrongActor, 0},
		{"exp past", said("exp", "1796039999"), nil, fault.LifetimeTooShort, 0},
		{"nbf ahead", said("nbf", "1796041000"), nil, fault.TokenNotYetValid, 0},
		{"bound", said("cnf", `{"jkt":"x"}`), nil, fault.WrongBinding, 0},
		{"refused", refuses(401, "invalid_client"), nil, fault.ProviderConfig, 0},
		{"refused, and no subject was there", refuses(400, "invalid_request"), nil, fault.ProviderConfig, 0},
		{"a page", answers(200, "text/html", issuedToken), nil, fault.ExchangeMalformed, 0},
		{"a signed answer", answers(200, "application/token-introspection+jwt", pack(`{}`)), nil, fault.ExchangeMalformed, 0},
		{"redirected", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}, nil, fault.ProviderRedirect, 0},
		{"hangs up", hangUp, nil, fault.ProviderUnreachable, 0},
		{"down, and not asked again", answers(503, "", ""), nil, fault.ProviderUnreachable, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newProvider(t, at(map[string]http.HandlerFunc{"/token": says(answer()), "/introspect": tc.answer}))
			o := p.order(func(o *exchange.Order) {
				o.Profile.Client.Auth, o.Profile.Response.AudienceUnverified, o.Profile.Introspection = "basic", false, p.address("/introspect")
				if tc.change != nil {
					tc.change(o)
				}
			})
			var names []string
			canary.Run(t, func(c *canary.Cage) {
				issued, err := p.client().OrderWith(t.Context(), o, exchange.Subject{Token: secret.New(subjectToken)}, exchange.Key{Text: secret.New(clientSecret), Leg: legs("", &names)})
				c.Value("error", err)
				c.Value("issued", issued)
				wantReason(t, err, tc.want)
				if err == nil && (issued.Expires.Sub(now) != tc.life || issued.Subject != "user-7") {
					t.Errorf("life %v, subject %q", issued.Expires.Sub(now), issued.Subject)
				}
			}, subjectToken, clientSecret, issuedToken)
			all := p.requests()
			if p.paths() != "/token /introspect" || strings.Join(names, " ") != "introspection" {
				t.Fatalf("requests %s, legs %q", p.paths(), names)
			}
			if f := all[1].form; f.Get("token") != issuedToken || len(f) != 1 || basic(all[1]) != basic(all[0]) || basic(all[0])[0] != "broker" {
				t.Errorf("introspection was asked otherwise than the token endpoint, with %d parameters", len(f))
			}
		})
	}
}

// TestActor: a token of the broker's own, asked for first and sent along.
func TestActor(t *testing.T) {
	cc := func(o *exchange.Order) {
		o.Profile.Response = policy.Response{TokenFormat: "jwt"}
		o.Profile.Actor = policy.Actor{Source: "client_credentials", TokenType: "urn:x:actor", Scopes: []string{"act"}}
	}
	own := object(nil, "access_token", quote(actorToken), "token_type", `"bearer"`, "expires_in", "60")
	good := says(answer("access_token", quote(jwt())))
	for _, tc := range []struct {
		name    string
		answers []http.HandlerFunc
		refused string
		want    fault.Reason
		sent    int
	}{
		{"own", []http.HandlerFunc{says(own), good}, "", fault.None, 2},
		{"own, and ignored", []http.HandlerFunc{says(own), says(answer("access_token", quote(jwt("act", ""))))}, "", fault.WrongActor, 2},
		{"own, refused", []http.HandlerFunc{refuses(400, "unauthorized_client"), good}, "", fault.ProviderConfig, 1},
		{"own, of another kind", []http.HandlerFunc{says(strings.Replace(own, "bearer", "N_A", 1)), good}, "", fault.WrongTokenType, 1},
		{"own, not allowed any more", []http.HandlerFunc{says(own), good}, "actor", fault.GrantRevoked, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newProvider(t, inTurn(tc.answers...))
			var names []string
			_, err := p.client().OrderWith(t.Context(), p.order(cc), exchange.Subject{Token: secret.New(subjectToken)}, exchange.Key{Text: secret.New(clientSecret), Leg: legs(tc.refused, &names)})
			wantReason(t, err, tc.want)
			all := p.requests()
			if len(all) != tc.sent || strings.Join(names, " ") != "actor" {
				t.Fatalf("%d requests, legs %q", len(all), names)
			}
			if tc.sent > 0 {
				want := url.Values{"grant_type": {"client_credentials"}, "scope": {"act"}, "client_id": {"broker"}, "client_secret": {clientSecret}}
				if diff := cmp.Diff(want, all[0].form); diff != "" {
					t.Error(diff)
				}
			}
			if tc.sent > 1 && (all[1].form.Get("actor_token") != actorToken || all[1].form.Get("actor_token_type") != "urn:x:actor") {
				t.Error("it was not sent along")
			}
		})
	}
	p := newProvider(t, good)
	_, err := p.client().Order(t.Context(), p.order(func(o *exchange.Order) { cc(o); o.Profile.Actor.Source = "stored" }), secret.New(subjectToken), secret.New(clientSecret))
	if wantReason(t, err, fault.CredentialMissing); len(p.requests()) != 0 {
		t.Error("a request without the actor token")
	}
}

const (
	idJAG  = "urn:ietf:params:oauth:token-type:id-jag"
	second = "https://auth.files.example.org"
)

// bridged is an order of two steps, as the example has it.
func bridged(p *provider) exchange.Order {
	return p.order(func(o *exchange.Order) {
		q := o.Profile
		q.Response = policy.Response{ExpectIssuer: issuer}
		q.RequestedTokenType, q.AudienceParam, q.Audience = idJAG, "resource", []string{second}
		q.Then = &policy.Profile{TokenEndpoint: p.address("/second"), Client: policy.Client{ID: "broker-there", Auth: "post"},
			GrantType: "urn:ietf:params:oauth:grant-type:jwt-bearer", SubjectParam: "assertion", SubjectTokenType: "omit", RequestedTokenType: "omit", AudienceParam: "omit",
			Response: policy.Response{TokenFormat: "jwt", IssuedTypeOptional: true}}
	})
}

// TestTwoSteps: an assertion of the first provider buys the token of the second.
func TestTwoSteps(t *testing.T) {
	const there = "the-secret-for-the-second-Vb37"
	assertion := func(changes ...string) string {
		return jwt(append([]string{"aud", quote(second), "jti", `"1"`}, changes...)...)
	}
	bridge := func(token string, changes ...string) http.HandlerFunc {
		return says(answer(append([]string{"access_token", quote(token), "issued_token_type", quote(idJAG), "token_type", `"N_A"`, "scope", "", "expires_in", ""}, changes...)...))
	}
	final := says(answer("access_token", quote(jwt("sub", `"u7"`)), "issued_token_type", ""))
	for _, tc := range []struct {
		name          string
		first, second http.HandlerFunc
		refused       string // leg
		want          fault.Reason
		paths         string
	}{
		{"both", bridge(assertion()), final, "", fault.None, "/token /second"},
		{"a bearer token", bridge(assertion(), "token_type", `"Bearer"`), final, "", fault.WrongTokenType, "/token"},
		{"an access token", bridge(assertion(), "issued_token_type", quote(accessToken)), final, "", fault.WrongTokenType, "/token"},
		{"no type", bridge(assertion(), "issued_token_type", ""), final, "", fault.WrongTokenType, "/token"},
		{"an opaque one", bridge("opaque"), final, "", fault.WrongTokenType, "/token"},
		{"for the server itself", bridge(assertion("aud", quote(audience))), final, "", fault.WrongAudience, "/token"},
		{"for others too", bridge(assertion("aud", `["`+second+`","x"]`)), final, "", fault.WrongAudience, "/token"},
		{"for nobody", bridge(assertion("aud", "")), final, "", fault.WrongAudience, "/token"},
		{"of another issuer", bridge(assertion("iss", `"x"`)), final, "", fault.WrongIssuer, "/token"},
		{"over", bridge(assertion("exp", "1796039999")), final, "", fault.LifetimeTooShort, "/token"},
		{"the subject token", bridge(subjectToken), final, "", fault.ExchangeMalformed, "/token"},
		{"not allowed any more", bridge(assertion()), final, "then", fault.GrantRevoked, "/token"},
		{"no second key", bridge(assertion()), final, "key", fault.VaultSealed, "/token"},
		{"second refuses", bridge(assertion()), refuses(400, "invalid_grant"), "", fault.SubjectRejected, "/token /second"},
		{"second is down, and gets no assertion twice", bridge(assertion()), answers(503, "", ""), "", fault.ProviderUnreachable, "/token /second"},
		{"second issues for another", bridge(assertion()), says(answer("access_token", quote(jwt("aud", `"x"`)), "issued_token_type", "")), "", fault.WrongAudience, "/token /second"},
		{"second widens", bridge(assertion()), says(answer("access_token", quote(jwt()), "issued_token_type", "", "scope", `"files.read admin"`)), "", fault.ScopeWidened, "/token /second"},
		{"second gives no access token", bridge(assertion()), says(answer("access_token", quote(jwt()), "issued_token_type", quote(idJAG))), "", fault.WrongTokenType, "/token /second"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newProvider(t, at(map[string]http.HandlerFunc{"/token": tc.first, "/second": tc.second}))
			var names []string
			key := exchange.Key{Text: secret.New(clientSecret), Leg: legs(tc.refused, &names), Then: func(context.Context) (exchange.Key, error) {
				if tc.refused == "key" {
					return exchange.Key{}, fault.New("vault.Credential", fault.VaultSealed, "")
				}
				return exchange.Key{Text: secret.New(there)}, nil
			}}
			canary.Run(t, func(c *canary.Cage) {
				issued, err := p.client().OrderWith(t.Context(), bridged(p), exchange.Subject{Token: secret.New(subjectToken)}, key)
				c.Value("error", err)
				c.Value("issued", issued)
				wantReason(t, err, tc.want)
				if err == nil && (issued.Subject != "u7" || !cmp.Equal(issued.Scopes, []string{"files.read"})) {
					t.Errorf("issued %+v", issued)
				}
			}, subjectToken, clientSecret, there)
			if p.paths() != tc.paths {
				t.Fatalf("requests %s, want %s", p.paths(), tc.paths)
			}
			all := p.requests()
			if f := all[0].form; f.Get("resource") != audience || f.Get("audience") != second || f.Get("requested_token_type") != idJAG || f.Get("client_secret") != clientSecret {
				t.Error("the first step asked for something else")
			}
			if len(all) > 1 {
				want := url.Values{"grant_type": {"urn:ietf:params:oauth:grant-type:jwt-bearer"}, "assertion": {assertion()}, "scope": {"files.read"},
					"client_id": {"broker-there"}, "client_secret": {there}}
				if diff := cmp.Diff(want, all[1].form); diff != "" {
					t.Errorf("second form (-want +got):\n%s", diff)
				}
			}
		})
	}
}

// TestRefresh is what a refresh token is exchanged for, once.
func TestRefresh(t *testing.T) {
	plain := object(nil, "access_token", quote(issuedToken), "token_type", `"Bearer"`, "expires_in", "300")
	rotated := strings.Replace(plain, "{", `{"refresh_token":"`+refreshToken+`",`, 1)
	with := func(old, new string) http.HandlerFunc { return says(strings.Replace(rotated, old, new, 1)) }
	for _, tc := range []struct {
		name    string
		answer  http.HandlerFunc
		want    fault.Reason
		rotated bool
		life    time.Duration // 0: not said
	}{
		{"not rotated", says(plain), fault.None, false, 300 * time.Second},
		{"rotated", says(rotated), fault.None, true, 300 * time.Second},
		{"no expires_in", with(`"expires_in":300,`, ""), fault.None, true, 0},
		{"too short a life", with("300", "1"), fault.LifetimeTooShort, true, 0},
		{"no access token", with("access_token", "accessToken"), fault.ExchangeMalformed, true, 0},
		{"another kind", with("Bearer", "DPoP"), fault.WrongTokenType, true, 0},
		{"the refresh token back", with(issuedToken, subjectToken), fault.ExchangeMalformed, true, 0},
		{"broken expires_in", with("300", "-1"), fault.ExchangeMalformed, true, 0},
		{"refresh token no text", says(strings.Replace(plain, "{", `{"refresh_token":7,`, 1)), fault.ExchangeMalformed, false, 0},
		{"refresh token with a line break", says(strings.Replace(plain, "{", `{"refresh_token":"a\n",`, 1)), fault.ExchangeMalformed, false, 0},
		{"spent", refuses(400, "invalid_grant"), fault.SubjectRejected, false, 0},
		{"down, and not asked again", answers(503, "", ""), fault.ProviderUnreachable, false, 0},
		{"cut", cutAfter(200, rotated), fault.ProviderUnreachable, false, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newProvider(t, tc.answer)
			canary.Run(t, func(c *canary.Cage) {
				got, err := p.client().Refresh(t.Context(), p.order(nil).Profile, secret.New(subjectToken), exchange.Key{Text: secret.New(clientSecret)})
				c.Value("error", err)
				c.Value("refreshed", got)
				wantReason(t, err, tc.want)
				if (got.Refresh.Reveal() == refreshToken) != tc.rotated || !tc.rotated && !got.Refresh.IsZero() {
					t.Error("the new refresh token is not as the provider said")
				}
				if (got.Access.Reveal() == issuedToken) != (err == nil) || err != nil && !got.Access.IsZero() {
					t.Error("an access token beside an error, or none without")
				}
				if err == nil && (tc.life == 0) != got.Expires.IsZero() || tc.life > 0 && got.Expires.Sub(now) != tc.life {
					t.Errorf("expires %v", got.Expires)
				}
			}, subjectToken, clientSecret, issuedToken, refreshToken)
			all := p.requests()
			want := url.Values{"grant_type": {"refresh_token"}, "refresh_token": {subjectToken}, "client_id": {"broker"}, "client_secret": {clientSecret}}
			if len(all) != 1 {
				t.Fatalf("%d requests, want exactly 1", len(all))
			}
			if diff := cmp.Diff(want, all[0].form); diff != "" {
				t.Error(diff)
			}
		})
	}
	p := newProvider(t, says(plain))
	_, err := p.client().Refresh(t.Context(), p.order(nil).Profile, secret.Text{}, exchange.Key{Text: secret.New(clientSecret)})
	if wantReason(t, err, fault.CredentialMissing); len(p.requests()) != 0 {
		t.Error("an empty refresh token was sent")
	}
}

// TestRevoke is what a provider may answer to a revocation (RFC 7009 §2.2).
func TestRevoke(t *testing.T) {
	for _, tc := range []struct {
		name, method, hint string
		answer             http.HandlerFunc
		want               fault.Reason
		after              time.Duration
	}{
		{"revoked", "post", "access_token", answers(200, "", ""), fault.None, 0},
		{"revoked, no hint", "basic", "", answers(200, "text/html", "<p>"), fault.None, 0},
		{"revoked, raw", "basic_raw", "", answers(200, "", ""), fault.None, 0},
		{"by the id alone", "none", "", answers(200, "", ""), fault.None, 0},
		{"not supported", "post", "", refuses(400, "unsupported_token_type"), fault.ProviderConfig, 0},
		{"client refused", "post", "", refuses(401, "invalid_client"), fault.ProviderConfig, 0},
		{"refused, and no subject was there", "post", "", refuses(400, "invalid_grant"), fault.ProviderConfig, 0},
		{"later", "post", "", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", "7")
			answers(503, "", "")(w, r)
		}, fault.ProviderUnreachable, 7 * time.Second},
		{"accepted is not revoked", "post", "", answers(202, "", ""), fault.ProviderError, 0},
		{"redirected", "post", "", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}, fault.ProviderRedirect, 0},
		{"not there", "post", "", http.NotFound, fault.ProviderError, 0},
		{"hangs up", "post", "", hangUp, fault.ProviderUnreachable, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newProvider(t, tc.answer)
			profile := p.order(auth(tc.method)).Profile
			profile.Revocation = policy.Revocation{Endpoint: p.address("/revoke"), Hint: tc.hint}
			canary.Run(t, func(c *canary.Cage) {
				err := p.client().Revoke(t.Context(), profile, secret.New(issuedToken), exchange.Key{Text: secret.New(clientSecret)})
				c.Value("error", err)
				wantReason(t, err, tc.want)
				if e, ok := err.(*fault.Error); ok && e.After != tc.after {
					t.Errorf("after %v", e.After)
				}
			}, clientSecret, issuedToken)
			all := p.requests()
			if p.paths() != "/revoke" || all[0].form.Get("token") != issuedToken || all[0].form.Get("token_type_hint") != tc.hint || all[0].form.Has("grant_type") {
				t.Fatalf("requests %s", p.paths())
			}
			secretIn := map[string]string{"post": all[0].form.Get("client_secret"), "basic_raw": basic(all[0])[1], "none": clientSecret}[tc.method]
			if tc.method != "basic" && secretIn != clientSecret || tc.method == "basic" && basic(all[0])[1] != url.QueryEscape(clientSecret) {
				t.Error("the client proved itself otherwise than at the token endpoint")
			}
		})
	}
	p := newProvider(t, says("{}"))
	profile := p.order(nil).Profile
	wantReason(t, p.client().Revoke(t.Context(), profile, secret.New("x"), exchange.Key{Text: secret.New(clientSecret)}), fault.ProviderConfig)
	profile.Revocation.Endpoint = p.address("/revoke")
	wantReason(t, p.client().Revoke(t.Context(), profile, secret.Text{}, exchange.Key{Text: secret.New(clientSecret)}), fault.CredentialMissing)
	if len(p.requests()) != 0 {
		t.Error("a request was sent")
	}
}
