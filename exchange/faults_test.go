package exchange_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"onbehalf.internal/broker/exchange"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/secret"
	"onbehalf.internal/broker/secret/canary"
)

// A known fault is something that a client of this protocol has got wrong, or a
// server has answered.
type knownFault struct {
	name   string
	change func(*exchange.Order)
	answer http.HandlerFunc
	times  int // requests
	want   fault.Reason
	kind   fault.Kind                  // "" with no reason
	looks  func(*testing.T, []request) // at what was sent; nil: nothing more
}

// TestKnownFaults has a row for what the library that carries the exchange does
// with odd answers, and for each group of public reports about such clients.
func TestKnownFaults(t *testing.T) {
	elsewhere := newProvider(t, says(answer()))
	for _, rows := range [][]knownFault{libraryFaults(elsewhere.URL), reportedFaults(elsewhere.URL)} {
		for _, tc := range rows {
			t.Run(tc.name, func(t *testing.T) {
				p := newProvider(t, tc.answer)
				canary.Run(t, func(c *canary.Cage) {
					issued, err := p.client().OrderWith(t.Context(), p.order(tc.change), exchange.Subject{Token: secret.New(subjectToken)},
						exchange.Key{Text: secret.New(clientSecret), Actor: secret.New(actorToken)})
					c.Value("issued", issued)
					c.Value("error", err)
					wantReason(t, err, tc.want)
					if err != nil && fault.KindOf(err) != tc.kind || (err == nil) != (tc.kind == "") {
						t.Errorf("kind %q, want %q", fault.KindOf(err), tc.kind)
					}
				}, subjectToken, clientSecret, issuedToken, refreshToken, actorToken)
				if n := len(p.requests()); n != tc.times {
					t.Errorf("%d requests, want exactly %d", n, tc.times)
				}
				if tc.looks != nil {
					tc.looks(t, p.requests())
				}
			})
		}
	}
	if n := len(elsewhere.requests()); n != 0 {
		t.Errorf("%d requests were sent on", n)
	}
}

const actorToken = "actor-Qp83nVx5KsTr.7yHd-planted"

// libraryFaults is what golang.org/x/oauth2 was measured to do, and must not
// get through.
func libraryFaults(elsewhere string) []knownFault {
	const malformed, refused = fault.ExchangeMalformed, fault.Refused
	redirect := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere, status) }
	}
	two := func(o *exchange.Order) { o.Profile.Audience = []string{"mcp-mail"} }
	basic := auth("basic")
	return []knownFault{
		{"the wire", basic, says(answer()), 1, fault.None, "", func(t *testing.T, all []request) {
			if r := all[0]; r.header.Get("Accept") != "application/json" || r.header.Get("Authorization") == "" || r.query != "" {
				t.Errorf("header %v, query %q", r.header, r.query)
			}
		}},
		{"no code, both audiences", two, says(answer()), 1, fault.None, "", func(t *testing.T, all []request) {
			if f := all[0].form; f.Has("code") || strings.Join(f["audience"], " ") != audience+" mcp-mail" {
				t.Errorf("audience %q", f["audience"])
			}
		}},
		{"no second try in another style", nil, refuses(401, "invalid_client"), 1, fault.ProviderConfig, refused, nil},
		{"expires_in in quotes", nil, says(answer("expires_in", `"300"`)), 1, fault.None, "", nil},
		{"expires_in with a fraction", nil, says(answer("expires_in", "300.0")), 1, malformed, refused, nil},
		{"expires_in with an exponent", nil, says(answer("expires_in", "3e2")), 1, malformed, refused, nil},
		{"expires_in empty", nil, says(answer("expires_in", `""`)), 1, malformed, refused, nil},
		{"expires_in with a unit", nil, says(answer("expires_in", `"5m"`)), 1, malformed, refused, nil},
		{"expires_in true", nil, says(answer("expires_in", "true")), 1, malformed, refused, nil},
		{"expires_in absent is not for ever", nil, says(answer("expires_in", "")), 1, fault.LifetimeTooShort, refused, nil},
		{"expires_in null is not for ever", nil, says(answer("expires_in", "null")), 1, malformed, refused, nil},
		{"expires_in 0 is not for ever", nil, says(answer("expires_in", "0")), 1, malformed, refused, nil},
		{"expires_in negative", nil, says(answer("expires_in", "-5")), 1, malformed, refused, nil},
		{"expires_in that wraps round", nil, says(answer("expires_in", "-4294967000")), 1, malformed, refused, nil},
		{"expires_in beyond all measure", nil, says(answer("expires_in", "99999999999")), 1, malformed, refused, nil},
		{"token_type absent", nil, says(answer("token_type", "")), 1, fault.WrongTokenType, refused, nil},
		{"token_type N_A", nil, says(answer("token_type", `"N_A"`)), 1, fault.WrongTokenType, refused, nil},
		{"token_type DPoP", nil, says(answer("token_type", `"DPoP"`)), 1, fault.WrongTokenType, refused, nil},
		{"scope as an array", nil, says(answer("scope", `["files.read"]`)), 1, fault.None, "", nil},
		{"access_token in another case", nil, says(answer("access_token", "", "Access_Token", quote(issuedToken))), 1, malformed, refused, nil},
		{"access_token twice", nil, says(strings.Replace(answer(), "{", `{"access_token":"`+issuedToken+`",`, 1)), 1, malformed, refused, nil},
		{"access_token with a header in it", nil, says(answer("access_token", `"a\r\nX-Evil: 1"`)), 1, malformed, refused, nil},
		{"JSON called text", nil, answers(200, "text/plain", answer()), 1, malformed, refused, nil},
		{"JSON called nothing", nil, answers(200, "", answer()), 1, malformed, refused, nil},
		{"JSON called HTML", nil, answers(200, "text/html", answer()), 1, malformed, refused, nil},
		{"a token of 900 KiB", nil, says(answer("access_token", quote(strings.Repeat("a", 900<<10)))), 1, malformed, refused, nil},
		{"JSON of more than 1 MiB", nil, says(answer() + strings.Repeat(" ", 1<<20)), 1, malformed, refused, nil},
		{"a form of more than 1 MiB", nil, answers(200, "application/x-www-form-urlencoded", "access_token="+strings.Repeat("a", 1<<20)), 1, malformed, refused, nil},
		{"400 that echoes the form", nil, answers(400, "application/json", `{"request":"subject_token=`+subjectToken+`"}`), 1, fault.ProviderError, refused, nil},
		{"502 that echoes the form", nil, answers(502, "text/html", "client_secret="+clientSecret), 2, fault.ProviderUnreachable, fault.Unavailable, nil},
		{"error_description that echoes the token", nil, refuses(400, "invalid_grant"), 1, fault.SubjectRejected, refused, nil},
		{"an answer that keeps its request's header", basic, refuses(401, "invalid_client"), 1, fault.ProviderConfig, refused, nil},
		{"301", nil, redirect(301), 1, fault.ProviderRedirect, refused, nil},
		{"302", nil, redirect(302), 1, fault.ProviderRedirect, refused, nil},
		{"303", nil, redirect(303), 1, fault.ProviderRedirect, refused, nil},
		{"307", nil, redirect(307), 1, fault.ProviderRedirect, refused, nil},
		{"308", nil, redirect(308), 1, fault.ProviderRedirect, refused, nil},
	}
}

