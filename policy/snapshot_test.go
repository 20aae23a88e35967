package policy_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/secret"
)

// full has every key that there is.
const full = `version: 1
listen: {api: "unix:/run/broker/api.sock", metrics: "[::1]:8472"}
vault:
  address: https://vault.example.org:8200
  namespace: team/a
  ca_file: ca.pem
  auth: {method: approle, mount: approle/team, role_id: "role-7", secret_id_file: secret-id, secret_id_response_wrapping_path: auth/approle/team/role/broker/secret-id}
  hold: {role: broker-op, per: operation}
store: {path: data/broker.db, keep_results: 24h, keep_keys: 48h}
operation: {timeout: 1m30s, calls_per_run: 0, calls_per_hour: 50}
stop: {delay: 5s, drain: 1m45s, grace_period: 2m}
callers:
  gateway:
    roles: [operate, approve, admin]
    bearer_sha256: ["GATEWAY", "LONELY"]
    approvers: {issuer: https://people.example.org, jwks: gateway.jwks, audience: broker-approvals, subjects: ["user:"], admin: {claim: roles, value: admin}}
    actors:
      signed: {issuer: https://gateway.example.org, jwks: gateway.jwks, audience: broker, subjects: ["user:", "service:x"], admin: {claim: roles, value: admin}}
      asserted: ["service:nightly"]
    servers: [tickets, records]
    zone: privateHosted
profiles:
  company:
    token_endpoint: https://identity.example.org/oauth/token
    allow_cidrs: [10.1.0.0/16]
    ca_file: ca.pem
    client: {id: broker, auth: private_key_jwt, key: "vault:kv/broker/client#key", alg: ES256, kid: k1, audience: issuer}
    allowed_audiences: [z-api, mcp-api]
    allowed_scopes: [records.write, records.read]
    resource: ["https://records.example.org/mcp"]
    extra_params: {connector_id: corp, hint: [a, b]}
    subject_token_type: urn:ietf:params:oauth:token-type:id_token
    response:
      token_format: jwt
      expect_issuer: https://identity.example.org
      expect_audience: [mcp-api]
      require_act: broker
      allowed_extra_scopes: [email]
      require_scope_echo: true
      default_ttl: 1m
      max_ttl: 2m
    timeout: 5s
    grants:
      "user:7":
        enabled: true
        credential: "vault:kv/broker/subjects/7#token"
        subject: "7"
        allowed_audiences: [mcp-api]
        allowed_scopes: [records.read]
        expires: 2027-03-31
        reason: SEC-118
        since: "2026-10-01"
        approved_by: security team
  plain:
    token_endpoint: https://plain.example.org/token
    client: {id: broker, auth: none}
    allowed_audiences: [x]
    allowed_scopes: [y]
    response: {token_format: opaque, audience_unverified: true}
servers:
  records:
    url: https://records.example.org/mcp
    allow_cidrs: ["fd00::/8"]
    ca_file: ca.pem
    enabled: true
    data_class: systemDiagnostics
    requires_approval: false
    approval: {expires: 30m}
    era: legacy
    versions: ["2025-11-25", "2025-06-18"]
    id_style: int
    timeout: 15s
    idle_window: 8s
    drain_window: 1m
    pin: verify
    import: {every: 1h}
    probe: {every: 30s}
    on_caller_disconnect: cancel
    limits: {body: 1048576, event: 65536, stream: 4194304, events: 100, error_body: 4096, head: 32768, depth: 32, pages: 10, tools: 200, cursor: 512}
    auth: {mode: delegated, profile: company, audience: mcp-api, scopes: [records.write, records.read], discovery_credential: "vault:kv/broker/discovery/records#token"}
    recovery: {tool: search, argument: key}
    tools: {search: {enabled: true, effect: read, timeout: 5s, idle_window: 4s, drain_window: 0s, expected_duration: 3s}, save: {enabled: false, requires_admin: true, pin: "sha256:0000000000000000000000000000000000000000000000000000000000000007", on_caller_disconnect: detach, request_key: {argument: key, window: 24h}}, send: {enabled: true, request_key: {meta: example.org/key, window: 1h}}}
  tickets:
    url: https://tickets.example.org/mcp
    enabled: true
    auth: {mode: legacy, credential: "vault:kv/broker/servers/tickets#key", placement: header, header: X-Api-Key}
    tools: {send: {enabled: true}, purge: {enabled: true, effect: idempotent}, search: {enabled: true, effect: read, drain_window: 2m}}
keys: {results: ["vault-transit:transit/broker", "file:results.key"]}
`

