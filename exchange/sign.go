package exchange

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"

	"github.com/golang-jwt/jwt/v5"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/secret"
)

// signing returns how an assertion is signed. A key that stays elsewhere cannot
// be asked what it is for, so the profile names its alg.
func signing(alg string, k Key) (crypto.Signer, jwt.SigningMethod, error) {
	if k.Sign != nil {
		method := methodNamed(alg)
		if method == nil {
			return nil, nil, refuse(fault.ProviderConfig, "the profile names no alg for the key that signs elsewhere")
		}
		return nil, method, nil
	}
	signer := parseKey(k.Text)
	if signer != nil {
		for _, m := range methods(signer.Public()) {
			if alg == "" || alg == m.Alg() {
				return signer, m, nil
			}
		}
	}
	return nil, nil, refuse(fault.CredentialRejected, "the client's key is not a PEM private key that fits the profile's alg")
}

// sign makes t a JWT in compact form, by signer or by the key's Sign.
func sign(ctx context.Context, t *jwt.Token, signer crypto.Signer, k Key) (secret.Text, error) {
	if k.Sign == nil {
		signed, err := t.SignedString(signer)
		if err != nil {
			return secret.Text{}, refuse(fault.CredentialRejected, "the client's key does not sign")
		}
		return secret.New(signed), nil
	}
	input, err := t.SigningString()
	if err != nil {
		return secret.Text{}, refuse(fault.ProviderConfig, "the client's assertion cannot be encoded")
	}
	signature, err := k.Sign(ctx, []byte(input))
	if err != nil {
		return secret.Text{}, err // a fault of whoever signs
	}
	return secret.New(input + "." + base64.RawURLEncoding.EncodeToString(signature)), nil
}

// parseKey returns nil for anything but one PEM private key.
func parseKey(key secret.Text) crypto.Signer {
	block, _ := pem.Decode([]byte(key.Reveal()))
	if block == nil {
		return nil
	}
	var k any
	switch block.Type {
	case "PRIVATE KEY":
		k, _ = x509.ParsePKCS8PrivateKey(block.Bytes)
	case "RSA PRIVATE KEY":
		k, _ = x509.ParsePKCS1PrivateKey(block.Bytes)
	case "EC PRIVATE KEY":
		k, _ = x509.ParseECPrivateKey(block.Bytes)
	}
	signer, _ := k.(crypto.Signer)
	return signer
}

// methods are the ways a key signs, the first by default; none for a key that
// is too weak or of another kind.
func methods(key crypto.PublicKey) []jwt.SigningMethod {
	switch k := key.(type) {
	case *rsa.PublicKey:
		if k.N.BitLen() >= 2048 { // RFC 7518 §3.3
			return []jwt.SigningMethod{jwt.SigningMethodRS256, jwt.SigningMethodPS256}
		}
	case *ecdsa.PublicKey:
		switch k.Curve {
		case elliptic.P256():
			return []jwt.SigningMethod{jwt.SigningMethodES256}
		case elliptic.P384():
			return []jwt.SigningMethod{jwt.SigningMethodES384}
		}
	case ed25519.PublicKey:
		return []jwt.SigningMethod{jwt.SigningMethodEdDSA}
	}
	return nil
}

func methodNamed(alg string) jwt.SigningMethod {
	for _, m := range []jwt.SigningMethod{jwt.SigningMethodRS256, jwt.SigningMethodPS256, jwt.SigningMethodES256, jwt.SigningMethodES384, jwt.SigningMethodEdDSA} {
		if m.Alg() == alg {
			return m
		}
	}
	return nil
}

// thumbprint is x5t#S256 (RFC 8705 §3.1) of the certificate that we prove
// ourselves with; empty without one.
func (k Key) thumbprint() string {
	block, _ := pem.Decode([]byte(k.Certificate.Reveal()))
	if block == nil || block.Type != "CERTIFICATE" {
		return ""
	}
	sum := sha256.Sum256(block.Bytes)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}
