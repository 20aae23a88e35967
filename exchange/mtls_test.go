package exchange_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"onbehalf.internal/broker/exchange"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/secret"
	"onbehalf.internal/broker/secret/canary"
)

// certificate makes one that vouches for itself.
func certificate(t *testing.T) (chain, key string, cert *x509.Certificate) {
	private, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "broker"}, NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	cert, _ = x509.ParseCertificate(der)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), pkcs8(t, private), cert
}

// TestMutualTLS: the connection proves who we are, at every endpoint that asks,
// and a token that is bound to the certificate is ours (RFC 8705).
func TestMutualTLS(t *testing.T) {
	chain, key, cert := certificate(t)
	otherChain, otherKey, _ := certificate(t)
	sum := sha256.Sum256(cert.Raw)
	bound := jwt("cnf", `{"x5t#S256":"`+base64.RawURLEncoding.EncodeToString(sum[:])+`"}`)
	for _, tc := range []struct {
		name, chain, key, token string
		want                    fault.Reason
		sent                    int
	}{
		{"bound to ours", chain, key, bound, fault.None, 2},
		{"bound to ours, and the broker is the subject", chain, key, bound, fault.None, 2},
		{"not bound", chain, key, jwt(), fault.None, 2},
		{"bound to another", chain, key, jwt("cnf", `{"x5t#S256":"bwcK0esc3ACC3DB2Y5_lESsXE8o9ltc05O89jdN-dg2"}`), fault.WrongBinding, 1},
		{"a certificate that the provider does not know", otherChain, otherKey, bound, fault.ProviderUnreachable, 0},
		{"the key of another", chain, otherKey, bound, fault.CredentialRejected, 0},
		{"no certificate", "", key, bound, fault.CredentialMissing, 0},
		{"no key", chain, "", bound, fault.CredentialMissing, 0},
		{"a secret as a certificate", clientSecret, key, bound, fault.CredentialRejected, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var asked []url.Values
			srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				r.ParseForm()
				asked = append(asked, r.PostForm)
				says(answer("access_token", quote(tc.token)))(w, r)
			}))
			known := x509.NewCertPool()
			known.AddCert(cert)
			srv.TLS = &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: known}
			srv.Config.ErrorLog = log.New(io.Discard, "", 0)
			srv.StartTLS()
			defer srv.Close()
			roots := x509.NewCertPool()
			roots.AddCert(srv.Certificate())
			endpoint, _ := url.Parse(srv.URL + "/token")
			o := exchange.Order{Audience: audience, Scopes: []string{"files.read"}, Profile: &policy.Profile{
				TokenEndpoint: endpoint, AllowCIDRs: loopbackCIDRs, CA: roots, Client: policy.Client{ID: "broker", Auth: "mtls"},
				Response: policy.Response{TokenFormat: "jwt"}, Revocation: policy.Revocation{Endpoint: endpoint}}}
			who := exchange.Subject{Token: secret.New(subjectToken)}
			if strings.HasSuffix(tc.name, "the broker is the subject") {
				who = exchange.Subject{}
				o.Profile.GrantType = "client_credentials"
			}
			k := exchange.Key{Text: secret.New(tc.key), Certificate: secret.New(tc.chain)}
			c := exchange.New(func() time.Time { return now })
			canary.Run(t, func(cage *canary.Cage) {
				issued, err := c.OrderWith(t.Context(), o, who, k)
				cage.Value("error", err)
				wantReason(t, err, tc.want)
				if err == nil {
					shown := issued.Certificate != nil && bytes.Equal(issued.Certificate.Certificate[0], cert.Raw)
					if want := tc.token == bound; issued.Bound != want || shown != want {
						t.Errorf("bound %v, to be shown with its certificate %v", issued.Bound, shown)
					}
					wantReason(t, c.Revoke(t.Context(), o.Profile, issued.Token, k), fault.None)
				}
			}, subjectToken, key, otherKey, clientSecret)
			if len(asked) != tc.sent {
				t.Fatalf("%d requests, want %d", len(asked), tc.sent)
			}
			for _, f := range asked {
				if f.Get("client_id") != "broker" || f.Has("client_secret") || f.Has("client_assertion") {
					t.Errorf("form of %s", strings.Join(f["client_id"], " "))
				}
			}
		})
	}
}

// TestServerName: at the token endpoint's host the certificate has to be for the
// name that the profile says, and at another one for that one's own.
func TestServerName(t *testing.T) {
	start := func() (*httptest.Server, *url.URL) { // its certificate is for example.com and 127.0.0.1
		s := httptest.NewUnstartedServer(says(answer()))
		s.Config.ErrorLog = log.New(io.Discard, "", 0)
		s.StartTLS()
		t.Cleanup(s.Close)
		u, _ := url.Parse(s.URL)
		return s, u
	}
	s, here := start()
	_, elsewhere := start()
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	c := exchange.New(func() time.Time { return now })
	for _, tc := range []struct {
		name     string
		timeout  time.Duration // of the connection
		exchange fault.Reason
		here     fault.Reason // a revocation at the same host
	}{
		{"", 0, fault.None, fault.None},
		{"example.com", 0, fault.None, fault.None},
		{"example.com", time.Second, fault.None, fault.None},
		{"identity.example.org", 0, fault.ProviderUnreachable, fault.ProviderUnreachable},
		{"identity.example.org", time.Second, fault.ProviderUnreachable, fault.ProviderUnreachable},
	} {
		q := &policy.Profile{TokenEndpoint: here.JoinPath("token"), AllowCIDRs: loopbackCIDRs, CA: roots, ServerName: tc.name, ConnectTimeout: tc.timeout,
			Client: policy.Client{ID: "broker", Auth: "none"}, Response: policy.Response{TokenFormat: "opaque", AudienceUnverified: true}}
		_, err := c.Order(t.Context(), exchange.Order{Profile: q, Audience: audience, Scopes: []string{"files.read"}}, secret.New(subjectToken), secret.Text{})
		wantReason(t, err, tc.exchange)
		if err != nil && !strings.Contains(err.Error(), "no TLS with the endpoint") {
			t.Errorf("%q: %v", tc.name, err)
		}
		q.Revocation.Endpoint = here.JoinPath("revoke")
		wantReason(t, c.Revoke(t.Context(), q, secret.New(issuedToken), exchange.Key{}), tc.here)
		q.Revocation.Endpoint = elsewhere.JoinPath("revoke")
		wantReason(t, c.Revoke(t.Context(), q, secret.New(issuedToken), exchange.Key{}), fault.None)
	}
}
