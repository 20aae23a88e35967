package policy_test

import (
	"strings"
	"testing"
)

// Headers that a static credential may not go into, and parameters that are
// not the operator's to set.
func TestReservedNames(t *testing.T) {
	const legacy = `auth: {mode: legacy, credential: "vault:kv/broker/servers/static#key"`
	for _, r := range []struct {
		name     string
		accepted bool
	}{
		{"X-Api-Key", true}, {"Private-Token", true}, {"apikey", true},
		{"Authorization", false}, {"authorization", false}, {"Proxy-Authorization", false},
		{"Host", false}, {"Cookie", false}, {"Set-Cookie", false}, {"Content-Length", false}, {"Content-Type", false},
		{"Mcp-Session-Id", false}, {"MCP-Protocol-Version", false}, {"mcp-anything", false}, {"Last-Event-ID", false},
		{"Connection", false}, {"Transfer-Encoding", false}, {"TE", false}, {"Trailer", false}, {"Upgrade", false},
		{"Accept", false}, {"Accept-Encoding", false}, {"Expect", false}, {"X-Forwarded-For", false}, {"Traceparent", false},
		{"X Key", false}, {"X-Key:", false}, {"X-Kéy", false}, {"X_" + strings.Repeat("y", 63), false},
	} {
		ps := problems(t, write(t, map[string]string{"profiles.yaml": config(t, legacy, legacy+`, placement: header, header: "`+r.name+`"`)}))
		if r.accepted != (len(ps) == 0) {
			t.Errorf("header %q: %v, want accepted %v", r.name, ps, r.accepted)
		}
	}
	for _, r := range []struct {
		name     string
		accepted bool
	}{
		{"connector_id", true}, {"organization", true}, {"requested_token_use", true}, {"options", true},
		{"grant_type", false}, {"client_id", false}, {"client_secret", false}, {"client_assertion", false},
		{"subject_token", false}, {"subject_token_type", false}, {"subject_issuer", false}, {"actor_token", false},
		{"assertion", false}, {"scope", false}, {"audience", false}, {"resource", false}, {"requested_token_type", false},
		{"requested_subject", false}, {"username", false}, {"password", false}, {"code", false}, {"refresh_token", false},
		{"token", false}, {"a b", false}, {"a=b&c", false},
	} {
		ps := problems(t, write(t, map[string]string{"profiles.yaml": config(t,
			"response: {token_format: jwt}", "response: {token_format: jwt}\n    extra_params: {\""+r.name+"\": x}")}))
		if r.accepted != (len(ps) == 0) {
			t.Errorf("parameter %q: %v, want accepted %v", r.name, ps, r.accepted)
		}
	}
}

// Names that look like others, or hide something, are not names of anything:
// not of a caller, a server, a tool or an actor.
func TestLookAlikeNames(t *testing.T) {
	for _, name := range []string{
		"admin\u200btool", "ad\u202emin", "verify_\u057dser", "\uff41dmin", `tool\ntool`, `tool\u2028`, `tool\0`,
		"../x", "a/b", "a b", strings.Repeat("a", 129), "", "\U000E0061", `tool\e[31m`, "a ", " a", "*",
	} {
		for what, oldnew := range map[string][2]string{
			"caller": {"  lonely:\n", "  \"" + name + "\":\n"},
			"server": {"  off:\n", "  \"" + name + "\":\n"},
			"tool":   {"purge: {enabled", "\"" + name + "\": {enabled"},
			"actor":  {`"user:8":`, `"user:` + name + `":`},
		} {
			if ps := problems(t, write(t, map[string]string{"profiles.yaml": config(t, oldnew[0], oldnew[1])})); len(ps) == 0 {
				t.Errorf("%q is accepted as the name of a %s", name, what)
			}
		}
	}
	for _, name := range []string{"__proto__", "constructor", "null", "true", "1"} { // text like any other
		if ps := problems(t, write(t, map[string]string{"profiles.yaml": config(t, "purge: {enabled", "\""+name+"\": {enabled")})); len(ps) > 0 {
			t.Errorf("a tool %q: %v", name, ps)
		}
	}
}
