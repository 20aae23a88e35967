package exchange_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"onbehalf.internal/broker/exchange"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/policy"
)

func response(change func(*policy.Response)) func(*exchange.Order) {
	return func(o *exchange.Order) { change(&o.Profile.Response) }
}

// TestRefusals is what providers answer when they say no.
func TestRefusals(t *testing.T) {
	for _, tc := range []struct {
		name   string
		answer http.HandlerFunc
		want   fault.Reason
	}{
		{"RFC 8693 bad subject", refuses(400, "invalid_request"), fault.SubjectRejected},
		{"bad subject in older servers", refuses(400, "invalid_grant"), fault.SubjectRejected},
		{"bad subject at dex", refuses(401, "access_denied"), fault.SubjectRejected},
		{"bad subject at Keycloak", refuses(403, "access_denied"), fault.SubjectRejected},
		{"target", refuses(400, "invalid_target"), fault.TargetRejected},
		{"scope", refuses(400, "invalid_scope"), fault.ScopeRejected},
		{"person has to act", refuses(400, "interaction_required"), fault.InteractionRequired},
		{"client, 400", refuses(400, "invalid_client"), fault.ProviderConfig},
		{"client, 401", refuses(401, "invalid_client"), fault.ProviderConfig},
		{"grant not for this client", refuses(400, "unauthorized_client"), fault.ProviderConfig},
		{"grant not known", refuses(400, "unsupported_grant_type"), fault.ProviderConfig},
		{"token types at dex", refuses(400, "request_not_supported"), fault.ProviderConfig},
		{"DPoP wanted", refuses(400, "use_dpop_nonce"), fault.ProviderConfig},
		{"DPoP proof wanted", refuses(400, "invalid_dpop_proof"), fault.ProviderConfig},
		{"server error", refuses(500, "server_error"), fault.ProviderError},
		{"rate limited", refuses(429, "too_many_attempts"), fault.ProviderRateLimited},
		{"rate limited, whatever the code", refuses(429, "invalid_request"), fault.ProviderRateLimited},
		{"gateway down", answers(502, "text/html", "<p>"+subjectToken), fault.ProviderUnreachable},
		{"overloaded", refuses(503, "invalid_client"), fault.ProviderUnreachable},
		{"gateway times out", answers(504, "text/html", ""), fault.ProviderUnreachable},

		{"code we do not know", refuses(400, "teapot"), fault.ProviderError},
		{"code is a secret", refuses(400, subjectToken), fault.ProviderError},
		{"code in other case", refuses(400, "Invalid_Target"), fault.ProviderError},
		{"code is no string", answers(400, "application/json", `{"error":{"code":"invalid_target"}}`), fault.ProviderError},
		{"code twice", answers(400, "application/json", `{"error":"invalid_target","error":"invalid_scope"}`), fault.ProviderError},
		{"code in a form", answers(400, "application/x-www-form-urlencoded", "error=invalid_target"), fault.ProviderError},
		{"code in HTML", answers(400, "text/html", `{"error":"invalid_target"}`), fault.ProviderError},
		{"secrets echoed as names", answers(400, "application/json", `{"`+subjectToken+`":1,"`+subjectToken+`":2}`), fault.ProviderError},
		{"no body", answers(401, "", ""), fault.ProviderError},
		{"not found", answers(404, "text/plain", "404 page not found"), fault.ProviderError},
		{"endless body", answers(500, "application/json", strings.Repeat(" ", 1<<20)), fault.ProviderError},
		{"body cut", cutAfter(400, `{"error":"invalid_targ`), fault.ProviderError},

		{"200 that is an error", refuses(200, "invalid_grant"), fault.SubjectRejected},
		{"200 with token and error", says(answer("error", `"invalid_target"`)), fault.TargetRejected},
		{"200 with token and no error to speak of", says(answer("error", `null`)), fault.ProviderError},
	} {
		times := 1
		if tc.want == fault.ProviderUnreachable { // a gateway's answer; see TestSecondTime
			times = 2
		}
		t.Run(tc.name, func(t *testing.T) { tryTimes(t, times, nil, tc.answer, tc.want) })
	}
}

