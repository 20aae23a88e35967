//go:build interop

package providers_test

import (
	"fmt"
	"slices"
	"strings"

	"onbehalf.internal/broker/fault"
)

// A cell is how an exchange is expected to end.
type cell struct {
	reason fault.Reason // none: granted
	said   string       // what the token endpoint answers
	why    string       // where these two do not speak for themselves
}

var (
	granted      = cell{fault.None, "200", ""}
	noAssertions = cell{fault.ProviderConfig, "401 invalid_client", "It does not read assertions, so the client comes without its secret."}
	notItsTLS    = cell{fault.ProviderConfig, "401 invalid_client", "TLS ends in front of it, so the certificate proves nothing to it, and client_id alone is no secret."}
)

// documented is what each provider does, in the order of columns.
var documented = map[string][]cell{
	"dex": {
		granted,
		{fault.WrongAudience, "200", "dex does not look at audience and issues for the client that asks. Our own check of aud refuses the token."},
		{fault.None, "200", "dex drops a scope that it does not know and says nothing of scopes in its answer, which means: as asked for (RFC 8693 §2.2.1). " +
			"With require_scope_echo every answer of dex is refused as scope_narrowed. The scope that counts is the one for the audience, and the token shows it."},
		{fault.ProviderConfig, "401 invalid_client", ""},
		{fault.SubjectRejected, "401 access_denied", ""},
		{fault.None, "200", "dex has no revocation endpoint: an ID token ends when it ends. Keep their life short."},
		{fault.SubjectRejected, "401 access_denied", ""},
	},
	"zitadel's example": {
		granted,
		{fault.None, "200", "It looks at no audience, and its token is encrypted. This is what audience_unverified: true accepts."},
		{fault.ScopeNarrowed, "200", "It drops the scope and says so."},
		{fault.ProviderConfig, "401 invalid_client", ""},
		{fault.SubjectRejected, "400 invalid_request", ""},
		{fault.None, "200", "It does not ask its store about a subject token that it can decrypt."},
		{fault.None, "200", "The same. Its tokens say nothing of their end; only its store does."},
	},
	"zitadel's engine": {
		granted,
		{fault.TargetRejected, "400 invalid_target", ""},
		{fault.ScopeRejected, "400 invalid_scope", ""},
		{fault.ProviderConfig, "400 invalid_client", "With 400, not 401."},
		{fault.SubjectRejected, "400 invalid_request", ""},
		{fault.SubjectRejected, "400 invalid_request", ""},
		{fault.SubjectRejected, "400 invalid_request", ""},
	},
	"oidc-provider": {
		granted,
		{fault.TargetRejected, "400 invalid_target", ""},
		{fault.ScopeRejected, "400 invalid_scope", ""},
		{fault.ProviderConfig, "401 invalid_client", ""},
		{fault.SubjectRejected, "400 invalid_request", ""},
		{fault.SubjectRejected, "400 invalid_request", ""},
		{fault.SubjectRejected, "400 invalid_request", ""},
	},
	"Keycloak": {
		granted,
		{fault.SubjectRejected, "400 invalid_request", "Keycloak has one code for a target that the client may not have and for a subject that is no good. " +
			"A client that does not exist at all is 400 invalid_client, hence provider_config. Look at the client's scopes before you look at the person."},
		{fault.ScopeRejected, "400 invalid_scope", ""},
		{fault.ProviderConfig, "401 unauthorized_client", "An unknown client is 401 invalid_client."},
		{fault.SubjectRejected, "400 invalid_request", ""},
		{fault.SubjectRejected, "400 invalid_request", ""},
		{fault.SubjectRejected, "400 invalid_request", ""},
	},
}

// documentedAuth is the same for authColumns.
var documentedAuth = map[string][]cell{
	"dex": {granted, granted, noAssertions, notItsTLS},
	"zitadel's example": {
		granted,
		{fault.ProviderConfig, "401 invalid_client", "Its metadata offers it. The handler for exchanges reads the header alone."},
		{fault.ProviderConfig, "401 invalid_client", "Its metadata offers it. The handler for exchanges reads the header alone."},
		notItsTLS,
	},
	"zitadel's engine": {
		granted, granted,
		{fault.None, "200", "The assertion's audience has to be the issuer: audience: issuer. For the token endpoint it is 400 invalid_grant, hence subject_rejected."},
		{fault.ProviderConfig, "400 invalid_client", notItsTLS.why},
	},
	"oidc-provider": {granted, granted, granted, {fault.None, "200", "The token is bound to the certificate (RFC 8705 §3) where the client is registered so."}},
	"Keycloak": {granted, granted,
		{fault.None, "200", "With the issuer or the token endpoint as the assertion's audience."},
		{fault.None, "200", "The token is bound to the certificate where the client's switch for it is on. It needs https-client-auth=request, which is decided when Keycloak is built, not when it is started."}},
}

