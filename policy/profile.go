package policy

import (
	"crypto/x509"
	"net/netip"
	"net/url"
	"time"

	"onbehalf.internal/broker/secret"
)

// A Profile is one identity provider as a client sees it. Lists are sorted and
// hold no entry twice.
type Profile struct {
	ID               string
	TokenEndpoint    *url.URL
	AllowCIDRs       []netip.Prefix
	CA               *x509.CertPool // nil: the system's
	Client           Client
	AllowedAudiences []string
	AllowedScopes    []string
	Resource         []string // RFC 8707, sent as it stands
	ExtraParams      url.Values
	SubjectTokenType string // default urn:ietf:params:oauth:token-type:access_token
	Response         Response
	Timeout          time.Duration // of one exchange; 0: the operation's budget alone
	Where            string        // file:line
}

// Client is how the broker authenticates at the token endpoint.
type Client struct {
	ID       string
	Auth     string     // "basic", "post", "private_key_jwt", "none"
	Key      secret.Ref // the secret, or the private key in PEM
	Alg, Kid string     // private_key_jwt; empty alg: what the key is for
	Audience string     // of the assertion: "issuer" (Response.ExpectIssuer), "token_endpoint" (the default) or a literal
}

// Response is what an answer of the token endpoint must look like.
type Response struct {
	TokenFormat        string   // "jwt" or "opaque"
	ExpectIssuer       string   // jwt: iss; empty: not looked at
	ExpectAudience     []string // jwt: aud must be a subset; default: the audience asked for
	AudienceUnverified bool     // always true for opaque: the operator knows that nobody checks
	RequireAct         string   // jwt: act.sub must be this
	AllowedExtraScopes []string
	RequireScopeEcho   bool
	DefaultTTL         time.Duration // when expires_in is absent; 0: refuse
	MaxTTL             time.Duration // what we believe at most; default 5m
}

// A Grant says that an actor may, through a profile, use a credential.
type Grant struct {
	Actor            string
	Profile          string
	Enabled          bool
	Credential       secret.Ref
	Subject          string // expected sub of the issued token; empty: not pinned
	AllowedAudiences []string
	AllowedScopes    []string
	Expires          time.Time // 00:00 UTC of the day in the file, which is the first moment without it; zero: never
	Reason           string
	Since            string // a date
	ApprovedBy       string
	Where            string // file:line
}

// expired reports whether g has ended at the given time. The interval is
// half-open: at Expires itself the grant is gone.
func (g *Grant) expired(at time.Time) bool {
	return !g.Expires.IsZero() && !at.Before(g.Expires)
}
