package policy_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"onbehalf.internal/broker/policy"
)

// Every way to log in, with what it has by default and what may be set.
func TestVaultMethods(t *testing.T) {
	for _, row := range []struct {
		auth string
		want policy.VaultAuth
	}{
		{"{method: token}", policy.VaultAuth{}},
		{"{method: token_file, token_file: sink}", policy.VaultAuth{TokenFile: "sink"}},
		{"{method: approle, role_id: r, secret_id_file: s}", policy.VaultAuth{Mount: "approle", RoleID: "r", SecretIDFile: "s"}},
		{"{method: approle, role_id: r, secret_id_file: s, mount: a/b, secret_id_response_wrapping_path: auth/a/b/role/x/secret-id}",
			policy.VaultAuth{Mount: "a/b", RoleID: "r", SecretIDFile: "s", Wrapping: "auth/a/b/role/x/secret-id"}},
		{"{method: kubernetes, role: r}",
			policy.VaultAuth{Mount: "kubernetes", Role: "r", JWTFile: "/var/run/secrets/kubernetes.io/serviceaccount/token"}},
		{"{method: kubernetes, role: r, mount: k8s/eu, jwt_file: /run/j}", policy.VaultAuth{Mount: "k8s/eu", Role: "r", JWTFile: "/run/j"}},
		{"{method: jwt, role: r, jwt_file: j}", policy.VaultAuth{Mount: "jwt", Role: "r", JWTFile: "j"}},
		{"{method: cert, cert_file: c, key_file: k}", policy.VaultAuth{Mount: "cert", CertFile: "c", KeyFile: "k"}},
		{"{method: cert, cert_file: c, key_file: k, role: r, mount: m}", policy.VaultAuth{Mount: "m", Role: "r", CertFile: "c", KeyFile: "k"}},
		{"{method: proxy}", policy.VaultAuth{}},
	} {
		row.want.Method, _, _ = strings.Cut(strings.Trim(row.auth, "{}")[len("method: "):], ",")
		address := "https://vault.example.org:8200"
		if row.want.Method == "proxy" {
			address = "unix:/run/vault/proxy.sock"
		}
		path := write(t, map[string]string{"profiles.yaml": config(t, "  address: http://127.0.0.1:8200\n  auth: {method: token}\n", "  address: "+address+"\n  auth: "+row.auth+"\n")})
		s, err := policy.Load(path)
		if err != nil {
			t.Errorf("%s: %v", row.auth, err)
			continue
		}
		for _, file := range []*string{&row.want.SecretIDFile, &row.want.TokenFile, &row.want.JWTFile, &row.want.CertFile, &row.want.KeyFile} {
			if *file != "" && !filepath.IsAbs(*file) {
				*file = filepath.Join(filepath.Dir(path), *file)
			}
		}
		if diff := cmp.Diff(policy.Vault{Address: address, Auth: row.want, Role: "broker-op"}, s.Vault); diff != "" {
			t.Errorf("%s: %s", row.auth, diff)
		}
	}
}

func TestNoCertificatesForASocket(t *testing.T) {
	path := write(t, map[string]string{"ca.pem": newCA(t), "profiles.yaml": config(t, "  address: http://127.0.0.1:8200\n", "  address: unix:/run/vault.sock\n  ca_file: ca.pem\n")})
	if _, err := policy.Load(path); err == nil || !strings.Contains(err.Error(), "vault.ca_file: has no effect on a Unix socket") {
		t.Errorf("Load = %v", err)
	}
}

// What the file does not say, VAULT_ADDR may: its address is judged later.
func TestNoAddressIsLeftToTheEnvironment(t *testing.T) {
	for _, auth := range []string{"{method: proxy}", "{method: cert, cert_file: c, key_file: k}"} {
		path := write(t, map[string]string{"profiles.yaml": config(t, "  address: http://127.0.0.1:8200\n  auth: {method: token}\n", "  auth: "+auth+"\n")})
		if _, err := policy.Load(path); err != nil {
			t.Errorf("%s: %v", auth, err)
		}
	}
}