// notes say what an operator has to know that no cell shows; testKeycloak, the
// others beside it and package providers hold them.
const notes = `
## What else was seen

**Keycloak** 26.7.3, standard token exchange:

- ` + "`audience`" + ` filters what the requested scopes bring into the audience. Without the scope that brings it, the audience is "not available", 400 invalid_request.
- Default client scopes are in every answer: name them in ` + "`allowed_extra_scopes`" + ` or take them from the client, or the answer is refused as ` + "`scope_widened`" + `.
- ` + "`resource`" + ` is ignored. Written as ` + "`audience_param: resource`" + `, the token is for whatever the scopes bring, and refused as ` + "`wrong_audience`" + `.
- ` + "`actor_token`" + ` is ignored and no ` + "`act`" + ` is issued: refused as ` + "`wrong_actor`" + `.
- Introspection answers ` + "`active: false`" + ` to a client that is not in the token's ` + "`aud`" + `, which the broker never is: ` + "`token_inactive`" + `.
  Leave ` + "`introspection`" + ` out and use ` + "`token_format: jwt_verified`" + `.
- A client without the switch "Standard token exchange" is 400 invalid_request: ` + "`subject_rejected`" + `.
- Client credentials (` + "`" + `grant_type: client_credentials` + "`" + `) need "Service accounts roles" at the client; one without is 401 unauthorized_client: ` + "`" + `provider_config` + "`" + `. No parameter names the audience, the scope brings it, and ` + "`" + `sub` + "`" + ` is the client's service account.
- The issued token outlives its subject, and does not end when the subject is revoked. Revoking it by itself works (` + "`revoke: {mode: best_effort}`" + `), and turns what the MCP server is told by introspection.

**zitadel's example** has the same rule for introspection, so that its opaque tokens go unverified: ` + "`introspection`" + ` ends as ` + "`token_inactive`" + `.

**oidc-provider** 9.13.3 knows no token exchange; the grant is what a company writes on top. Tokens for a resource are JWTs, and the engine
neither revokes nor introspects a JWT (400 unsupported_token_type): leave ` + "`revoke`" + ` out.

**dex** needs ` + "`extra_params: {connector_id: …}`" + `, an ID token as subject, the scope ` + "`audience:server:client_id:<server>`" + `, and ` + "`expect_audience`" + ` with
both clients: the broker's own is in every token.
`

const head = `# Identity providers

What the broker makes of five identity providers that were really run, by a profile from a file and over the client that the program uses. This
file is written by a test run and held to it: ` + "`go test -tags interop ./test/providers -update`" + `. A profile for each kind stands in [configs/examples](../configs/examples).

| provider | what ran |
|---|---|
| dex | two stock servers of August 2024: one knows the person, the other exchanges its ID tokens |
| zitadel's example | the stock example server of zitadel/oidc 3.52.0; opaque tokens |
| zitadel's engine | the same library with a policy of ours (internal/devidp); JWTs with act |
| oidc-provider | 9.13.3 with an exchange grant of ours; RFC 8707 resources, JWTs |
| Keycloak | 26.7.3 as it is shipped, one realm, standard token exchange |

A cell says how the exchange ended for the gateway, a reason of [outcomes.md](outcomes.md), and what the token endpoint had answered. A reason
after 200 is our own check: the provider issued a token, and the broker threw it away.
`

// document is docs/providers.md as the run found it.
func document(cases, logins table) string {
	var b strings.Builder
	var why []string
	b.WriteString(head)
	b.WriteString("\n## What goes wrong, and how it ends\n\n")
	cases.write(&b, &why)
	b.WriteString("\n## Client authentication\n\n")
	logins.write(&b, &why)
	b.WriteString("\n## Why\n\n")
	for i, text := range why {
		fmt.Fprintf(&b, "%d. %s\n", i+1, text)
	}
	b.WriteString(notes)
	return b.String()
}

// write adds the table to b, and to why what its cells need to be understood.
func (tb table) write(b *strings.Builder, why *[]string) {
	b.WriteString("| |")
	for _, p := range tb.providers {
		fmt.Fprintf(b, " %s |", p.name)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(tb.providers)) + "\n")
	for i, c := range tb.columns {
		fmt.Fprintf(b, "| %s |", c.title)
		for j, p := range tb.providers {
			fmt.Fprintf(b, " %s%s |", tb.endings[i][j], note(why, tb.expected[p.name][i].why))
		}
		b.WriteString("\n")
	}
}

func (e ending) String() string {
	if e.reason == fault.None {
		return "granted"
	}
	return fmt.Sprintf("`%s` after %s", e.reason, e.said)
}

// note is the mark of a text in why, where it is added if it is new.
func note(why *[]string, text string) string {
	if text == "" {
		return ""
	}
	i := slices.Index(*why, text)
	if i < 0 {
		i = len(*why)
		*why = append(*why, text)
	}
	return fmt.Sprintf(" (%d)", i+1)
}
