package subject_test

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"onbehalf.internal/broker/egress"
	"onbehalf.internal/broker/exchange"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/internal/devvault"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/policy/policytest"
	"onbehalf.internal/broker/secret"
	"onbehalf.internal/broker/subject"
	"onbehalf.internal/broker/vault"
)

const (
	clientSecret = "client-secret-4711-of-the-broker"
	refreshPath  = "broker/refresh/7"
)

// A rig is a Vault, a provider that rotates refresh tokens, and a configuration with
// one grant of each kind. It has no network, so that time can be held still.
type rig struct {
	t        *testing.T
	vault    *devvault.Server // nil: the Vault is a real one
	door     door
	provider *provider
	snapshot *policy.Snapshot
	file     string
}

// A door is how a Vault is reached, and its root token.
type door struct {
	address   string
	transport http.RoundTripper
	root      string
}

func newRig(t *testing.T) *rig {
	t.Helper()
	v := devvault.New(devvault.Options{})
	r := rigOver(t, door{"http://vault.test:8200", v, v.RootToken()})
	r.vault = v
	return r
}

func rigOver(t *testing.T, d door) *rig {
	t.Helper()
	r := &rig{t: t, door: d, provider: newProvider(), file: filepath.Join(t.TempDir(), "token")}
	r.ask("PUT", "sys/auth/approle", `{"type":"approle"}`)
	r.ask("PUT", "sys/policies/acl/everything", `{"policy":"`+everything("kv", "kv1", "identity", "auth")+`"}`)
	r.ask("PUT", "auth/approle/role/broker", `{"token_policies":"everything","token_ttl":"1h"}`)
	r.ask("PUT", "identity/oidc/key/broker", `{"algorithm":"ES256"}`)
	r.ask("PUT", "identity/oidc/role/nightly", `{"key":"broker","ttl":"5m"}`)
	r.ask("PUT", "kv/data/"+refreshPath, fmt.Sprintf(`{"data":{"refresh":%q,"note":"kept"}}`, r.provider.current))
	r.ask("PUT", "kv1/broker/refresh", fmt.Sprintf(`{"refresh":%q}`, r.provider.current))
	r.ask("PUT", "kv/data/broker/stored", `{"data":{"token":"stored-token-of-user-8"}}`)
	r.must(os.WriteFile(r.file, []byte("token-in-a-file-of-a\n"), 0o600))
	r.load()
	return r
}

