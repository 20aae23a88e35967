package policy

import (
	"crypto/x509"
	"net/netip"
	"net/url"
	"time"

	"onbehalf.internal/broker/secret"
)

// Omit stands for a parameter that is not sent.
const Omit = "omit"

// A Profile is one identity provider as a client sees it. Lists are sorted and
// hold no entry twice.
type Profile struct {
	ID               string
	TokenEndpoint    *url.URL
	AllowCIDRs       []netip.Prefix
	CA               *x509.CertPool // nil: the system's
	ServerName       string         // what the certificate of the token endpoint's host names; empty: that host
	Client           Client
	AllowedAudiences []string
	AllowedScopes    []string

	// What is asked for, and how. The server's audience and scopes come from
	// the decision; the rest stands here.
	GrantType          string   // empty: token exchange (RFC 8693); see BrokerIsSubject
	SubjectParam       string   // "subject_token" (also if empty) or "assertion"
	SubjectTokenType   string   // empty: …:access_token; Omit
	RequestedTokenType string   // empty: …:access_token; Omit
	AudienceParam      string   // how the server's audience is asked for: "audience" (also if empty), "resource", Omit
	Audience           []string // sent besides, as they stand
	Resource           []string // RFC 8707, sent as they stand
	ScopeSeparator     string   // empty: a space
	ExtraParams        url.Values
	Actor              Actor

	Response      Response
	Introspection *url.URL // RFC 7662: what an opaque token is; nil: nobody says
	Revocation    Revocation

	Timeout        time.Duration // of one exchange; 0: the operation's budget alone
	ConnectTimeout time.Duration // of one connection; 0: what egress allows
	MaxAnswer      int           // bytes of an answer; 0: 64 KiB

	// Then is the second step of two: what this one issues is the assertion
	// that the next token endpoint takes (identity chaining, ID-JAG). The rules
	// for the token that the server gets are Then's. nil: one step.
	Then *Profile

	Where string // file:line
}

// Issuing returns the step whose token the server gets.
func (p *Profile) Issuing() *Profile {
	if p.Then != nil {
		return p.Then
	}
	return p
}

// BrokerIsSubject reports whether nobody's credential is exchanged: the broker
// asks for a token of its own (RFC 6749 §4.4).
func (p *Profile) BrokerIsSubject() bool { return p.GrantType == clientCredentials }

// Further reports whether an exchange makes more requests than the one for the
// token.
func (p *Profile) Further() bool {
	return p.Then != nil || p.Introspection != nil || p.Response.JWKS != nil || p.Actor.Source == clientCredentials
}

// Client is how the broker authenticates at the token endpoint.
type Client struct {
	ID           string            // empty for anonymous alone
	Auth         string            // "basic", "basic_raw", "post", "private_key_jwt", "mtls", "none", "anonymous"
	Key          secret.Ref        // the secret, or the private key in PEM
	Transit      secret.TransitRef // private_key_jwt: the key that signs in Vault; then Key names nothing
	Certificate  secret.Ref        // mtls: the certificate chain in PEM
	Alg, Kid     string            // private_key_jwt; empty alg: what the key is for
	Audience     string            // of the assertion: "issuer" (Response.ExpectIssuer), "token_endpoint" (the default) or a literal
	AssertionTTL time.Duration     // 0: a minute
}

// Actor is what is sent as the actor token of RFC 8693 §2.1. The zero Actor
// sends none.
type Actor struct {
	Source     string     // "stored" (Credential) or "client_credentials" (asked for at the same token endpoint)
	Credential secret.Ref // stored
	TokenType  string
	Scopes     []string // client_credentials
}

// Response is what an answer of the token endpoint must look like.
type Response struct {
	IssuedTypeOptional bool     // issued_token_type may be absent: the grant is not RFC 8693's
	TokenFormat        string   // "jwt", "jwt_verified" or "opaque"
	JWKS               *url.URL // jwt_verified: where the keys are …
	Keys               []byte   // … or the key set itself, from a file
	ExpectIssuer       string   // iss; empty: not looked at
	ExpectAudience     []string // aud must be a subset; default: the audience asked for
	AudienceUnverified bool     // opaque without introspection: the operator knows that nobody checks
	RequireAct         string   // act.sub must be this; empty: any, where an actor token was sent
	RequireSubject     bool     // every grant pins the subject
	AllowedExtraScopes []string
	RequiredScopes     []string // with all of them, fewer than were asked for will do; empty: all that were asked for
	ScopePrefix        string   // stands before scopes in some places and not in others; not compared
	RequireScopeEcho   bool
	DefaultTTL         time.Duration // when expires_in is absent; 0: refuse
	MaxTTL             time.Duration // what we believe at most; default 5m
	ClockSkew          time.Duration // how far in the future nbf may be
}

// Revocation is how an exchanged token is ended after its operation (RFC 7009).
// The zero Revocation leaves it to run out.
type Revocation struct {
	Endpoint *url.URL
	Hint     string // token_type_hint; empty: not sent
}
