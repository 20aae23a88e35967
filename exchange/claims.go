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

// claims is what a JWT access token says about itself, or introspection about
// an opaque one: the members have the same names (RFC 7662 §2.2).
type claims struct {
	issuer       string
	subject      string
	actor        string // act.sub: the current actor; inner act claims are history (RFC 8693 §4.1)
	audience     []string
	scope        []string  // nil: not said
	scp          []string  // what others call scope
	expires      time.Time // long over where there is no exp
	endless      bool      // introspection need not say exp; then what the answer said stands
	notBefore    time.Time // long over where there is no nbf; iat is not looked at: clocks differ
	thumbprint   string    // cnf.x5t#S256: the certificate it is bound to (RFC 8705 §3.1)
	otherBinding bool      // cnf says something else
}

// readClaims reads the claims of a JWT without looking at its signature, see
// the package comment.
func readClaims(token secret.Text) (*claims, error) {
	m, err := segment(token, 1)
	if err != nil {
		return nil, err
	}
	return m.claims("its token's claim")
}

// segment opens one of the two JSON segments of a JWT in compact form.
func segment(token secret.Text, i int) (members, error) {
	parts := strings.Split(token.Reveal(), ".")
	if len(parts) != 3 {
		return members{}, refuse(fault.WrongTokenType, "the profile expects a JWT, and the token is none")
	}
	b, err := base64.RawURLEncoding.DecodeString(parts[i])
	if err != nil {
		return members{}, malformed("its token has a part that is not base64url")
	}
	m, ok := open(b)
	if !ok {
		return members{}, malformed("its token has a part that is not one JSON object with distinct names")
	}
	return m, nil
}

// claims reads the members that matter; what says whose they are.
func (m *members) claims(what string) (*claims, error) {
	act, cnf := m.object("act"), m.object("cnf")
	c := &claims{
		issuer:     m.text("iss"),
		subject:    m.text("sub"),
		actor:      act.text("sub"),
		audience:   m.texts("aud"),
		scope:      m.scopes("scope", " "), // RFC 9068 §2.2.3
		scp:        m.scopes("scp", " "),
		expires:    m.date("exp"),
		notBefore:  m.date("nbf"),
		thumbprint: cnf.text("x5t#S256"),
	}
	c.otherBinding = m.has("cnf") && (c.thumbprint == "" || len(cnf.raw) > 1)
	if wrong := cmp.Or(m.wrong, act.wrong, cnf.wrong); wrong != "" {
		return nil, malformed(fmt.Sprintf("%s %q has not the right form", what, wrong))
	}
	return c, nil
}
