package policy_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"onbehalf.internal/broker/identity"
	"onbehalf.internal/broker/policy"
)

const desks = `callers:
  desks:
    roles: [operate]
    tokens:
      issuer: https://login.example.org
      jwks: gateway.jwks
      audience: api://broker
      type: JWT
      person: uid
      subjects: ["user:7", "user:8"]
      scopes: [mcp]
      admin: {claim: groups, value: admins}
    servers: [records]
    zone: local
`

// desked is the configuration with people who come with access tokens, and parts of
// them replaced.
func desked(t testing.TB, oldnew ...string) string {
	t.Helper()
	return replaced(t, config(t, callersKey, "mcp: {origin: \"https://broker.example.org\"}\n"+desks), oldnew...)
}

func TestTokensLoad(t *testing.T) {
	keys := sampleKeys(t)
	with := func(oldnew ...string) *policy.Snapshot {
		s, err := policy.Load(write(t, map[string]string{"profiles.yaml": desked(t, oldnew...), "gateway.jwks": keys}))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := with()
	want := []identity.Tokens{{Issuer: "https://login.example.org", Audience: "api://broker", Type: "JWT", Person: "uid", Subjects: []string{"user:7", "user:8"},
		Scopes: []string{"mcp"}, Admin: identity.Claim{Name: "groups", Value: "admins"}}}
	if diff := cmp.Diff(want, s.Directory.Fronts(), cmpopts.IgnoreFields(identity.Tokens{}, "Keys")); diff != "" {
		t.Errorf("tokens (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(&policy.MCP{Origin: "https://broker.example.org"}, s.MCP); diff != "" {
		t.Errorf("mcp (-want +got):\n%s", diff)
	}
	if c, there := s.Caller("desks"); !there || len(c.Servers) != 1 || c.Zone != 4 {
		t.Errorf("the caller: %+v", c)
	}
	least := with("      audience: api://broker\n", "", "      type: JWT\n", "", "      person: uid\n", "", "      scopes: [mcp]\n", "",
		"      admin: {claim: groups, value: admins}\n", "", "    zone: local\n", "")
	if got := least.Directory.Fronts(); len(got) != 1 || got[0].Person != "sub" || got[0].Type != "at+jwt" || got[0].Audience != "" || got[0].Admin != (identity.Claim{}) {
		t.Errorf("the least: %+v", got)
	}
	if s := load(t, config(t)); s.MCP != nil || len(s.Directory.Fronts()) != 0 {
		t.Error("MCP clients come where nothing says so")
	}
}

// TestTokensRefuse: one change each to a file that loads.
func TestTokensRefuse(t *testing.T) {
	const tokens = "callers.desks.tokens"
	keys := sampleKeys(t)
	for _, r := range []struct {
		old, new string
		line     int
		want     string
	}{
		{"issuer: https://login.example.org\n", "issuer: http://login.example.org\n", 14, tokens + ".issuer must be https"},
		{"      issuer: https://login.example.org\n", "", 13, tokens + ".issuer is missing"},
		{"jwks: gateway.jwks\n      audience", "jwks: nowhere.jwks\n      audience", 15, tokens + ".jwks the file"},
		{"jwks: gateway.jwks\n      audience", "jwks: https://login.example.org/jwks\n      audience", 15, tokens + ".jwks not available yet"},
		{"      jwks: gateway.jwks\n      audience", "      audience", 13, tokens + ".jwks is missing"},
		{"type: JWT", "type: \"at jwt\"", 17, tokens + ".type must be the typ"},
		{"person: uid", "person: client_id", 18, tokens + ".person has a meaning of its own"},
		{"person: uid", "person: aud", 18, tokens + ".person has a meaning of its own"},
		{"person: uid", "person: scope", 18, tokens + ".person has a meaning of its own"},
		{`["user:7", "user:8"]`, `["service:"]`, 19, tokens + ".subjects[0] must be a person"},
		{`["user:7", "user:8"]`, `["*"]`, 19, tokens + ".subjects[0] wildcard"},
		{`["user:7", "user:8"]`, `[]`, 19, tokens + ".subjects empty list"},
		{`      subjects: ["user:7", "user:8"]` + "\n", "", 13, tokens + ".subjects is missing"},
		{"scopes: [mcp]", `scopes: ["a b"]`, 20, tokens + ".scopes[0] RFC 6749"},
		{"claim: groups", "claim: sub", 21, tokens + ".admin.claim has a meaning of its own"},
		{"claim: groups", "claim: cnf", 21, tokens + ".admin.claim has a meaning of its own"},
		{"scopes: [mcp]", "jwks_uri: x", 20, tokens + ".jwks_uri is not a known key; known here: admin, audience, issuer, jwks"},
		{"desks:\n    roles: [operate]", "desks:\n    roles: [audit]", 12, "callers.desks.roles[0] must be one of operate"},
		{"desks:\n    roles: [operate]\n", "desks:\n", 11, "callers.desks.roles is missing"},
		{"    tokens:\n", "    bearer_sha256: [\"x\"]\n    tokens:\n", 13, "callers.desks.bearer_sha256 for people who come with access tokens"},
		{"    tokens:\n", "    actors: {asserted: [\"user:8\"]}\n    tokens:\n", 13, "callers.desks.actors for people who come with access tokens"},
		{"    tokens:\n", "    sign_in: {}\n    tokens:\n", 13, "callers.desks.sign_in for people who come with access tokens"},
		{"mcp: {origin: \"https://broker.example.org\"}\n", "", 9, "callers needs mcp"},
		{"mcp: {origin: \"https://broker.example.org\"}", "mcp: {}", 9, "mcp is empty"},
		{"mcp: {origin: \"https://broker.example.org\"}", "mcp: {origin: \"https://broker.example.org/mcp\"}", 9, "mcp.origin must not have a path"},
		{"mcp: {origin: \"https://broker.example.org\"}", "mcp: {origin: \"http://broker.example.org\"}", 9, "mcp.origin must be https"},
		{"mcp: {origin: \"https://broker.example.org\"}", "mcp: true", 9, "mcp write a mapping"},
	} {
		refusesIn(t, map[string]string{"profiles.yaml": desked(t, r.old, r.new), "gateway.jwks": keys}, r.line, r.want)
	}
}
