package counterparts

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// OIDCProvider runs a server on the engine oidc-provider until the test ends.
// The engine has no token exchange; who may exchange what for what is decided
// in test/oidcprovider/server.mjs. Its target is a resource (RFC 8707):
// https://records.example.org/mcp with the scope records.read is open to the
// broker, https://mail.example.org/mcp with mail.read is not. Subject tokens
// are opaque, issued ones JWTs.
func OIDCProvider(t testing.TB) *Realm {
	t.Helper()
	node := cached(t, "node-22.23.3/bin/node", "test/oidcprovider/install.sh")
	folder := cached(t, "oidc-provider-9.13.3", "test/oidcprovider/install.sh")
	script := source(t, "test/oidcprovider/server.mjs")
	var r *Realm
	var secure int
	port := start(t, func(home string, port int) program {
		r, secure = newRealm(t, home), mustFreePort(t)
		clients := filepath.Join(home, "clients.json")
		if err := os.WriteFile(clients, r.registrations(t), 0o600); err != nil {
			t.Fatal(err)
		}
		return program{path: node, args: []string{script, folder, fmt.Sprint(port), fmt.Sprint(secure), clients},
			ready: fmt.Sprintf("http://127.0.0.1:%d/jwks", port)}
	})
	r.Issuer = fmt.Sprintf("http://127.0.0.1:%d", port)
	r.Token, r.Keys = r.Issuer+"/token", r.Issuer+"/jwks"
	r.Revocation, r.Introspection = r.Issuer+"/token/revocation", r.Issuer+"/token/introspection"
	r.MutualTLS = fmt.Sprintf("https://127.0.0.1:%d/token", secure)
	return r
}

// registrations are the clients as RFC 7591 §2 has them.
func (r *Realm) registrations(t testing.TB) []byte {
	t.Helper()
	type client map[string]any
	password := []string{"password"}
	b, err := json.Marshal([]client{
		{"client_id": "company-app", "client_secret": "company-app-secret", "grant_types": password, "token_endpoint_auth_method": "client_secret_post"},
		{"client_id": "company-app-short", "client_secret": "company-app-secret", "grant_types": password},
		{"client_id": r.ClientID, "client_secret": r.ClientSecret},
		{"client_id": r.SignerID, "token_endpoint_auth_method": "private_key_jwt", "jwks": json.RawMessage(r.keys.jwks)},
		{"client_id": r.HolderID, "token_endpoint_auth_method": "tls_client_auth", "tls_client_auth_subject_dn": "CN=" + r.HolderID,
			"tls_client_certificate_bound_access_tokens": true},
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func mustFreePort(t testing.TB) int {
	t.Helper()
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	return port
}
