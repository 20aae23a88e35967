package identity_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"github.com/golang-jwt/jwt/v5"

	"onbehalf.internal/broker/identity"
)

// One good key stands beside one that can not be used.
func TestParseKeySetSkips(t *testing.T) {
	p256 := newEC(t, elliptic.P256())
	good := jwk(t, jose.JSONWebKey{Key: p256.Public(), KeyID: "good", Use: "sig", Algorithm: "ES256"})
	plain := jwk(t, jose.JSONWebKey{Key: newEC(t, elliptic.P256()).Public(), KeyID: "plain"})

	for _, r := range []struct {
		name, key    string
		len, skipped int
	}{
		{"another good one", plain, 2, 0},
		{"RSA of 2048 bits", jwk(t, jose.JSONWebKey{Key: newRSA(t, 2048).Public(), KeyID: "rsa"}), 2, 0},
		{"the same kid, another type", jwk(t, jose.JSONWebKey{Key: newRSA(t, 2048).Public(), KeyID: "good"}), 2, 0},
		{"members that we do not know", replace(t, plain, `"kty"`, `"key_ops":["verify"],"x-more":{},"kty"`), 2, 0},

		{"RSA of 1024 bits", jwk(t, jose.JSONWebKey{Key: newRSA(t, 1024).Public(), KeyID: "rsa"}), 1, 1},
		{"RSA of 2047 bits", jwk(t, jose.JSONWebKey{Key: newRSA(t, 2047).Public(), KeyID: "rsa"}), 1, 1},
		{"P-521", jwk(t, jose.JSONWebKey{Key: newEC(t, elliptic.P521()).Public(), KeyID: "p521"}), 1, 1},
		{"for encryption", jwk(t, jose.JSONWebKey{Key: newRSA(t, 2048).Public(), KeyID: "rsa", Use: "enc"}), 1, 1},
		{"for another algorithm", jwk(t, jose.JSONWebKey{Key: newRSA(t, 2048).Public(), KeyID: "rsa", Algorithm: "RS512"}), 1, 1},
		{"for an algorithm of another type", jwk(t, jose.JSONWebKey{Key: newRSA(t, 2048).Public(), KeyID: "rsa", Algorithm: "ES256"}), 1, 1},
		{"private", jwk(t, jose.JSONWebKey{Key: p256, KeyID: "private"}), 1, 1},
		{"symmetric", jwk(t, jose.JSONWebKey{Key: bytes.Repeat([]byte("k"), 32), KeyID: "hmac"}), 1, 1},
		{"unknown type", `{"kty":"AKP","alg":"ML-DSA-44","kid":"pq","pub":"AAAA"}`, 1, 1},
		{"unknown curve", `{"kty":"EC","crv":"secp256k1","kid":"k","x":"AAAA","y":"AAAA"}`, 1, 1},
		{"off its curve", `{"kty":"EC","crv":"P-256","kid":"k","x":"` + strings.Repeat("A", 42) + `E","y":"` + strings.Repeat("A", 42) + `E"}`, 1, 1},
		{"a broken x5c", replace(t, plain, `"kty"`, `"x5c":["AAAA"],"kty"`), 1, 1},
		{"no object", `7`, 1, 1},
		{"null", `null`, 1, 1},
	} {
		set, err := identity.ParseKeySet([]byte(`{"keys":[` + r.key + `,` + good + `],"more":1}`))
		if err != nil || set.Len() != r.len || set.Skipped() != r.skipped {
			t.Errorf("%s: %d keys, %d skipped, %v; want %d, %d", r.name, set.Len(), set.Skipped(), err, r.len, r.skipped)
		}
	}
}

func TestParseKeySetRefuses(t *testing.T) {
	key := jwk(t, jose.JSONWebKey{Key: newEC(t, elliptic.P256()).Public(), KeyID: "k"})
	other := jwk(t, jose.JSONWebKey{Key: newEC(t, elliptic.P256()).Public(), KeyID: "k"})
	for doc, want := range map[string]string{
		``:                                     `key set: empty document`,
		`[]`:                                   `key set: document is an array, not an object`,
		`{}`:                                   `key set: member "keys" is not a list`,
		`{"keys":null}`:                        `key set: no usable key, 0 skipped`,
		`{"keys":{}}`:                          `key set: member "keys" is not a list`,
		`{"Keys":[` + key + `]}`:               `key set: member "keys" is not a list`,
		`{"keys":[]}`:                          `key set: no usable key, 0 skipped`,
		`{"keys":[{"kty":"AKP"},{}]}`:          `key set: no usable key, 2 skipped`,
		`{"keys":[` + key + `,` + key + `]}`:   `key set: two keys with kid "k" for one algorithm`,
		`{"keys":[` + key + `,` + other + `]}`: `key set: two keys with kid "k" for one algorithm`,
		`{"keys":[` + key + `]}x`:              `key set: document has something after its end`,
		`{"keys":[],"keys":[` + key + `]}`:     `key set: member "keys" twice`,
		`{"keys":[{"kty":"EC","kty":"RSA"}]}`:  `key set: member "keys/0/kty" twice`,
	} {
		set, err := identity.ParseKeySet([]byte(doc))
		if err == nil || err.Error() != want || set.Len() != 0 {
			t.Errorf("ParseKeySet(%.60q) = %d keys, %v, want %q", doc, set.Len(), err, want)
		}
	}
}

// The key without kid is for the assertion without kid, and for no other.
func TestKeyWithoutKid(t *testing.T) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t)
	r.Directory = directoryWith(t, r, jwk(t, jose.JSONWebKey{Key: key.Public()}))
	for header, accepted := range map[string]bool{
		`{"alg":"EdDSA"}`:            true,
		`{"alg":"EdDSA","kid":"k1"}`: false,
	} {
		if _, err := r.assert(t, sign(t, jwt.SigningMethodEdDSA, key, header, goodClaims)); (err == nil) != accepted {
			t.Errorf("%s: %v", header, err)
		}
	}
}

// The alg of a key binds it, though its type could do more.
func TestKeyForOneAlgorithm(t *testing.T) {
	r := newRig(t)
	r.Directory = directoryWith(t, r, jwk(t, jose.JSONWebKey{Key: r.rsa.Public(), KeyID: "k3", Algorithm: "PS256"}))
	if _, err := r.assert(t, sign(t, jwt.SigningMethodPS256, r.rsa, `{"alg":"PS256","kid":"k3"}`, goodClaims)); err != nil {
		t.Errorf("PS256: %v", err)
	}
	if _, err := r.assert(t, sign(t, jwt.SigningMethodRS256, r.rsa, `{"alg":"RS256","kid":"k3"}`, goodClaims)); err == nil || !strings.Contains(err.Error(), "no key") {
		t.Errorf("RS256: %v", err)
	}
}

func FuzzParseKeySet(f *testing.F) {
	f.Add([]byte(`{"keys":[` + jwk(f, jose.JSONWebKey{Key: newEC(f, elliptic.P256()).Public(), KeyID: "k"}) + `]}`))
	f.Add([]byte(`{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB"},null,7]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		set, err := identity.ParseKeySet(b)
		if (err == nil) != (set.Len() > 0) {
			t.Errorf("%d keys, %v", set.Len(), err)
		}
	})
}
