package vaulttest

import (
	"strings"
	"testing"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/secret"
	"onbehalf.internal/broker/vault"
)

// dataKeys: a key in Vault makes data keys and unwraps them, and stays there.
func (r *rig) dataKeys(t *testing.T) {
	root, login := r.RootToken, r.entered(t)
	const key = "transit/keys/" + resultsKey
	dataKey, decrypt := "transit/datakey/plaintext/"+resultsKey, "transit/decrypt/"+resultsKey
	made := r.want(t, 200, login, "PUT", dataKey, document{"bits": 256})
	order := document{"ciphertext": made.text("data", "ciphertext")}
	r.steps(t, "the login makes and unwraps data keys and does nothing else", step{200, login, "PUT", decrypt, order},
		step{403, login, "PUT", "transit/datakey/wrapped/" + resultsKey, document{}}, step{403, login, "PUT", "transit/encrypt/" + resultsKey, document{"plaintext": "AAAA"}},
		step{403, login, "PUT", "transit/rewrap/" + resultsKey, order}, step{403, login, "PUT", "transit/datakey/plaintext/" + transitKey, document{}},
		step{403, login, "GET", key, nil}, step{403, login, "PUT", key + "/rotate", document{}}, step{403, login, "PUT", key + "/config", document{}},
		step{403, login, "DELETE", key, nil}, step{403, login, "GET", "transit/export/encryption-key/" + resultsKey, nil})
	r.steps(t, "what is no order is 400", step{400, root, "PUT", dataKey, document{"bits": 7}}, step{400, root, "PUT", decrypt, document{"ciphertext": "x"}},
		step{400, root, "PUT", decrypt, document{"ciphertext": "vault:v1:AAAA"}}, step{400, root, "PUT", decrypt, document{}},
		step{400, root, "PUT", decrypt, document{"ciphertext": "vault:v9" + strings.TrimPrefix(made.text("data", "ciphertext"), "vault:v1")}},
		step{400, root, "PUT", "transit/datakey/strange/" + resultsKey, document{}}, step{400, root, "PUT", "transit/datakey/plaintext/suite-absent", document{}},
		step{400, root, "PUT", "transit/decrypt/suite-absent", order}, step{400, root, "PUT", "transit/sign/" + resultsKey, document{"input": "AAAA"}},
		step{400, root, "PUT", "transit/datakey/plaintext/" + transitKey, document{}}, step{400, root, "PUT", "transit/decrypt/" + transitKey, order},
		step{404, root, "PUT", "absent/datakey/plaintext/x", document{}})

	c := r.start(t, asItIs) // may do it with every key
	r.ready(t, c)
	t.Run("by the client", func(t *testing.T) { r.clientUnwraps(t, c) })
	for name, row := range map[string]struct {
		key  string
		want fault.Reason
	}{
		"no key":    {"vault-transit:transit/suite-absent", fault.CredentialMissing},
		"it signs":  {"vault-transit:transit/" + transitKey, fault.CredentialMissing},
		"no engine": {"vault-transit:absent/x", fault.VaultDenied},
	} {
		ref := transitRef(t, row.key)
		if plain, wrapped, err := c.DataKey(t.Context(), ref); reasonOf(err) != row.want || !plain.IsZero() || wrapped != "" {
			t.Errorf("%s: DataKey = %v, want %q", name, err, row.want)
		}
		if plain, err := c.Unwrap(t.Context(), ref, made.text("data", "ciphertext")); reasonOf(err) != row.want || !plain.IsZero() {
			t.Errorf("%s: Unwrap = %v, want %q", name, err, row.want)
		}
	}
}

// clientUnwraps follows data keys through the life of a key: it is rotated, its old
// version is shut, opened again, and the key goes.
func (r *rig) clientUnwraps(t *testing.T, c *vault.Client) {
	const path = "transit/keys/suite-passing"
	root, ref := r.RootToken, transitRef(t, "vault-transit:transit/suite-passing")
	r.want(t, 200, root, "POST", path, document{"type": "aes256-gcm96"})
	unwraps := func(plain secret.Text, wrapped string, want fault.Reason) {
		t.Helper()
		got, err := c.Unwrap(t.Context(), ref, wrapped)
		if reasonOf(err) != want || (want == "") != (got.Reveal() == plain.Reveal()) {
			t.Errorf("Unwrap of %.9s = %v, want %q", wrapped, err, want)
		}
	}
	first, firstWrapped, err := c.DataKey(t.Context(), ref)
	if err != nil || !strings.HasPrefix(firstWrapped, "vault:v1:") {
		t.Fatalf("DataKey = %.9s, %v", firstWrapped, err)
	}
	unwraps(first, firstWrapped, "")
	r.want(t, 200, root, "POST", path+"/rotate", document{})
	second, secondWrapped, err := c.DataKey(t.Context(), ref)
	if err != nil || !strings.HasPrefix(secondWrapped, "vault:v2:") || second.Reveal() == first.Reveal() {
		t.Fatalf("DataKey after a rotation = %.9s, %v", secondWrapped, err)
	}
	unwraps(first, firstWrapped, "")
	unwraps(second, secondWrapped, "")
	r.want(t, 400, root, "POST", path+"/config", document{"min_decryption_version": 3})
	r.want(t, 200, root, "POST", path+"/config", document{"min_decryption_version": 2})
	unwraps(first, firstWrapped, fault.CredentialMissing)
	unwraps(second, secondWrapped, "")
	r.want(t, 200, root, "POST", path+"/config", document{"min_decryption_version": 1})
	unwraps(first, firstWrapped, "")
	r.want(t, 400, root, "DELETE", path, nil)
	r.want(t, 200, root, "POST", path+"/config", document{"deletion_allowed": true})
	r.want(t, 204, root, "DELETE", path, nil)
	unwraps(first, firstWrapped, fault.CredentialMissing)
	r.steps(t, "a key that is gone", step{404, root, "GET", path, nil}, step{400, root, "POST", path + "/rotate", document{}},
		step{400, root, "POST", path + "/config", document{}}, step{400, root, "DELETE", path, nil})
}
