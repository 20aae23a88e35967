// Package exchange turns an actor's credential into a token for one MCP server:
// OAuth 2.0 Token Exchange (RFC 8693), and nothing more for now.
//
// An exchange is one POST to the profile's token endpoint:
//
//	login.go    who we are: basic, post, private_key_jwt or none
//	wire.go     the one request, and the answer as bytes
//	refusal.go  an answer that says no
//	answer.go   an answer that says yes, read strictly
//	order.go    the form, and the answer held against it
//	claims.go   what the token says about itself, if it is a JWT
//	members.go  how members of a JSON object are read, for both
//
// What always holds:
//
//   - One exchange sends at most one request. It is never retried and follows
//     no redirect.
//   - What is wrong, missing or said twice in an answer is a refusal with a
//     reason of its own; nothing is trimmed, guessed or defaulted but by the
//     profile.
//   - An [Issued] token is not the subject token, is a bearer token with all of
//     the scopes asked for, and lives two seconds or more. It is for the
//     audience asked for, unless it is opaque and the profile says that its
//     audience goes unverified.
//   - An error is a *fault.Error without any text of the provider's.
//   - Nothing is kept: no cache, no refresh token, no ID token.
//
// It does not verify the signature of a token. The token came from its issuer
// over the connection that the profile names, so its claims are a check of
// plausibility; the MCP server verifies. It knows neither sender-constrained
// tokens nor actor tokens, discovery, or revocation.
package exchange

import (
	"context"
	"net/http"
	"time"

	"onbehalf.internal/broker/egress"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/secret"
)

const (
	grantType       = "urn:ietf:params:oauth:grant-type:token-exchange" // RFC 8693 §2.1
	accessTokenType = "urn:ietf:params:oauth:token-type:access_token"   // RFC 8693 §3
)

// A Client exchanges tokens. The zero Client is ready to use and may be shared
// by goroutines.
type Client struct {
	Now func() time.Time // nil: time.Now

	// HTTP makes the client for one exchange; its Transport alone is used.
	// nil: egress.NewClient(h, 0), a connection of its own for each exchange.
	HTTP func(h egress.Host) *http.Client
}

// New returns a Client with that clock; nil is time.Now.
func New(now func() time.Time) *Client { return &Client{Now: now} }

// Issued is a token that was held against the decision it was asked for.
type Issued struct {
	Token   secret.Text
	Expires time.Time // when to stop using it; the provider may allow longer
	Scopes  []string  // as granted
	Subject string    // the sub claim of a JWT; empty for an opaque token
}

// Exchange asks for a token as d says. The subject is the actor's credential,
// the key what the profile's client authentication needs: a client secret, a
// private key in PEM, or nothing.
//
// It sends one request and never another. The error is a *fault.Error:
//
//   - nothing was sent: no_grant, credential_missing, credential_rejected,
//     provider_config, host_refused
//   - no answer: provider_unreachable, wall_clock, caller_cancelled
//   - an answer that is no: provider_redirect, provider_rate_limited,
//     provider_error, provider_config, subject_rejected, target_rejected,
//     scope_rejected, interaction_required
//   - an answer that is not what was asked for: exchange_malformed, wrong_…,
//     scope_widened, scope_narrowed, lifetime_too_short
func (c *Client) Exchange(ctx context.Context, d policy.Decision, subject, key secret.Text) (Issued, error) {
	if d.IsZero() || d.Grant() == nil { // none: a legacy server, an import or a probe
		return Issued{}, refuse(fault.NoGrant, "a token is exchanged for the grant of an actor, and there is none")
	}
	o := order{d.Profile(), d.Audience(), d.Scopes(), d.Grant().Subject}
	return c.exchange(ctx, o, subject, key)
}

func (c *Client) exchange(ctx context.Context, o order, subject, key secret.Text) (Issued, error) {
	if subject.IsZero() {
		return Issued{}, refuse(fault.CredentialMissing, "the subject credential is empty")
	}
	login, err := c.login(o.profile, key)
	if err != nil {
		return Issued{}, err
	}
	begun := c.now() // before sending: a slow answer must not lengthen the token's life
	re, err := c.send(ctx, o.profile, login, o.form(subject))
	if err != nil {
		return Issued{}, err
	}
	a, err := re.answer()
	if err != nil {
		return Issued{}, err
	}
	issued, err := o.accept(a, begun, subject)
	if err != nil {
		return Issued{}, err
	}
	if issued.Expires.Sub(c.now()) < minLife {
		return Issued{}, refuse(fault.LifetimeTooShort, "the token would end before it could be used")
	}
	return issued, nil
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
