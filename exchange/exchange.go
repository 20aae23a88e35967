// Package exchange turns an actor's credential into a token for one MCP server:
// OAuth 2.0 Token Exchange (RFC 8693) and the grants that providers have in its
// place, as the profile says. Where the broker itself is the subject, it gets one
// of the broker's own (RFC 6749 §4.4), by the same steps.
//
// An exchange is one POST to the profile's token endpoint:
//
//	login.go     who we are: a secret, a signed assertion, a certificate, nothing
//	wire.go      the one request, and the answer as bytes
//	patience.go  when a request may leave again, and when none may for a while
//	refusal.go   an answer that says no
//	answer.go    an answer that says yes, read strictly
//	order.go     the form, and the answer held against it
//	claims.go    what the token says about itself, or introspection about it
//	members.go   how members of a JSON object are read
//
// A profile may ask for more requests, each by name (see [Key.Leg]):
//
//	steps.go       an actor token of our own before it, a second step after it
//	keys.go        the provider's keys, where signatures are verified (RFC 7517)
//	introspect.go  what an opaque token is (RFC 7662)
//
// [Client.Refresh] and [Client.Revoke] are for whoever keeps a refresh token and
// for the end of an operation.
//
// What always holds:
//
//   - The request for the token leaves once. It leaves a second time, and never
//     a third, where there was no connection or a gateway answered 502, 503 or
//     504, if the budget has room for it; never with a refresh token or an
//     assertion in it. No redirect is followed.
//   - What is wrong, missing or said twice in an answer is a refusal with a
//     reason of its own; nothing is trimmed, guessed or defaulted but by the
//     profile.
//   - An [Issued] token is not the subject token, is a bearer token with the
//     scopes asked for, or as many of them as the profile requires, and lives
//     two seconds or more. It is for the audience asked for, unless it is opaque
//     and the profile says that its audience goes unverified. It names the one
//     who acts where an actor token was sent, and a certificate only if it is
//     ours.
//   - An error is a *fault.Error without any text of the provider's.
//   - No token is kept: no cache, no refresh token, no ID token. What is kept is
//     public keys and the times of cool-downs.
//
// With token_format jwt the signature is not looked at: the token came from its
// issuer over the connection that the profile names, so its claims are a check
// of plausibility; the MCP server verifies. jwt_verified verifies here too. The
// package knows neither DPoP (RFC 9449) nor discovery.
package exchange

import (
	"context"
	"crypto/tls"
	"net/http"
	"net/url"
	"time"

	"onbehalf.internal/broker/egress"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/secret"
)

const (
	grantType         = "urn:ietf:params:oauth:grant-type:token-exchange" // RFC 8693 §2.1
	clientCredentials = "client_credentials"                              // RFC 6749 §4.4.2
	accessTokenType   = "urn:ietf:params:oauth:token-type:access_token"   // RFC 8693 §3
)

// A Client exchanges tokens. The zero Client is ready to use and may be shared
// by goroutines; it is not to be copied after that.
type Client struct {
	Now func() time.Time // nil: time.Now

	// HTTP makes the client for one request; its Transport alone is used.
	// nil: egress.NewClient(h, 0), a connection of its own for each.
	HTTP func(h egress.Host) *http.Client

	cool cooldowns
	keys keyring
}

// New returns a Client with that clock; nil is time.Now.
func New(now func() time.Time) *Client { return &Client{Now: now} }

// Issued is a token that was held against the decision it was asked for.
type Issued struct {
	Token    secret.Text
	Expires  time.Time // when to stop using it; the provider may allow longer
	Scopes   []string  // as granted
	Narrowed bool      // fewer than were asked for, as the profile permits
	Subject  string    // the sub claim; empty for a token that nobody looked into
	Bound    bool      // to the certificate of the Key: the server takes it over that alone (RFC 8705 §3)

	Certificate *tls.Certificate // to be shown with a token that is Bound; nil: none

	// Refused stands alone, beside an error: an access token that was issued and
	// failed a check. The provider takes it for good, so it is to be revoked, and
	// for nothing else.
	Refused secret.Text
}