// everything is a policy, as it stands in JSON; what a broker needs is tested by
// vault/vaulttest.
func everything(mounts ...string) (policy string) {
	for _, mount := range mounts {
		policy += `path \"` + mount + `/*\" { capabilities = [\"create\", \"read\", \"update\", \"patch\", \"delete\"] } `
	}
	return policy
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// ask is what an operator does with a root token. It returns the data.
func (r *rig) ask(method, path, body string) map[string]any {
	r.t.Helper()
	req, err := http.NewRequest(method, r.door.address+"/v1/"+path, strings.NewReader(body))
	r.must(err)
	req.Header.Set("X-Vault-Token", r.door.root)
	if method == http.MethodPatch {
		req.Header.Set("Content-Type", "application/merge-patch+json")
	}
	resp, err := r.door.transport.RoundTrip(req)
	if err != nil || resp.StatusCode >= 300 {
		r.t.Fatalf("%s %s: %v, %v", method, path, resp, err)
	}
	defer resp.Body.Close()
	var said struct{ Data map[string]any }
	json.NewDecoder(resp.Body).Decode(&said)
	return said.Data
}

// stored is the refresh token's secret as it is now.
func (r *rig) stored() (fields map[string]any, version int) {
	r.t.Helper()
	data := r.ask("GET", "kv/data/"+refreshPath, "")
	fields, _ = data["data"].(map[string]any)
	metadata, _ := data["metadata"].(map[string]any)
	number, _ := metadata["version"].(float64)
	return fields, int(number)
}

// settled fails unless the newest refresh token is stored, without a claim, and
// nothing else was touched.
func (r *rig) settled() {
	r.t.Helper()
	fields, _ := r.stored()
	if fields["refresh"] != r.provider.token() || fields["note"] != "kept" || len(fields) != 2 {
		r.t.Errorf("stored are %v, or another token than the provider's", slices.Sorted(maps.Keys(fields)))
	}
	if r.provider.isKilled() {
		r.t.Error("an old refresh token was used: the family is killed")
	}
}

func (r *rig) load() {
	r.t.Helper()
	var err error
	r.snapshot, err = policytest.Load(filepath.Dir(r.file), strings.ReplaceAll(`version: 1
listen: {api: "127.0.0.1:0"}
vault: {address: "http://127.0.0.1:1", auth: {method: token}, hold: {role: broker-op}}
store: {path: unused.db}
operation: {timeout: 20s}
callers:
  gateway: {roles: [operate], bearer_sha256: ["BEARER"], actors: {asserted: ["user:7", "user:8", "user:1", "service:nightly", "service:file"]}, servers: [records, own], zone: local}
profiles:
  company:
    token_endpoint: https://identity.test/token
    client: {id: broker, auth: basic, key: "vault:kv/broker/client#v"}
    allowed_audiences: [mcp]
    allowed_scopes: [read]
    response: {token_format: jwt}
    grants:
      "user:7": {enabled: true, credential: {refresh_token: "vault:kv/broker/refresh/7#refresh"}, allowed_audiences: [mcp], allowed_scopes: [read]}
      "user:1": {enabled: true, credential: {refresh_token: "vault:kv1/broker/refresh#refresh"}, allowed_audiences: [mcp], allowed_scopes: [read]}
      "user:8": {enabled: true, credential: "vault:kv/broker/stored#token", allowed_audiences: [mcp], allowed_scopes: [read]}
      "service:nightly": {enabled: true, credential: {vault_oidc: {role: nightly}}, allowed_audiences: [mcp], allowed_scopes: [read]}
      "service:file": {enabled: true, credential: {file: "FILE"}, allowed_audiences: [mcp], allowed_scopes: [read]}
  machine:
    token_endpoint: https://identity.test/token
    client: {id: machine, auth: basic, key: "vault:kv/broker/client#v"}
    allowed_audiences: [mcp]
    allowed_scopes: [read]
    grant_type: client_credentials
    response: {token_format: jwt}
    grants:
      "service:nightly": {enabled: true, allowed_audiences: [mcp], allowed_scopes: [read]}
servers:
  records:
    url: https://records.example.org/mcp
    enabled: true
    data_class: publicContent
    requires_approval: false
    auth: {mode: delegated, profile: company, audience: mcp, scopes: [read]}
    tools: {search: {enabled: true}}
  own:
    url: https://own.example.org/mcp
    enabled: true
    data_class: publicContent
    requires_approval: false
    auth: {mode: delegated, profile: machine, audience: mcp, scopes: [read]}
    tools: {search: {enabled: true}}
`, "FILE", r.file))
	r.must(err)
}

func (r *rig) decide(actor string) policy.Decision {
	r.t.Helper()
	d, err := policytest.Decide(r.snapshot, actor, "records", "search")
	r.must(err)
	return d
}

// broker is a Resolver as one broker has it: with a Vault client of its own, which
// logs in by AppRole.
func (r *rig) broker() *subject.Resolver {
	r.t.Helper()
	roleID, _ := r.ask("GET", "auth/approle/role/broker/role-id", "")["role_id"].(string)
	secretID, _ := r.ask("PUT", "auth/approle/role/broker/secret-id", "{}")["secret_id"].(string)
	file := filepath.Join(r.t.TempDir(), "secret_id")
	r.must(os.WriteFile(file, []byte(secretID), 0o600))
	c, err := vault.New(vault.Config{Address: r.door.address, Transport: r.door.transport, Role: "broker-op",
		Auth: policy.VaultAuth{Method: "approle", RoleID: roleID, SecretIDFile: file}})
	r.must(err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { c.Run(ctx); close(ended) }()
	r.t.Cleanup(func() { stop(); <-ended })
	r.must(c.WaitReady(ctx))
	x := exchange.New(nil)
	x.HTTP = func(egress.Host) *http.Client { return &http.Client{Transport: r.provider} }
	return subject.New(c, x, nil)
}

func key(context.Context) (exchange.Key, error) {
	return exchange.Key{Text: secret.New(clientSecret)}, nil
}

// find asks for actor's subject token within a budget.
func (r *rig) find(s *subject.Resolver, actor string, budget time.Duration) (exchange.Subject, error) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), budget)
	defer cancel()
	return s.Subject(ctx, r.decide(actor), key)
}

