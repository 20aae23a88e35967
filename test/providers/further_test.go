//go:build interop

package providers_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"onbehalf.internal/broker/exchange"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/internal/counterparts"
	"onbehalf.internal/broker/secret"
)

// A further is a profile that is written otherwise, and how its exchange ends.
type further struct {
	name   string
	change func(*profile)
	want   cell
}

func try(t *testing.T, p provider, rows []further) {
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			good := p.good(t)
			r.change(&good)
			if e := watched(t, good); e.reason != r.want.reason || e.said != r.want.said {
				t.Errorf("ended as %q after %q (%v), want %q after %q", e.reason, e.said, e.err, r.want.reason, r.want.said)
			}
		})
	}
}

// refused is a cell in which the provider said no.
func refused(reason fault.Reason, said string) cell { return cell{reason, said, ""} }

// ours is a cell in which the provider said yes and the broker did not.
func ours(reason fault.Reason) cell { return cell{reason, "200", ""} }

func more(line string) func(*profile) {
	return func(p *profile) { p.parameters = append(p.parameters[:len(p.parameters):len(p.parameters)], line) }
}

func testKeycloak(t *testing.T, p provider, r *counterparts.Realm) {
	try(t, p, []further{
		{"a client that it does not know as audience", audience("mcp-absent", "records.read"), refused(fault.ProviderConfig, "400 invalid_client")},
		{"the audience's scope is not asked for", audience("mcp-records", "email"), refused(fault.SubjectRejected, "400 invalid_request")},
		{"default scopes that nobody allowed", func(p *profile) { p.response = verified(r) }, ours(fault.ScopeWidened)},
		{"a resource, which it does not look at", more(`resource: ["https://mail.example.org/mcp"]`), ours(fault.None)},
		{"a resource in place of the audience", func(p *profile) {
			p.audience = records
			more("audience_param: resource")(p)
		}, ours(fault.WrongAudience)},
		{"an actor token, which it does not look at", func(p *profile) {
			more(`actor: {source: stored, credential: "vault:kv/broker/actor#token"}`)(p)
			p.stored = p.subject
		}, ours(fault.WrongActor)},
		{"an unknown client of ours", func(p *profile) { p.client = "absent" }, refused(fault.ProviderConfig, "401 invalid_client")},
		{"a client without the switch", func(p *profile) { p.client, p.key = "mcp-records", "records-secret" }, refused(fault.SubjectRejected, "400 invalid_request")},
		{"a subject that is called a JWT", more("subject_token_type: urn:ietf:params:oauth:token-type:jwt"), refused(fault.SubjectRejected, "400 invalid_request")},
		{"garbage", func(p *profile) { p.subject = "subject-Zb41qXw8LmTr.0vN.planted" }, refused(fault.SubjectRejected, "400 invalid_request")},
		{"an assertion for the token endpoint", func(p *profile) {
			signer(r.SignerID, r)(p)
			p.asserted = "token_endpoint"
		}, ours(fault.None)},
		{"introspection by the broker, who is not in the audience", func(p *profile) {
			p.response = "token_format: opaque, allowed_extra_scopes: [email]"
			more(`introspection: {endpoint: "` + r.Introspection + `"}`)(p)
		}, ours(fault.TokenInactive)},
		{"a client with a certificate, over a connection without", func(p *profile) { p.auth, p.client = "none", r.HolderID }, refused(fault.ProviderConfig, "401 invalid_client")},
	})
	t.Run("client credentials", func(t *testing.T) { testOwn(t, p) })
	t.Run("certificate", func(t *testing.T) { testBound(t, p) })
	t.Run("revocation", func(t *testing.T) { testRevocation(t, p, r) })
	t.Run("life", func(t *testing.T) { testOutlives(t, p, r) })
}

func testZitadel(t *testing.T, p provider) {
	try(t, p, []further{
		{"introspection", func(p *profile) {
			p.response = "token_format: opaque"
			more(`introspection: {endpoint: "` + strings.TrimSuffix(p.endpoint, "/token") + `/introspect"}`)(p)
		}, ours(fault.TokenInactive)},
	})
	offered := fmt.Sprint(metadata(t, strings.TrimSuffix(p.good(t).endpoint, "/oauth/token"))["token_endpoint_auth_methods_supported"])
	if !strings.Contains(offered, "client_secret_post") || !strings.Contains(offered, "private_key_jwt") {
		t.Errorf("its metadata offers %s", offered)
	}
}

func testEngine(t *testing.T, p provider) {
	try(t, p, []further{
		{"an actor, which every token of it names", func(p *profile) { p.response += ", require_act: broker" }, ours(fault.None)},
		{"an assertion for the token endpoint", func(good *profile) {
			p.auths["private_key_jwt"](good)
			good.asserted = "token_endpoint"
		}, refused(fault.SubjectRejected, "400 invalid_grant")},
	})
}

