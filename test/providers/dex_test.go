//go:build real

package providers_test

import (
	"testing"
	"time"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/internal/counterparts"
)

func TestDex(t *testing.T) {
	d := counterparts.Dex(t)
	good := dexProfile(t, d)
	begun := time.Now()
	first := good.exchange(t)
	if first.err != nil {
		t.Fatal(first.err)
	}
	issued := first.issued
	if issued.Subject == "" || issued.Expires.After(begun.Add(2*time.Minute+time.Second)) {
		t.Errorf("issued %+v", issued)
	}
	run(t, func(t testing.TB) profile { return dexProfile(t, d) }, []row{
		{"a secret that Basic encodes", asItIs, fault.None},
		{"a secret in the form", func(p *profile) { p.auth = "post" }, fault.None},
		{"the subject that is pinned", func(p *profile) { p.pin = issued.Subject }, fault.None},
		{"another subject is pinned", func(p *profile) { p.pin = "user:8" }, fault.WrongSubject},

		// 200, for the broker's own client.
		{"the audience parameter alone", func(p *profile) { p.scopes = []string{"openid"} }, fault.WrongAudience},
		{"the audience parameter alone, none else expected", func(p *profile) {
			p.scopes, p.response = []string{"openid"}, dexResponse(d, "")
		}, fault.WrongAudience},
		// 200, for two clients.
		{"the broker's own client is not expected", func(p *profile) { p.response = dexResponse(d, "") }, fault.WrongAudience},
		// 500 server_error.
		{"a client that does not trust ours", func(p *profile) {
			p.audience, p.scopes = "mcp-mail", []string{"openid", crossClient + "mcp-mail"}
		}, fault.ProviderError},
		{"a client that is unknown", func(p *profile) { p.scopes[1] = crossClient + "mcp-absent" }, fault.ProviderError},

		// 400 invalid_request, which RFC 8693 §2.2.2 has for the subject.
		{"no connector", func(p *profile) { p.parameters = []string{idToken} }, fault.SubjectRejected},
		{"an unknown connector", func(p *profile) {
			p.parameters = []string{"extra_params: {connector_id: absent}", idToken}
		}, fault.SubjectRejected},
		// 401 access_denied, whatever is wrong with it.
		{"garbage", func(p *profile) { p.subject = "subject-Zb41qXw8LmTr.0vN.planted" }, fault.SubjectRejected},
		{"a signature that is cut", func(p *profile) { p.subject = p.subject[:len(p.subject)-8] }, fault.SubjectRejected},
		{"a token of dex's own", func(p *profile) { p.subject = issued.Token.Reveal() }, fault.SubjectRejected},
		{"an ID token as an access token", func(p *profile) { p.parameters = []string{connector} }, fault.SubjectRejected},
		// 400 request_not_supported.
		{"an ID token as a JWT", func(p *profile) {
			p.parameters = []string{connector, "subject_token_type: urn:ietf:params:oauth:token-type:jwt"}
		}, fault.ProviderConfig},

		// 401 invalid_client.
		{"another secret", func(p *profile) { p.key = "b/r o+k%er-planted" }, fault.ProviderConfig},
		{"an unknown client of ours", func(p *profile) { p.client = "absent" }, fault.ProviderConfig},

		// No answer repeats the scopes, and no token has an act.
		{"a scope that it drops in silence", func(p *profile) { p.scopes = append(p.scopes, "records.read") }, fault.None},
		{"the same, to be repeated", func(p *profile) {
			p.scopes = append(p.scopes, "records.read")
			p.response = dexResponse(d, bothClients+", require_scope_echo: true")
		}, fault.ScopeNarrowed},
		{"an actor is required", func(p *profile) {
			p.response = dexResponse(d, bothClients+", require_act: broker")
		}, fault.WrongActor},
		{"another issuer", func(p *profile) {
			p.response = `token_format: jwt, expect_issuer: "https://identity.example.org", ` + bothClients
		}, fault.WrongIssuer},
	})
	t.Run("a subject that has expired", func(t *testing.T) { expire(t, good) })
}

// expire exchanges one subject again and again: it is accepted as long as it
// lives, then refused.
func expire(t *testing.T, p profile) {
	poll := time.NewTicker(200 * time.Millisecond)
	defer poll.Stop()
	late := time.After(counterparts.DexSubjectLife + 5*time.Second)
	for {
		e := p.exchange(t)
		switch e.reason {
		case fault.None:
		case fault.SubjectRejected:
			return
		default:
			t.Fatal(e.err)
		}
		select {
		case <-poll.C:
		case <-late:
			t.Fatal("it is accepted after its end")
		}
	}
}
