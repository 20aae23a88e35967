// Package signin has people sign in at the web page: OpenID Connect's code flow
// (Core 1.0 §3.1) with PKCE (RFC 7636) at the provider that the entry with sign_in names.
package signin

import (
	"context"
	"net/url"
	"time"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/identity"
	"onbehalf.internal/broker/secret"
)

// Config is what signing in needs from the world.
type Config struct {
	Directory func() *identity.Directory                 // the newest one
	Redirect  string                                     // "https://…/ui/callback", as it is registered at the provider
	Secret    func(context.Context) (secret.Text, error) // of the client; nil, or an empty text: a public one
	Now       func() time.Time                           // nil: time.Now
}

// A Provider is where people sign in. It is safe for concurrent use.
type Provider struct{ Config }

// New returns a Provider. It asks nobody anything yet.
func New(c Config) *Provider {
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Provider{c}
}

// An Attempt is what the browser that began has to show at the end. It stays on our
// side, with that browser's session.
type Attempt struct {
	State, Nonce, Verifier secret.Text
	Until                  time.Time

	issuer, client string // where it began
}

// Begin returns where the browser goes, and what is kept until it comes back.
func (p *Provider) Begin(ctx context.Context) (to string, a Attempt, err error) {
	return "", Attempt{}, fault.New("signin.Begin", fault.InternalError, "")
}

// End returns the person that signed in, from the query that the browser came back with.
func (p *Provider) End(ctx context.Context, a Attempt, query url.Values) (identity.Person, error) {
	return identity.Person{}, fault.New("signin.End", fault.InternalError, "")
}
