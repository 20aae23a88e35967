package exchange_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"onbehalf.internal/broker/exchange"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/internal/devidp"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/policy/policytest"
	"onbehalf.internal/broker/secret"
	"onbehalf.internal/broker/secret/canary"
)

const config = `version: 1
listen: {api: "127.0.0.1:8471"}
vault:
  address: http://127.0.0.1:8200
  auth: {method: token}
  hold: {role: broker-op}
store: {path: broker.db}
operation: {timeout: 20s}
callers:
  gateway:
    roles: [operate, admin]
    bearer_sha256: ["BEARER"]
    actors: {asserted: ["user:7"]}
    servers: [records]
profiles:
  company:
    token_endpoint: ISSUER/oauth/token
    allow_cidrs: [127.0.0.0/8]
    client: {id: CLIENT, AUTH}
    allowed_audiences: [mcp-api]
    allowed_scopes: [records.read, records.write]
    response: {token_format: jwt, expect_issuer: "ISSUER", require_act: CLIENT}
    grants:
      "user:7":
        enabled: true
        credential: "vault:kv/broker/subjects/7#token"
        subject: "user:7"
        allowed_audiences: [mcp-api]
        allowed_scopes: [records.read]
servers:
  records:
    url: https://records.example.org/mcp
    enabled: true
    data_class: publicContent
    requires_approval: false
    auth: {mode: delegated, profile: company, audience: mcp-api, scopes: [records.read], discovery_credential: "vault:kv/broker/discovery/records#token"}
    tools: {search: {enabled: true}}
`

// decide is the decision that the file above makes for client and its way of
// authentication, and the one for an import.
func decide(t *testing.T, issuer, client, auth string) (call, discovery policy.Decision) {
	t.Helper()
	s, err := policytest.Load(t.TempDir(), strings.NewReplacer("ISSUER", issuer, "CLIENT", client, "AUTH", auth).Replace(config))
	if err != nil {
		t.Fatal(err)
	}
	q, err := policytest.Ask(s, "user:7", "records", "search")
	if err != nil {
		t.Fatal(err)
	}
	if call, err = s.Decide(q, time.Now()); err != nil {
		t.Fatal(err)
	}
	if discovery, err = s.DecideDiscovery(q.Caller, "records", time.Now()); err != nil {
		t.Fatal(err)
	}
	return call, discovery
}

func engine(t *testing.T, clients ...devidp.Client) *devidp.Provider {
	t.Helper()
	for i := range clients {
		clients[i].Allow = map[string][]string{"mcp-api": {"records.read"}, "other-api": {"records.read"}}
	}
	idp, err := devidp.Start(devidp.Config{Clients: clients})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { idp.Close() })
	return idp
}

// TestDecision goes from a file through a decision to an engine that is not
// ours, and over the client that the program uses.
func TestDecision(t *testing.T) {
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	pem := pkcs8(t, key)
	for _, tc := range []struct{ name, client, auth, key string }{
		{"basic", "basic", `auth: basic, key: "vault:kv/broker/client#key"`, clientSecret},
		{"post", "post", `auth: post, key: "vault:kv/broker/client#key"`, clientSecret},
		{"private_key_jwt", "signer", `auth: private_key_jwt, alg: ES256, audience: issuer, key: "vault:kv/broker/client#key"`, pem},
		{"none", "public", `auth: none`, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			idp := engine(t,
				devidp.Client{ID: "basic", Auth: "basic", Secret: clientSecret},
				devidp.Client{ID: "post", Auth: "post", Secret: clientSecret},
				devidp.Client{ID: "signer", Auth: "private_key_jwt", Key: key.Public()},
				devidp.Client{ID: "public", Auth: "none"})
			call, _ := decide(t, idp.Issuer(), tc.client, tc.auth)
			begun := time.Now()
			issued, err := exchange.New(nil).Exchange(t.Context(), call, exchange.Subject{Token: secret.New(idp.Mint("user:7", time.Minute))}, exchange.Key{Text: secret.New(tc.key)})
			if err != nil {
				t.Fatal(err)
			}
			sub, act, scopes, err := idp.Verify(issued.Token.Reveal(), "mcp-api")
			if err != nil || sub != "user:7" || act != tc.client || !cmp.Equal(scopes, []string{"records.read"}) {
				t.Errorf("token of %q, %q, %q, %v", sub, act, scopes, err)
			}
			if issued.Subject != "user:7" || !cmp.Equal(issued.Scopes, scopes) || issued.Expires.Sub(begun) > 5*time.Minute+time.Second {
				t.Errorf("issued %+v", issued)
			}
			if n := len(idp.Requests()); n != 1 {
				t.Errorf("%d requests, want exactly 1", n)
			}
		})
	}
}

