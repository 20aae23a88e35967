package policy_test

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/policy"
)

// base is a whole configuration; tests replace parts of it.
const base = `version: 1
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
    bearer_sha256: ["GATEWAY"]
    actors: {asserted: ["user:7", "user:8", "user:9", "service:nightly"]}
    servers: [records, inert, off, asking, secrets, odd, static]
    zone: externalEu
  lonely:
    roles: [operate]
    bearer_sha256: ["LONELY"]
    actors: {asserted: ["user:7"]}
profiles:
  company:
    token_endpoint: https://identity.example.org/oauth/token
    client: {id: broker, auth: basic, key: "vault:kv/broker/client#key"}
    allowed_audiences: [mcp-api, other-api]
    allowed_scopes: [records.read, records.write]
    response: {token_format: jwt}
    grants:
      "user:7":
        enabled: true
        credential: "vault:kv/broker/subjects/7#token"
        allowed_audiences: [mcp-api]
        allowed_scopes: [records.read]
        expires: 2027-03-31
      "user:8":
        enabled: false
        credential: "vault:kv/broker/subjects/8#token"
        allowed_audiences: [mcp-api]
        allowed_scopes: [records.read]
servers:
  records:
    url: https://records.example.org/mcp
    enabled: true
    data_class: internalConfiguration
    requires_approval: false
    auth: {mode: delegated, profile: company, audience: mcp-api, scopes: [records.read], discovery_credential: "vault:kv/broker/discovery/records#token"}
    tools:
      search: {enabled: true, effect: read}
      slow: {enabled: true, timeout: 3m}
      purge: {enabled: false}
  inert:
    url: https://inert.example.org/mcp
    enabled: true
    requires_approval: false
    auth: {mode: legacy}
    tools: {search: {enabled: true}}
  off:
    url: https://off.example.org/mcp
    enabled: false
    data_class: publicContent
    requires_approval: false
    auth: {mode: legacy}
    tools: {search: {enabled: true}}
  asking:
    url: https://asking.example.org/mcp
    enabled: true
    data_class: publicContent
    auth: {mode: delegated, profile: company, audience: mcp-api, scopes: [records.read]}
    tools: {search: {enabled: true}}
  secrets:
    url: https://secrets.example.org/mcp
    enabled: true
    data_class: secretAdjacent
    requires_approval: false
    auth: {mode: legacy}
    tools: {search: {enabled: true}}
  odd:
    url: https://odd.example.org/mcp
    enabled: true
    data_class: publicContent
    requires_approval: false
    timeout: 2s
    auth: {mode: delegated, profile: company, audience: other-api, scopes: [records.read, records.write]}
    tools: {search: {enabled: true}}
  static:
    url: https://static.example.org/mcp
    enabled: true
    data_class: publicContent
    requires_approval: false
    auth: {mode: legacy, credential: "vault:kv/broker/servers/static#key"}
    tools: {search: {enabled: true}}
`

var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// config returns base with each old text replaced by the new one after it. An
// old text that is not there once and only once is a mistake of the test.
func config(t testing.TB, oldnew ...string) string {
	t.Helper()
	s := base
	for i := 0; i < len(oldnew); i += 2 {
		if strings.Count(s, oldnew[i]) != 1 {
			t.Fatalf("%q is %d times in the configuration", oldnew[i], strings.Count(s, oldnew[i]))
		}
		s = strings.Replace(s, oldnew[i], oldnew[i+1], 1)
	}
	return strings.NewReplacer("GATEWAY", sha256Hex("gateway"), "LONELY", sha256Hex("lonely")).Replace(s)
}

func sha256Hex(s string) string {
	d := sha256.Sum256([]byte(s))
	return hex.EncodeToString(d[:])
}

// write puts files, by name, into a new folder and returns the path of profiles.yaml.
func write(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "profiles.yaml")
}

func load(t testing.TB, text string) *policy.Snapshot {
	t.Helper()
	s, err := policy.Load(write(t, map[string]string{"profiles.yaml": text}))
	if err != nil {
		t.Fatalf("Load:\n%v", err)
	}
	return s
}

// question asks as the program does: by a bearer, for an actor that the caller
// may assert. An empty word leaves its part of the question zero.
func question(t testing.TB, s *policy.Snapshot, caller, actor, server, tool string) policy.Question {
	t.Helper()
	q := policy.Question{Server: server, Tool: tool}
	var err error
	h := http.Header{"Authorization": {"Bearer " + caller}, "Broker-Actor": {actor}}
	if caller != "" {
		if q.Caller, err = s.Directory.Caller(h); err != nil {
			t.Fatal(err)
		}
	}
	if actor != "" {
		if q.Actor, err = s.Directory.Actor(q.Caller, h); err != nil {
			t.Fatal(err)
		}
	}
	return q
}

func reason(err error) fault.Reason {
	if err == nil {
		return fault.None
	}
	return fault.ReasonOf(err)
}