// reportedFaults has the groups of public reports in their order.
func reportedFaults(elsewhere string) []knownFault {
	const malformed, refused = fault.ExchangeMalformed, fault.Refused
	claims := func(more func(*exchange.Order)) func(*exchange.Order) {
		return func(o *exchange.Order) {
			o.Profile.Response = policy.Response{TokenFormat: "jwt", ClockSkew: 5 * time.Second}
			if more != nil {
				more(o)
			}
		}
	}
	token := func(changes ...string) http.HandlerFunc { return says(answer("access_token", quote(jwt(changes...)))) }
	acting := claims(func(o *exchange.Order) { o.Profile.Actor = policy.Actor{Source: "stored"} })
	basicIs := func(want string) func(*testing.T, []request) {
		return func(t *testing.T, all []request) {
			if got := basic(all[0])[1]; got != want {
				t.Errorf("secret in the header %q, want %q", got, want)
			}
		}
	}
	return []knownFault{
		{"1 audience ignored", claims(nil), token("aud", `["client-a"]`), 1, fault.WrongAudience, refused, nil},
		{"2 actor ignored", acting, token("act", ""), 1, fault.WrongActor, refused, func(t *testing.T, all []request) {
			if f := all[0].form; f.Get("actor_token") != actorToken || f.Get("actor_token_type") != accessToken {
				t.Error("no actor token was sent")
			}
		}},
		{"2 actor ignored, may_act left", acting, token("act", "", "may_act", `{"sub":"broker"}`), 1, fault.WrongActor, refused, nil},
		{"2 actor heeded", acting, token(), 1, fault.None, "", nil},
		{"3 double send", nil, refuses(400, "invalid_target"), 1, fault.TargetRejected, refused, nil},
		{"4 secrets through error text", nil, answers(400, "application/json", `{"error":"`+subjectToken+`","error_uri":"`+clientSecret+`"}`), 1, fault.ProviderError, refused, nil},
		{"4 secrets through a broken answer", nil, says(`{"access_token":"` + issuedToken + `","expires_in":`), 1, malformed, refused, nil},
		{"5 redirect", nil, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere, http.StatusTemporaryRedirect)
		}, 1, fault.ProviderRedirect, refused, nil},
		{"6 secret encoded", auth("basic"), says(answer()), 1, fault.None, "", basicIs("b%2Fr%2Bo+k%25er%3A%26%3D~%C3%BC-planted-secret")},
		{"6 secret as it stands", auth("basic_raw"), says(answer()), 1, fault.None, "", basicIs(clientSecret)},
		{"6 secret in the form", auth("post"), says(answer()), 1, fault.None, "", basicIs("")},
		{"7 expires_in with a unit", nil, says(answer("expires_in", `"3599s"`)), 1, malformed, refused, nil},
		{"7 expires_in null", nil, says(answer("expires_in", "null")), 1, malformed, refused, nil},
		{"8 token_type in lower case", nil, says(answer("token_type", `"bearer"`)), 1, fault.None, "", nil},
		{"8 token_type N_A", nil, says(answer("token_type", `"N_A"`)), 1, fault.WrongTokenType, refused, nil},
		{"9 a page", nil, answers(200, "text/html", "<html>"+subjectToken), 1, malformed, refused, nil},
		{"9 200 with an error", nil, refuses(200, "invalid_grant"), 1, fault.SubjectRejected, refused, nil},
		{"11 too many requests", nil, refuses(429, "too_many_attempts"), 1, fault.ProviderRateLimited, fault.Unavailable, nil},
		{"12 aud a text", claims(nil), token("aud", `"mcp-files"`), 1, fault.None, "", nil},
		{"12 aud a list", claims(nil), token("aud", `["mcp-files"]`), 1, fault.None, "", nil},
		{"13 scope a list", nil, says(answer("scope", `["files.read","admin"]`)), 1, fault.ScopeWidened, refused, nil},
		{"14 several audiences", func(o *exchange.Order) { o.Profile.Audience = []string{"a", "b"} }, says(answer()), 1, fault.None, "", func(t *testing.T, all []request) {
			if got := all[0].form["audience"]; len(got) != 3 {
				t.Errorf("audience %q", got)
			}
		}},
		{"15 iat in the future", claims(nil), token("iat", "1896040600"), 1, fault.None, "", nil},
		{"15 nbf within the skew", claims(nil), token("nbf", "1796040005"), 1, fault.None, "", nil},
		{"15 nbf beyond the skew", claims(nil), token("nbf", "1796040006"), 1, fault.TokenNotYetValid, refused, nil},
		{"15 exp a moment ago, within no skew", claims(nil), token("exp", "1796039999"), 1, fault.LifetimeTooShort, refused, nil},
		{"16 one failure, invalid_request", nil, refuses(400, "invalid_request"), 1, fault.SubjectRejected, refused, nil},
		{"16 one failure, invalid_grant", nil, refuses(400, "invalid_grant"), 1, fault.SubjectRejected, refused, nil},
		{"16 one failure, access_denied", nil, refuses(403, "access_denied"), 1, fault.SubjectRejected, refused, nil},
	}
}