// TestDiscovery holds that the decision for an import exchanges nothing.
func TestDiscovery(t *testing.T) {
	idp := engine(t)
	_, discovery := decide(t, idp.Issuer(), "broker", "auth: none")
	_, err := exchange.New(nil).Exchange(t.Context(), discovery, exchange.Subject{Token: secret.New(subjectToken)}, exchange.Key{Text: secret.Text{}})
	wantReason(t, err, fault.NoGrant)
	if n := len(idp.Requests()); n != 0 {
		t.Errorf("%d requests, want none", n)
	}
}

// TestEngine breaks an engine that is not ours, before and after it has issued
// a token, and has it give something else than was asked for.
func TestEngine(t *testing.T) {
	alter := func(f func(*devidp.Grant)) func(*devidp.Provider) {
		return func(p *devidp.Provider) { p.Alter(f) }
	}
	brk := func(f func(http.Handler) http.Handler) func(*devidp.Provider) {
		return func(p *devidp.Provider) { p.Break(f) }
	}
	for _, tc := range []struct {
		name   string
		brk    func(*devidp.Provider)
		want   fault.Reason
		issued int // tokens that the provider made
	}{
		{"other audience", alter(func(g *devidp.Grant) { g.Audience = []string{"other-api"} }), fault.WrongAudience, 1},
		{"one audience more", alter(func(g *devidp.Grant) { g.Audience = append(g.Audience, "other-api") }), fault.WrongAudience, 1},
		{"other subject", alter(func(g *devidp.Grant) { g.Subject = "user:8" }), fault.WrongSubject, 1},
		{"other actor", alter(func(g *devidp.Grant) { g.Actor = "other" }), fault.WrongActor, 1},
		{"one scope more", alter(func(g *devidp.Grant) { g.Scopes = append(g.Scopes, "admin") }), fault.ScopeWidened, 1},
		{"other scope", alter(func(g *devidp.Grant) { g.Scopes = []string{"records.list"} }), fault.ScopeWidened, 1},
		{"fails", brk(devidp.Fail(1, 500, "server_error")), fault.ProviderError, 0},
		{"limits", brk(devidp.Fail(1, 429, "slow_down")), fault.ProviderRateLimited, 0},
		{"is not up", brk(devidp.Fail(2, 503, "")), fault.ProviderUnreachable, 0},
		{"redirects", brk(devidp.Redirect("http://127.0.0.1:1/")), fault.ProviderRedirect, 0},
		{"cut before issuing", brk(devidp.CutBefore), fault.ProviderUnreachable, 0},
		{"cut after issuing", brk(devidp.CutAfter), fault.ProviderUnreachable, 1},
		{"is gone", func(p *devidp.Provider) { p.Close() }, fault.ProviderUnreachable, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			idp := engine(t, devidp.Client{ID: "broker", Auth: "basic", Secret: clientSecret})
			call, _ := decide(t, idp.Issuer(), "broker", `auth: basic, key: "vault:kv/broker/client#key"`)
			subject := idp.Mint("user:7", time.Minute)
			tc.brk(idp)
			var text string
			canary.Run(t, func(c *canary.Cage) {
				_, err := exchange.New(nil).Exchange(t.Context(), call, exchange.Subject{Token: secret.New(subject)}, exchange.Key{Text: secret.New(clientSecret)})
				c.Value("error", err)
				wantReason(t, err, tc.want)
				text = err.Error()
			}, subject, clientSecret)
			if idp.Exchanges() != tc.issued {
				t.Errorf("%d tokens issued, want %d", idp.Exchanges(), tc.issued)
			}
			for _, token := range idp.Issued() {
				if _, found := canary.Find([]byte(text), token); found {
					t.Error("an issued token is in the error")
				}
			}
		})
	}
}

// TestEngineSaysNo is what the engine answers to what it does not accept.
func TestEngineSaysNo(t *testing.T) {
	idp := engine(t, devidp.Client{ID: "broker", Auth: "basic", Secret: clientSecret})
	call, _ := decide(t, idp.Issuer(), "broker", `auth: basic, key: "vault:kv/broker/client#key"`)
	good := idp.Mint("user:7", time.Minute)
	for _, tc := range []struct {
		name, subject, key string
		want               fault.Reason
	}{
		{"expired subject", idp.Mint("user:7", -time.Minute), clientSecret, fault.SubjectRejected},
		{"garbage", subjectToken, clientSecret, fault.SubjectRejected},
		{"wrong secret", good, clientSecret + "x", fault.ProviderConfig},
	} {
		_, err := exchange.New(nil).Exchange(t.Context(), call, exchange.Subject{Token: secret.New(tc.subject)}, exchange.Key{Text: secret.New(tc.key)})
		if fault.ReasonOf(err) != tc.want {
			t.Errorf("%s: %v, want %s", tc.name, err, tc.want)
		}
	}
	if idp.Exchanges() != 0 {
		t.Errorf("%d tokens issued, want none", idp.Exchanges())
	}
}
