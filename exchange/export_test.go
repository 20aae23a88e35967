package exchange

import (
	"context"
	"time"

	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/secret"
)

// An Order lets a test ask without a policy.Decision.
type Order struct {
	Profile  *policy.Profile
	Audience string
	Scopes   []string
	Subject  string
}

func (c *Client) Order(ctx context.Context, o Order, subject, key secret.Text) (Issued, error) {
	return c.exchange(ctx, order{o.Profile, o.Audience, o.Scopes, o.Subject}, subject, key)
}

// Accept reads body as a whole answer to o.
func Accept(o Order, body []byte) (Issued, error) {
	a, err := reply{status: 200, json: true, body: body}.answer()
	if err != nil {
		return Issued{}, err
	}
	return order{o.Profile, o.Audience, o.Scopes, o.Subject}.accept(a, time.Unix(0, 0), secret.Text{})
}