func TestSnapshotHoldsWhatTheFileSays(t *testing.T) {
	text := strings.NewReplacer("GATEWAY", sha256Hex("gateway"), "LONELY", sha256Hex("lonely")).Replace(full)
	path := write(t, map[string]string{"profiles.yaml": text, "gateway.jwks": sampleKeys(t), "ca.pem": newCA(t)})
	s, err := policy.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(path)
	ca := s.Vault.CA
	if ca == nil || ca.Equal(x509.NewCertPool()) {
		t.Fatal("the certificates of Vault were not read")
	}

	company, plain := &policy.Profile{
		ID:            "company",
		TokenEndpoint: parseURL(t, "https://identity.example.org/oauth/token"),
		AllowCIDRs:    []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")},
		CA:            ca,
		Client: policy.Client{
			ID: "broker", Auth: "private_key_jwt", Key: ref(t, "vault:kv/broker/client#key"),
			Alg: "ES256", Kid: "k1", Audience: "issuer",
		},
		AllowedAudiences: []string{"mcp-api", "z-api"},
		AllowedScopes:    []string{"records.read", "records.write"},
		Resource:         []string{"https://records.example.org/mcp"},
		ExtraParams:      url.Values{"connector_id": {"corp"}, "hint": {"a", "b"}},
		GrantType:        tokenExchange, SubjectParam: "subject_token", SubjectTokenType: "urn:ietf:params:oauth:token-type:id_token",
		RequestedTokenType: accessToken, AudienceParam: "audience", ScopeSeparator: " ",
		Response: policy.Response{
			TokenFormat: "jwt", ExpectIssuer: "https://identity.example.org", ExpectAudience: []string{"mcp-api"},
			RequireAct: "broker", AllowedExtraScopes: []string{"email"}, RequireScopeEcho: true,
			DefaultTTL: time.Minute, MaxTTL: 2 * time.Minute, ClockSkew: 5 * time.Second,
		},
		Timeout: 5 * time.Second,
		Where:   "profiles.yaml:23",
	}, &policy.Profile{
		ID:               "plain",
		TokenEndpoint:    parseURL(t, "https://plain.example.org/token"),
		Client:           policy.Client{ID: "broker", Auth: "none"},
		AllowedAudiences: []string{"x"},
		AllowedScopes:    []string{"y"},
		GrantType:        tokenExchange, SubjectParam: "subject_token", SubjectTokenType: accessToken,
		RequestedTokenType: accessToken, AudienceParam: "audience", ScopeSeparator: " ",
		Response: policy.Response{TokenFormat: "opaque", AudienceUnverified: true, MaxTTL: 5 * time.Minute, ClockSkew: 5 * time.Second},
		Where:    "profiles.yaml:54",
	}
	records, tickets := &policy.Server{
		ID:         "records",
		URL:        parseURL(t, "https://records.example.org/mcp"),
		AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("fd00::/8")},
		CA:         ca,
		Enabled:    true,
		DataClass:  5,

		ApprovalExpires: 30 * time.Minute,

		Era:        policy.EraLegacy,
		Versions:   []string{"2025-06-18", "2025-11-25"},
		NumericIDs: true,
		Timeout:    15 * time.Second,
		Idle:       8 * time.Second,
		Drain:      time.Minute,
		Cancels:    true,

		VerifyPins: true, ImportEvery: time.Hour, ProbeEvery: 30 * time.Second,
		Limits: policy.Limits{Body: 1 << 20, Event: 64 << 10, Stream: 4 << 20, Events: 100, ErrorBody: 4 << 10, Head: 32 << 10,
			Depth: 32, Pages: 10, Tools: 200, Cursor: 512},
		Auth: policy.Auth{
			Mode: "delegated", Profile: "company", Audience: "mcp-api", Scopes: []string{"records.read", "records.write"},
			Discovery: ref(t, "vault:kv/broker/discovery/records#token"),
		},
		Tools: map[string]policy.Tool{
			"search": {Enabled: true, Effect: "read", Timeout: 5 * time.Second, Idle: 4 * time.Second, Cancels: true, Expected: 3 * time.Second, Where: "profiles.yaml:82"},
			"save":   {Effect: "write", Drain: time.Minute, RequiresAdmin: true, Pin: "sha256:0000000000000000000000000000000000000000000000000000000000000007", Key: policy.UpstreamKey{Argument: "key", Window: 24 * time.Hour}, Where: "profiles.yaml:82"},
			"send":   {Enabled: true, Effect: "write", Drain: time.Minute, Cancels: true, Key: policy.UpstreamKey{Meta: "example.org/key", Window: time.Hour}, Where: "profiles.yaml:82"},
		},
		Recovery: policy.Recovery{Tool: "search", Argument: "key"},
		Where:    "profiles.yaml:61",
	}, &policy.Server{
		ID:               "tickets",
		URL:              parseURL(t, "https://tickets.example.org/mcp"),
		Enabled:          true,
		RequiresApproval: true,
		ApprovalExpires:  15 * time.Minute,
		Drain:            -1,
		Era:              policy.EraAuto,
		Auth: policy.Auth{
			Mode: "legacy", Credential: ref(t, "vault:kv/broker/servers/tickets#key"),
			Placement: "header", Header: "X-Api-Key",
		},
		Tools: map[string]policy.Tool{ // what a tool writes may have cost something
			"send":   {Enabled: true, Effect: "write", Drain: 5 * time.Minute, Where: "profiles.yaml:87"},
			"purge":  {Enabled: true, Effect: "idempotent", Where: "profiles.yaml:87"},
			"search": {Enabled: true, Effect: "read", Drain: 2 * time.Minute, Where: "profiles.yaml:87"},
		},
		Where: "profiles.yaml:83",
	}
	grant := &policy.Grant{
		Actor: "user:7", Profile: "company", Enabled: true, Subject: "7",
		Credential:       policy.Credential{Kind: policy.Stored, Ref: ref(t, "vault:kv/broker/subjects/7#token")},
		AllowedAudiences: []string{"mcp-api"}, AllowedScopes: []string{"records.read"},
		Expires: time.Date(2027, 3, 31, 0, 0, 0, 0, time.UTC),
		Reason:  "SEC-118", Since: "2026-10-01", ApprovedBy: "security team", Where: "profiles.yaml:44",
	}

	for name, r := range map[string]struct{ want, got any }{
		"path":    {path, s.Path},
		"listen":  {policy.Listen{API: "unix:/run/broker/api.sock", Metrics: "[::1]:8472"}, s.Listen},
		"keys":    {policy.Keys{Results: []policy.SealingKey{{Transit: transit(t, "vault-transit:transit/broker")}, {File: filepath.Join(dir, "results.key")}}}, s.Keys},
		"store":   {policy.Store{Path: filepath.Join(dir, "data/broker.db"), Results: 24 * time.Hour, Keys: 48 * time.Hour}, s.Store},
		"timeout": {90 * time.Second, s.Timeout},
		"calls":   {policy.Calls{PerHour: 50}, s.Calls},
		"stop":    {policy.Stop{Delay: 5 * time.Second, Drain: 105 * time.Second, Grace: 2 * time.Minute}, s.Stop},
		"vault": {policy.Vault{
			Address: "https://vault.example.org:8200", Namespace: "team/a", CA: ca, Role: "broker-op", PerOperation: true,
			Auth: policy.VaultAuth{Method: "approle", Mount: "approle/team", RoleID: "role-7", SecretIDFile: filepath.Join(dir, "secret-id"),
				Wrapping: "auth/approle/team/role/broker/secret-id"},
		}, s.Vault},
		"callers":  {[]*policy.Caller{{ID: "gateway", Servers: []string{"records", "tickets"}, Zone: 3, Where: "profiles.yaml:13"}}, s.Callers()},
		"profiles": {[]*policy.Profile{company, plain}, s.Profiles()},
		"servers":  {[]*policy.Server{records, tickets}, s.Servers()},
		"grants":   {[]*policy.Grant{grant}, slices.Collect(s.Grants("company"))},
		"no grant": {[]*policy.Grant(nil), slices.Collect(s.Grants("plain"))},
	} {
		if diff := cmp.Diff(r.want, r.got, comparers...); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	for name, ok := range map[string]bool{
		"caller":    found(s.Caller("gateway")) && !found(s.Caller("other")),
		"profile":   found(s.Profile("plain")) && !found(s.Profile("other")),
		"server":    found(s.Server("records")) && !found(s.Server("other")),
		"grant":     found(s.Grant("company", "user:7")) && !found(s.Grant("plain", "user:7")),
		"approvers": s.Directory.Approves("gateway", "https://people.example.org", "user:9"),
		"directory": found(question(t, s, "lonely", "service:nightly", "", ""), true),
	} {
		if !ok {
			t.Errorf("looking up a %s", name)
		}
	}
}