// Exchange asks for a token as d says. The subject is the actor's credential, and
// the zero Subject where the broker itself is the subject; the key is what the
// profile's client authentication needs.
//
// The error is a *fault.Error, and [Issued.Refused] may be beside it:
//
//   - nothing was sent: no_grant, credential_missing, credential_rejected,
//     provider_config, host_refused; provider_rate_limited in a cool-down
//   - no answer: provider_unreachable, wall_clock, caller_cancelled
//   - an answer that is no: provider_redirect, provider_rate_limited,
//     provider_error, provider_config, subject_rejected, target_rejected,
//     scope_rejected, interaction_required
//   - an answer that is not what was asked for: exchange_malformed, wrong_…,
//     scope_widened, scope_narrowed, lifetime_too_short, token_inactive,
//     token_not_yet_valid
//   - no keys to verify it with: keys_unavailable
//
// Its After says how long the provider wants to be left alone.
func (c *Client) Exchange(ctx context.Context, d policy.Decision, s Subject, k Key) (Issued, error) {
	if d.IsZero() || d.Grant() == nil { // none: a legacy server, an import or a probe
		return Issued{}, refuse(fault.NoGrant, "a token is exchanged for the grant of an actor, and there is none")
	}
	o := order{d.Profile(), d.Audience(), d.Scopes(), d.Grant().Subject}
	return c.exchange(ctx, o, s, k)
}

// exchange does one step, and those that the profile puts around it.
func (c *Client) exchange(ctx context.Context, o order, s Subject, k Key) (Issued, error) {
	if err := o.complete(s); err != nil {
		return Issued{}, err
	}
	actor, err := c.actor(ctx, o.profile, k)
	if err != nil {
		return Issued{}, err
	}
	a, err := c.answered(ctx, o.profile, k, o.form(s, actor), o.mayRepeat(s))
	if err != nil {
		return Issued{}, err
	}
	if o.profile.Then != nil {
		return c.then(ctx, o, a, s, k)
	}
	return c.accept(ctx, o, a, s, k)
}

// answered makes the request of one step and reads what came back.
func (c *Client) answered(ctx context.Context, p *policy.Profile, k Key, form url.Values, again bool) (answer, error) {
	re, err := c.ask(ctx, p, k, form, again)
	if err != nil {
		return answer{}, err
	}
	return re.answer(p)
}

// accept holds an answer against the order. What is no new access token is not
// Refused: revoking a subject or a refresh token would end more than this exchange.
func (c *Client) accept(ctx context.Context, o order, a answer, s Subject, k Key) (Issued, error) {
	if err := o.kind(a, s.Token, "bearer"); err != nil {
		return Issued{}, err
	}
	issued, err := c.check(ctx, o, a, k)
	if err != nil {
		return Issued{Refused: a.token}, err
	}
	return issued, nil
}

// check holds an access token against the order, by the answer that it came in
// and by what can be known of it.
func (c *Client) check(ctx context.Context, o order, a answer, k Key) (Issued, error) {
	issued, err := o.accept(a)
	if err != nil {
		return Issued{}, err
	}
	said, err := c.claims(ctx, o, issued, k)
	if err != nil {
		return Issued{}, err
	}
	if said != nil {
		if issued, err = o.holds(issued, said, c.now(), k); err != nil {
			return Issued{}, err
		}
	}
	if issued.Bound && o.profile.Client.Auth == "mtls" {
		if issued.Certificate, err = k.pair(); err != nil {
			return Issued{}, err
		}
	}
	if o.profile.Response.TokenFormat == "jwt_verified" {
		if err := c.verify(ctx, o.profile, issued.Token, k); err != nil {
			return Issued{}, err
		}
	}
	if issued.Expires.Sub(c.now()) < minLife {
		return Issued{}, refuse(fault.LifetimeTooShort, "the token would end before it could be used")
	}
	return issued, nil
}

// claims finds out what the token is: nil where nobody can say.
func (c *Client) claims(ctx context.Context, o order, issued Issued, k Key) (*claims, error) {
	switch {
	case o.profile.Response.TokenFormat != "opaque":
		return readClaims(issued.Token)
	case o.profile.Introspection != nil:
		return c.introspect(ctx, o.profile, issued.Token, k)
	default:
		return nil, o.unseen()
	}
}

func (c *Client) now() time.Time {
	if c.Now == nil {
		return time.Now()
	}
	return c.Now()
}

// refuse is an error of this package. The detail must be a sentence of ours.
func refuse(reason fault.Reason, detail string) error {
	return fault.New("exchange.Exchange", reason, detail)
}
