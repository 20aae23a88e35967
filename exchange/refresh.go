package exchange

import (
	"context"
	"net/url"
	"strings"
	"time"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/secret"
)

// Refreshed is what a refresh token was good for.
type Refreshed struct {
	Access  secret.Text
	Expires time.Time   // zero: the provider did not say
	Refresh secret.Text // zero: the provider did not rotate
}

// Refresh runs the refresh_token grant at p's token endpoint (RFC 6749 §6). It
// sends one request and never another: the token may be spent by the first.
//
// A new refresh token comes back also beside an error that finds fault with the
// rest of the answer: by then the old one is spent, so it has to be kept.
func (c *Client) Refresh(ctx context.Context, p *policy.Profile, token secret.Text, k Key) (Refreshed, error) {
	if token.IsZero() {
		return Refreshed{}, refuse(fault.CredentialMissing, "the refresh token is empty")
	}
	form := url.Values{"grant_type": {"refresh_token"}, "refresh_token": {token.Reveal()}}
	re, err := c.ask(ctx, p, k, form, false)
	if err != nil {
		return Refreshed{}, err
	}
	m, err := re.object()
	if err != nil {
		return Refreshed{}, err
	}
	rotated := m.text("refresh_token")
	if m.wrong != "" || len(rotated) > maxToken || !vschars(rotated) {
		return Refreshed{}, malformed("its refresh token is none")
	}
	fresh := Refreshed{Refresh: secret.New(rotated)}
	a, err := parse(m, " ")
	switch {
	case err != nil:
		return fresh, err
	case !strings.EqualFold(a.tokenType, "bearer"):
		return fresh, refuse(fault.WrongTokenType, "what was issued is not said to be a bearer token")
	case a.token.Equal(token):
		return fresh, malformed("it hands the refresh token back as an access token")
	case a.lifetime > 0:
		fresh.Expires = re.asked.Add(a.lifetime)
	}
	if a.lifetime > 0 && fresh.Expires.Sub(c.now()) < minLife {
		return Refreshed{Refresh: fresh.Refresh}, refuse(fault.LifetimeTooShort, "the token would end before it could be used")
	}
	fresh.Access = a.token
	return fresh, nil
}

// vschars reports whether s is visible ASCII (RFC 6749 §A.17), or empty.
func vschars(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}