func reasonOf(err error) fault.Reason {
	if err == nil {
		return fault.None
	}
	return fault.ReasonOf(err)
}

// bubble runs f with time held still.
func bubble(t *testing.T, f func(t *testing.T, r *rig)) {
	synctest.Test(t, func(t *testing.T) { f(t, newRig(t)) })
}

// A provider rotates refresh tokens and detects their reuse: who sends one a second
// time ends the family, and every token of it is dead.
type provider struct {
	mu      sync.Mutex
	current string
	spent   map[string]bool
	killed  bool
	access  []string
	asked   int

	panics bool                                   // it makes the client panic
	keeps  bool                                   // it does not rotate
	before func()                                 // runs when a request has arrived
	after  func()                                 // runs when the token is rotated, before the answer
	alter  func(answer map[string]any) (int, any) // what it answers instead
}

func newProvider() *provider {
	return &provider{current: "refresh-" + rand.Text(), spent: map[string]bool{}}
}

func (p *provider) token() string  { p.mu.Lock(); defer p.mu.Unlock(); return p.current }
func (p *provider) isKilled() bool { p.mu.Lock(); defer p.mu.Unlock(); return p.killed }
func (p *provider) requests() int  { p.mu.Lock(); defer p.mu.Unlock(); return p.asked }

// secrets are all tokens that it ever gave.
func (p *provider) secrets() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append(slices.Collect(maps.Keys(p.spent)), append(slices.Clone(p.access), p.current)...)
}

func (p *provider) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if p.before != nil {
		p.before()
	}
	status, answer := p.refresh(req)
	if status == http.StatusOK && p.after != nil {
		p.after()
	}
	if status == http.StatusOK && p.alter != nil {
		status, answer = p.alter(answer.(map[string]any))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(answer)
}

func (p *provider) refresh(req *http.Request) (int, any) {
	id, password, _ := req.BasicAuth()
	token := req.PostFormValue("refresh_token")
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked++
	switch {
	case id != "broker" || password != clientSecret:
		return http.StatusUnauthorized, map[string]any{"error": "invalid_client"}
	case p.spent[token]:
		p.killed = true
		return http.StatusBadRequest, map[string]any{"error": "invalid_grant"}
	case p.killed || token != p.current || req.PostFormValue("grant_type") != "refresh_token":
		return http.StatusBadRequest, map[string]any{"error": "invalid_grant"}
	}
	answer := map[string]any{"access_token": fmt.Sprintf("access-%d-%s", p.asked, rand.Text()), "token_type": "Bearer", "expires_in": 300}
	p.access = append(p.access, answer["access_token"].(string))
	if !p.keeps {
		p.spent[token] = true
		p.current = "refresh-" + rand.Text()
		answer["refresh_token"] = p.current
	}
	return http.StatusOK, answer
}

// RoundTrip answers without a network.
func (p *provider) RoundTrip(req *http.Request) (*http.Response, error) {
	if p.panics {
		panic("a defect")
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	in := req.Clone(req.Context())
	in.Body = io.NopCloser(strings.NewReader(string(body)))
	w := httptest.NewRecorder()
	done := make(chan struct{})
	go func() { p.ServeHTTP(w, in); close(done) }()
	select {
	case <-done:
		res := w.Result()
		res.Request = req
		return res, nil
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
}

// jwt is a token with these claims and a signature that nobody looks at.
func jwt(claims map[string]any) string {
	part := func(v any) string {
		b, err := json.Marshal(v)
		if err != nil {
			panic(err)
		}
		return base64.RawURLEncoding.EncodeToString(b)
	}
	return part(map[string]any{"alg": "ES256"}) + "." + part(claims) + ".c2lnbmF0dXJl"
}
