package identity_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/golang-jwt/jwt/v5"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/identity"
)

const (
	gatewayBearer = "gateway-bearer-0123456789abcdef"
	auditorBearer = "auditor-bearer-0123456789abcdef"

	goodHeader = `{"alg":"ES256","typ":"JWT","kid":"k1"}`
	goodClaims = `{"iss":"https://gateway.example.org","sub":"user:7","aud":"broker","iat":1800000000,"exp":1800000120,"jti":"j-1"}`
)

// noon is the time of every test; the numbers in goodClaims are around it.
var noon = time.Unix(1_800_000_000, 0)

// A rig is a directory of one gateway, which signs and asserts, and one
// auditor, who does neither.
type rig struct {
	*identity.Directory
	now     time.Time
	p256    *ecdsa.PrivateKey // kid k1
	p384    *ecdsa.PrivateKey // kid k2
	rsa     *rsa.PrivateKey   // kid k3
	ed      ed25519.PrivateKey
	foreign *ecdsa.PrivateKey // in no key set
	keys    identity.KeySet
}

func newRig(t testing.TB) *rig {
	t.Helper()
	r := &rig{now: noon}
	r.p256, r.foreign, r.p384 = newEC(t, elliptic.P256()), newEC(t, elliptic.P256()), newEC(t, elliptic.P384())
	r.rsa = newRSA(t, 2048)
	var err error
	if _, r.ed, err = ed25519.GenerateKey(rand.Reader); err != nil {
		t.Fatal(err)
	}
	r.keys = keySet(t, map[string]crypto.PublicKey{"k1": r.p256.Public(), "k2": r.p384.Public(), "k3": r.rsa.Public(), "k4": r.ed.Public()})
	if r.Directory, err = identity.NewDirectory(r.entries(), func() time.Time { return r.now }); err != nil {
		t.Fatal(err)
	}
	return r
}

// entries are the callers as an operator wrote them.
func (r *rig) entries() []identity.CallerConfig {
	return []identity.CallerConfig{
		{
			ID:           "gateway",
			Roles:        []identity.Role{identity.Operate},
			BearerSHA256: [][32]byte{sha256.Sum256([]byte("gateway-bearer-before-rotation")), sha256.Sum256([]byte(gatewayBearer))},
			Asserted:     []string{"service:nightly"},
			Signed: &identity.SignedActors{
				Issuer: "https://gateway.example.org", Audience: "broker", Keys: r.keys,
				Subjects: []string{"user:", "service:weekly"},
				Admin:    identity.Claim{Name: "roles", Value: "admin"},
			},
		},
		{
			ID:           "auditor",
			Roles:        []identity.Role{identity.Audit},
			BearerSHA256: [][32]byte{sha256.Sum256([]byte(auditorBearer)), sha256.Sum256([]byte("no token68"))},
		},
	}
}

// caller returns the caller with that bearer.
func (r *rig) caller(t testing.TB, bearer string) identity.Caller {
	t.Helper()
	c, err := r.Caller(http.Header{"Authorization": {"Bearer " + bearer}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// assert brings an assertion as the gateway.
func (r *rig) assert(t testing.TB, assertion string) (identity.Actor, error) {
	t.Helper()
	return r.Actor(r.caller(t, gatewayBearer), http.Header{"Broker-Actor-Assertion": {assertion}})
}

// sign makes a JWT out of texts, which need not be what a library would write.
func sign(t testing.TB, method jwt.SigningMethod, key any, header, claims string) string {
	t.Helper()
	text := base64.RawURLEncoding.EncodeToString([]byte(header)) + "." + base64.RawURLEncoding.EncodeToString([]byte(claims))
	signature, err := method.Sign(text, key)
	if err != nil {
		t.Fatal(err)
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(signature)
}

func (r *rig) sign(t testing.TB, header, claims string) string {
	t.Helper()
	return sign(t, jwt.SigningMethodES256, r.p256, header, claims)
}

// replace is strings.Replace that fails where there is nothing to replace.
func replace(t testing.TB, s, old, new string) string {
	t.Helper()
	if strings.Count(s, old) != 1 {
		t.Fatalf("%q is not once in %q", old, s)
	}
	return strings.Replace(s, old, new, 1)
}

func newEC(t testing.TB, curve elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func newRSA(t testing.TB, bits int) *rsa.PrivateKey {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// jwk writes one key as JSON.
func jwk(t testing.TB, k jose.JSONWebKey) string {
	t.Helper()
	b, err := json.Marshal(k)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func keySet(t testing.TB, keys map[string]crypto.PublicKey) identity.KeySet {
	t.Helper()
	var list []string
	for kid, key := range keys {
		list = append(list, jwk(t, jose.JSONWebKey{Key: key, KeyID: kid}))
	}
	set, err := identity.ParseKeySet([]byte(`{"keys":[` + strings.Join(list, ",") + `]}`))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// reason returns the reason of err, and None without an error.
func reason(err error) fault.Reason {
	if err == nil {
		return fault.None
	}
	return fault.ReasonOf(err)
}

// directoryWith is the gateway's entry with another key set, of one key.
func directoryWith(t testing.TB, r *rig, key string) *identity.Directory {
	t.Helper()
	keys, err := identity.ParseKeySet([]byte(`{"keys":[` + key + `]}`))
	if err != nil {
		t.Fatal(err)
	}
	d, err := identity.NewDirectory([]identity.CallerConfig{{
		ID: "gateway", Roles: []identity.Role{identity.Operate}, BearerSHA256: [][32]byte{sha256.Sum256([]byte(gatewayBearer))},
		Signed: &identity.SignedActors{Issuer: "https://gateway.example.org", Audience: "broker", Keys: keys, Subjects: []string{"user:"}},
	}}, func() time.Time { return r.now })
	if err != nil {
		t.Fatal(err)
	}
	return d
}
