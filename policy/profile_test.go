package policy_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v4"

	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/secret"
)

const (
	tokenExchange = "urn:ietf:params:oauth:grant-type:token-exchange"
	jwtBearer     = "urn:ietf:params:oauth:grant-type:jwt-bearer"
	accessToken   = "urn:ietf:params:oauth:token-type:access_token"
)

// moreProfiles has the keys of a profile that the whole configuration of
// snapshot_test.go has not.
const moreProfiles = `  opaque:
    token_endpoint: https://opaque.example.org/token
    timeout: 5s
    connect_timeout: 1s
    max_answer: 8192
    client: {id: broker, auth: private_key_jwt, key: "vault-transit:transit/broker", alg: EdDSA, assertion_ttl: 30s}
    allowed_audiences: ["https://a.example.org/mcp"]
    allowed_scopes: [read, write]
    grant_type: ` + tokenExchange + `
    subject_param: subject_token
    requested_token_type: urn:ietf:params:oauth:token-type:jwt
    audience_param: resource
    audience: [b, a]
    scope_separator: ","
    actor: {source: client_credentials, token_type: urn:x:actor, scopes: [act]}
    response:
      token_format: opaque
      issued_token_type: required
      expect_issuer: https://opaque.example.org
      require_subject: true
      allowed_extra_scopes: [email]
      required_scopes: [email, read]
      scope_prefix: "api://x/"
      clock_skew: 0s
    introspection: {endpoint: "https://opaque.example.org/introspect"}
    revoke: {mode: best_effort, endpoint: "https://opaque.example.org/revoke", hint: omit}
  chained:
    token_endpoint: https://first.example.org/token
    client: {auth: anonymous}
    allowed_audiences: [x]
    allowed_scopes: [y]
    requested_token_type: urn:ietf:params:oauth:token-type:id-jag
    audience: ["https://second.example.org"]
    actor: {source: stored, credential: "vault:kv/broker/actor#token"}
    response: {expect_issuer: "https://first.example.org", require_act: broker}
    then:
      token_endpoint: https://second.example.org/token
      client: {id: b, auth: basic_raw, key: "vault:kv/broker/second#key"}
      response: {token_format: jwt_verified, jwks_file: keys.jwks}
      revoke: {mode: off}
  certified:
    token_endpoint: https://certified.example.org/token
    client: {id: b, auth: mtls, key: "vault:kv/broker/m#key", certificate: "vault:kv/broker/m#crt"}
    allowed_audiences: [x]
    allowed_scopes: [y]
    response: {token_format: jwt}
  machine:
    token_endpoint: https://10.1.2.3/token
    allow_cidrs: [10.1.2.0/24]
    server_name: identity.example.org
    client: {id: nightly, auth: post, key: "vault:kv/broker/machine#secret"}
    allowed_audiences: [x]
    allowed_scopes: [z]
    grant_type: client_credentials
    response: {token_format: jwt, require_subject: true}
    grants:
      "service:nightly": {enabled: true, subject: nightly-7, allowed_audiences: [x], allowed_scopes: [z]}
`

func withProfiles(t testing.TB, oldnew ...string) string {
	t.Helper()
	more := moreProfiles
	for i := 0; i < len(oldnew); i += 2 {
		if strings.Count(more, oldnew[i]) != 1 {
			t.Fatalf("%q is %d times in the profiles", oldnew[i], strings.Count(more, oldnew[i]))
		}
		more = strings.Replace(more, oldnew[i], oldnew[i+1], 1)
	}
	return config(t, "servers:\n  records:\n", more+"servers:\n  records:\n")
}

