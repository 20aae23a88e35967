package brokertest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	deployvault "onbehalf.internal/broker/deploy/vault"
)

// vaultAdmin does what an operator does, with the root token of a Vault in dev
// mode.
type vaultAdmin struct{ address, token string }

// setUp is deploy/vault/setup.sh: the same files, the same paths.
func (v vaultAdmin) setUp(ctx context.Context) error {
	if status, _, err := v.call(ctx, "GET", "sys/mounts/kv", nil); err != nil || status != http.StatusOK {
		if err := v.put(ctx, "sys/mounts/kv", map[string]any{"type": "kv", "options": map[string]string{"version": "2"}}); err != nil {
			return err
		}
	}
	for _, name := range []string{"broker", "broker-op"} {
		text, err := deployvault.Files.ReadFile(name + ".hcl")
		if err != nil {
			return err
		}
		if err := v.put(ctx, "sys/policies/acl/"+name, map[string]string{"policy": string(text)}); err != nil {
			return err
		}
	}
	role, err := deployvault.Files.ReadFile("broker-op.json")
	if err != nil {
		return err
	}
	return v.put(ctx, "auth/token/roles/broker-op", json.RawMessage(role))
}

// ResultsKey is the key that seals results with [Options.KeyInVault].
const ResultsKey = "vault-transit:transit/broker"

// makeResultsKey is setup.sh with -s broker.
func (v vaultAdmin) makeResultsKey(ctx context.Context) error {
	text, err := deployvault.Files.ReadFile("broker-results.hcl")
	if err != nil {
		return err
	}
	if status, _, err := v.call(ctx, "GET", "transit/keys/broker", nil); err != nil || status == http.StatusOK {
		return err
	}
	policy := strings.ReplaceAll(string(text), `KEY"`, `broker"`)
	if err := v.put(ctx, "sys/policies/acl/broker-results", map[string]string{"policy": policy}); err != nil {
		return err
	}
	if err := v.put(ctx, "sys/mounts/transit", map[string]string{"type": "transit"}); err != nil {
		return err
	}
	return v.put(ctx, "transit/keys/broker", map[string]string{"type": "aes256-gcm96"})
}

// login makes the token that the broker starts with: its policies and no other.
func (v vaultAdmin) login(ctx context.Context, policies []string) (string, error) {
	_, body, err := v.call(ctx, "POST", "auth/token/create", map[string]any{"policies": policies, "no_default_policy": true, "ttl": "1h"})
	var answer struct {
		Auth struct {
			ClientToken string `json:"client_token"`
		} `json:"auth"`
	}
	if err == nil {
		err = json.Unmarshal(body, &answer)
	}
	if err == nil && answer.Auth.ClientToken == "" {
		err = fmt.Errorf("brokertest: Vault at %s made no token: is the root token right?", v.address)
	}
	return answer.Auth.ClientToken, err
}

func (v vaultAdmin) put(ctx context.Context, path string, body any) error {
	status, _, err := v.call(ctx, "POST", path, body)
	if err == nil && status >= 300 {
		err = fmt.Errorf("brokertest: Vault at %s answered %d to %s: is the root token right?", v.address, status, path)
	}
	return err
}

func (v vaultAdmin) call(ctx context.Context, method, path string, body any) (int, []byte, error) {
	raw, err := json.Marshal(body)
	if err != nil {
		return 0, nil, err
	}
	req, err := http.NewRequestWithContext(ctx, method, v.address+"/v1/"+path, bytes.NewReader(raw))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("X-Vault-Token", v.token)
	return exchange(req)
}