// cutAfter promises more than it sends and hangs up.
func cutAfter(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n%s", status, body)
	}
}

func hangUp(w http.ResponseWriter, _ *http.Request) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(err)
	}
	conn.Close()
}

// TestAnswers is what providers answer when they say yes. Members are changed
// one at a time in an answer that is good.
func TestAnswers(t *testing.T) {
	unset := response(func(*policy.Response) {})
	ttl := response(func(r *policy.Response) { r.DefaultTTL = time.Minute })
	echo := response(func(r *policy.Response) { r.RequireScopeEcho = true })
	extra := response(func(r *policy.Response) { r.AllowedExtraScopes = []string{"email", "profile"} })
	two := func(o *exchange.Order) { o.Scopes = []string{"files.read", "files.list"} }
	long := strings.Repeat("a", 16<<10)

	type row struct {
		name   string
		change func(*exchange.Order)
		answer http.HandlerFunc
		want   fault.Reason
	}
	with := func(name, raw string, want fault.Reason) row {
		return row{name + " " + raw, unset, says(answer(name, raw)), want}
	}
	for _, tc := range []row{
		// the HTTP answer
		{"content type with a parameter", unset, answers(200, "application/json; charset=UTF-8", answer()), fault.None},
		{"content type in other case", unset, answers(200, "Application/JSON", answer()), fault.None},
		{"no content type", unset, answers(200, "", answer()), fault.ExchangeMalformed},
		{"text", unset, answers(200, "text/plain", answer()), fault.ExchangeMalformed},
		{"HTML", unset, answers(200, "text/html", answer()), fault.ExchangeMalformed},
		{"a form", unset, answers(200, "application/x-www-form-urlencoded", "access_token="+issuedToken), fault.ExchangeMalformed},
		{"201", unset, answers(201, "application/json", answer()), fault.ExchangeMalformed},
		{"202", unset, answers(202, "application/json", answer()), fault.ExchangeMalformed},
		{"204", unset, answers(204, "application/json", ""), fault.ExchangeMalformed},
		{"206", unset, answers(206, "application/json", answer()), fault.ExchangeMalformed},
		{"hangs up", unset, hangUp, fault.ProviderUnreachable},
		{"cut after issuing", unset, cutAfter(200, answer()), fault.ProviderUnreachable},

		// the body
		{"empty", unset, says(""), fault.ExchangeMalformed},
		{"half", unset, says(answer()[:60]), fault.ExchangeMalformed},
		{"array", unset, says("[" + answer() + "]"), fault.ExchangeMalformed},
		{"null", unset, says("null"), fault.ExchangeMalformed},
		{"two values", unset, says(answer() + answer()), fault.ExchangeMalformed},
		{"no UTF-8", unset, says(answer("session", "\"\xff\"")), fault.ExchangeMalformed},
		{"token twice", unset, says(strings.Replace(answer(), "{", `{"access_token":"`+issuedToken+`",`, 1)), fault.ExchangeMalformed},
		{"token twice, one escaped", unset, says(strings.Replace(answer(), "{", `{"\u0061ccess_token":"`+issuedToken+`",`, 1)), fault.ExchangeMalformed},
		{"as long as allowed", unset, says(answer() + strings.Repeat(" ", 64<<10-len(answer()))), fault.None},
		{"longer than allowed", unset, says(answer() + strings.Repeat(" ", 64<<10-len(answer())+1)), fault.ExchangeMalformed},
		{"members we do not know", unset, says(answer("session_state", `{"a":[1]}`, "not-before-policy", "0", "id_token", quote(refreshToken))), fault.None},

		// the token: RFC 6750 §2.1
		with("access_token", "", fault.ExchangeMalformed),
		with("access_token", `""`, fault.ExchangeMalformed),
		with("access_token", "null", fault.ExchangeMalformed),
		with("access_token", "7", fault.ExchangeMalformed),
		with("access_token", `["a"]`, fault.ExchangeMalformed),
		with("access_token", `"a b"`, fault.ExchangeMalformed),
		with("access_token", `"a\r\nX-Evil: 1"`, fault.ExchangeMalformed),
		with("access_token", `"a\n"`, fault.ExchangeMalformed),
		with("access_token", `"a\u0000"`, fault.ExchangeMalformed),
		with("access_token", `"ä"`, fault.ExchangeMalformed),
		with("access_token", `"a=b"`, fault.ExchangeMalformed),
		with("access_token", `"Az09-._~+/=="`, fault.None),
		{"longest token", unset, says(answer("access_token", quote(long))), fault.None},
		{"token too long", unset, says(answer("access_token", quote(long+"a"))), fault.ExchangeMalformed},
		{"token under another case", unset, says(answer("access_token", "", "Access_Token", quote(issuedToken))), fault.ExchangeMalformed},
		{"the subject token", unset, says(answer("access_token", quote(subjectToken))), fault.ExchangeMalformed},

		// what kind of token
		with("issued_token_type", "", fault.WrongTokenType),
		with("issued_token_type", `"urn:ietf:params:oauth:token-type:refresh_token"`, fault.WrongTokenType),
		with("issued_token_type", `"urn:ietf:params:oauth:token-type:id_token"`, fault.WrongTokenType),
		with("issued_token_type", `"urn:ietf:params:oauth:token-type:jwt"`, fault.WrongTokenType),
		with("issued_token_type", `"urn:ietf:params:oauth:token-type:Access_Token"`, fault.WrongTokenType),
		with("issued_token_type", "null", fault.ExchangeMalformed),
		with("token_type", `"bearer"`, fault.None),
		with("token_type", `"BEARER"`, fault.None),
		with("token_type", "", fault.WrongTokenType),
		with("token_type", `"N_A"`, fault.WrongTokenType),
		with("token_type", `"DPoP"`, fault.WrongTokenType),
		with("token_type", `"PoP"`, fault.WrongTokenType),
		with("token_type", `"mac"`, fault.WrongTokenType),
		with("token_type", `"Bearer "`, fault.WrongTokenType),
		with("token_type", "null", fault.ExchangeMalformed),

		// how long
		with("expires_in", `"300"`, fault.None),
		with("expires_in", "2", fault.None),
		with("expires_in", "2147483648", fault.None), // capped
		with("expires_in", "1", fault.LifetimeTooShort),
		with("expires_in", "", fault.LifetimeTooShort),
		{"no expires_in, but a default", ttl, says(answer("expires_in", "")), fault.None},
		{"null is not absent", ttl, says(answer("expires_in", "null")), fault.ExchangeMalformed},
		with("expires_in", "0", fault.ExchangeMalformed),
		with("expires_in", "-5", fault.ExchangeMalformed),
		with("expires_in", "-4294967000", fault.ExchangeMalformed), // a 32-bit client reads 4m56s
		with("expires_in", "300.0", fault.ExchangeMalformed),
		with("expires_in", "3e2", fault.ExchangeMalformed),
		with("expires_in", "1e400", fault.ExchangeMalformed),
		with("expires_in", "true", fault.ExchangeMalformed),
		with("expires_in", `""`, fault.ExchangeMalformed),
		with("expires_in", `"5m"`, fault.ExchangeMalformed),
		with("expires_in", `"3599s"`, fault.ExchangeMalformed),
		with("expires_in", `"1e9"`, fault.ExchangeMalformed),
		with("expires_in", `"-1"`, fault.ExchangeMalformed),
		with("expires_in", `" 300"`, fault.ExchangeMalformed),
		with("expires_in", `"0300"`, fault.ExchangeMalformed),
		with("expires_in", "2147483649", fault.ExchangeMalformed),
		with("expires_in", "99999999999", fault.ExchangeMalformed),
		with("expires_in", "[300]", fault.ExchangeMalformed),

		// for what
		with("scope", "", fault.None), // as asked for: RFC 8693 §2.2.1
		with("scope", `"files.read files.read"`, fault.None),
		with("scope", `["files.read"]`, fault.None),
		{"scope must be said", echo, says(answer("scope", "")), fault.ScopeNarrowed},
		{"scope is said", echo, says(answer()), fault.None},
		with("scope", `"files.read files.write"`, fault.ScopeWidened),
		with("scope", `["files.read","admin"]`, fault.ScopeWidened),
		with("scope", `"Files.Read"`, fault.ScopeWidened),
		with("scope", `"files.read,admin"`, fault.ScopeWidened),
		with("scope", `["files.read admin"]`, fault.ExchangeMalformed),
		with("scope", `"files.read email"`, fault.ScopeWidened),
		{"extra scopes that are allowed", extra, says(answer("scope", `"profile files.read email"`)), fault.None},
		{"allowed extra scopes alone", extra, says(answer("scope", `"profile email"`)), fault.ScopeNarrowed},
		{"one of two scopes", two, says(answer("scope", `"files.list"`)), fault.ScopeNarrowed},
		{"two of two scopes, turned round", two, says(answer("scope", `"files.list files.read"`)), fault.None},
		with("scope", `[]`, fault.ScopeNarrowed),
		with("scope", `""`, fault.ExchangeMalformed),
		with("scope", `" files.read"`, fault.ExchangeMalformed),
		with("scope", `"files.read  files.read"`, fault.ExchangeMalformed),
		with("scope", `"files.read\tadmin"`, fault.ExchangeMalformed),
		with("scope", `"files.reäd"`, fault.ExchangeMalformed),
		with("scope", `null`, fault.ExchangeMalformed),
		with("scope", `[null]`, fault.ExchangeMalformed),
		with("scope", `{"files.read":true}`, fault.ExchangeMalformed),

		// for whom, where an answer says so although RFC 8693 has no such member
		with("audience", `"mcp-files"`, fault.None),
		with("audience", `"mcp-mail"`, fault.WrongAudience),
		with("audience", `["mcp-files","mcp-mail"]`, fault.WrongAudience),
		with("audience", `[]`, fault.WrongAudience),
		with("audience", `7`, fault.ExchangeMalformed),

		// opaque tokens, and what nobody could check in them
		{"audience goes unverified", response(func(r *policy.Response) { r.AudienceUnverified = false }), says(answer()), fault.WrongAudience},
		{"subject pinned", func(o *exchange.Order) { o.Subject = "user-7" }, says(answer()), fault.WrongSubject},
		{"actor required", response(func(r *policy.Response) { r.RequireAct = "broker" }), says(answer()), fault.WrongActor},
	} {
		t.Run(tc.name, func(t *testing.T) { try(t, tc.change, tc.answer, tc.want) })
	}
}

