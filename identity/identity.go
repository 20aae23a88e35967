// Package identity verifies who is calling and for whom.
//
// It is the only constructor of [Caller], [Actor], [Approver] and [Person]: a function that
// takes one need not check it, and nothing else in the program can make one.
//
// What always holds:
//
//   - A caller proves itself by one Authorization header, compared as digests
//     over all callers; unknown and wrong are the same answer.
//   - An actor comes in exactly one header, and only in the way the caller's
//     entry allows: signed by an issuer bound to that caller, or asserted by
//     name from the caller's own list. Absence denies.
//   - Who decides about a call of others is verified, too, and in no other way
//     than by an assertion (approver.go) or by signing in (person.go).
//   - Who signs in is proven by an ID token for the one entry that has sign_in, and
//     has the roles that the token's claims give. Nobody operates, or is an
//     administrator of the broker, by signing in.
//   - An access token of OAuth proves caller and actor in one, for the address that it was
//     shown to and for no other (tokens.go).
//   - Nothing in a request body, a query or any other header says who acts.
//   - What a newer configuration no longer believes, [Directory.Still] says: a
//     caller and an actor keep what they were proven by.
//
// This package does not remember an assertion: that its jti is used once is for
// package ledger to see. It does not decide what an actor may do, and it fetches
// no keys.
package identity

import (
	"fmt"
	"regexp"
)

// A Role is what a caller may use the API for.
type Role string

const (
	Operate Role = "operate"
	Approve Role = "approve"
	Audit   Role = "audit"
	Admin   Role = "admin"
)

// A Caller is an authenticated program or person. The zero Caller is nobody:
// it has no role and speaks for no actor.
type Caller struct {
	entry  *entry
	shown  *bearer // what it proved itself with; nil: person has signed in, or entry.front has let it in
	person *Person
}

// ID returns the caller's name in the configuration.
func (c Caller) ID() string {
	if c.entry == nil {
		return ""
	}
	return c.entry.id
}

// Has reports whether the caller may use the API as r.
func (c Caller) Has(r Role) bool { return c.entry != nil && c.entry.roles[r] }

// IsZero reports whether c is nobody.
func (c Caller) IsZero() bool { return c.entry == nil }

// An Actor is on whose behalf an operation runs. The zero Actor is nobody.
type Actor struct {
	id, jti string
	proof   *proof // of an assertion; nil: the caller's word was taken
}

// String returns the actor's id, as in "user:7".
func (a Actor) String() string { return a.id }

// JTI returns the jti of the assertion that named the actor; it is empty if
// the caller asserted the actor by name.
func (a Actor) JTI() string { return a.jti }

// Admin reports whether the actor's assertion says that it is an administrator, in
// the way that the configuration names. What a caller asserts by name is none.
func (a Actor) Admin() bool { return a.proof != nil && a.proof.admin }

// IsZero reports whether a is nobody.
func (a Actor) IsZero() bool { return a.id == "" }

// Ids are compared byte for byte and never normalised: what looks alike must not
// be able to exist.
var (
	callerID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@-]{0,127}$`)
	actorID  = regexp.MustCompile(`^(user|service):[A-Za-z0-9][A-Za-z0-9._@-]{0,127}$`)
)

// ParseActorID checks an actor id: "user:" or "service:" and 1 to 128 of
// [A-Za-z0-9._@-], the first a letter or digit.
func ParseActorID(s string) error {
	if !actorID.MatchString(s) {
		return fmt.Errorf(`actor %.64q: an id is "user:" or "service:" and 1 to 128 letters, digits and "._@-"`, s)
	}
	return nil
}
