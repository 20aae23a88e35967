package exchange_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	golangjwt "github.com/golang-jwt/jwt/v5"

	"onbehalf.internal/broker/exchange"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/secret"
)

// A signer is a provider's key.
type signer struct {
	kid    string
	method golangjwt.SigningMethod
	key    crypto.Signer
}

func newSigner(kid string) signer {
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	return signer{kid, golangjwt.SigningMethodES256, key}
}

// sign signs a good token, with parts of its header changed.
func (s signer) sign(header ...any) string {
	t := golangjwt.NewWithClaims(s.method, golangjwt.MapClaims{"aud": audience, "exp": now.Unix() + 600, "scope": "files.read", "sub": "user-7"})
	t.Header["kid"] = s.kid
	for i := 0; i < len(header); i += 2 {
		t.Header[header[i].(string)] = header[i+1]
		if header[i+1] == nil {
			delete(t.Header, header[i].(string))
		}
	}
	signed, err := t.SignedString(s.key)
	if err != nil {
		panic(err)
	}
	return signed
}

func (s signer) jwk(change func(*jose.JSONWebKey)) string {
	k := jose.JSONWebKey{Key: s.key.Public(), KeyID: s.kid}
	if change != nil {
		change(&k)
	}
	b, err := json.Marshal(k)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func jwks(keys ...string) string { return `{"keys":[` + strings.Join(keys, ",") + `]}` }

// A keyed provider issues token and publishes keys; both may change.
type keyed struct {
	*provider
	client *exchange.Client
	order  exchange.Order
	mu     sync.Mutex
	token  string
	keys   http.HandlerFunc
	at     time.Time
}

func newKeyed(t *testing.T) *keyed {
	k := &keyed{at: now}
	k.provider = newProvider(t, at(map[string]http.HandlerFunc{
		"/token": func(w http.ResponseWriter, r *http.Request) { says(answer("access_token", quote(k.token)))(w, r) },
		"/jwks": func(w http.ResponseWriter, r *http.Request) {
			k.mu.Lock()
			f := k.keys
			k.mu.Unlock()
			f(w, r)
		},
	}))
	k.order = k.provider.order(func(o *exchange.Order) {
		o.Profile.Response.TokenFormat, o.Profile.Response.AudienceUnverified = "jwt_verified", false
		o.Profile.Response.JWKS = k.address("/jwks")
	})
	k.client = k.provider.client()
	k.client.Now = func() time.Time { return k.at }
	return k
}

func (k *keyed) ask(ctx context.Context) error {
	_, err := k.client.Order(ctx, k.order, secret.New(subjectToken), secret.New(clientSecret))
	return err
}

func (k *keyed) fetches() int { return strings.Count(k.paths(), "/jwks") }

// TestVerified is which tokens a key set vouches for.
func TestVerified(t *testing.T) {
	ours, other := newSigner("a"), newSigner("a")
	rsaKey, _ := rsa.GenerateKey(rand.Reader, 2048)
	weakKey, _ := rsa.GenerateKey(rand.Reader, 1024)
	rs := signer{"r", golangjwt.SigningMethodRS256, rsaKey}
	weak := signer{"r", golangjwt.SigningMethodRS256, weakKey}
	public := jwks(ours.jwk(nil), rs.jwk(nil))
	unsigned := func(alg string) string {
		parts := strings.Split(ours.sign(), ".")
		return b64(`{"alg":"`+alg+`","kid":"a"}`) + "." + parts[1] + "."
	}
	symmetric := golangjwt.NewWithClaims(golangjwt.SigningMethodHS256, golangjwt.MapClaims{"aud": audience, "exp": now.Unix() + 600})
	symmetric.Header["kid"] = "a"
	hmac, _ := symmetric.SignedString([]byte("a secret that is long enough for anybody"))
	good := ours.sign()
	for _, tc := range []struct {
		name, token, keys string
		want              fault.Reason
	}{
		{"signed", good, public, fault.None},
		{"signed, RSA", rs.sign(), public, fault.None},
		{"no kid, one key of the alg", ours.sign("kid", nil), public, fault.None},
		{"no kid, two keys of the alg", ours.sign("kid", nil), jwks(other.jwk(nil), ours.jwk(nil)), fault.WrongSignature},
		{"another's key under the same kid", other.sign(), public, fault.WrongSignature},
		{"unknown kid", ours.sign("kid", "b"), public, fault.WrongSignature},
		{"kid of a key of another kind", ours.sign("kid", "r"), public, fault.WrongSignature},
		{"alg none", unsigned("none"), public, fault.WrongSignature},
		{"alg NONE", unsigned("NONE"), public, fault.WrongSignature},
		{"no alg", unsigned(""), public, fault.WrongSignature},
		{"no signature", unsigned("ES256"), public, fault.WrongSignature},
		{"a secret as a key", hmac, public, fault.WrongSignature},
		{"claims changed", strings.Replace(good, strings.Split(good, ".")[1], strings.Split(jwt(), ".")[1], 1), public, fault.WrongSignature},
		{"an extension", ours.sign("crit", []string{"b64"}), public, fault.ExchangeMalformed},
		{"kid no text", ours.sign("kid", 7), public, fault.ExchangeMalformed},
		{"its own key in the header", other.sign("jwk", json.RawMessage(other.jwk(nil))), public, fault.WrongSignature},
		{"key for encryption", good, jwks(ours.jwk(func(k *jose.JSONWebKey) { k.Use = "enc" }), rs.jwk(nil)), fault.WrongSignature},
		{"key for another alg", good, jwks(ours.jwk(func(k *jose.JSONWebKey) { k.Algorithm = "ES384" }), rs.jwk(nil)), fault.WrongSignature},
		{"key too weak", weak.sign(), jwks(weak.jwk(nil)), fault.WrongSignature},
		{"keys that nobody can read beside it", good, jwks(`{"kty":"XYZ","kid":"x"}`, `{"kty":"oct","k":"c2VjcmV0","kid":"a"}`, ours.jwk(nil)), fault.None},
		{"no JWT", issuedToken, public, fault.WrongTokenType},
	} {
		t.Run(tc.name, func(t *testing.T) {
			k := newKeyed(t)
			k.token, k.keys = tc.token, says(tc.keys)
			wantReason(t, k.ask(t.Context()), tc.want)

			// The same keys from a file.
			k.order.Profile.Response.JWKS, k.order.Profile.Response.Keys = nil, []byte(tc.keys)
			before := k.fetches()
			for range 2 {
				wantReason(t, k.ask(t.Context()), tc.want)
			}
			if k.fetches() != before {
				t.Error("keys of a file were asked for")
			}
		})
	}
}

func b64(s string) string { return strings.Split(pack(s), ".")[1] }

// TestKeysAreKept is when keys are asked for: a story over time.
func TestKeysAreKept(t *testing.T) {
	old, next, stranger := newSigner("old"), newSigner("next"), newSigner("stranger")
	k := newKeyed(t)
	expect := func(when string, want fault.Reason, fetches int) {
		t.Helper()
		err := k.ask(t.Context())
		if got := reasonOf(err); got != want || k.fetches() != fetches {
			t.Errorf("%s: %v after %d fetches, want %q after %d", when, err, k.fetches(), want, fetches)
		}
	}
	down := answers(503, "text/html", "")
	pass := func(d time.Duration) { k.at = k.at.Add(d) }
	// Every token is made for the moment: none may run out in the story.
	sign := func(s signer) {
		t := golangjwt.NewWithClaims(s.method, golangjwt.MapClaims{"aud": audience, "exp": k.at.Unix() + 600})
		t.Header["kid"] = s.kid
		k.token, _ = t.SignedString(s.key)
	}

	sign(old)
	k.keys = down
	expect("down from the start", fault.KeysUnavailable, 1)
	expect("down a moment later", fault.KeysUnavailable, 1)
	pass(2 * time.Second)
	k.keys = says(jwks(old.jwk(nil)))
	expect("up", fault.None, 2)
	expect("known", fault.None, 2)
	pass(9 * time.Minute)
	sign(next)
	expect("rotated, and not published", fault.WrongSignature, 3)
	k.keys = says(jwks(old.jwk(nil), next.jwk(nil)))
	sign(stranger)
	expect("a stranger's key", fault.WrongSignature, 3)
	pass(29 * time.Second)
	expect("a stranger's key again and again", fault.WrongSignature, 3)
	pass(time.Second)
	sign(next)
	expect("rotated and published", fault.None, 4)
	sign(old)
	expect("the old key for a while", fault.None, 4)
	pass(10 * time.Minute)
	k.keys = says(jwks(next.jwk(nil)))
	sign(old)
	expect("the old key withdrawn", fault.WrongSignature, 5)
	sign(next)
	expect("the new key stays", fault.None, 5)
	k.keys = down
	pass(49 * time.Minute)
	sign(next)
	expect("an outage", fault.None, 6)
	sign(stranger)
	expect("a stranger in the outage", fault.WrongSignature, 6)
	pass(2 * time.Second)
	expect("a stranger in the outage, later", fault.KeysUnavailable, 7)
	pass(11 * time.Minute)
	sign(next)
	expect("the outage is too long", fault.KeysUnavailable, 8)
	pass(2 * time.Second)
	for _, body := range []string{"", "[]", `{"keys":[]}`, `{"keys":{}}`, `{"keys":[{"kty":"oct","k":"c2VjcmV0"}]}`, `{"keys":[],"keys":[]}`} {
		k.keys = says(body)
		before := k.fetches()
		expect(fmt.Sprintf("no key set: %q", body), fault.KeysUnavailable, before+1)
		pass(2 * time.Second)
	}
}

// TestKeysAskedOnce: many who need the keys at once make one request, and one
// who gives up does not take the others along.
func TestKeysAskedOnce(t *testing.T) {
	s := newSigner("a")
	k := newKeyed(t)
	k.token = s.sign()
	arrived, open := make(chan struct{}, 8), make(chan struct{})
	k.keys = func(w http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		select {
		case <-open:
			says(jwks(s.jwk(nil)))(w, r)
		case <-r.Context().Done():
		}
	}
	first, cancel := context.WithCancel(t.Context())
	gone := make(chan error)
	go func() { gone <- k.ask(first) }()
	<-arrived
	results := make(chan error)
	for range 8 {
		go func() { results <- k.ask(t.Context()) }()
	}
	cancel()
	wantReason(t, <-gone, fault.CallerCancelled)
	left := 8
	select {
	case <-arrived: // one of the others
	case err := <-results:
		t.Errorf("without asking: %v", err)
		left--
	}
	close(open)
	for range left {
		wantReason(t, <-results, fault.None)
	}
	if k.fetches() != 2 {
		t.Errorf("%d fetches, want 2", k.fetches())
	}
}

// TestKeysLegRefused: a leg that is not allowed sends nothing and does not
// stand in the way of the next one.
func TestKeysLegRefused(t *testing.T) {
	s := newSigner("a")
	k := newKeyed(t)
	k.token, k.keys = s.sign(), says(jwks(s.jwk(nil)))
	refused := fault.New("session.stands", fault.GrantRevoked, "")
	key := exchange.Key{Text: secret.New(clientSecret), Leg: func(_ context.Context, name string, _ func(context.Context) error) error {
		if name != "jwks" {
			t.Errorf("leg %q", name)
		}
		return refused
	}}
	_, err := k.client.OrderWith(t.Context(), k.order, exchange.Subject{Token: secret.New(subjectToken)}, key)
	wantReason(t, err, fault.GrantRevoked)
	wantReason(t, k.ask(t.Context()), fault.None)
	if k.fetches() != 1 {
		t.Errorf("%d fetches, want 1", k.fetches())
	}
}

func reasonOf(err error) fault.Reason {
	if err == nil {
		return fault.None
	}
	return fault.ReasonOf(err)
}
