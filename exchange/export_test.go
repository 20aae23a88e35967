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

// Order exchanges a token with a secret or a key in PEM.
func (c *Client) Order(ctx context.Context, o Order, subject, key secret.Text) (Issued, error) {
	return c.OrderWith(ctx, o, Subject{Token: subject}, Key{Text: key})
}

func (c *Client) OrderWith(ctx context.Context, o Order, s Subject, k Key) (Issued, error) {
	return c.exchange(ctx, order{o.Profile, o.Audience, o.Scopes, o.Subject}, s, k)
}

// Accept reads body as a whole answer to o.
func Accept(o Order, body []byte) (Issued, error) {
	a, err := reply{status: 200, json: true, body: body, asked: time.Unix(0, 0)}.answer(o.Profile)
	if err != nil {
		return Issued{}, err
	}
	c := &Client{Now: func() time.Time { return time.Unix(0, 0) }}
	return c.accept(context.Background(), order{o.Profile, o.Audience, o.Scopes, o.Subject}, a, Subject{}, Key{})
}

// FindKey reads a key set and looks for a key in it.
func FindKey(set []byte, kid, alg string) any {
	if key := (keyset{keys: parseKeys(set)}).find(kid, alg); key != nil {
		return key
	}
	return nil
}

// Introspected reads body as an answer of introspection.
func Introspected(body []byte) (active bool, err error) {
	said, err := reply{status: 200, json: true, body: body}.introspection()
	return said != nil, err
}
