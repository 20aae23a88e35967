package identity

import (
	"crypto/x509"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"onbehalf.internal/broker/secret"
)

// A SignIn says which people may come through the page, and what their claims make of
// them. At most one entry has one.
type SignIn struct {
	Issuer, ClientID string
	Person           string   // the claim whose value, behind "user:", is the id of the person; empty: sub
	Subjects         []string // "user:8", or "user:" for all: whom the entry believes, as in SignedActors
	Audit, Approve   Claim    // who has which of the entry's roles; zero: nobody
	Admin            Claim    // as in SignedActors

	// For whoever asks the provider; nothing here depends on it.
	Secret     secret.Ref // of the client; zero: a public one
	Scopes     []string   // asked for besides openid
	AllowCIDRs []netip.Prefix
	CA         *x509.CertPool // nil: the system's
}

// SignIn returns how people sign in; false where they do not.
func (d *Directory) SignIn() (SignIn, bool) {
	if d.people == nil {
		return SignIn{}, false
	}
	return d.people.SignIn, true
}

// gives returns the claim that gives a role.
func (s SignIn) gives(r Role) Claim {
	return map[Role]Claim{Audit: s.Audit, Approve: s.Approve}[r]
}

func (c CallerConfig) signInProblems() (found []error) {
	s := c.SignIn
	add := func(format string, args ...any) { found = append(found, fmt.Errorf("sign_in: "+format, args...)) }
	if len(c.BearerSHA256)+len(c.Asserted) > 0 || c.Signed != nil || c.Approvers != nil {
		add("people prove themselves, and speak for nobody: neither bearers nor actors nor approvers have a place beside it")
	}
	for _, r := range c.Roles {
		switch {
		case r != Audit && r != Approve:
			add("role %.64q: who signs in can audit and approve", r)
		case s.gives(r) == Claim{}:
			add("role %s: no claim gives it", r)
		}
	}
	for _, r := range []Role{Audit, Approve} {
		if s.gives(r) != (Claim{}) && !slices.Contains(c.Roles, r) {
			add("%s: the entry does not have this role", r)
		}
	}
	for _, subject := range s.Subjects {
		if subject != "user:" && (ParseActorID(subject) != nil || !strings.HasPrefix(subject, "user:")) {
			add(`subject %.64q: people are "user:" and an id, or "user:" for all`, subject)
		}
	}
	switch {
	case s.Issuer == "" || s.ClientID == "":
		add("no issuer, or no client id")
	case len(s.Subjects) == 0:
		add("no subjects: it would believe nobody")
	case s.Admin != Claim{} && s.Approve == Claim{}:
		add("admin: without the role approve nobody is asked")
	}
	return found
}

// doubled names assertions of caller b that ID tokens for the entry id would pass for.
func (s *SignIn) doubled(id string, b CallerConfig) (found []error) {
	for _, signed := range []*SignedActors{b.Signed, b.Approvers} {
		if signed != nil && signed.Issuer == s.Issuer && signed.Audience == s.ClientID {
			found = append(found, fmt.Errorf("caller %.64q: sign_in: issuer and client id are issuer and audience of assertions of caller %.64q; register a client for signing in alone", id, b.ID))
		}
	}
	return found
}
