package vaulttest

import (
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"onbehalf.internal/broker/internal/testhttp"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/secret"
	"onbehalf.internal/broker/vault"
)

// ways: every way to log in, with what it does not take.
func (r *rig) ways(t *testing.T) {
	r.waysByAppRole(t)
	r.waysByToken(t)
	r.waysByIdentity(t)
	r.lockout(t)
}

// way runs a Client that logs in one way, and does with it what an operation does.
func (r *rig) way(t *testing.T, name string, auth policy.VaultAuth, change func(*vault.Config)) {
	t.Run(name, func(t *testing.T) {
		c, stop := r.startUntil(t, func(conf *vault.Config) { conf.Auth = auth; change(conf) })
		r.ready(t, c)
		before := r.Residue() // a wrapping token has something in its cubbyhole until it is used
		if got, err := c.Credential(t.Context(), reference(t, "vault:kv/broker/ways#token")); err != nil || got.Reveal() != "of-the-ways" {
			t.Errorf("Credential = %v", err)
		}
		h, err := Hold(t.Context(), c, secret.New("token-of-an-operation"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.Read(t.Context()); err != nil {
			t.Error(err)
		}
		if n := r.Residue(); n != before+1 {
			t.Errorf("the residue went from %d to %d by one hold", before, n)
		}
		stop()
		if n := r.Residue(); n != before {
			t.Errorf("%d entries are left", n-before)
		}
	})
}

// noWay runs a Client that cannot log in, and looks at what it says.
func (r *rig) noWay(t *testing.T, name string, auth policy.VaultAuth, change func(*vault.Config), want string) {
	t.Run(name, func(t *testing.T) {
		c := r.start(t, func(conf *vault.Config) { conf.Auth = auth; change(conf) })
		r.refused(t, c, want)
	})
}

// refused waits until a Client says why it is not ready.
func (r *rig) refused(t *testing.T, c *vault.Client, want string) {
	t.Helper()
	var err error
	late, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for late.Err() == nil {
		if err = c.Ready(); err != nil && strings.Contains(err.Error(), want) {
			return
		}
		soon, cancel := context.WithTimeout(late, 50*time.Millisecond)
		c.WaitReady(soon)
		cancel()
	}
	t.Errorf("Ready = %v, want …%s…", err, want)
}

// put writes a file as an Agent does: whole, under its name, or not at all.
func put(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	return path
}

// method enables an auth method unless it is there.
func (r *rig) method(t *testing.T, kind, mount string) {
	t.Helper()
	if r.ask(t, r.RootToken, "GET", "sys/auth/"+mount, nil).status != 200 {
		r.want(t, 204, r.RootToken, "POST", "sys/auth/"+mount, document{"type": kind})
	}
}

// write configures something, whatever the success is called.
func (r *rig) write(t *testing.T, path string, body document) {
	t.Helper()
	if s := r.ask(t, r.RootToken, "POST", path, body); s.status != 200 && s.status != 204 {
		t.Fatalf("POST %s is answered %d: %v", path, s.status, s.body["errors"])
	}
}

func (r *rig) waysByAppRole(t *testing.T) {
	r.want(t, 200, r.RootToken, "PUT", "kv/data/broker/ways", document{"data": document{"token": "of-the-ways"}})
	dir := t.TempDir()
	approle := policy.VaultAuth{Method: "approle", RoleID: r.roleID, SecretIDFile: r.secretIDFile}
	r.way(t, "approle", approle, asItIs)
	if r.Socket != "" {
		r.way(t, "approle by socket", approle, func(c *vault.Config) { c.Address = "unix:" + r.Socket })
	}
	if r.Namespace == "" && !r.Namespaces {
		r.noWay(t, "a Vault without namespaces", approle, func(c *vault.Config) { c.Namespace = "team/a" }, "this Vault has no namespaces")
	}
	if r.Namespaces {
		r.noWay(t, "a namespace that is not there", approle, func(c *vault.Config) { c.Namespace = strings.TrimPrefix(r.Namespace+"/absent", "/") }, "no login: ")
	}

	const made = "auth/approle/role/broker/secret-id"
	wrapped := approle
	wrapped.Wrapping = made
	wrapped.SecretIDFile = put(t, filepath.Join(dir, "wrapped"), r.wrap(t, made, document{}))
	r.way(t, "approle, wrapped", wrapped, asItIs)
	r.noWay(t, "approle, wrapped, used already", wrapped, asItIs, "somebody has unwrapped it before us")

	strange := r.wrap(t, "sys/wrapping/wrap", document{"secret_id": r.secretID(t)})
	wrapped.SecretIDFile = put(t, filepath.Join(dir, "strange"), strange)
	r.noWay(t, "approle, wrapped elsewhere", wrapped, asItIs, `was not made at "`+made+`"`)
	r.steps(t, "what was made elsewhere is not unwrapped", step{200, strange, "PUT", "sys/wrapping/unwrap", document{}},
		step{400, strange, "PUT", "sys/wrapping/unwrap", document{}}, step{400, nobody, "PUT", "sys/wrapping/lookup", document{"token": strange}})
}

// wrap has Vault wrap what it answers to a request.
func (r *rig) wrap(t *testing.T, path string, body document) string {
	t.Helper()
	s := r.askWith(t, http.Header{"X-Vault-Wrap-Ttl": {"60s"}}, r.RootToken, "POST", path, body)
	token := s.text("wrap_info", "token")
	if s.status != 200 || token == "" || s.text("wrap_info", "creation_path") != path {
		t.Fatalf("%s is answered %d, wrapped by what was made at %q", path, s.status, s.text("wrap_info", "creation_path"))
	}
	return token
}

func (r *rig) waysByToken(t *testing.T) {
	dir := t.TempDir()
	sink := put(t, filepath.Join(dir, "sink"), r.broker(t).value+"\n")
	file := policy.VaultAuth{Method: "token_file", TokenFile: sink}
	r.way(t, "token_file", file, asItIs)
	r.want(t, 200, strings.TrimSpace(read(t, sink)), "GET", "auth/token/lookup-self", nil) // not ours to revoke
	r.noWay(t, "token_file, no token", policy.VaultAuth{Method: "token_file", TokenFile: put(t, filepath.Join(dir, "wrong"), stranger)}, asItIs, "vault_denied")
	t.Run("token_file, replaced when Vault denies", func(t *testing.T) {
		first := r.broker(t)
		file := policy.VaultAuth{Method: "token_file", TokenFile: put(t, filepath.Join(dir, "moving"), first.value)}
		c := r.start(t, func(conf *vault.Config) { conf.Auth = file })
		r.ready(t, c)
		put(t, file.TokenFile, r.broker(t).value)
		r.want(t, 204, r.RootToken, "POST", "auth/token/revoke-accessor", document{"accessor": first.accessor})
		if _, err := c.Credential(t.Context(), reference(t, "vault:kv/broker/ways#token")); err != nil {
			t.Errorf("Credential = %v", err)
		}
	})

	proxy := policy.VaultAuth{Method: "proxy"}
	for _, force := range []bool{false, true} {
		socket, sink := r.proxy(t, force)
		at := func(c *vault.Config) { c.Address = "unix:" + socket }
		if force {
			r.noWay(t, "a proxy that replaces tokens", proxy, at, `not to "force"`)
		} else {
			r.way(t, "proxy", proxy, at)
			r.way(t, "token_file of an Agent", policy.VaultAuth{Method: "token_file", TokenFile: sink}, asItIs)
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// proxy is a Vault Proxy with a login of its own: the real one where the Target has
// it, else what it does with tokens.
func (r *rig) proxy(t *testing.T, force bool) (socket, sink string) {
	t.Helper()
	if r.Proxy != nil {
		return r.Proxy(force, r.roleID, r.secretIDFile)
	}
	to, err := url.Parse(r.Address)
	if err != nil {
		t.Fatal(err)
	}
	login := r.broker(t).value
	handler := &httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) {
		p.SetURL(to)
		if force || p.In.Header.Get("X-Vault-Token") == "" {
			p.Out.Header.Set("X-Vault-Token", login)
		}
	}}
	dir := t.TempDir()
	socket, sink = filepath.Join(dir, "proxy.sock"), put(t, filepath.Join(dir, "sink"), login)
	if err := os.Chmod(sink, 0o640); err != nil { // as an Agent makes it
		t.Fatal(err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: handler}
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
	return socket, sink
}

// waysByIdentity are those where somebody else vouches for the broker.
func (r *rig) waysByIdentity(t *testing.T) {
	dir := t.TempDir()
	login := document{"token_policies": "broker,suite", "token_ttl": "1h", "token_no_default_policy": true}
	role := func(more document) document {
		for k, v := range login {
			more[k] = v
		}
		return more
	}

	issuer := newKey(t)
	r.method(t, "jwt", "suite/jwt")
	r.write(t, "auth/suite/jwt/config", document{"jwt_validation_pubkeys": []string{publicPEM(t, issuer)}})
	r.write(t, "auth/suite/jwt/role/suite", role(document{"role_type": "jwt", "user_claim": "sub", "bound_audiences": []string{"vault"}, "bound_subject": "broker"}))
	vouched := func(name string, key *ecdsa.PrivateKey, audience, subject string, life time.Duration) policy.VaultAuth {
		now := time.Now()
		token := signed(t, key, jwt.MapClaims{"iss": "suite", "aud": audience, "sub": subject, "iat": now.Add(-time.Hour).Unix(), "exp": now.Add(life).Unix()})
		return policy.VaultAuth{Method: "jwt", Mount: "suite/jwt", Role: "suite", JWTFile: put(t, filepath.Join(dir, name), token)}
	}
	r.way(t, "jwt", vouched("jwt", issuer, "vault", "broker", time.Hour), asItIs)
	const refused = "vault_denied: Vault answered 400: is there a role \"suite\""
	r.noWay(t, "jwt, another audience", vouched("audience", issuer, "other", "broker", time.Hour), asItIs, refused)
	r.noWay(t, "jwt, another subject", vouched("subject", issuer, "vault", "other", time.Hour), asItIs, refused)
	r.noWay(t, "jwt, run out", vouched("old", issuer, "vault", "broker", -10*time.Minute), asItIs, refused)
	r.noWay(t, "jwt, another issuer", vouched("key", newKey(t), "vault", "broker", time.Hour), asItIs, refused)

	kubernetes := newCluster(t)
	r.method(t, "kubernetes", "kubernetes")
	r.write(t, "auth/kubernetes/config", document{"kubernetes_host": kubernetes.URL, "kubernetes_ca_cert": kubernetes.CA,
		"token_reviewer_jwt": kubernetes.reviewer, "disable_local_ca_jwt": true})
	r.write(t, "auth/kubernetes/role/suite", role(document{"bound_service_account_names": []string{"broker"}, "bound_service_account_namespaces": []string{"tools"},
		"audience": "https://kubernetes.default.svc.cluster.local"}))
	pod := func(name, token string) policy.VaultAuth {
		return policy.VaultAuth{Method: "kubernetes", Role: "suite", JWTFile: put(t, filepath.Join(dir, name), token)}
	}
	r.way(t, "kubernetes", pod("pod", kubernetes.token(t, "tools", "broker")), asItIs)
	r.noWay(t, "kubernetes, another account", pod("account", kubernetes.token(t, "tools", "other")), asItIs, "vault_denied")
	r.noWay(t, "kubernetes, another namespace", pod("namespace", kubernetes.token(t, "other", "broker")), asItIs, "vault_denied")
	r.noWay(t, "kubernetes, another cluster", pod("cluster", newCluster(t).token(t, "tools", "broker")), asItIs, "vault_denied")

	if r.TLS == "" {
		return
	}
	clients := newAuthority(t)
	r.method(t, "cert", "cert")
	r.write(t, "auth/cert/certs/suite", role(document{"certificate": clients.pem()}))
	shown := func(name string, a authority) policy.VaultAuth {
		cert, key := a.issue(t, dir, name, x509.ExtKeyUsageClientAuth)
		return policy.VaultAuth{Method: "cert", CertFile: cert, KeyFile: key}
	}
	byTLS := func(c *vault.Config) { c.Address, c.CA = r.TLS, r.CA }
	named := shown("broker", clients)
	r.way(t, "cert", named, byTLS)
	named.Role = "suite"
	r.way(t, "cert by name", named, byTLS)
	named.Role = "other"
	r.noWay(t, "cert by another name", named, byTLS, "vault_denied")
	r.noWay(t, "cert of another authority", shown("stranger", newAuthority(t)), byTLS, "vault_denied")
	mixed := shown("mixed", clients)
	mixed.KeyFile = named.KeyFile
	r.noWay(t, "cert and another's key", mixed, byTLS, "no certificate and key in PEM that belong together")
	t.Run("cert is renewed for the certificate alone", func(t *testing.T) { r.renewsCertificate(t, named) })
}

// renewsCertificate holds why a login by certificate has connections of its own.
func (r *rig) renewsCertificate(t *testing.T, auth policy.VaultAuth) {
	shows := clientWith(t, r.CA, auth.CertFile, auth.KeyFile)
	by := func(client *http.Client, address, token, path string) said {
		return r.over(t, client, address, nil, token, "PUT", path, document{})
	}
	s := by(shows, r.TLS, nobody, "auth/cert/login")
	token := s.text("auth", "client_token")
	if s.status != 200 || at(s.body, "auth", "renewable") != true {
		t.Fatalf("the login is answered %d", s.status)
	}
	if s := by(testhttp.Client, r.Address, token, "auth/token/renew-self"); s.status < 400 {
		t.Errorf("renewed without a certificate: %d", s.status)
	}
	if s := by(shows, r.TLS, token, "auth/token/renew-self"); s.status != 200 {
		t.Errorf("renewed with the certificate: %d", s.status)
	}
}

// lockout: why a refused secret id is not shown again and again.
func (r *rig) lockout(t *testing.T) {
	r.write(t, "auth/approle/role/suite-locked", document{"token_policies": "broker"})
	roleID := r.want(t, 200, r.RootToken, "GET", "auth/approle/role/suite-locked/role-id", nil).text("data", "role_id")
	id := r.want(t, 200, r.RootToken, "POST", "auth/approle/role/suite-locked/secret-id", document{}).text("data", "secret_id")
	right := document{"role_id": roleID, "secret_id": id}
	wrong := document{"role_id": roleID, "secret_id": "wrong"}
	steps := []step{{200, nobody, "PUT", "auth/approle/login", right}}
	for range 5 {
		steps = append(steps, step{400, nobody, "PUT", "auth/approle/login", wrong})
	}
	r.steps(t, "five refusals lock an AppRole out", append(steps, step{403, nobody, "PUT", "auth/approle/login", right})...)
	t.Run("a Client is refused twice", func(t *testing.T) {
		r.write(t, "auth/approle/role/suite-mended", document{"token_policies": "broker,suite", "token_ttl": "1h"})
		roleID := r.want(t, 200, r.RootToken, "GET", "auth/approle/role/suite-mended/role-id", nil).text("data", "role_id")
		file := put(t, filepath.Join(t.TempDir(), "secret_id"), "wrong-"+rand.Text())
		c := r.start(t, func(conf *vault.Config) {
			conf.Auth = policy.VaultAuth{Method: "approle", RoleID: roleID, SecretIDFile: file}
		})
		r.refused(t, c, "is not shown again for 16 minutes")
		put(t, file, r.want(t, 200, r.RootToken, "POST", "auth/approle/role/suite-mended/secret-id", document{}).text("data", "secret_id"))
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		defer cancel()
		if err := c.WaitReady(ctx); err != nil {
			t.Errorf("with the right secret id: %v", err)
		}
	})
}

func signed(t *testing.T, key *ecdsa.PrivateKey, claims jwt.MapClaims) string {
	t.Helper()
	token, err := jwt.NewWithClaims(jwt.SigningMethodES256, claims).SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func publicPEM(t *testing.T, key *ecdsa.PrivateKey) string {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}
