package identity

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// CallerConfig is one entry of `callers:`. Package policy fills it from the
// file; NewDirectory checks it again.
type CallerConfig struct {
	ID           string     // 1 to 128 of [A-Za-z0-9._@-], the first a letter or digit
	Roles        []Role     // at least one
	BearerSHA256 [][32]byte // one, or two while a bearer is rotated
	Asserted     []string   // actor ids this caller may name, exactly
	Signed       *SignedActors
	Approvers    *SignedActors // whose decisions about calls it may bring; nil: nobody's
	SignIn       *SignIn       // in place of all that stands above but ID and Roles: the caller is people at the page
	Tokens       *Tokens       // the same: it is people whose MCP clients bring access tokens
}

// SignedActors says which assertions of a caller are believed.
type SignedActors struct {
	Issuer   string
	Audience string
	Keys     KeySet
	Subjects []string // exact actor ids, or "user:" or "service:" for all of a kind
	Admin    Claim    // what says that the actor is an administrator; zero: nothing does
}

// A Claim is a value of a claim: the claim itself, or one of the texts in a list.
type Claim struct{ Name, Value string }

// confused names callers whose assertions of actors would pass for assertions of
// approvers: who carries one to us could approve with it; and people whose ID tokens
// would pass for either.
func confused(callers []CallerConfig) (found []error) {
	for _, a := range callers {
		for _, b := range callers {
			if a.Approvers != nil && b.Signed != nil && a.Approvers.Issuer == b.Signed.Issuer && a.Approvers.Audience == b.Signed.Audience {
				found = append(found, fmt.Errorf("caller %.64q: approvers: issuer and audience are those of the actors of caller %.64q; give approvers an audience of their own", a.ID, b.ID))
			}
			if a.SignIn != nil {
				found = append(found, a.SignIn.doubled(a.ID, b)...)
			}
			if a.Tokens != nil {
				found = append(found, a.Tokens.doubled(a.ID, b)...)
			}
		}
	}
	return found
}

// in reports whether the claim has the value.
func (c Claim) in(claims map[string]any) bool {
	switch v := claims[c.Name].(type) {
	case string:
		return c.Name != "" && v == c.Value
	case []any:
		return c.Name != "" && slices.Contains(v, any(c.Value))
	}
	return false
}

// weak are digests that a mistake leads to: the empty text, the empty line that
// `echo | sha256sum` reads, and words that stand in examples.
var weak = func() map[[32]byte]bool {
	m := map[[32]byte]bool{{}: true}
	for _, word := range []string{"", "\n", "changeme", "password", "secret", "token"} {
		m[sha256.Sum256([]byte(word))] = true
	}
	return m
}()

// problems checks the entry by itself.
func (c CallerConfig) problems() (found []error) {
	add := func(format string, args ...any) { found = append(found, fmt.Errorf(format, args...)) }
	if !callerID.MatchString(c.ID) {
		add(`an id is 1 to 128 letters, digits and "._@-", the first a letter or digit`)
	}
	if len(c.Roles) == 0 {
		add("no role")
	}
	for _, r := range c.Roles {
		if !slices.Contains([]Role{Operate, Approve, Audit, Admin}, r) {
			add("role %.64q: roles are operate, approve, audit and admin", r)
		}
	}
	if n := len(c.BearerSHA256); c.SignIn == nil && c.Tokens == nil && (n == 0 || n > 2) {
		add("%d entries in bearer_sha256: one, or two while a bearer is rotated", n)
	}
	for _, digest := range c.BearerSHA256 {
		if weak[digest] {
			add("bearer_sha256 is the digest of nothing, or of a word that anybody guesses")
		}
	}
	for _, id := range c.Asserted {
		if err := ParseActorID(id); err != nil {
			add("asserted: %w", err)
		}
	}
	if c.Signed != nil {
		found = append(found, c.Signed.problems("signed")...)
	}
	if c.Approvers != nil {
		found = append(found, c.approverProblems()...)
	}
	if c.SignIn != nil {
		found = append(found, c.signInProblems()...)
	}
	if c.Tokens != nil {
		found = append(found, c.tokenProblems()...)
	}
	return found
}

func (c CallerConfig) approverProblems() []error {
	found := c.Approvers.problems("approvers")
	if !slices.Contains(c.Roles, Approve) {
		found = append(found, errors.New("approvers: without the role approve nobody is asked for them"))
	}
	for _, subject := range c.Approvers.Subjects {
		if !strings.HasPrefix(subject, "user:") {
			found = append(found, fmt.Errorf("approvers: subject %.64q: only a person approves", subject))
		}
	}
	return found
}

func (s *SignedActors) problems(where string) (found []error) {
	add := func(format string, args ...any) { found = append(found, fmt.Errorf(where+": "+format, args...)) }
	// The library takes an empty issuer or audience for "do not look".
	if s.Issuer == "" {
		add("no issuer")
	}
	if s.Audience == "" {
		add("no audience")
	}
	if s.Keys.Len() == 0 {
		add("no key")
	}
	if len(s.Subjects) == 0 {
		add("no subjects: it would believe nobody")
	}
	for _, subject := range s.Subjects {
		if subject != "user:" && subject != "service:" && ParseActorID(subject) != nil {
			add(`subject %.64q: subjects are actor ids, "user:" and "service:"`, subject)
		}
	}
	return found
}