// TestClaims is what a JWT may say about itself.
func TestClaims(t *testing.T) {
	plain := func(r *policy.Response) { r.TokenFormat = "jwt" }
	strict := func(r *policy.Response) {
		r.TokenFormat, r.ExpectIssuer, r.RequireAct = "jwt", issuer, "broker"
	}
	expect := func(audiences ...string) func(*policy.Response) {
		return func(r *policy.Response) { r.TokenFormat, r.ExpectAudience = "jwt", audiences }
	}
	for _, tc := range []struct {
		name   string
		change func(*policy.Response)
		token  string
		want   fault.Reason
	}{
		{"good", strict, jwt(), fault.None},
		{"format not named is not opaque", func(r *policy.Response) { r.TokenFormat = "" }, issuedToken, fault.WrongTokenType},

		{"not a JWT", plain, issuedToken, fault.WrongTokenType},
		{"a JWE", plain, "a.b.c.d.e", fault.WrongTokenType},
		{"no base64url", plain, "e30.+/+/.c2ln", fault.ExchangeMalformed},
		{"no object", plain, pack(`["aud"]`), fault.ExchangeMalformed},
		{"a claim twice", plain, pack(`{"aud":"mcp-files","exp":1796040600,"aud":"mcp-files"}`), fault.ExchangeMalformed},
		{"act.sub twice", plain, jwt("act", `{"sub":"broker","sub":"broker"}`), fault.ExchangeMalformed},

		{"no aud", plain, jwt("aud", ""), fault.WrongAudience},
		{"aud array", plain, jwt("aud", `["mcp-files"]`), fault.None},
		{"aud empty array", plain, jwt("aud", `[]`), fault.WrongAudience},
		{"aud empty", plain, jwt("aud", `""`), fault.WrongAudience},
		{"aud other", plain, jwt("aud", `"mcp-mail"`), fault.WrongAudience},
		{"aud in other case", plain, jwt("aud", `"MCP-files"`), fault.WrongAudience},
		{"aud with a slash more", plain, jwt("aud", `"mcp-files/"`), fault.WrongAudience},
		{"aud ours and another", plain, jwt("aud", `["mcp-files","mcp-mail"]`), fault.WrongAudience},
		{"aud ours and empty", plain, jwt("aud", `["mcp-files",""]`), fault.WrongAudience},
		{"aud null", plain, jwt("aud", `null`), fault.ExchangeMalformed},
		{"aud array of other things", plain, jwt("aud", `["mcp-files",7]`), fault.ExchangeMalformed},
		{"aud both that are expected", expect(audience, "broker"), jwt("aud", `["mcp-files","broker"]`), fault.None},
		{"aud the one asked for", expect(audience, "broker"), jwt(), fault.None},
		{"aud expected, but not asked for", expect(audience, "broker"), jwt("aud", `"broker"`), fault.WrongAudience},
		{"aud under the provider's own name", expect("6f1d8c1e"), jwt("aud", `"6f1d8c1e"`), fault.None},
		{"aud empty where another name is expected", expect("6f1d8c1e"), jwt("aud", `[]`), fault.WrongAudience},
		{"aud asked for, but not expected", expect("6f1d8c1e"), jwt(), fault.WrongAudience},

		{"iss other", strict, jwt("iss", `"https://identity.example.org/"`), fault.WrongIssuer},
		{"no iss", strict, jwt("iss", ""), fault.WrongIssuer},
		{"iss not looked at", plain, jwt("iss", `"https://elsewhere.example"`), fault.None},
		{"iss no string", plain, jwt("iss", `7`), fault.ExchangeMalformed},

		{"act other", strict, jwt("act", `{"sub":"other"}`), fault.WrongActor},
		{"no act", strict, jwt("act", ""), fault.WrongActor},
		{"act without sub", strict, jwt("act", `{"iss":"broker"}`), fault.WrongActor},
		{"act.sub no string", strict, jwt("act", `{"sub":7}`), fault.ExchangeMalformed},
		{"act a string", strict, jwt("act", `"broker"`), fault.ExchangeMalformed},
		{"ours is an earlier actor", strict, jwt("act", `{"sub":"other","act":{"sub":"broker"}}`), fault.WrongActor},
		{"ours is the current actor", strict, jwt("act", `{"sub":"broker","act":{"sub":"other"}}`), fault.None},
		{"may_act is not act", strict, jwt("act", "", "may_act", `{"sub":"broker"}`), fault.WrongActor},

		{"no exp", plain, jwt("exp", ""), fault.LifetimeTooShort},
		{"exp past", plain, jwt("exp", "1796039999"), fault.LifetimeTooShort},
		{"exp in a second", plain, jwt("exp", "1796040001"), fault.LifetimeTooShort},
		{"exp in two seconds", plain, jwt("exp", "1796040002"), fault.None},
		{"exp with a fraction", plain, jwt("exp", "1796040100.5"), fault.None},
		{"exp negative", plain, jwt("exp", "-1"), fault.ExchangeMalformed},
		{"exp beyond any calendar", plain, jwt("exp", "1e300"), fault.ExchangeMalformed},
		{"exp endless", plain, jwt("exp", "1e400"), fault.ExchangeMalformed},
		{"exp a string", plain, jwt("exp", `"1796040600"`), fault.ExchangeMalformed},
		{"iat in the future", plain, jwt("iat", "1896040600"), fault.None},

		{"no scope", plain, jwt("scope", ""), fault.None},
		{"scope wider", plain, jwt("scope", `"files.read admin"`), fault.ScopeWidened},
		{"scope narrower", plain, jwt("scope", `[]`), fault.ScopeNarrowed},
		{"scp wider", plain, jwt("scope", "", "scp", `["files.read","admin"]`), fault.ScopeWidened},
		{"scp beside scope", plain, jwt("scp", `["admin"]`), fault.ScopeWidened},
		{"scp empty", plain, jwt("scope", "", "scp", `[]`), fault.ScopeNarrowed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			try(t, response(tc.change), says(answer("access_token", quote(tc.token))), tc.want)
		})
	}
}

