package signin_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/golang-jwt/jwt/v5"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/identity"
	"onbehalf.internal/broker/secret"
	"onbehalf.internal/broker/signin"
)

const (
	home    = "http://127.0.0.1:8471/ui/callback"
	planted = "planted-7f3a-by-the-provider"
)

// directory has people sign in at an issuer on this machine.
func directory(t testing.TB, issuer, client string, change func(*identity.SignIn)) *identity.Directory {
	t.Helper()
	in := identity.SignIn{Issuer: issuer, ClientID: client, Subjects: []string{"user:"}, Scopes: []string{"groups"},
		Audit: identity.Claim{Name: "groups", Value: "auditors"}, Approve: identity.Claim{Name: "groups", Value: "approvers"},
		AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
	if change != nil {
		change(&in)
	}
	d, err := identity.NewDirectory([]identity.CallerConfig{{ID: "people", Roles: []identity.Role{identity.Audit, identity.Approve}, SignIn: &in}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// provider returns where people of d sign in, with the client's secret.
func provider(d *identity.Directory, clientSecret string) *signin.Provider {
	return signin.New(signin.Config{Directory: func() *identity.Directory { return d }, Redirect: home,
		Secret: func(context.Context) (secret.Text, error) { return secret.New(clientSecret), nil }})
}

// reason returns the reason of err, and None without an error.
func reason(err error) fault.Reason {
	if err == nil {
		return fault.None
	}
	return fault.ReasonOf(err)
}

// A hostile is a provider that keeps to nothing but what a test says.
type hostile struct {
	*httptest.Server
	document      map[string]any // what it says about itself
	claims        map[string]any // of the next ID token
	key           *ecdsa.PrivateKey
	kid           string
	serve         map[string]http.HandlerFunc // in place of what is honest, by path
	nonce         string
	mu            sync.Mutex
	asked         map[string]int // by path
	authorization []string       // headers at the token endpoint
	form          url.Values     // the last one there
}

func newHostile(t testing.TB) *hostile {
	t.Helper()
	h := &hostile{serve: map[string]http.HandlerFunc{}, asked: map[string]int{}, kid: "k1", key: newKey(t), claims: map[string]any{}}
	h.Server = httptest.NewServer(h)
	t.Cleanup(h.Close)
	h.document = map[string]any{"issuer": h.URL, "authorization_endpoint": h.URL + "/authorize", "token_endpoint": h.URL + "/token", "jwks_uri": h.URL + "/keys", "x-more": []any{1}}
	return h
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

const discovery = "/.well-known/openid-configuration"

func (h *hostile) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	h.asked[r.URL.Path]++
	serve := h.serve[r.URL.Path]
	if r.URL.Path == "/token" {
		h.authorization = r.Header["Authorization"]
		r.ParseForm()
		h.form = r.PostForm
	}
	h.mu.Unlock()
	switch {
	case serve != nil:
		serve(w, r)
	case r.URL.Path == discovery:
		answer(w, 200, h.document)
	case r.URL.Path == "/keys":
		answer(w, 200, map[string]any{"keys": []any{jose.JSONWebKey{Key: h.key.Public(), KeyID: h.kid}}})
	case r.URL.Path == "/token":
		answer(w, 200, map[string]any{"access_token": planted, "token_type": "Bearer", "refresh_token": planted, "id_token": h.idToken()})
	default:
		http.NotFound(w, r)
	}
}

// idToken is a good one, with h.claims in it; nil takes one out.
func (h *hostile) idToken() string {
	claims := jwt.MapClaims{"iss": h.URL, "sub": "8", "aud": "page", "iat": time.Now().Unix(), "exp": time.Now().Add(24 * time.Hour).Unix(), "nonce": h.nonce, "groups": []string{"auditors"}}
	maps.Copy(claims, h.claims)
	maps.DeleteFunc(claims, func(_ string, v any) bool { return v == nil })
	token := jwt.NewWithClaims(jwt.SigningMethodES256, claims)
	token.Header["kid"] = h.kid
	signed, err := token.SignedString(h.key)
	if err != nil {
		panic(err) // the key is ours
	}
	return signed
}

func (h *hostile) times(path string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.asked[path]
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(body)
}

// begin begins, and hands the provider the nonce that it was sent.
func (h *hostile) begin(t testing.TB, p *signin.Provider) (signin.Attempt, error) {
	t.Helper()
	to, a, err := p.Begin(t.Context())
	if err == nil {
		u, err := url.Parse(to)
		if err != nil {
			t.Fatal(err)
		}
		h.nonce = u.Query().Get("nonce")
	}
	return a, err
}

// back is the query of a browser that comes back well.
func back(a signin.Attempt) url.Values {
	return url.Values{"state": {a.State.Reveal()}, "code": {"code-1"}}
}
