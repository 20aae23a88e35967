//go:build real

package providers_test

import (
	"testing"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/internal/counterparts"
)

func TestZitadel(t *testing.T) {
	z := counterparts.Zitadel(t)
	first := zitadelProfile(t, z).exchange(t)
	if first.err != nil {
		t.Fatal(first.err)
	}
	issued := first.issued
	if issued.Subject != "" {
		t.Errorf("an opaque token has the subject %q", issued.Subject)
	}
	run(t, func(t testing.TB) profile { return zitadelProfile(t, z) }, []row{
		{"opaque", asItIs, fault.None},
		{"the scopes are repeated", func(p *profile) { p.response += ", require_scope_echo: true" }, fault.None},
		{"a resource besides", func(p *profile) { p.parameters = []string{`resource: ["https://records.example.org/mcp"]`} }, fault.None},
		{"an audience that nobody knows", func(p *profile) { p.audience = "nobody" }, fault.None}, // 200: it looks at none
		{"a token that was exchanged before", func(p *profile) { p.subject = issued.Token.Reveal() }, fault.None},

		// 200 with the others alone.
		{"a scope that it drops", func(p *profile) { p.scopes = append(p.scopes, "address") }, fault.ScopeNarrowed},
		// Encrypted, so that nobody but zitadel can look into it.
		{"a JWT is expected", func(p *profile) { p.response = "token_format: jwt" }, fault.WrongTokenType},
		{"a subject is pinned", func(p *profile) { p.pin = "id1" }, fault.WrongSubject},

		// 400 invalid_request.
		{"garbage", func(p *profile) { p.subject = "subject-Zb41qXw8LmTr.0vN-planted" }, fault.SubjectRejected},
		{"a type that it does not know", func(p *profile) {
			p.parameters = []string{"subject_token_type: urn:example:token"}
		}, fault.SubjectRejected},
		// 500 server_error.
		{"a user whom nobody may impersonate", func(p *profile) { p.subject = z.PlainSubject(t) }, fault.ProviderError},
		// It panics, and the connection ends without an answer.
		{"a service's token", func(p *profile) { p.subject = z.ServiceSubject(t) }, fault.ProviderUnreachable},

		// 401 invalid_client. Its metadata offers a secret in the form as well.
		{"another secret", func(p *profile) { p.key = "secret-planted-another" }, fault.ProviderConfig},
		{"an unknown client", func(p *profile) { p.client = "absent" }, fault.ProviderConfig},
		{"a secret in the form", func(p *profile) { p.auth = "post" }, fault.ProviderConfig},
	})
}
