package exchange

import (
	"context"
	"net/http"
	"net/url"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/secret"
)

// Revoke ends a token at p's revocation endpoint (RFC 7009). It sends one
// request and never another. That the provider knows no such token is as good:
// it answers the same.
func (c *Client) Revoke(ctx context.Context, p *policy.Profile, token secret.Text, k Key) error {
	r := p.Revocation
	switch {
	case r.Endpoint == nil:
		return refuse(fault.ProviderConfig, "the profile names no revocation endpoint")
	case token.IsZero():
		return refuse(fault.CredentialMissing, "the token to revoke is empty")
	}
	form := url.Values{"token": {token.Reveal()}}
	if r.Hint != "" {
		form.Set("token_type_hint", r.Hint)
	}
	re, err := c.aside(ctx, p, r.Endpoint, form, k)
	if err == nil && re.status != http.StatusOK {
		err = re.refusal()
	}
	return err
}