// TestNobodyElsesToken is group 10 of the reports: nothing is kept that another
// actor, or the same one later, could get.
func TestNobodyElsesToken(t *testing.T) {
	p := newProvider(t, func(w http.ResponseWriter, r *http.Request) { says(answer())(w, r) })
	c, o := p.client(), p.order(nil)
	for _, subject := range []string{"subject-of-one", "subject-of-another", "subject-of-one"} {
		if _, err := c.Order(t.Context(), o, secret.New(subject), secret.New(clientSecret)); err != nil {
			t.Fatal(err)
		}
	}
	var sent []string
	for _, r := range p.requests() {
		sent = append(sent, r.form.Get("subject_token"))
	}
	if got := strings.Join(sent, " "); got != "subject-of-one subject-of-another subject-of-one" {
		t.Errorf("subjects that were sent: %s", got)
	}
	if _, err := c.Order(t.Context(), o, secret.Text{}, secret.New(clientSecret)); fault.ReasonOf(err) != fault.CredentialMissing {
		t.Errorf("an empty subject: %v", err)
	}
}

// TestDeadline: an endpoint that does not answer costs what the budget allows.
func TestDeadline(t *testing.T) {
	arrived := make(chan struct{}, 1)
	p := newProvider(t, func(_ http.ResponseWriter, r *http.Request) { arrived <- struct{}{}; <-r.Context().Done() })
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-arrived; cancel() }()
	_, err := p.client().Order(ctx, p.order(nil), secret.New(subjectToken), secret.New(clientSecret))
	wantReason(t, err, fault.CallerCancelled)
	if n := len(p.requests()); n != 1 || strings.Contains(err.Error(), "127.0.0.1") {
		t.Errorf("%d requests, %v", n, err)
	}
}
