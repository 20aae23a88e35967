//go:build real || interop

package providers_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"onbehalf.internal/broker/egress"
	"onbehalf.internal/broker/exchange"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/internal/counterparts"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/policy/policytest"
	"onbehalf.internal/broker/secret"
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
    roles: [operate]
    bearer_sha256: ["BEARER"]
    actors: {asserted: ["user:7"]}
    servers: [records]
profiles:
  company:
    token_endpoint: ENDPOINT
    allow_cidrs: [127.0.0.0/8]
    client: {id: CLIENT, AUTH}
    allowed_audiences: ["AUDIENCE"]
    allowed_scopes: SCOPES
    response: {RESPONSE}
    PARAMETERS
    grants:
      "user:7":
        enabled: true
        CREDENTIAL
        allowed_audiences: ["AUDIENCE"]
        allowed_scopes: SCOPES
        PIN
servers:
  records:
    url: https://records.example.org/mcp
    enabled: true
    data_class: publicContent
    requires_approval: false
    auth: {mode: delegated, profile: company, audience: "AUDIENCE", scopes: SCOPES}
    tools: {search: {enabled: true}}
`

// What stands in the file for each client authentication.
var auths = map[string]string{
	"basic":           `auth: basic, key: "vault:kv/broker/client#key"`,
	"post":            `auth: post, key: "vault:kv/broker/client#key"`,
	"private_key_jwt": `auth: private_key_jwt, alg: ES256, audience: ASSERTED, key: "vault:kv/broker/client#key"`,
	"none":            "auth: none",
	"mtls":            `auth: mtls, key: "vault:kv/broker/client#key", certificate: "vault:kv/broker/client#certificate"`,
}

// A profile is what an operator writes about a provider, and what is then sent.
type profile struct {
	endpoint, client, auth string
	asserted               string // for whom the assertion of private_key_jwt is; empty: the issuer
	ca                     string // PEM; empty: the system's
	audience               string
	scopes                 []string
	response               string   // the members of response
	parameters             []string // other keys of the profile
	pin                    string   // the sub that the grant expects

	subject                  string // empty: the broker itself is the subject
	key, certificate, stored string // what Vault would hold: the client's key and certificate, an actor token
}

// crossClient asks dex for a token in another client's name; the parameter that
// RFC 8693 §2.1 has for it, audience, is ignored.
const crossClient = "audience:server:client_id:"

const (
	idToken     = "subject_token_type: urn:ietf:params:oauth:token-type:id_token"
	connector   = "extra_params: {connector_id: corp}"
	bothClients = "expect_audience: [broker, mcp-records]"
)

// dexProfile is how dex has to be written to get a token for mcp-records.
func dexProfile(t testing.TB, d *counterparts.DexPair) profile {
	return profile{
		endpoint: d.TokenEndpoint, client: d.ClientID, auth: "basic", key: d.ClientSecret,
		audience:   "mcp-records",
		scopes:     []string{"openid", crossClient + "mcp-records"},
		response:   dexResponse(d, bothClients),
		parameters: []string{connector, idToken},
		subject:    d.Subject(t),
	}
}

func dexResponse(d *counterparts.DexPair, more string) string {
	return `token_format: jwt, expect_issuer: "` + d.Issuer + `", ` + more
}

const opaque = "token_format: opaque, audience_unverified: true"

func zitadelProfile(t testing.TB, z *counterparts.ZitadelServer) profile {
	return profile{
		endpoint: z.TokenEndpoint, client: z.ClientID, auth: "basic", key: z.ClientSecret,
		audience: "https://records.example.org/mcp",
		scopes:   []string{"openid", "profile"},
		response: opaque,
		subject:  z.Subject(t),
	}
}

// decide is the decision that the file above makes.
func (p profile) decide(t *testing.T) policy.Decision {
	t.Helper()
	dir, parameters, pin, credential := t.TempDir(), p.parameters, "", ""
	if p.subject != "" {
		credential = `credential: "vault:kv/broker/subjects/7#token"`
	}
	if p.pin != "" {
		pin = `subject: "` + p.pin + `"`
	}
	if p.ca != "" {
		write(t, filepath.Join(dir, "ca.pem"), p.ca)
		parameters = append(parameters[:len(parameters):len(parameters)], "ca_file: ca.pem")
	}
	s, err := policytest.Load(dir, strings.NewReplacer("ENDPOINT", p.endpoint, "CLIENT", p.client,
		"AUTH", strings.ReplaceAll(auths[p.auth], "ASSERTED", cmp.Or(p.asserted, "issuer")), "AUDIENCE", p.audience, "SCOPES", `["`+strings.Join(p.scopes, `", "`)+`"]`, "RESPONSE", p.response,
		"PARAMETERS", strings.Join(parameters, "\n    "), "PIN", pin, "CREDENTIAL", credential).Replace(config))
	if err != nil {
		t.Fatal(err)
	}
	d, err := policytest.Decide(s, "user:7", "records", "search")
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (p profile) credential() exchange.Key {
	return exchange.Key{Text: secret.New(p.key), Certificate: secret.New(p.certificate), Actor: secret.New(p.stored)}
}

// An ending is what came of an exchange, on both sides.
type ending struct {
	reason fault.Reason // ours; none: granted
	said   string       // what the token endpoint answered
	issued exchange.Issued
	err    error
}

// exchange makes one as the product does and listens in.
func (p profile) exchange(t *testing.T) ending { return p.by(t, p.decide(t)) }

func (p profile) by(t *testing.T, d policy.Decision) (e ending) {
	t.Helper()
	c := exchange.New(nil)
	c.HTTP = func(h egress.Host) *http.Client {
		return &http.Client{Transport: &witness{base: egress.NewClient(h, 0).Transport, token: h.URL.String() == p.endpoint, said: &e.said}}
	}
	e.issued, e.err = c.Exchange(context.WithoutCancel(t.Context()), d, exchange.Subject{Token: secret.New(p.subject)}, p.credential())
	e.reason = reason(e.err)
	return e
}

// reason is how an exchange ended.
func reason(err error) fault.Reason {
	if err == nil {
		return fault.None
	}
	return fault.ReasonOf(err)
}

// A witness notes the status and the error code of what the token endpoint says.
type witness struct {
	base  http.RoundTripper
	token bool
	said  *string
}

func (w *witness) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := w.base.RoundTrip(req)
	if err != nil || !w.token {
		return resp, err
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(strings.NewReader(string(body)))
	var answer struct{ Error string }
	json.Unmarshal(body, &answer)
	*w.said = strings.TrimSpace(fmt.Sprintf("%d %s", resp.StatusCode, answer.Error))
	return resp, nil
}
