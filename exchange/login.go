package exchange

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"net/url"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/secret"
)

// assertionLife is short because an assertion is used once, at once.
const assertionLife = 60 * time.Second

// login says who we are (RFC 6749 §2.3, RFC 7523 §2.2). The style is always
// named: left to find out, x/oauth2 sends secret and subject token a second
// time after any error.
func (c *Client) login(p *policy.Profile, key secret.Text) (*clientcredentials.Config, error) {
	conf := &clientcredentials.Config{
		TokenURL:  p.TokenEndpoint.String(),
		ClientID:  p.Client.ID,
		AuthStyle: oauth2.AuthStyleInParams,
	}
	if key.IsZero() && p.Client.Auth != "none" {
		return nil, refuse(fault.CredentialMissing, "the client's secret or key is empty")
	}
	switch p.Client.Auth {
	case "none":
	case "basic":
		conf.AuthStyle = oauth2.AuthStyleInHeader // form-encoded inside, as RFC 6749 §2.3.1 says
		conf.ClientSecret = key.Reveal()
	case "post":
		conf.ClientSecret = key.Reveal()
	case "private_key_jwt":
		signed, err := c.assertion(p, key)
		if err != nil {
			return nil, err
		}
		conf.EndpointParams = url.Values{
			"client_assertion_type": {"urn:ietf:params:oauth:client-assertion-type:jwt-bearer"},
			"client_assertion":      {signed.Reveal()},
		}
	default:
		return nil, refuse(fault.ProviderConfig, "the profile's client authentication is not one we speak")
	}
	return conf, nil
}

// assertion is the JWT of RFC 7523 §3.
func (c *Client) assertion(p *policy.Profile, key secret.Text) (secret.Text, error) {
	signer := parseKey(key)
	method := methodOf(p.Client.Alg, signer)
	if method == nil {
		return secret.Text{}, refuse(fault.CredentialRejected, "the client's key is not a PEM private key that fits the profile's alg")
	}
	audience := assertionAudience(p)
	if audience == "" {
		return secret.Text{}, refuse(fault.ProviderConfig, "the profile names no audience for the client's assertion")
	}
	now := c.now()
	t := jwt.NewWithClaims(method, jwt.MapClaims{
		"iss": p.Client.ID,
		"sub": p.Client.ID,
		"aud": audience, // one string, not an array: some servers take no other
		"jti": rand.Text(),
		"iat": now.Unix(),
		"exp": now.Add(assertionLife).Unix(),
	})
	if p.Client.Kid != "" {
		t.Header["kid"] = p.Client.Kid
	}
	signed, err := t.SignedString(signer)
	if err != nil {
		return secret.Text{}, refuse(fault.CredentialRejected, "the client's key does not sign")
	}
	return secret.New(signed), nil
}

func assertionAudience(p *policy.Profile) string {
	switch p.Client.Audience {
	case "issuer":
		return p.Response.ExpectIssuer
	case "token_endpoint":
		return p.TokenEndpoint.String()
	default:
		return p.Client.Audience
	}
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

// methodOf returns how the key signs, or nil where alg and key do not fit.
// Without an alg the key decides.
func methodOf(alg string, key crypto.Signer) jwt.SigningMethod {
	var fit []jwt.SigningMethod
	switch k := key.(type) {
	case *rsa.PrivateKey:
		if k.N.BitLen() >= 2048 { // RFC 7518 §3.3
			fit = []jwt.SigningMethod{jwt.SigningMethodRS256, jwt.SigningMethodPS256}
		}
	case *ecdsa.PrivateKey:
		switch k.Curve {
		case elliptic.P256():
			fit = []jwt.SigningMethod{jwt.SigningMethodES256}
		case elliptic.P384():
			fit = []jwt.SigningMethod{jwt.SigningMethodES384}
		}
	case ed25519.PrivateKey:
		fit = []jwt.SigningMethod{jwt.SigningMethodEdDSA}
	}
	for _, m := range fit {
		if alg == "" || alg == m.Alg() {
			return m
		}
	}
	return nil
}
