package identity

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-jose/go-jose/v4"
	"github.com/golang-jwt/jwt/v5"

	"onbehalf.internal/broker/strictjson"
)

// minRSA is the smallest RSA modulus in bits (RFC 7518 §3.3).
const minRSA = 2048

// KeySet holds public keys for verifying. The zero KeySet verifies nothing.
type KeySet struct {
	keys    []verifyKey
	skipped int
}

type verifyKey struct {
	id         string // may be empty
	algorithms []string
	public     crypto.PublicKey
}

// Len returns how many keys can verify.
func (s KeySet) Len() int { return len(s.keys) }

// Skipped returns how many keys of the document are not among them.
func (s KeySet) Skipped() int { return s.skipped }

// ParseKeySet reads a JWKS (RFC 7517 §5) one key at a time. A key that we can
// not use is skipped, as the RFC wants: of an unknown type or curve, off its
// curve, for encryption, symmetric or private, or an RSA key below 2048 bits. A
// set without a usable key, or with two for one kid and algorithm, is an error.
func ParseKeySet(b []byte) (KeySet, error) {
	members, err := strictjson.Members(b)
	if err != nil {
		return KeySet{}, fmt.Errorf("key set: %w", err)
	}
	var list []json.RawMessage
	if json.Unmarshal(members["keys"], &list) != nil {
		return KeySet{}, errors.New(`key set: member "keys" is not a list`)
	}
	var set KeySet
	for _, raw := range list {
		key, ok := parseKey(raw)
		if !ok {
			set.skipped++
			continue
		}
		if set.ambiguous(key) {
			return KeySet{}, fmt.Errorf("key set: two keys with kid %.64q for one algorithm", key.id)
		}
		set.keys = append(set.keys, key)
	}
	if len(set.keys) == 0 {
		return KeySet{}, fmt.Errorf("key set: no usable key, %d skipped", set.skipped)
	}
	return set, nil
}

func parseKey(raw []byte) (verifyKey, bool) {
	var k jose.JSONWebKey
	if json.Unmarshal(raw, &k) != nil || k.Use != "" && k.Use != "sig" {
		return verifyKey{}, false
	}
	algorithms := algorithmsOf(k.Key)
	if k.Algorithm != "" { // RFC 7517 §4.4: the key is for this one
		algorithms = slices.DeleteFunc(algorithms, func(a string) bool { return a != k.Algorithm })
	}
	return verifyKey{k.KeyID, algorithms, k.Key}, len(algorithms) > 0
}

// algorithmsOf returns the algorithms that a public key can verify; there are
// none for a private or a symmetric one. The library for JWTs does not tie an
// elliptic curve to its algorithm when it verifies (RFC 7518 §3.4); this does.
func algorithmsOf(key any) []string {
	switch k := key.(type) {
	case *rsa.PublicKey:
		if k.N.BitLen() >= minRSA {
			return []string{"RS256", "PS256"}
		}
	case *ecdsa.PublicKey:
		switch k.Curve {
		case elliptic.P256():
			return []string{"ES256"}
		case elliptic.P384():
			return []string{"ES384"}
		}
	case ed25519.PublicKey:
		return []string{"EdDSA"}
	}
	return nil
}

// VerifySignature returns the claims of a token that one of the keys has signed, as they
// are written. It makes KeySet one of [oidc.KeySet]; claims are not looked at.
func (s KeySet) VerifySignature(_ context.Context, token string) (claims []byte, err error) {
	parser := jwt.NewParser(jwt.WithValidMethods(algorithms), jwt.WithStrictDecoding(), jwt.WithoutClaimsValidation())
	if _, err := parser.Parse(token, s.key); err != nil {
		return nil, errNoKey // the library's words quote the token
	}
	return base64.RawURLEncoding.Strict().DecodeString(strings.Split(token, ".")[1])
}

// key returns the key for a token: the one with its kid, if its type fits the
// algorithm in the header.
func (s KeySet) key(t *jwt.Token) (any, error) {
	kid, _ := t.Header["kid"].(string)
	if key := s.find(kid, t.Method.Alg()); key != nil {
		return key, nil
	}
	return nil, errNoKey
}

var errNoKey = errors.New("no key")

func (s KeySet) ambiguous(k verifyKey) bool {
	return slices.ContainsFunc(k.algorithms, func(alg string) bool { return s.find(k.id, alg) != nil })
}

// has reports whether public is one of the keys, under whatever kid.
func (s KeySet) has(public crypto.PublicKey) bool {
	return slices.ContainsFunc(s.keys, func(k verifyKey) bool {
		key, ok := k.public.(interface{ Equal(crypto.PublicKey) bool })
		return ok && key.Equal(public)
	})
}

// find returns the key with that kid for that algorithm, or nil. An empty kid
// finds a key without kid.
func (s KeySet) find(kid, alg string) crypto.PublicKey {
	for _, k := range s.keys {
		if k.id == kid && slices.Contains(k.algorithms, alg) {
			return k.public
		}
	}
	return nil
}
