package vault_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// ask is what an operator does with a root token. It returns one field of the data.
func (b *box) ask(t *testing.T, path, body, field string) string {
	t.Helper()
	return b.askIn(t, "", path, body, field)
}

// askIn asks in a namespace.
func (b *box) askIn(t *testing.T, namespace, path, body, field string) string {
	t.Helper()
	method := http.MethodPost
	if body == "" {
		method = http.MethodGet
	}
	req, err := http.NewRequest(method, "http://vault.test:8200/v1/"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Vault-Token", b.RootToken())
	req.Header.Set("X-Vault-Namespace", namespace)
	resp, err := b.RoundTrip(req)
	if err != nil || resp.StatusCode >= 300 {
		t.Fatalf("%s: %v", path, err)
	}
	var said struct{ Data map[string]any }
	json.NewDecoder(resp.Body).Decode(&said)
	value, _ := said.Data[field].(string)
	return value
}

// role makes a token role like broker-op with another life.
func (b *box) role(t *testing.T, name, life string) {
	t.Helper()
	b.ask(t, "auth/token/roles/"+name, `{"allowed_policies":"broker-op","orphan":false,"renewable":false,
		"token_no_default_policy":true,"token_explicit_max_ttl":"`+life+`"}`, "")
}

// file writes a text into a new file that is the broker's alone.
func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	put(t, path, text)
	return path
}

// put replaces a file as an Agent does: by another of the same name.
func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}
