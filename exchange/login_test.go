package exchange_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	golangjwt "github.com/golang-jwt/jwt/v5"
	"github.com/google/go-cmp/cmp"

	"onbehalf.internal/broker/exchange"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/secret"
	"onbehalf.internal/broker/secret/canary"
)

// TestLogin holds what each method puts into the header and into the form.
func TestLogin(t *testing.T) {
	for _, tc := range []struct {
		method string
		basic  [2]string // as the server reads it before form-decoding
		form   url.Values
	}{
		// RFC 6749 §2.3.1: form-encoded inside Basic.
		{"basic", [2]string{"br%C3%B6ker%2F1", "b%2Fr%2Bo+k%25er%3A%26%3D~%C3%BC-planted-secret"}, url.Values{}},
		{"post", [2]string{}, url.Values{"client_id": {"bröker/1"}, "client_secret": {clientSecret}}},
		{"none", [2]string{}, url.Values{"client_id": {"bröker/1"}}},
	} {
		t.Run(tc.method, func(t *testing.T) {
			p := newProvider(t, says(answer()))
			o := p.order(func(o *exchange.Order) { o.Profile.Client.ID, o.Profile.Client.Auth = "bröker/1", tc.method })
			if _, err := p.client().Order(t.Context(), o, secret.New(subjectToken), secret.New(clientSecret)); err != nil {
				t.Fatal(err)
			}
			got := p.requests()[0]
			if diff := cmp.Diff(tc.form, clientFields(got.form)); diff != "" {
				t.Errorf("client fields (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.basic, basic(got)); diff != "" {
				t.Errorf("Authorization (-want +got):\n%s", diff)
			}
		})
	}
}

func basic(r request) [2]string {
	req := &http.Request{Header: r.header}
	id, key, _ := req.BasicAuth()
	return [2]string{id, key}
}

func clientFields(form url.Values) url.Values {
	got := url.Values{}
	for name, values := range form {
		if strings.HasPrefix(name, "client_") {
			got[name] = values
		}
	}
	return got
}

func pkcs8(t *testing.T, key any) string {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return armour("PRIVATE KEY", der)
}

func armour(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

// TestAssertion holds RFC 7523 §3 as a server would check it.
func TestAssertion(t *testing.T) {
	rsaKey, _ := rsa.GenerateKey(rand.Reader, 2048)
	ecKey, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	p384, _ := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	_, edKey, _ := ed25519.GenerateKey(rand.Reader)
	sec1, _ := x509.MarshalECPrivateKey(ecKey)
	const endpoint = "the endpoint"

	for _, tc := range []struct {
		name     string
		key      string
		public   crypto.PublicKey
		alg      string // of the profile
		audience string
		wantAlg  string
		wantAud  string
	}{
		{"RS256", pkcs8(t, rsaKey), rsaKey.Public(), "RS256", "issuer", "RS256", issuer},
		{"PS256", pkcs8(t, rsaKey), rsaKey.Public(), "PS256", "issuer", "PS256", issuer},
		{"ES256", pkcs8(t, ecKey), ecKey.Public(), "ES256", "token_endpoint", "ES256", endpoint},
		{"ES384", pkcs8(t, p384), p384.Public(), "ES384", "issuer", "ES384", issuer},
		{"EdDSA", pkcs8(t, edKey), edKey.Public(), "EdDSA", "https://literal.example", "EdDSA", "https://literal.example"},
		{"alg by the key, PKCS #1", armour("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(rsaKey)), rsaKey.Public(), "", "issuer", "RS256", issuer},
		{"alg by the key, SEC 1", armour("EC PRIVATE KEY", sec1), ecKey.Public(), "", "issuer", "ES256", issuer},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newProvider(t, says(answer()))
			o := p.order(func(o *exchange.Order) {
				o.Profile.Client.Auth, o.Profile.Client.Alg, o.Profile.Client.Kid = "private_key_jwt", tc.alg, "key-1"
				o.Profile.Client.Audience, o.Profile.Response.ExpectIssuer = tc.audience, issuer
			})
			if tc.wantAud == endpoint {
				tc.wantAud = o.Profile.TokenEndpoint.String()
			}
			seen := map[string]bool{}
			for range 2 {
				if _, err := p.client().Order(t.Context(), o, secret.New(subjectToken), secret.New(tc.key)); err != nil {
					t.Fatal(err)
				}
			}
			for _, r := range p.requests() {
				if r.form.Has("client_secret") || r.header.Get("Authorization") != "" {
					t.Error("a second way of authentication")
				}
				if got := r.form.Get("client_assertion_type"); got != "urn:ietf:params:oauth:client-assertion-type:jwt-bearer" {
					t.Errorf("client_assertion_type %q", got)
				}
				claims := golangjwt.MapClaims{}
				parsed, err := golangjwt.ParseWithClaims(r.form.Get("client_assertion"), claims,
					func(*golangjwt.Token) (any, error) { return tc.public, nil },
					golangjwt.WithValidMethods([]string{tc.wantAlg}), golangjwt.WithTimeFunc(func() time.Time { return now }))
				if err != nil {
					t.Fatal(err)
				}
				jti, _ := claims["jti"].(string)
				if len(jti) < 20 || seen[jti] {
					t.Errorf("jti %q", jti)
				}
				seen[jti] = true
				delete(claims, "jti")
				want := golangjwt.MapClaims{"iss": "broker", "sub": "broker", "aud": tc.wantAud,
					"iat": float64(now.Unix()), "exp": float64(now.Unix() + 60)}
				if diff := cmp.Diff(want, claims); diff != "" {
					t.Errorf("claims (-want +got):\n%s", diff)
				}
				if parsed.Header["kid"] != "key-1" {
					t.Errorf("kid %v", parsed.Header["kid"])
				}
			}
		})
	}
}

// TestAssertionRefused holds that a key that does not fit is not used and not
// shown.
func TestAssertionRefused(t *testing.T) {
	rsaKey, _ := rsa.GenerateKey(rand.Reader, 2048)
	short, _ := rsa.GenerateKey(rand.Reader, 1024)
	p384, _ := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	ecKey, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	public, _ := x509.MarshalPKIXPublicKey(rsaKey.Public())

	for _, tc := range []struct {
		name, key, alg, audience string
		want                     fault.Reason
	}{
		{"short RSA key", pkcs8(t, short), "RS256", "issuer", fault.CredentialRejected},
		{"curve for another alg", pkcs8(t, p384), "ES256", "issuer", fault.CredentialRejected},
		{"alg for another key", pkcs8(t, ecKey), "RS256", "issuer", fault.CredentialRejected},
		{"none", pkcs8(t, rsaKey), "none", "issuer", fault.CredentialRejected},
		{"a secret as a key", pkcs8(t, rsaKey), "HS256", "issuer", fault.CredentialRejected},
		{"a public key", armour("PUBLIC KEY", public), "RS256", "issuer", fault.CredentialRejected},
		{"a broken key", armour("PRIVATE KEY", []byte(clientSecret)), "RS256", "issuer", fault.CredentialRejected},
		{"an issuer that is not named", pkcs8(t, rsaKey), "RS256", "issuer", fault.ProviderConfig},
		{"no audience", pkcs8(t, rsaKey), "RS256", "", fault.ProviderConfig},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newProvider(t, says(answer()))
			o := p.order(func(o *exchange.Order) {
				o.Profile.Client.Auth, o.Profile.Client.Alg, o.Profile.Client.Audience = "private_key_jwt", tc.alg, tc.audience
				if tc.want != fault.ProviderConfig {
					o.Profile.Response.ExpectIssuer = issuer
				}
			})
			canary.Run(t, func(c *canary.Cage) {
				_, err := p.client().Order(t.Context(), o, secret.New(subjectToken), secret.New(tc.key))
				c.Value("error", err)
				wantReason(t, err, tc.want)
			}, subjectToken, tc.key)
			if n := len(p.requests()); n != 0 {
				t.Errorf("%d requests, want none", n)
			}
		})
	}
}