func transit(t *testing.T, s string) secret.TransitRef {
	t.Helper()
	r, err := secret.ParseTransitRef(s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestProfileHoldsWhatTheFileSays(t *testing.T) {
	s, err := policy.Load(write(t, map[string]string{"profiles.yaml": withProfiles(t), "keys.jwks": sampleKeys(t)}))
	if err != nil {
		t.Fatal(err)
	}
	line := strings.Count(strings.Split(base, "servers:\n  records:")[0], "\n") + 1
	second := &policy.Profile{
		ID: "chained", TokenEndpoint: parseURL(t, "https://second.example.org/token"),
		Client:           policy.Client{ID: "b", Auth: "basic_raw", Key: ref(t, "vault:kv/broker/second#key")},
		AllowedAudiences: []string{"x"}, AllowedScopes: []string{"y"},
		GrantType: jwtBearer, SubjectParam: "assertion", SubjectTokenType: "omit", RequestedTokenType: "omit", AudienceParam: "omit", ScopeSeparator: " ",
		Response: policy.Response{IssuedTypeOptional: true, TokenFormat: "jwt_verified", Keys: []byte(sampleKeys(t)), MaxTTL: 5 * time.Minute, ClockSkew: 5 * time.Second},
		Where:    where(line + 35),
	}
	for id, want := range map[string]*policy.Profile{
		"opaque": {
			ID: "opaque", TokenEndpoint: parseURL(t, "https://opaque.example.org/token"),
			Timeout: 5 * time.Second, ConnectTimeout: time.Second, MaxAnswer: 8192,
			Client: policy.Client{ID: "broker", Auth: "private_key_jwt", Transit: transit(t, "vault-transit:transit/broker"),
				Alg: "EdDSA", Audience: "token_endpoint", AssertionTTL: 30 * time.Second},
			AllowedAudiences: []string{"https://a.example.org/mcp"}, AllowedScopes: []string{"read", "write"},
			GrantType: tokenExchange, SubjectParam: "subject_token", SubjectTokenType: accessToken, RequestedTokenType: "urn:ietf:params:oauth:token-type:jwt",
			AudienceParam: "resource", Audience: []string{"a", "b"}, ScopeSeparator: ",",
			Actor: policy.Actor{Source: "client_credentials", TokenType: "urn:x:actor", Scopes: []string{"act"}},
			Response: policy.Response{TokenFormat: "opaque", ExpectIssuer: "https://opaque.example.org", RequireSubject: true,
				AllowedExtraScopes: []string{"email"}, RequiredScopes: []string{"email", "read"}, ScopePrefix: "api://x/", MaxTTL: 5 * time.Minute},
			Introspection: parseURL(t, "https://opaque.example.org/introspect"),
			Revocation:    policy.Revocation{Endpoint: parseURL(t, "https://opaque.example.org/revoke")},
			Where:         where(line),
		},
		"chained": {
			ID: "chained", TokenEndpoint: parseURL(t, "https://first.example.org/token"), Client: policy.Client{Auth: "anonymous"},
			AllowedAudiences: []string{"x"}, AllowedScopes: []string{"y"},
			GrantType: tokenExchange, SubjectParam: "subject_token", SubjectTokenType: accessToken, RequestedTokenType: "urn:ietf:params:oauth:token-type:id-jag",
			AudienceParam: "audience", Audience: []string{"https://second.example.org"}, ScopeSeparator: " ",
			Actor:    policy.Actor{Source: "stored", Credential: ref(t, "vault:kv/broker/actor#token"), TokenType: accessToken},
			Response: policy.Response{ExpectIssuer: "https://first.example.org", RequireAct: "broker"},
			Then:     second, Where: where(line + 26),
		},
		"machine": {
			ID: "machine", TokenEndpoint: parseURL(t, "https://10.1.2.3/token"), AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("10.1.2.0/24")},
			ServerName: "identity.example.org", Client: policy.Client{ID: "nightly", Auth: "post", Key: ref(t, "vault:kv/broker/machine#secret")},
			AllowedAudiences: []string{"x"}, AllowedScopes: []string{"z"},
			GrantType: "client_credentials", RequestedTokenType: "omit", AudienceParam: "omit", ScopeSeparator: " ",
			Response: policy.Response{IssuedTypeOptional: true, TokenFormat: "jwt", RequireSubject: true, MaxTTL: 5 * time.Minute, ClockSkew: 5 * time.Second},
			Where:    where(line + 46),
		},
	} {
		got, _ := s.Profile(id)
		if diff := cmp.Diff(want, got, comparers...); diff != "" {
			t.Errorf("%s: %s", id, diff)
		}
	}
	machine, _ := s.Profile("machine")
	opaque, _ := s.Profile("opaque")
	chained, _ := s.Profile("chained")
	plain, _ := s.Profile("company")
	certified, _ := s.Profile("certified")
	if want := (policy.Client{ID: "b", Auth: "mtls", Key: ref(t, "vault:kv/broker/m#key"), Certificate: ref(t, "vault:kv/broker/m#crt")}); certified.Client != want {
		t.Errorf("client %+v", certified.Client)
	}
	if opaque.Issuing() != opaque || chained.Issuing() != chained.Then || !opaque.Further() || !chained.Further() || plain.Further() {
		t.Error("the steps are not told apart")
	}
	if !machine.BrokerIsSubject() || opaque.BrokerIsSubject() || machine.Further() {
		t.Error("a profile in which the broker itself is the subject is not told apart")
	}
	g, _ := s.Grant("machine", "service:nightly")
	if want := (policy.Credential{Kind: policy.BrokersOwn, Client: "nightly"}); g == nil || g.Credential != want || g.Subject != "nightly-7" {
		t.Errorf("grant %+v", g)
	} else if text := g.Credential.String(); text != "client_credentials of nightly" {
		t.Errorf("its credential reads as %q", text)
	}
}

func where(line int) string { return "profiles.yaml:" + strconv.Itoa(line) }

// The example says that every key is in it.
func TestSampleHasEveryKeyOfAProfile(t *testing.T) {
	example, err := os.ReadFile("../configs/profiles.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var tree yaml.Node
	if err := yaml.Load([]byte(moreProfiles), &tree); err != nil {
		t.Fatal(err)
	}
	for _, key := range append(keysOf(&tree), "certificate", "jwks_url") {
		if !slices.Contains([]string{"opaque", "chained", "certified", "machine", "service:nightly"}, key) && !strings.Contains(string(example), key+":") {
			t.Errorf("%q is not in the example", key)
		}
	}
}

// One change each to a profile that loads: the key that is complained of, and
// what is said.
func TestProfileRefusals(t *testing.T) {
	const (
		company  = `client: {id: broker, auth: basic, key: "vault:kv/broker/client#key"}`
		answer   = "response: {token_format: jwt}"
		signer   = `client: {id: broker, auth: private_key_jwt, key: "vault-transit:transit/broker", alg: EdDSA, assertion_ttl: 30s}`
		grant    = "grant_type: " + tokenExchange + "\n"
		actor    = "actor: {source: client_credentials, token_type: urn:x:actor, scopes: [act]}"
		asks     = `introspection: {endpoint: "https://opaque.example.org/introspect"}` + "\n"
		revokes  = `revoke: {mode: best_effort, endpoint: "https://opaque.example.org/revoke", hint: omit}`
		first    = `response: {expect_issuer: "https://first.example.org", require_act: broker}`
		own      = "grant_type: client_credentials\n"
		secret   = `client: {id: nightly, auth: post, key: "vault:kv/broker/machine#secret"}`
		night    = `subject: nightly-7, `
		named    = "server_name: identity.example.org"
		machine  = "profiles.machine."
		last     = `response: {token_format: jwt_verified, jwks_file: keys.jwks}`
		stored   = `actor: {source: stored, credential: "vault:kv/broker/actor#token"}`
		raw      = `client: {id: b, auth: basic_raw, key: "vault:kv/broker/second#key"}`
		subject  = "subject_param: subject_token\n"
		idJAG    = "requested_token_type: urn:ietf:params:oauth:token-type:id-jag"
		response = "profiles.opaque.response."
		then     = "profiles.chained.then."
	)
	for _, r := range []struct{ old, new, key, want string }{
		// who we are
		{signer, `client: {id: broker, auth: private_key_jwt, key: "vault-transit:transit/broker"}`, "profiles.opaque.client.alg", "cannot be asked what it is for"},
		{signer, `client: {id: broker, auth: private_key_jwt, key: "vault-transit:transit/a/b", alg: ES256}`, "profiles.opaque.client.key", `"vault-transit:<mount>/<key>"`},
		{signer, `client: {id: broker, auth: private_key_jwt, alg: ES256}`, "profiles.opaque.client.key", "missing"},
		{signer, `client: {id: broker, auth: private_key_jwt, key: "vault:kv/x#key", assertion_ttl: 11m}`, "profiles.opaque.client.assertion_ttl", "5s to 10m0s"},
		{signer, `client: {id: broker, auth: basic, key: "vault-transit:transit/broker"}`, "profiles.opaque.client.key", "vault:<mount>"},
		{signer, `client: {id: broker, auth: basic, key: "vault:kv/x#key", assertion_ttl: 30s}`, "profiles.opaque.client.assertion_ttl", "no effect"},
		{signer, `client: {id: broker, auth: basic, key: "vault:kv/x#key", certificate: "vault:kv/x#crt"}`, "profiles.opaque.client.certificate", "no effect"},
		{signer, `client: {auth: basic, key: "vault:kv/x#key"}`, "profiles.opaque.client.id", "missing"},
		{signer, `client: {id: broker, auth: anonymous}`, "profiles.opaque.client.id", "no effect"},
		{signer, `client: {auth: anonymous}`, "profiles.opaque.client.auth", "cannot ask for"},
		{signer, `client: {id: broker, auth: none}`, "profiles.opaque.client.auth", "cannot ask for"},
		{raw, `client: {id: "a:b", auth: basic_raw, key: "vault:kv/x#key"}`, then + "client.id", "auth: basic or post"},

		// what is asked for
		{grant, "grant_type: refresh_token\n", "profiles.opaque.grant_type", "nobody's credential"},
		{grant, "grant_type: a b\n", "profiles.opaque.grant_type", "visible characters"},
		{subject, "subject_param: assertion\n", "profiles.opaque.subject_param", "token exchange does not have"},
		{subject, "subject_param: token\n", "profiles.opaque.subject_param", "one of subject_token, assertion"},
		{subject, subject + "    subject_token_type: omit\n", "profiles.opaque.subject_token_type", "cannot be omitted"},
		{"requested_token_type: urn:ietf:params:oauth:token-type:jwt", "requested_token_type: omit", "profiles.opaque.requested_token_type", "refresh tokens"},
		{"audience_param: resource", "audience_param: both", "profiles.opaque.audience_param", "one of audience, resource, omit"},
		{`allowed_audiences: ["https://a.example.org/mcp"]`, "allowed_audiences: [mcp]", "profiles.opaque.audience_param", `"mcp" of allowed_audiences must be an absolute URI`},
		{`scope_separator: ","`, `scope_separator: "x"`, "profiles.opaque.scope_separator", "one of ,"},
		{"allowed_scopes: [read, write]", `allowed_scopes: [read, "a,b"]`, "profiles.opaque.scope_separator", `"a,b" of allowed_scopes`},
		{actor, "actor: {source: user}", "profiles.opaque.actor.source", "one of stored, client_credentials"},
		{actor, "actor: {source: stored}", "profiles.opaque.actor.credential", "missing"},
		{actor, `actor: {source: client_credentials, credential: "vault:kv/x#y"}`, "profiles.opaque.actor.credential", "no effect"},
		{stored, `actor: {source: stored, credential: "vault:kv/x#y", scopes: [a]}`, "profiles.chained.actor.scopes", "no effect"},
		{raw, raw + "\n      " + stored, then + "actor.source", "belong to token exchange"},
		{raw, raw + "\n      subject_token_type: urn:x", then + "subject_token_type", "no effect"},
		{"connect_timeout: 1s", "connect_timeout: 0s", "profiles.opaque.connect_timeout", "a duration"},
		{"max_answer: 8192", "max_answer: 65537", "profiles.opaque.max_answer", "1024 to 65536"},

		// what has to come back
		{"issued_token_type: required", "issued_token_type: optional", response + "issued_token_type", "requires it"},
		{"clock_skew: 0s", "clock_skew: 61s", response + "clock_skew", "0s to 1m0s"},
		{"required_scopes: [email, read]", "required_scopes: [admin]", response + "required_scopes", `"admin" is more than allowed_scopes`},
		{"clock_skew: 0s", "jwks_url: https://x.example/jwks", response + "jwks_url", "no effect"},
		{"token_format: opaque", "token_format: jwt_verified", response + "jwks_url", "needs the provider's keys"},
		{last, `response: {token_format: jwt_verified, jwks_file: keys.jwks, jwks_url: "https://x.example/jwks"}`, then + "response.jwks_url", "not both"},
		{last, `response: {token_format: jwt_verified, jwks_url: "http://x.example/jwks"}`, then + "response.jwks_url", "must be https"},
		{last, `response: {token_format: jwt_verified, jwks_file: none.jwks}`, then + "response.jwks_file", "does not exist"},
		{last, `response: {token_format: jwt_verified, jwks_file: profiles.yaml}`, then + "response.jwks_file", "no key set"},
		{"token_format: opaque", "token_format: jwt", "profiles.opaque.introspection", "no effect"},
		{asks, "introspection: {}\n", "profiles.opaque.introspection", "empty"},
		{asks, "introspection: {endpoint: \"http://x.example/i\"}\n", "profiles.opaque.introspection.endpoint", "must be https"},
		{revokes, "revoke: {mode: always}", "profiles.opaque.revoke.mode", "one of off, best_effort"},
		{revokes, "revoke: {mode: best_effort}", "profiles.opaque.revoke.endpoint", "missing"},
		{revokes, `revoke: {mode: off, endpoint: "https://x.example/r"}`, "profiles.opaque.revoke.endpoint", "no effect"},
		{revokes, `revoke: {mode: best_effort, endpoint: "https://x.example/r", hint: refresh_token}`, "profiles.opaque.revoke.hint", "one of access_token, omit"},

		// the broker itself is the subject
		{own, own + "    subject_param: subject_token\n", machine + "subject_param", "the broker itself is the subject"},
		{own, own + "    subject_token_type: " + accessToken + "\n", machine + "subject_token_type", "the broker itself is the subject"},
		{own, own + "    then: {token_endpoint: \"https://x.example/t\"}\n", machine + "then", "the broker itself is the subject"},
		{own, own + "    " + stored + "\n", machine + "actor.source", "belong to token exchange"},
		{secret, `client: {id: nightly, auth: none}`, machine + "client.auth", "cannot ask for"},
		{secret, `client: {auth: anonymous}`, machine + "client.auth", "cannot ask for"},
		{night, night + `credential: "vault:kv/x#y", `, machine + "grants.service:nightly.credential", `in profile "machine", whose grant_type is client_credentials`},
		{night, night + `credential: {file: /run/token}, `, machine + "grants.service:nightly.credential", "asks for a token of its own"},
		{night, "", "subject", `missing in the grant of "service:nightly"`},
		{raw, raw + "\n      grant_type: client_credentials", then + "grant_type", "takes what the first one issued"},

		// where the certificate has another name
		{named, "server_name: Identity.example.org", machine + "server_name", "a host name in lower case"},
		{named, "server_name: identity.example.org.", machine + "server_name", "a host name in lower case"},
		{named, `server_name: "identity.example.org:443"`, machine + "server_name", "without a port"},
		{named, `server_name: "*.example.org"`, machine + "server_name", "a host name"},
		{named, `server_name: ""`, machine + "server_name", "a host name"},
		{named, `server_name: "10.1.2.3"`, machine + "server_name", "no address"},
		{named, `server_name: "[::1]"`, machine + "server_name", "no address"},
		{named, `server_name: "::1"`, machine + "server_name", "no address"},
		{"https://10.1.2.3/token\n    allow_cidrs: [10.1.2.0/24]", "http://127.0.0.1/token\n    allow_cidrs: [127.0.0.0/8]", machine + "server_name", "without TLS"},

		// two steps
		{idJAG, "requested_token_type: " + accessToken, "profiles.chained.requested_token_type", "must name what the second step takes"},
		{`    audience: ["https://second.example.org"]` + "\n", "", "profiles.chained.audience", "names the authorization server"},
		{first, "response: {token_format: jwt}", "profiles.chained.response.token_format", "stand in then.response"},
		{first, first + "\n    revoke: {mode: off}", "profiles.chained.revoke", "belongs to the second step"},
		{last, "timeout: 1s", then + "response", "missing"},
		{last, last + "\n      allowed_scopes: [z]", then + "allowed_scopes", "not a known key"},
		{last, last + "\n      then: {}", then + "then", "not a known key"},
	} {
		ps := problems(t, write(t, map[string]string{"profiles.yaml": withProfiles(t, r.old, r.new), "keys.jwks": sampleKeys(t)}))
		if !slices.ContainsFunc(ps, func(p policy.Problem) bool { return p.Key == r.key && strings.Contains(p.Text, r.want) }) {
			t.Errorf("%q:\n%v\nwant %s: …%s…", r.new, ps, r.key, r.want)
		}
	}
	for _, r := range []struct{ old, new, key, want string }{
		{answer, "response: {token_format: opaque, audience_unverified: true}\n    audience_param: omit", "profiles.company.response.audience_unverified", "does not say for whom"},
		{answer, "response: {token_format: opaque, audience_unverified: true, require_subject: true}", "profiles.company.response.require_subject", "add introspection"},
		{answer, "response: {token_format: opaque, audience_unverified: true}\n    " + stored, "profiles.company.response.token_format", "whether it was heeded"},
		{answer, "response: {token_format: opaque}", "profiles.company.response.audience_unverified", "better: add introspection"},
		{answer, "response: {token_format: opaque, audience_unverified: true}\n    introspection: {endpoint: \"https://x.example/i\"}", "profiles.company.response.audience_unverified", "must not be true"},
		{answer, "response: {token_format: jwt, require_subject: true}", "subject", `missing in the grant of "user:7"`},
	} {
		ps := problems(t, write(t, map[string]string{"profiles.yaml": config(t, r.old, r.new)}))
		if !slices.ContainsFunc(ps, func(p policy.Problem) bool { return p.Key == r.key && strings.Contains(p.Text, r.want) }) {
			t.Errorf("%q:\n%v\nwant %s: …%s…", r.new, ps, r.key, r.want)
		}
	}
}

// An opaque token whose audience is asked for in some other way loads.
func TestOpaqueProfiles(t *testing.T) {
	const answer = "response: {token_format: jwt}"
	for _, profile := range []string{
		"response: {token_format: opaque, audience_unverified: true}",
		"response: {token_format: opaque, audience_unverified: true}\n    audience_param: omit\n    audience: [x]",
		"response: {token_format: opaque, audience_unverified: true}\n    audience_param: omit\n    resource: [\"https://x.example\"]",
		"response: {token_format: opaque, audience_unverified: true}\n    audience_param: omit\n    extra_params: {connection: x}",
		"response: {token_format: opaque}\n    audience_param: omit\n    introspection: {endpoint: \"https://x.example/i\"}",
	} {
		if ps := problems(t, write(t, map[string]string{"profiles.yaml": config(t, answer, profile)})); ps != nil {
			t.Errorf("%s: %v", profile, ps)
		}
	}
}

// TestExamples loads every example, and each of them without its audience
// control, which must not load.
func TestExamples(t *testing.T) {
	files, err := filepath.Glob("../configs/examples/*.yaml")
	if err != nil || len(files) != 14 {
		t.Fatalf("%d examples, %v", len(files), err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if ps := problems(t, write(t, map[string]string{"profiles.yaml": string(b)})); ps != nil {
			t.Errorf("%s: %v", file, ps)
		}
		var loose []string
		for line := range strings.Lines(string(b)) {
			switch key, _, _ := strings.Cut(strings.TrimSpace(line), ":"); key {
			case "token_format":
				line = strings.Replace(line, "jwt_verified", "opaque", 1)
			case "jwks_url", "expect_issuer", "expect_audience", "require_act", "audience_unverified":
				continue
			}
			loose = append(loose, line)
		}
		ps := problems(t, write(t, map[string]string{"profiles.yaml": strings.Join(loose, "")}))
		if !slices.ContainsFunc(ps, func(p policy.Problem) bool {
			return strings.HasSuffix(p.Key, "response.audience_unverified") && strings.Contains(p.Text, "add introspection")
		}) {
			t.Errorf("%s without audience control: %v", file, ps)
		}
	}
}
