package operation_test

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/brokertest"
	"onbehalf.internal/broker/internal/devmcp"
	"onbehalf.internal/broker/secret/canary"
	"onbehalf.internal/broker/store"
)

// A strict rig has a provider and a server besides that know the broker by its
// certificate. The tokens of that provider are bound to it, as long as bind says so.
type strictRig struct {
	*brokertest.Rig
	server *devmcp.Server
	key    string // of the certificate, in PEM
	bind   atomic.Bool
	begun  atomic.Pointer[func()] // while the decision is being written
}

const strictProfile = `  strict:
    token_endpoint: PROVIDER/token
    allow_cidrs: ["127.0.0.0/8"]
    ca_file: provider.pem
    client: {id: broker, auth: mtls, key: "vault:kv/broker/mtls-key#value", certificate: "vault:kv/broker/mtls-chain#value"}
    allowed_audiences: [mcp-strict]
    allowed_scopes: [read]
    response: {token_format: jwt}
    grants:
      "user:7": {enabled: true, credential: "vault:kv/broker/subjects/7#value", allowed_audiences: [mcp-strict], allowed_scopes: [read]}
`

const strictServer = `  strict:
    url: SERVER
    allow_cidrs: ["127.0.0.0/8"]
    ca_file: server.pem
    enabled: true
    data_class: internalConfiguration
    requires_approval: false
    auth: {mode: delegated, profile: strict, audience: mcp-strict, scopes: [read]}
    tools: {whoami: {enabled: true}}
`

func newStrictRig(t *testing.T, legacy bool) *strictRig {
	t.Helper()
	s := &strictRig{}
	s.bind.Store(true)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var err error
	s.server, err = devmcp.Start(devmcp.Options{MutualTLS: true, Legacy: legacy, Verify: bindingOf})
	must(err)
	t.Cleanup(func() { s.server.Close() })
	provider := httptest.NewUnstartedServer(http.HandlerFunc(s.issue))
	provider.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	provider.StartTLS()
	t.Cleanup(provider.Close)
	s.Rig = brokertest.New(t, &brokertest.Options{Tamper: func(at store.Moment, records []audit.Record) error {
		if f := s.begun.Load(); f != nil && at == store.Committing && len(records) > 0 && records[0].Kind == audit.Decision {
			(*f)()
		}
		return nil
	}})
	chain, key := inPEM(t)
	s.key = key
	must(s.SetCredential(t.Context(), "broker/mtls-chain", chain))
	must(s.SetCredential(t.Context(), "broker/mtls-key", key))
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: provider.Certificate().Raw})
	must(os.WriteFile(filepath.Join(s.Dir, "provider.pem"), authority, 0o600))
	must(os.WriteFile(filepath.Join(s.Dir, "server.pem"), s.server.CA, 0o600))
	must(s.Edit(func(yaml string) string {
		yaml = strings.Replace(yaml, "servers: [records, archive]", "servers: [records, archive, strict]", 1)
		yaml = strings.Replace(yaml, "\nservers:\n", strings.Replace(strictProfile, "PROVIDER", provider.URL, 1)+"\nservers:\n", 1)
		return yaml + strings.Replace(strictServer, "SERVER", s.server.URL, 1)
	}))
	return s
}

// issue answers a token request with a JWT; its signature is nobody's business here.
func (s *strictRig) issue(w http.ResponseWriter, r *http.Request) {
	claims := map[string]any{"sub": "user:7", "aud": "mcp-strict", "exp": time.Now().Add(time.Minute).Unix(), "jti": rand.Text()}
	if s.bind.Load() {
		claims["cnf"] = map[string]string{"x5t#S256": thumbprint(r.TLS.PeerCertificates[0].Raw)}
	}
	body, _ := json.Marshal(claims)
	encode := base64.RawURLEncoding.EncodeToString
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"access_token":"%s.%s.%s","issued_token_type":"urn:ietf:params:oauth:token-type:access_token","token_type":"Bearer","expires_in":60}`,
		encode([]byte(`{"alg":"ES256","typ":"at+jwt"}`)), encode(body), encode([]byte("signature")))
}

// bindingOf reads a token as a server does that verifies it.
func bindingOf(token string) (who devmcp.Identity, err error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return who, errors.New("not a JWT")
	}
	body, err := base64.RawURLEncoding.DecodeString(parts[1])
	var claims struct {
		Sub string
		Cnf map[string]string
	}
	err = errors.Join(err, json.Unmarshal(body, &claims))
	return devmcp.Identity{Subject: claims.Sub, Bound: claims.Cnf["x5t#S256"]}, err
}

func thumbprint(der []byte) string {
	sum := sha256.Sum256(der)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

func inPEM(t *testing.T) (chain, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "broker"}, NotAfter: time.Now().Add(time.Hour)}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}))
}

// TestBoundToken: a token that is bound to the broker's certificate is shown over
// that, on every leg; one that is not is shown over none, also right after the other.
func TestBoundToken(t *testing.T) {
	for _, legacy := range []bool{false, true} {
		canary.Run(t, func(c *canary.Cage) {
			s := newStrictRig(t, legacy)
			c.Plant(s.key)
			for i, bound := range []bool{true, false, true} {
				s.bind.Store(bound)
				before := len(s.server.Requests())
				a := s.Call(t, brokertest.Call{Server: "strict"})
				c.Bytes("answer", a.Body)
				if a.State != "succeeded" {
					t.Fatalf("%s", a.Body)
				}
				if legacy {
					parted(t, s.server, i+1)
				}
				seen := s.server.Requests()[before:]
				if want := map[bool]int{false: 1, true: 4}[legacy]; len(seen) < want {
					t.Errorf("%d requests, want %d or more", len(seen), want)
				}
				for _, r := range seen {
					if (r.Shown != "") != bound {
						t.Errorf("bound %v: %s showed %q", bound, cmp.Or(r.Method, r.HTTPMethod), r.Shown)
					}
				}
			}
			c.Bytes("log", []byte(s.Log()))
		})
	}
}

// TestNoEarlyDial: a connection that may have to show a certificate carries one, so
// it is not made before the decision is on disk; any other is, since it carries
// nothing.
func TestNoEarlyDial(t *testing.T) {
	s := newStrictRig(t, false)
	for _, tc := range []struct {
		server string
		mcp    *devmcp.Server
		early  bool
	}{
		{"strict", s.server, false},
		{"records", s.Records, true},
	} {
		var early atomic.Bool
		watch := func() { // the commit waits for as long as a dial on loopback may take, or until it is seen
			ctx, cancel := context.WithTimeout(t.Context(), map[bool]time.Duration{false: 200 * time.Millisecond, true: 5 * time.Second}[tc.early])
			defer cancel()
			early.Store(tc.mcp.Await(ctx, func() bool { return tc.mcp.Connections() > 0 }) == nil)
		}
		s.begun.Store(&watch)
		a := s.Call(t, brokertest.Call{Server: tc.server})
		if a.State != "succeeded" || early.Load() != tc.early {
			t.Errorf("%s: a connection before the decision: %v, want %v\n%s", tc.server, early.Load(), tc.early, a.Body)
		}
	}
}