// TestSubject holds that a pinned subject is the token's, exactly.
func TestSubject(t *testing.T) {
	for sub, want := range map[string]fault.Reason{
		`"user-7"`: fault.None,
		`"user-8"`: fault.WrongSubject,
		`"User-7"`: fault.WrongSubject,
		`""`:       fault.WrongSubject,
		"":         fault.WrongSubject,
		"7":        fault.ExchangeMalformed,
	} {
		pinned := func(o *exchange.Order) {
			o.Profile.Response.TokenFormat, o.Subject = "jwt", "user-7"
		}
		issued := try(t, pinned, says(answer("access_token", quote(jwt("sub", sub)))), want)
		if want == fault.None && issued.Subject != "user-7" {
			t.Errorf("subject %q", issued.Subject)
		}
	}
}

// TestExpires holds which of the limits is believed: the least.
func TestExpires(t *testing.T) {
	for _, tc := range []struct {
		name      string
		expiresIn string
		exp       string // of a JWT; "": opaque
		max, def  time.Duration
		want      time.Duration // after the exchange began
	}{
		{"as said", "90", "", 0, 0, 90 * time.Second},
		{"at most five minutes", "3600", "", 0, 0, 5 * time.Minute},
		{"at most what the profile says", "3600", "", time.Hour / 2, 0, time.Hour / 2},
		{"the profile's default", "", "", 0, time.Minute, time.Minute},
		{"a default is capped too", "", "", 30 * time.Second, time.Minute, 30 * time.Second},
		{"a default does not replace what is said", "90", "", 0, time.Minute, 90 * time.Second},
		{"exp is sooner", "300", "1796040100", 0, 0, 100 * time.Second},
		{"exp is later", "90", "1796040100", 0, 0, 90 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			change := func(o *exchange.Order) {
				r := &o.Profile.Response
				r.MaxTTL, r.DefaultTTL = tc.max, tc.def
				if tc.exp != "" {
					r.TokenFormat = "jwt"
				}
			}
			token := issuedToken
			if tc.exp != "" {
				token = jwt("exp", tc.exp)
			}
			issued := try(t, change, says(answer("access_token", quote(token), "expires_in", tc.expiresIn)), fault.None)
			if got := issued.Expires.Sub(now); got != tc.want {
				t.Errorf("expires %v after the exchange began, want %v", got, tc.want)
			}
		})
	}
}
