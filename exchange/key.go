package exchange

import (
	"context"

	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/secret"
)

// A Key is what the broker proves itself with at a token endpoint.
type Key struct {
	Text        secret.Text // the secret, or the private key in PEM (also of the mTLS certificate)
	Certificate secret.Text // mtls: the certificate chain in PEM

	// Sign signs the signing input of an assertion (RFC 7515 §5.1) with a key
	// that stays where it is, and returns the signature as a JWS holds it. nil:
	// Text is the key.
	Sign func(ctx context.Context, input []byte) (signature []byte, err error)

	Actor secret.Text // the stored actor token, where the profile sends one

	// Then returns the key of the second step. It is called after the first, so
	// it is the place for another look at whether the second may leave.
	Then func(ctx context.Context) (Key, error)

	// Leg runs each request that an exchange makes besides the one for the
	// token, under its name: "actor", "then", "jwks", "introspection". nil: at
	// once. What it returns ends the exchange.
	Leg func(ctx context.Context, name string, send func(context.Context) error) error
}

// leg runs a further request of an exchange.
func (k Key) leg(ctx context.Context, name string, send func(context.Context) error) error {
	if k.Leg == nil {
		return send(ctx)
	}
	return k.Leg(ctx, name, send)
}

// A Subject is whose credential is exchanged.
type Subject struct {
	Token secret.Text
	Type  string // empty: the profile's subject_token_type
}

const refreshTokenType = "urn:ietf:params:oauth:token-type:refresh_token" // RFC 8693 §3

// oneTime reports whether a server may take the token for spent once it has
// seen it: refresh tokens are rotated.
func (s Subject) oneTime(p *policy.Profile) bool {
	return s.Type == refreshTokenType || s.Type == "" && p.SubjectTokenType == refreshTokenType
}
