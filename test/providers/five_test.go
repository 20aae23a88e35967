//go:build interop

package providers_test

import (
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"onbehalf.internal/broker/internal/counterparts"
	"onbehalf.internal/broker/internal/devidp"
	"onbehalf.internal/broker/strictjson"
)

const (
	records, mail = "https://records.example.org/mcp", "https://mail.example.org/mcp"
)

// A provider is one that runs, and how to come to each column of the tables.
type provider struct {
	name string
	good func(testing.TB) profile // with a new subject

	wrongAudience, wrongScope func(*profile)
	wrongSecret               func(*profile)

	expiring func(testing.TB) (subject string, life time.Duration)
	revoked  func(testing.TB) string // a subject that was revoked, as far as it can be

	auths map[string]func(*profile)
}

func otherSecret(p *profile) { p.key = "b/r o+k%er-planted" }

func audience(name string, scopes ...string) func(*profile) {
	return func(p *profile) { p.audience, p.scopes = name, scopes }
}

func moreScope(scope string) func(*profile) {
	return func(p *profile) { p.scopes = append(p.scopes[:len(p.scopes):len(p.scopes)], scope) }
}

func authenticate(auth string) func(*profile) { return func(p *profile) { p.auth = auth } }

// overTLS has the broker's certificate shown to something in front of the
// provider where TLS ends.
func overTLS(t *testing.T, client *counterparts.Realm) func(*profile) {
	return func(p *profile) {
		to, err := url.Parse(p.endpoint)
		if err != nil {
			t.Fatal(err)
		}
		s := httptest.NewTLSServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: to.Scheme, Host: to.Host})
			r.Out.Host = to.Host
		}})
		t.Cleanup(s.Close)
		p.endpoint = s.URL + to.Path
		p.ca = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
		p.auth, p.key, p.certificate = "mtls", client.Key, client.Certificate
	}
}

// byKey is private_key_jwt at a provider that knows no key of the broker's.
func byKey(client *counterparts.Realm) func(*profile) {
	return func(p *profile) { p.auth, p.asserted, p.key = "private_key_jwt", "token_endpoint", client.Key }
}

func dex(t *testing.T, client *counterparts.Realm) provider {
	d := counterparts.Dex(t)
	return provider{
		name: "dex",
		good: func(t testing.TB) profile {
			p := dexProfile(t, d)
			p.response = `token_format: jwt_verified, jwks_url: "` + d.Issuer + `/keys", expect_issuer: "` + d.Issuer + `", ` + bothClients
			return p
		},
		wrongAudience: func(p *profile) { p.scopes = []string{"openid"} },
		wrongScope:    moreScope("records.read"),
		wrongSecret:   otherSecret,
		expiring:      func(t testing.TB) (string, time.Duration) { return d.Subject(t), counterparts.DexSubjectLife },
		revoked: func(t testing.TB) string {
			if at := metadata(t, d.Issuer)["revocation_endpoint"]; at != nil {
				t.Errorf("dex has a revocation endpoint now: %v", at)
			}
			return d.Subject(t)
		},
		auths: map[string]func(*profile){"basic": authenticate("basic"), "post": authenticate("post"),
			"private_key_jwt": byKey(client), "mtls": overTLS(t, client)},
	}
}

func zitadel(t *testing.T, client *counterparts.Realm) provider {
	z := counterparts.Zitadel(t)
	base := strings.TrimSuffix(z.TokenEndpoint, "/oauth/token")
	return provider{
		name:          "zitadel's example",
		good:          func(t testing.TB) profile { return zitadelProfile(t, z) },
		wrongAudience: func(p *profile) { p.audience = mail },
		wrongScope:    moreScope("address"),
		wrongSecret:   otherSecret,
		expiring:      func(t testing.TB) (string, time.Duration) { return z.Subject(t), 5 * time.Minute },
		revoked: func(t testing.TB) string {
			subject := z.Subject(t)
			revoke(t, base+"/revoke", "web", "secret", subject)
			return subject
		},
		auths: map[string]func(*profile){"basic": authenticate("basic"), "post": authenticate("post"),
			"private_key_jwt": byKey(client), "mtls": overTLS(t, client)},
	}
}

