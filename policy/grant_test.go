package policy_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"onbehalf.internal/broker/fault"
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

// machine is base with the broker itself as the subject of its profile. Its grants
// name no credential.
func machine(t *testing.T, oldnew ...string) string {
	t.Helper()
	return config(t, append([]string{
		"    response: {token_format: jwt}\n", "    response: {token_format: jwt}\n    grant_type: client_credentials\n    grants_files: [grants.jsonl]\n",
		"        credential: \"vault:kv/broker/subjects/7#token\"\n", "",
		"        credential: \"vault:kv/broker/subjects/8#token\"\n", "",
	}, oldnew...)...)
}

func withGrant(t *testing.T, text, more string) string {
	t.Helper()
	return write(t, map[string]string{"profiles.yaml": text,
		"grants.jsonl": `{"actor":"user:9","enabled":true,"allowed_audiences":["mcp-api"],"allowed_scopes":["records.read"]` + more + "}\n"})
}

// TestBrokersOwn: that the broker itself is the subject gives nobody anything. An
// actor needs a grant there as anywhere, and an operation that began with one
// kind of subject does not go on with another.
func TestBrokersOwn(t *testing.T) {
	s, err := policy.Load(withGrant(t, machine(t), ""))
	if err != nil {
		t.Fatal(err)
	}
	for actor, want := range map[string]fault.Reason{"user:7": fault.None, "user:8": fault.GrantDisabled, "user:9": fault.None, "service:nightly": fault.NoGrant} {
		d, err := s.Decide(question(t, s, "gateway", actor, "records", "search"), now)
		if reason(err) != want {
			t.Errorf("%s: %v, want %q", actor, err, want)
		}
		if want := (policy.Credential{Kind: policy.BrokersOwn, Client: "broker"}); err == nil && d.Grant().Credential != want {
			t.Errorf("%s: credential %v", actor, d.Grant().Credential)
		}
	}
	began, err := s.Decide(question(t, s, "gateway", "user:7", "records", "search"), now)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Stands(began, now); err != nil {
		t.Errorf("unchanged: %v", err)
	}
	other, err := policy.Load(withGrant(t, machine(t, "id: broker,", "id: broker-2,"), ""))
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]*policy.Snapshot{"as another client": other, "for the actor": load(t, config(t))} {
		if err := s.Stands(began, now); reason(err) != fault.GrantRevoked || !strings.Contains(err.Error(), "another credential") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// In a grants file a credential that nobody would look at is a problem, too.
func TestCredentialOfNobodyInAFile(t *testing.T) {
	ps := problems(t, withGrant(t, machine(t), `,"credential":"vault:kv/a#b"`))
	const want = `grants.jsonl:1: credential: has no effect in profile "company", whose grant_type is client_credentials: the broker asks for a token of its own; remove it`
	if len(ps) != 1 || ps.Error() != want {
		t.Errorf("%v\nwant %s", ps, want)
	}
}
