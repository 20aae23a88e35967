package policy_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"onbehalf.internal/broker/policy"
)

// TestCredentialKinds: what a grant says of the actor's credential means the same
// in the configuration and in a grants file, and reads as itself.
func TestCredentialKinds(t *testing.T) {
	for _, r := range []struct {
		written string // JSON, which is YAML too
		want    policy.Credential
		reads   string
	}{
		{`"vault:kv/broker/subjects/1#token"`,
			policy.Credential{Kind: policy.Stored, Ref: ref(t, "vault:kv/broker/subjects/1#token")}, "vault:kv/broker/subjects/1#token"},
		{`{"refresh_token": "vault:kv/broker/refresh/1#refresh"}`,
			policy.Credential{Kind: policy.RefreshToken, Ref: ref(t, "vault:kv/broker/refresh/1#refresh")}, "refresh_token vault:kv/broker/refresh/1#refresh"},
		{`{"vault_oidc": {"mount": "identity", "role": "broker-user-1"}}`,
			policy.Credential{Kind: policy.VaultOIDC, Mount: "identity", Role: "broker-user-1"}, "vault_oidc identity/broker-user-1"},
		{`{"vault_oidc": {"role": "broker-user-1"}}`,
			policy.Credential{Kind: policy.VaultOIDC, Mount: "identity", Role: "broker-user-1"}, "vault_oidc identity/broker-user-1"},
		{`{"file": "/var/run/secrets/tokens/idp"}`,
			policy.Credential{Kind: policy.File, File: "/var/run/secrets/tokens/idp"}, "file /var/run/secrets/tokens/idp"},
	} {
		line, err := json.Marshal(map[string]any{"actor": "user:1", "enabled": true, "credential": json.RawMessage(r.written),
			"allowed_audiences": []string{"mcp-api"}, "allowed_scopes": []string{"records.read"}})
		if err != nil {
			t.Fatal(err)
		}
		s, err := policy.Load(write(t, map[string]string{
			"profiles.yaml": config(t, `"vault:kv/broker/subjects/7#token"`, r.written,
				"response: {token_format: jwt}", "response: {token_format: jwt}\n    grants_files: [grants.jsonl]"),
			"grants.jsonl": string(line) + "\n",
		}))
		if err != nil {
			t.Errorf("%s: %v", r.written, err)
			continue
		}
		for _, actor := range []string{"user:7", "user:1"} {
			g, _ := s.Grant("company", actor)
			if g == nil || g.Credential != r.want || fmt.Sprint(g.Credential) != r.reads {
				t.Errorf("%s of %s: %+v", r.written, actor, g)
			}
		}
	}
}

// In a grants file a wrong credential is as wrong, and the line says so.
func TestCredentialOfTwoKindsInAFile(t *testing.T) {
	ps := problems(t, write(t, map[string]string{
		"profiles.yaml": config(t, "response: {token_format: jwt}", "response: {token_format: jwt}\n    grants_files: [grants.jsonl]"),
		"grants.jsonl": `{"actor":"user:1","enabled":true,"credential":{"file":"/run/token","refresh_token":"vault:kv/a#b"},` +
			`"allowed_audiences":["mcp-api"],"allowed_scopes":["records.read"]}` + "\n",
	}))
	const want = "grants.jsonl:1: credential: names 2 kinds of credential; name one of refresh_token, vault_oidc, file, or write a reference for a stored token"
	if len(ps) != 1 || ps.Error() != want {
		t.Errorf("%v\nwant %s", ps, want)
	}
}
