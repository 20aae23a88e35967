package policy

import (
	"time"

	"onbehalf.internal/broker/secret"
)

// A Credential says what the actor's own credential is and where it comes from.
// One of its kinds is set, and the fields of that kind.
type Credential struct {
	Kind CredentialKind
	Ref  secret.Ref // Stored, RefreshToken

	Mount, Role string // VaultOIDC: of the identity engine
	File        string // File: an absolute path
	Client      string // BrokersOwn: its id
}

// A CredentialKind is a key of a grant's credential. Stored has none, and
// BrokersOwn is what grants have in a profile where [Profile.BrokerIsSubject].
type CredentialKind string

const (
	Stored       CredentialKind = "stored"        // a token, sent as it is
	RefreshToken CredentialKind = "refresh_token" // exchanged for an access token at the profile's token endpoint, and replaced when that rotates it
	VaultOIDC    CredentialKind = "vault_oidc"    // issued by Vault for each operation
	File         CredentialKind = "file"          // a token in a file that somebody else keeps fresh
	BrokersOwn   CredentialKind = "brokers_own"   // none: the broker itself is the subject, as its client at the provider
)

// String says what c is. It holds no secret, and differs where the credentials do.
func (c Credential) String() string {
	switch c.Kind {
	case RefreshToken:
		return "refresh_token " + c.Ref.String()
	case VaultOIDC:
		return "vault_oidc " + c.Mount + "/" + c.Role
	case File:
		return "file " + c.File
	case BrokersOwn:
		return "client_credentials of " + c.Client
	default:
		return c.Ref.String()
	}
}

// A Grant says that an actor may, through a profile, use a credential.
type Grant struct {
	Actor            string
	Profile          string
	Enabled          bool
	Credential       Credential
	Subject          string // expected sub of the issued token; empty: not pinned
	AllowedAudiences []string
	AllowedScopes    []string
	Expires          time.Time // 00:00 UTC of the day in the file, which is the first moment without it; zero: never
	Reason           string
	Since            string // a date
	ApprovedBy       string
	Where            string // file:line
}

// until is the first day without g, as the file has it; for nil, where none is needed,
// there is no such day.
func (g *Grant) until() string {
	if g == nil || g.Expires.IsZero() {
		return "no end"
	}
	return g.Expires.Format(time.DateOnly)
}

// expired reports whether g has ended at the given time. The interval is
// half-open: at Expires itself the grant is gone.
func (g *Grant) expired(at time.Time) bool {
	return !g.Expires.IsZero() && !at.Before(g.Expires)
}
