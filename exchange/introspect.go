package exchange

import (
	"context"
	"net/url"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/secret"
)

// introspect asks what an opaque token is (RFC 7662). A provider that does not
// say that it is active, in so many words, says that it is not.
func (c *Client) introspect(ctx context.Context, p *policy.Profile, token secret.Text, k Key) (said *claims, err error) {
	err = k.leg(ctx, "introspection", func(ctx context.Context) error {
		re, err := c.aside(ctx, p, p.Introspection, url.Values{"token": {token.Reveal()}}, k)
		if err != nil {
			return err
		}
		said, err = re.introspection()
		return err
	})
	return said, err
}

func (re reply) introspection() (*claims, error) {
	m, err := re.object()
	if err != nil {
		return nil, err
	}
	if !m.yes("active") {
		return nil, refuse(fault.TokenInactive, "introspection does not say that the token is active")
	}
	said, err := m.claims("introspection's member")
	if err != nil {
		return nil, err
	}
	said.endless = !m.has("exp")
	return said, nil
}

// aside makes one request to an endpoint beside the token endpoint, once.
func (c *Client) aside(ctx context.Context, p *policy.Profile, to *url.URL, form url.Values, k Key) (reply, error) {
	timed, stop := bounded(ctx, p.Timeout)
	defer stop()
	l, err := c.login(timed, p, k)
	if err != nil {
		return reply{}, err
	}
	re, err := c.post(timed, p, to, l, form)
	return re, unanswered(ctx, err)
}
