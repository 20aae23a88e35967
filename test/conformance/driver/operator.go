package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"text/template"

	"onbehalf.internal/broker/exchange"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/policy/policytest"
	"onbehalf.internal/broker/secret"
)

// profiles are what an operator writes about the providers of the scenarios
// that come with credentials for a grant of package exchange. The suite's
// tokens are opaque, and it has no endpoint that would say what they are.
var profiles = map[string]string{
	"auth/enterprise-managed-authorization": idJAG,
	"auth/cross-app-access-complete-flow":   idJAG, // its name in the older suite
	"auth/wif-jwt-bearer":                   jwtBearer,
	"auth/client-credentials-basic":         clientSecretBasic,
	"auth/client-credentials-jwt":           clientAssertion,
}

const idJAG = `
    token_endpoint: {{q .Given.IDPTokenEndpoint}}
    allow_cidrs: [127.0.0.0/8, "::1/128"]
    client: {id: {{q .Given.IDPClientID}}, auth: none}
    subject_token_type: urn:ietf:params:oauth:token-type:id_token
    requested_token_type: urn:ietf:params:oauth:token-type:id-jag
    audience_param: resource
    audience: [{{q .Authority.Issuer}}]
    response: {expect_issuer: {{q .Given.IDPIssuer}}}
    then:
      token_endpoint: {{q .Authority.TokenEndpoint}}
      allow_cidrs: [127.0.0.0/8, "::1/128"]
      client: {id: {{q .Given.ClientID}}, auth: basic, key: "vault:kv/broker/client#key"}
      audience_param: resource
      response: {token_format: opaque, audience_unverified: true}`

const jwtBearer = `
    token_endpoint: {{q .Authority.TokenEndpoint}}
    allow_cidrs: [127.0.0.0/8, "::1/128"]
    client: {id: {{q .Given.ClientID}}, auth: none}
    grant_type: urn:ietf:params:oauth:grant-type:jwt-bearer
    audience_param: resource
    response: {token_format: opaque, audience_unverified: true}`

// In these two the broker itself is the subject.
const clientSecretBasic = `
    token_endpoint: {{q .Authority.TokenEndpoint}}
    allow_cidrs: [127.0.0.0/8, "::1/128"]
    client: {id: {{q .Given.ClientID}}, auth: basic, key: "vault:kv/broker/client#key"}
    grant_type: client_credentials
    audience_param: resource
    response: {token_format: opaque, audience_unverified: true}`

const clientAssertion = `
    token_endpoint: {{q .Authority.TokenEndpoint}}
    allow_cidrs: [127.0.0.0/8, "::1/128"]
    client: {id: {{q .Given.ClientID}}, auth: private_key_jwt, key: "vault:kv/broker/client#key", alg: {{q .Given.Algorithm}}, audience: {{q .Authority.Issuer}}}
    grant_type: client_credentials
    audience_param: resource
    response: {token_format: opaque, audience_unverified: true}`

// configuration is the file around a profile. The suite's servers want no
// scope; ours asks for one, since a grant without any allows nothing.
const configuration = `version: 1
listen: {api: "127.0.0.1:8471"}
vault: {address: "http://127.0.0.1:8200", auth: {method: token}, hold: {role: broker-op}}
store: {path: broker.db}
callers:
  driver:
    roles: [operate]
    bearer_sha256: ["BEARER"]
    actors: {asserted: ["user:7"]}
    servers: [suite]
profiles:
  suite: {{template "profile" .}}
    allowed_audiences: [{{q .Resource}}]
    allowed_scopes: [tools]
    grants:
      "user:7":
        enabled: true
        {{if .Exchanges}}credential: "vault:kv/broker/subject#token"{{end}}
        allowed_audiences: [{{q .Resource}}]
        allowed_scopes: [tools]
servers:
  suite:
    url: {{q .Resource}}
    allow_cidrs: [127.0.0.0/8, "::1/128"]
    era: {{.Server.Era}}
    {{with .Server.Versions}}versions: [{{range .}}{{q .}}{{end}}]{{end}}
    enabled: true
    data_class: publicContent
    requires_approval: false
    auth: {mode: delegated, profile: suite, audience: {{q .Resource}}, scopes: [tools]}
    tools: {test-tool: {enabled: true}}
`

// A given is what the suite hands out in its context in place of a registration
// and of what would lie in Vault.
type given struct {
	ClientID         string `json:"client_id"`
	ClientSecret     string `json:"client_secret"`
	PrivateKey       string `json:"private_key_pem"`
	Algorithm        string `json:"signing_algorithm"`
	IDPClientID      string `json:"idp_client_id"`
	IDPIssuer        string `json:"idp_issuer"`
	IDPTokenEndpoint string `json:"idp_token_endpoint"`
	IDToken          string `json:"idp_id_token"`
	WorkloadJWT      string `json:"valid_jwt"`
}

// authorize returns the server as the operator's file declares it, and the
// token that package exchange gets for it under the grant of that file.
func authorize(ctx context.Context, s *policy.Server, profile, asked string) (*policy.Server, secret.Text, error) {
	var g given
	if json.Unmarshal([]byte(asked), &g) != nil {
		return nil, secret.Text{}, errors.New("MCP_CONFORMANCE_CONTEXT is not what the suite says it is")
	}
	a, err := discover(ctx, s.URL)
	if err != nil {
		return nil, secret.Text{}, err
	}
	snapshot, err := load(s, profile, g, a)
	if err != nil {
		return nil, secret.Text{}, err
	}
	d, err := policytest.Decide(snapshot, "user:7", "suite", "test-tool")
	if err != nil {
		return nil, secret.Text{}, err
	}
	issued, err := exchange.New(nil).Exchange(ctx, d, g.subject(), g.key())
	return d.Server(), issued.Token, err
}

// load writes the operator's file and reads it as the program does.
func load(s *policy.Server, profile string, g given, a authority) (*policy.Snapshot, error) {
	t := template.New("").Funcs(template.FuncMap{"q": quote})
	template.Must(t.Parse(configuration))
	template.Must(t.New("profile").Parse(profile))
	dir, err := os.MkdirTemp("", "conformance-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	var text strings.Builder
	if err := t.Execute(&text, map[string]any{
		"Server": s, "Resource": s.URL.String(), "Given": g, "Authority": a,
		"Exchanges": !strings.Contains(profile, "grant_type: client_credentials"),
	}); err != nil {
		return nil, err
	}
	return policytest.Load(dir, text.String())
}

// quote is a text in YAML, which takes those of JSON.
func quote(s string) (string, error) {
	b, err := json.Marshal(s)
	return string(b), err
}

// subject is the actor's credential, whichever the scenario has; none where the
// broker itself is the subject.
func (g given) subject() exchange.Subject {
	return exchange.Subject{Token: secret.New(g.IDToken + g.WorkloadJWT)}
}

// key is the client's secret or its private key, whichever the scenario has. Of two
// steps it is the second that has one.
func (g given) key() exchange.Key {
	key := exchange.Key{Text: secret.New(g.ClientSecret + g.PrivateKey)}
	key.Then = func(context.Context) (exchange.Key, error) { return exchange.Key{Text: key.Text}, nil }
	return key
}
