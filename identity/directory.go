package identity

import (
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/secret"
)

// Directory holds the callers of one snapshot.
type Directory struct {
	bearers []bearer
	listed  map[[32]byte]*entry // :: digest of a bearer → its caller
	callers map[string]*entry   // :: id →
	people  *door               // nil: nobody signs in
	fronts  []*front            // those that access tokens come through
}

// A bearer is one credential of one caller.
type bearer struct {
	digest [32]byte
	entry  *entry
}

// An entry is a CallerConfig that was checked.
type entry struct {
	id       string
	roles    map[Role]bool
	asserted map[string]bool
	signed   *verifier // nil: no assertion of this caller is believed

	approvers *verifier // nil: it brings nobody's decision
	front     *front    // nil: no access token proves it
}

// NewDirectory checks callers and returns their directory. The error names every
// problem of every entry. A nil now is time.Now.
func NewDirectory(callers []CallerConfig, now func() time.Time) (*Directory, error) {
	if now == nil {
		now = time.Now
	}
	d := &Directory{listed: map[[32]byte]*entry{}, callers: map[string]*entry{}}
	problems := confused(callers)
	for _, c := range callers {
		found := c.problems()
		if d.callers[c.ID] != nil {
			found = append(found, errors.New("listed twice"))
		}
		e := newEntry(c, now)
		d.callers[c.ID] = e
		for _, digest := range c.BearerSHA256 {
			if owner, taken := d.listed[digest]; taken {
				found = append(found, fmt.Errorf("bearer_sha256 is also one of caller %q", owner.id))
			}
			d.listed[digest] = e
			d.bearers = append(d.bearers, bearer{digest, e})
		}
		if c.SignIn != nil {
			if d.people != nil {
				found = append(found, fmt.Errorf("sign_in: caller %.64q has one already", d.people.entry.id))
			}
			d.people = newDoor(*c.SignIn, e, now)
		}
		if c.Tokens != nil {
			e.front = newFront(*c.Tokens, e, now)
			d.fronts = append(d.fronts, e.front)
		}
		for _, p := range found {
			problems = append(problems, fmt.Errorf("caller %.64q: %w", c.ID, p))
		}
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	return d, nil
}

func newEntry(c CallerConfig, now func() time.Time) *entry {
	e := &entry{id: c.ID, roles: map[Role]bool{}, asserted: map[string]bool{}}
	for _, r := range c.Roles {
		e.roles[r] = true
	}
	for _, id := range c.Asserted {
		e.asserted[id] = true
	}
	if c.Signed != nil {
		e.signed = newVerifier(*c.Signed, now)
	}
	if c.Approvers != nil {
		e.approvers = newVerifier(*c.Approvers, now)
	}
	return e
}

// token68 is RFC 9110 §11.2.
var token68 = regexp.MustCompile(`^[A-Za-z0-9._~+/-]+=*$`)

// Caller authenticates a request. The error has kind unauthenticated and is the
// same whatever is wrong: it must not tell a guess from a typing error.
func (d *Directory) Caller(h http.Header) (Caller, error) {
	if token, ok := readBearer(h); ok {
		if b := d.find(token.Digest()); b != nil {
			return Caller{entry: b.entry, shown: b}, nil
		}
	}
	return Caller{}, fault.New("identity.Caller", fault.CallerUnknown, "one Authorization header with the bearer of a known caller is needed")
}

// readBearer takes exactly one Authorization header, exactly "Bearer " and a
// token68 (RFC 6750 §2.1). Two headers are two answers to the question who
// calls, and whoever stands before us may have read the other one.
func readBearer(h http.Header) (secret.Text, bool) {
	values := h.Values("Authorization")
	if len(values) != 1 {
		return secret.Text{}, false
	}
	token, ok := strings.CutPrefix(values[0], "Bearer ")
	return secret.New(token), ok && token68.MatchString(token)
}

// find compares with every bearer of every caller and does not stop at a hit,
// so that the time says nothing about who is known.
func (d *Directory) find(digest [32]byte) *bearer {
	found := -1
	for i, b := range d.bearers {
		found = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(b.digest[:], digest[:]), i, found)
	}
	if found < 0 {
		return nil
	}
	return &d.bearers[found]
}

// Still reports why d would not let c, whom an earlier directory has
// authenticated, use the API as r for a; None if it would. What proved caller
// and actor is asked again: the bearer is listed for this caller, the caller has
// the role, and it may name the actor in the way it did, by a key that is still
// its issuer's. The zero Actor is not asked after.
//
// It looks a digest up, where [Directory.Caller] compares with all of them:
// nobody can guess here, the bearer has been proven.
func (d *Directory) Still(c Caller, r Role, a Actor) fault.Reason {
	switch {
	case c.IsZero():
		return fault.CallerUnknown
	case c.entry.front != nil:
		return d.stillFront(c.ID(), r, a)
	case c.shown == nil:
		return d.stillPerson(*c.person, r, a)
	}
	e, listed := d.listed[c.shown.digest]
	switch {
	case !listed || e.id != c.ID():
		return fault.CallerUnknown
	case !e.roles[r]:
		return fault.RoleMissing
	case a.IsZero(), a.proof == nil && e.asserted[a.id]:
		return fault.None
	case a.proof == nil:
		return fault.ActorNotAllowed
	}
	return e.signed.still(a)
}

// Actor reads Broker-Actor-Assertion or Broker-Actor for c. The reason of the
// error is actor_missing, actor_invalid, actor_not_allowed or assertion_invalid.
func (d *Directory) Actor(c Caller, h http.Header) (Actor, error) {
	assertions, names := h.Values("Broker-Actor-Assertion"), h.Values("Broker-Actor")
	switch {
	case c.IsZero():
		return Actor{}, refuse(fault.ActorNotAllowed, "nobody speaks for an actor")
	case len(assertions)+len(names) == 0:
		return Actor{}, refuse(fault.ActorMissing, "one of Broker-Actor-Assertion and Broker-Actor is needed")
	case len(assertions)+len(names) > 1:
		return Actor{}, refuse(fault.ActorInvalid, "exactly one of Broker-Actor-Assertion and Broker-Actor is needed, once")
	case len(assertions) == 1:
		return c.entry.verified(secret.New(assertions[0]))
	}
	return c.entry.named(names[0])
}

func (e *entry) verified(assertion secret.Text) (Actor, error) {
	if e.signed == nil {
		return Actor{}, refuse(fault.ActorNotAllowed, "this caller has no entry for signed actors")
	}
	return e.signed.verify(assertion)
}

func (e *entry) named(id string) (Actor, error) {
	if ParseActorID(id) != nil {
		return Actor{}, refuse(fault.ActorInvalid, "Broker-Actor is not an actor id")
	}
	if !e.asserted[id] {
		return Actor{}, refuse(fault.ActorNotAllowed, "this caller may not assert this actor")
	}
	return Actor{id: id}, nil
}

func refuse(reason fault.Reason, detail string) error {
	return fault.New("identity.Actor", reason, detail)
}