func testOIDCProvider(t *testing.T, p provider, r *counterparts.Realm) {
	try(t, p, []further{
		{"an audience in place of the resource", func(p *profile) { p.parameters = nil }, refused(fault.TargetRejected, "400 invalid_target")},
		{"garbage", func(p *profile) { p.subject = "subject-Zb41qXw8LmTr.0vN.planted" }, refused(fault.SubjectRejected, "400 invalid_request")},
		{"an unknown client of ours", func(p *profile) { p.client = "absent" }, refused(fault.ProviderConfig, "401 invalid_client")},
		{"an actor is required", func(p *profile) { p.response += ", require_act: broker" }, ours(fault.WrongActor)},
		{"an assertion for the token endpoint", func(p *profile) {
			signer(r.SignerID, r)(p)
			p.asserted = "token_endpoint"
		}, ours(fault.None)},
	})
	t.Run("certificate", func(t *testing.T) { testBound(t, p) })
	t.Run("revocation", func(t *testing.T) {
		good := p.good(t)
		more(`revoke: {mode: best_effort, endpoint: "` + r.Revocation + `"}`)(&good)
		d := good.decide(t)
		err := exchange.New(nil).Revoke(t.Context(), d.Profile(), good.by(t, d).issued.Token, good.credential())
		if reason(err) != fault.ProviderConfig { // 400 unsupported_token_type: a JWT is not kept there
			t.Errorf("Revoke of a JWT: %v", err)
		}
	})
}

// testOwn: the broker's own token is for the server that the scope brings into the
// audience, of a subject that is nobody else, and held to the grant like any other.
func testOwn(t *testing.T, p provider) {
	own := func(t *testing.T, change ...func(*profile)) profile {
		good := p.good(t)
		good.subject, good.pin = "", ""
		more("grant_type: client_credentials")(&good)
		for _, c := range change {
			c(&good)
		}
		return good
	}
	for auth, as := range p.auths {
		e := own(t, as).exchange(t)
		if e.err != nil || e.issued.Subject == "" || e.issued.Subject == p.good(t).pin || e.issued.Bound != (auth == "mtls") {
			t.Errorf("%s: subject %q, bound %t: %v", auth, e.issued.Subject, e.issued.Bound, e.err)
			continue
		}
		pinned := own(t, as)
		pinned.pin = e.issued.Subject
		if again := pinned.exchange(t); again.err != nil || again.issued.Token.Equal(e.issued.Token) {
			t.Errorf("%s: the same subject by name: %v, or the same token", auth, again.err)
		}
	}
	for _, r := range []further{
		{"the sub of somebody", func(q *profile) { q.pin = p.good(t).pin }, ours(fault.WrongSubject)},
		{"a scope that brings no audience", audience("mcp-records", "email"), ours(fault.WrongAudience)},
		{"another audience than the scope brings", audience("mcp-mail", "records.read"), ours(fault.WrongAudience)},
		{"default scopes that nobody allowed", func(q *profile) { q.response = strings.Replace(q.response, ", allowed_extra_scopes: [email]", "", 1) }, ours(fault.ScopeWidened)},
		{"a scope that the client has not", moreScope("mail.read"), refused(fault.ScopeRejected, "400 invalid_scope")},
		{"a wrong secret", otherSecret, refused(fault.ProviderConfig, "401 unauthorized_client")},
		{"a client that may not", func(q *profile) { q.client, q.key = "mcp-records", "records-secret" }, refused(fault.ProviderConfig, "401 unauthorized_client")},
	} {
		e := own(t, r.change).exchange(t)
		if e.reason != r.want.reason || e.said != r.want.said {
			t.Errorf("%s: ended as %q after %q (%v), want %q after %q", r.name, e.reason, e.said, e.err, r.want.reason, r.want.said)
		}
		if refused := e.reason != fault.None && e.said == "200"; e.issued.Refused.IsZero() == refused {
			t.Errorf("%s: what was issued and refused is to be revoked: %t", r.name, refused)
		}
	}
}

// testBound: a client that shows a certificate gets a token that is bound to it,
// and another client one that is not.
func testBound(t *testing.T, p provider) {
	for auth, want := range map[string]bool{"mtls": true, "basic": false} {
		good := p.good(t)
		p.auths[auth](&good)
		if e := good.exchange(t); e.err != nil || e.issued.Bound != want {
			t.Errorf("%s: bound is %t (%v)", auth, e.issued.Bound, e.err)
		}
	}
}

// testRevocation: what was exchanged can be revoked by the broker, and what the
// MCP server asks about it turns. Revoking the subject changes nothing in it.
func testRevocation(t *testing.T, p provider, r *counterparts.Realm) {
	good := p.good(t)
	more(`revoke: {mode: best_effort, endpoint: "` + r.Revocation + `"}`)(&good)
	d := good.decide(t)
	issued := good.by(t, d).issued
	r.Revoke(t, good.subject)
	if !active(t, r, issued.Token) {
		t.Error("it ends with its subject")
	}
	if err := exchange.New(nil).Revoke(t.Context(), d.Profile(), issued.Token, good.credential()); err != nil {
		t.Error(err)
	}
	if active(t, r, issued.Token) {
		t.Error("it is active after its revocation")
	}
}

// testOutlives: what is issued lives longer than the subject did.
func testOutlives(t *testing.T, p provider, r *counterparts.Realm) {
	good := p.good(t)
	good.subject = r.ShortSubject(t)
	e := good.exchange(t)
	if left := time.Until(e.issued.Expires); e.reason != fault.None || left < 2*counterparts.RealmSubjectLife {
		t.Errorf("%v, %s left", e.err, left)
	}
}

// active asks as the MCP server does (RFC 7662).
func active(t *testing.T, r *counterparts.Realm, token secret.Text) bool {
	t.Helper()
	form := url.Values{"token": {token.Reveal()}, "client_id": {"mcp-records"}, "client_secret": {"records-secret"}}
	resp, err := outside.PostForm(r.Introspection, form)
	return string(object(t, resp, err)["active"]) == "true"
}
