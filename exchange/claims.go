package exchange

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"strings"
	"time"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/secret"
)

// claims is what a JWT access token says about itself.
type claims struct {
	issuer   string
	subject  string
	actor    string // act.sub: the current actor; inner act claims are history (RFC 8693 §4.1)
	audience []string
	scope    []string  // nil: not said
	scp      []string  // what others call scope
	expires  time.Time // long over where there is no exp
}

// readClaims reads the claims of a JWT without looking at its signature, see
// the package comment.
func readClaims(token secret.Text) (claims, error) {
	parts := strings.Split(token.Reveal(), ".")
	if len(parts) != 3 {
		return claims{}, refuse(fault.WrongTokenType, "the profile expects a JWT, and the token is none")
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return claims{}, malformed("its token has claims that are not base64url")
	}
	m, ok := open(payload)
	if !ok {
		return claims{}, malformed("its token's claims are not one JSON object with distinct names")
	}
	act := m.object("act")
	c := claims{
		issuer:   m.text("iss"),
		subject:  m.text("sub"),
		actor:    act.text("sub"),
		audience: m.texts("aud"),
		scope:    m.scopes("scope"), // RFC 9068 §2.2.3
		scp:      m.scopes("scp"),
		expires:  m.date("exp"),
	}
	if wrong := cmp.Or(m.wrong, act.wrong); wrong != "" {
		return claims{}, malformed(fmt.Sprintf("its token's claim %q has not the right form", wrong))
	}
	return c, nil
}