func found[T any](_ T, ok bool) bool { return ok }

// comparers compare by value what cmp cannot look into.
var comparers = []cmp.Option{
	cmp.Comparer(func(a, b secret.TransitRef) bool { return a == b }),
	cmp.Comparer(func(a, b secret.Ref) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
	cmp.Comparer(func(a, b *x509.CertPool) bool { return a == b || a != nil && b != nil && a.Equal(b) }),
}

// A line of a grants file says what an entry of the YAML says.
func TestGrantsFileIsTheSame(t *testing.T) {
	inline := load(t, config(t, "        expires", "        subject: \"7\"\n        since: 2026-10-01\n        approved_by: x\n        reason: y\n        expires"))
	line := `{"actor":"user:7","enabled":true,"credential":"vault:kv/broker/subjects/7#token","allowed_audiences":["mcp-api"],"allowed_scopes":["records.read"],"expires":"2027-03-31","subject":"7","since":"2026-10-01","approved_by":"x","reason":"y"}` + "\r\n"
	files, err := policy.Load(write(t, map[string]string{
		"profiles.yaml":   config(t, `      "user:7":`, `      "user:6":`, "response: {token_format: jwt}", "response: {token_format: jwt}\n    grants_files: [\"grants/*.jsonl\", \"grants/a*.jsonl\"]"),
		"grants/a.jsonl":  line,
		"grants/b.jsonl":  strings.ReplaceAll(line, "user:7", "user:5"),
		"grants/c.backup": "not read",
	}))
	if err != nil {
		t.Fatal(err)
	}
	want, _ := inline.Grant("company", "user:7")
	got, ok := files.Grant("company", "user:7")
	if !ok {
		t.Fatal("no grant from the file")
	}
	if got.Where != "grants/a.jsonl:1" {
		t.Errorf("where: %q", got.Where)
	}
	moved := *got
	moved.Where = want.Where
	if diff := cmp.Diff(*want, moved, comparers...); diff != "" {
		t.Error(diff)
	}
}

func TestCertificateFiles(t *testing.T) {
	ca := newCA(t)
	for name, r := range map[string]struct {
		pem      string
		accepted bool
	}{
		"one":             {ca, true},
		"two":             {ca + "\n" + newCA(t), true},
		"with a heading":  {"The team's authority\n" + ca, true},
		"empty":           {"", false},
		"text":            {"hello\n", false},
		"cut off":         {ca[:len(ca)-40], false},
		"something after": {ca + "hello\n", false},
		"not one":         {string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")})), false},
		"a key":           {ca + string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("x")})), false},
	} {
		ps := problems(t, write(t, map[string]string{
			"profiles.yaml": config(t, "  auth: {method: token}", "  ca_file: ca.pem\n  auth: {method: token}"),
			"ca.pem":        r.pem,
		}))
		if r.accepted != (len(ps) == 0) || len(ps) > 0 && ps[0].Key != "vault.ca_file" {
			t.Errorf("%s: %v, want accepted %v", name, ps, r.accepted)
		}
	}
}

func newCA(t testing.TB) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: now, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: der}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func parseURL(t testing.TB, s string) *url.URL {
	t.Helper()
	u, err := url.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func ref(t testing.TB, s string) secret.Ref {
	t.Helper()
	r, err := secret.ParseRef(s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestHolder(t *testing.T) {
	first, second := load(t, config(t)), load(t, config(t, "timeout: 20s", "timeout: 10s"))
	h := policy.NewHolder(first)
	if h.Current().Hash != first.Hash {
		t.Error("the holder does not hold what it was made with")
	}
	h.Swap(second)
	if h.Current().Hash != second.Hash {
		t.Error("the holder does not hold the newest snapshot")
	}
}
