// Package signin has people sign in at the web page, at the provider that the entry
// with sign_in names: OpenID Connect's code flow (Core 1.0 §3.1) with PKCE (RFC 7636).
//
// [Provider.Begin] says where the browser goes, [Provider.End] what it came back with.
// What stands in the ID token, and what the person may do, package identity says.
//
// What always holds:
//
//   - An answer is taken for the attempt that it belongs to, once begun here: by its state,
//     its issuer (RFC 9207), the code's verifier and the token's nonce.
//   - The provider's document is the issuer's own, and every address in it keeps the rule
//     for addresses in the configuration.
//   - Answers are bounded, and read strictly. No redirect is followed.
//   - The client's secret goes to the token endpoint and nowhere else. The access token that
//     comes with the ID token is dropped unread.
//   - Keys and document are asked for now and then, and not more often because of what a
//     browser brings.
//   - An error is a [fault.Error] and holds no text of the provider's, nor of a browser's.
//
// It keeps no session, and does not see that an [Attempt] is used once: the page does.
package signin

import (
	"context"
	"crypto/rand"
	"net/url"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

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
type Provider struct {
	Config
	document *kept[document]
	keys     *kept[identity.KeySet]
}

// New returns a Provider. It asks nobody anything yet.
func New(c Config) *Provider {
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Provider{c, newKept[document](), newKept[identity.KeySet]()}
}

// An Attempt is what the browser that began has to show at the end. It stays on our
// side, with that browser's session.
type Attempt struct {
	State, Nonce, Verifier secret.Text
	Until                  time.Time

	issuer, client string // where it began
}

// attemptLife is how long a person may take at the provider.
const attemptLife = 10 * time.Minute

// Begin returns where the browser goes, and what is kept until it comes back. The
// error is that of an unready provider, or sign_in_failed where nobody signs in.
func (p *Provider) Begin(ctx context.Context) (to string, a Attempt, err error) {
	in, there := p.Directory().SignIn()
	if !there {
		return "", a, refuse(fault.SignInFailed, "no caller has sign_in")
	}
	doc, err := p.discover(ctx, in)
	if err != nil {
		return "", a, err
	}
	verifier := oauth2.GenerateVerifier()
	a = Attempt{State: secret.New(rand.Text()), Nonce: secret.New(rand.Text()), Verifier: secret.New(verifier),
		Until: p.Now().Add(attemptLife), issuer: in.Issuer, client: in.ClientID}
	conf := p.conf(in, doc)
	return conf.AuthCodeURL(a.State.Reveal(), oauth2.S256ChallengeOption(verifier), oidc.Nonce(a.Nonce.Reveal())), a, nil
}

// End returns the person that signed in, from the query that the browser came back
// with. The reason of the error is sign_in_failed or sign_in_denied, one of the
// provider's (provider_unreachable, provider_config, …), or of Config.Secret's.
func (p *Provider) End(ctx context.Context, a Attempt, query url.Values) (identity.Person, error) {
	d := p.Directory()
	in, there := d.SignIn()
	switch {
	case !p.Now().Before(a.Until): // nor is there an attempt that never began
		return identity.Person{}, refuse(fault.SignInFailed, "it took too long: begin again")
	case !there || in.Issuer != a.issuer || in.ClientID != a.client:
		return identity.Person{}, refuse(fault.SignInFailed, "people sign in elsewhere now")
	}
	doc, err := p.discover(ctx, in)
	if err != nil {
		return identity.Person{}, err
	}
	code, err := answered(a, doc, query)
	if err != nil {
		return identity.Person{}, err
	}
	token, err := p.redeem(ctx, in, doc, code, a.Verifier)
	if err != nil {
		return identity.Person{}, err
	}
	keys := &providerKeys{p: p, in: in, at: doc.keys}
	person, err := d.Person(ctx, token, a.Nonce.Reveal(), keys)
	if keys.err != nil { // that we could not look is not the token's fault
		return identity.Person{}, keys.err
	}
	return person, err
}

// answered returns the code of an answer to a (RFC 6749 §4.1.2). Whose answer it is
// comes first, also where it is an error (RFC 9207 §2.4).
func answered(a Attempt, doc document, query url.Values) (secret.Text, error) {
	none := func(detail string) (secret.Text, error) { return secret.Text{}, refuse(fault.SignInFailed, detail) }
	for _, name := range []string{"state", "iss", "error", "code"} {
		if len(query[name]) > 1 {
			return none("the answer holds " + name + " twice")
		}
	}
	switch {
	case !secret.New(query.Get("state")).Equal(a.State):
		return none("the answer is to another attempt: state")
	case query.Has("iss") && query.Get("iss") != a.issuer, doc.statesIssuer && !query.Has("iss"):
		return none("the answer is not the provider's: iss")
	case query.Has("error"):
		return secret.Text{}, declined(query.Get("error"))
	case query.Get("code") == "" || len(query.Get("code")) > maxCode:
		return none("the answer holds no code")
	}
	return secret.New(query.Get("code")), nil
}

const maxCode = 8 << 10 // bytes; some providers put all they know into it

func (p *Provider) conf(in identity.SignIn, doc document) *oauth2.Config {
	return &oauth2.Config{
		ClientID: in.ClientID, RedirectURL: p.Redirect, Scopes: append([]string{oidc.ScopeOpenID}, in.Scopes...),
		Endpoint: oauth2.Endpoint{AuthURL: doc.authorization.String(), TokenURL: doc.token.String()},
	}
}
