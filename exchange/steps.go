package exchange

import (
	"cmp"
	"context"
	"net/url"
	"slices"
	"strings"
	"time"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/secret"
)

// actor returns the actor token that the profile sends; empty for none.
func (c *Client) actor(ctx context.Context, p *policy.Profile, k Key) (token secret.Text, err error) {
	switch p.Actor.Source {
	case "":
		return secret.Text{}, nil
	case "stored":
		if k.Actor.IsZero() {
			return secret.Text{}, refuse(fault.CredentialMissing, "the actor token is empty")
		}
		return k.Actor, nil
	case clientCredentials:
		err = k.leg(ctx, "actor", func(ctx context.Context) error {
			token, err = c.own(ctx, p, k)
			return err
		})
		return token, err
	default:
		return secret.Text{}, refuse(fault.ProviderConfig, "the profile's actor token is of a source that we do not know")
	}
}

// own asks for a token of the broker's own, to be sent along. It is for this
// exchange and not kept.
func (c *Client) own(ctx context.Context, p *policy.Profile, k Key) (secret.Text, error) {
	form := url.Values{"grant_type": {clientCredentials}}
	setAll(form, "scope", strings.Join(p.Actor.Scopes, cmp.Or(p.ScopeSeparator, " ")))
	a, err := c.answered(ctx, p, k, form, true)
	if err != nil {
		return secret.Text{}, err
	}
	if !strings.EqualFold(a.tokenType, "bearer") {
		return secret.Text{}, refuse(fault.WrongTokenType, "the broker's own token is not said to be a bearer token")
	}
	return a.token, nil
}

// then hands what the first step issued to the second token endpoint.
func (c *Client) then(ctx context.Context, o order, a answer, s Subject, k Key) (issued Issued, err error) {
	if err := o.bridges(a, s.Token, c.now()); err != nil {
		return Issued{}, err
	}
	next := order{o.profile.Then, o.audience, o.scopes, o.subject}
	err = k.leg(ctx, "then", func(ctx context.Context) error {
		key := Key{Leg: k.Leg}
		if k.Then != nil {
			if key, err = k.Then(ctx); err != nil {
				return err
			}
		}
		issued, err = c.exchange(ctx, next, Subject{Token: a.token}, key)
		return err
	})
	return issued, err
}

// bridges holds what the first step issued against what it is for: a JWT that
// is no access token, for the next authorization server and nobody else.
func (o order) bridges(a answer, sent secret.Text, now time.Time) error {
	if err := o.kind(a, sent, "N_A"); err != nil {
		return err
	}
	c, err := readClaims(a.token)
	if err != nil {
		return err
	}
	for _, audience := range c.audience {
		if !slices.Contains(o.profile.Audience, audience) && !slices.Contains(o.profile.Resource, audience) {
			return refuse(fault.WrongAudience, "what the first step issued is not for the second one's server, or for others too")
		}
	}
	switch {
	case len(c.audience) == 0:
		return refuse(fault.WrongAudience, "what the first step issued is for nobody")
	case o.profile.Response.ExpectIssuer != "" && c.issuer != o.profile.Response.ExpectIssuer:
		return refuse(fault.WrongIssuer, "what the first step issued is not of the profile's issuer")
	case !o.acts(c.actor):
		return refuse(fault.WrongActor, "what the first step issued does not name who acts")
	case c.expires.Before(now):
		return refuse(fault.LifetimeTooShort, "what the first step issued is over")
	}
	return nil
}