func engine(t *testing.T, client *counterparts.Realm) provider {
	allow := map[string][]string{"mcp-records": {"records.read"}, "mcp-mail": {"mail.read"}}
	idp, err := devidp.Start(devidp.Config{Clients: []devidp.Client{
		{ID: "broker", Auth: "basic", Secret: "b/r+o k%er", Allow: allow},
		{ID: "broker-jwt", Auth: "private_key_jwt", Key: publicKey(t, client.Key), Allow: allow},
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { idp.Close() })
	return provider{
		name: "zitadel's engine",
		good: func(testing.TB) profile {
			return profile{
				endpoint: idp.TokenEndpoint(), client: "broker", auth: "basic", key: "b/r+o k%er",
				audience: "mcp-records", scopes: []string{"records.read"},
				response: `token_format: jwt_verified, jwks_url: "` + idp.Issuer() + `/keys", expect_issuer: "` + idp.Issuer() + `"`,
				pin:      "user:7", subject: idp.Mint("user:7", time.Minute),
			}
		},
		wrongAudience: audience("mcp-payroll", "records.read"),
		wrongScope:    moreScope("mail.read"),
		wrongSecret:   otherSecret,
		expiring:      func(testing.TB) (string, time.Duration) { return idp.Mint("user:7", time.Second), time.Second },
		revoked: func(t testing.TB) string {
			subject := idp.Mint("user:7", time.Minute)
			revoke(t, idp.RevocationEndpoint(), "broker", "b/r+o k%er", subject)
			return subject
		},
		auths: map[string]func(*profile){"basic": authenticate("basic"), "post": authenticate("post"),
			"private_key_jwt": signer("broker-jwt", client), "mtls": overTLS(t, client)},
	}
}

func oidcProvider(t *testing.T, r *counterparts.Realm) provider {
	p := realm("oidc-provider", r)
	p.good = func(t testing.TB) profile {
		return profile{
			endpoint: r.Token, client: r.ClientID, auth: "basic", key: r.ClientSecret,
			audience: records, scopes: []string{"records.read"},
			response:   verified(r),
			parameters: []string{"audience_param: resource"},
			pin:        "user:7", subject: r.Subject(t),
		}
	}
	p.wrongAudience = audience(mail, "mail.read")
	return p
}

func keycloak(t *testing.T, r *counterparts.Realm) provider {
	p := realm("Keycloak", r)
	p.good = func(t testing.TB) profile {
		return profile{
			endpoint: r.Token, client: r.ClientID, auth: "basic", key: r.ClientSecret,
			audience: "mcp-records", scopes: []string{"records.read"},
			response: verified(r) + ", allowed_extra_scopes: [email]",
			pin:      "00000000-0000-4000-8000-000000000007", subject: r.Subject(t),
		}
	}
	p.wrongAudience = audience("mcp-mail", "records.read")
	return p
}

// realm is what the two have in common.
func realm(name string, r *counterparts.Realm) provider {
	return provider{
		name:        name,
		wrongScope:  moreScope("mail.read"),
		wrongSecret: otherSecret,
		expiring:    func(t testing.TB) (string, time.Duration) { return r.ShortSubject(t), counterparts.RealmSubjectLife },
		revoked: func(t testing.TB) string {
			subject := r.Subject(t)
			r.Revoke(t, subject)
			return subject
		},
		auths: map[string]func(*profile){"basic": authenticate("basic"), "post": authenticate("post"),
			"private_key_jwt": signer(r.SignerID, r),
			"mtls": func(p *profile) {
				p.endpoint, p.ca = r.MutualTLS, r.CA
				p.auth, p.client, p.key, p.certificate = "mtls", r.HolderID, r.Key, r.Certificate
			}},
	}
}

func verified(r *counterparts.Realm) string {
	return `token_format: jwt_verified, jwks_url: "` + r.Keys + `", expect_issuer: "` + r.Issuer + `"`
}

// signer is private_key_jwt of a client that the provider has the key of.
func signer(id string, r *counterparts.Realm) func(*profile) {
	return func(p *profile) { p.auth, p.client, p.key = "private_key_jwt", id, r.Key }
}

func publicKey(t *testing.T, text string) any {
	t.Helper()
	block, _ := pem.Decode([]byte(text))
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return key.(*ecdsa.PrivateKey).Public()
}

// outside is how a test asks a provider by itself: with an end, and no further
// than it was told.
var outside = &http.Client{
	Timeout:       10 * time.Second,
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// revoke ends a token as its client would (RFC 7009).
func revoke(t testing.TB, endpoint, client, key, token string) {
	t.Helper()
	form := url.Values{"token": {token}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, endpoint, strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.SetBasicAuth(url.QueryEscape(client), url.QueryEscape(key))
	resp, err := outside.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("revoking at %s: status %d", endpoint, resp.StatusCode)
	}
}

// metadata is what a provider says about itself (RFC 8414).
func metadata(t testing.TB, issuer string) map[string]strictjson.Raw {
	t.Helper()
	resp, err := outside.Get(issuer + "/.well-known/openid-configuration")
	return object(t, resp, err)
}

// object is the JSON object of a good answer.
func object(t testing.TB, resp *http.Response, err error) map[string]strictjson.Raw {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("status %d, %v", resp.StatusCode, err)
	}
	m, err := strictjson.Members(b)
	if err != nil {
		t.Fatal(err)
	}
	return m
}
