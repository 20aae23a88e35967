package identity

import (
	"context"
	"crypto/subtle"
	"errors"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/secret"
)

// A Person has signed in: proven by an ID token. Only [Directory.Person] makes one.
// The zero Person is nobody.
type Person struct {
	id     string
	entry  *entry // with the person's roles, which are some of the entry's
	admin  bool
	issuer string
	client string
	proven func() map[string]any // the token's claims; in a closure, which nothing prints
}

// String returns the person's id, as in "user:8".
func (p Person) String() string { return p.id }

// IsZero reports whether p is nobody.
func (p Person) IsZero() bool { return p.entry == nil }

// Caller returns the entry, with those of its roles that the person's claims give.
func (p Person) Caller() Caller { return Caller{entry: p.entry, person: &p} }

// Approver returns the person as one who decides about calls; false if it may not.
func (p Person) Approver() (Approver, bool) {
	if !p.Caller().Has(Approve) {
		return Approver{}, false
	}
	return Approver{Actor{p.id, "", &proof{issuer: p.issuer, audience: p.client, admin: p.admin}}}, true
}

// A door is where people come in: a SignIn that was checked.
type door struct {
	SignIn
	entry    *entry // whose roles there are
	subjects subjects
	now      func() time.Time
}

func newDoor(s SignIn, e *entry, now func() time.Time) *door {
	if s.Person == "" {
		s.Person = "sub"
	}
	return &door{SignIn: s, entry: e, subjects: newSubjects(s.Subjects), now: now}
}

// Person verifies an ID token (OpenID Connect Core 1.0 §3.1.3.7) that was asked for with
// this nonce, by the keys of the provider that the entry with sign_in names. The reason of the error is
// sign_in_failed where the token is not believed, and sign_in_denied where it is, and
// the person may not come in.
func (d *Directory) Person(ctx context.Context, idToken secret.Text, nonce string, keys oidc.KeySet) (Person, error) {
	if d.people == nil {
		return Person{}, refusePerson(fault.SignInFailed, "no caller has sign_in")
	}
	claims, problem := d.people.verify(ctx, idToken.Reveal(), nonce, keys)
	if problem != "" {
		return Person{}, refusePerson(fault.SignInFailed, "the ID token: "+problem)
	}
	return d.people.admit(claims)
}

// StillPerson returns p, whom an earlier directory has let in, as d sees it: with the
// roles that its claims give now. The error says why d would not let it in.
func (d *Directory) StillPerson(p Person) (Person, error) {
	switch {
	case p.IsZero() || d.people == nil:
		return Person{}, refusePerson(fault.SignInFailed, "no caller has sign_in, or nobody has signed in")
	case p.issuer != d.people.Issuer || p.client != d.people.ClientID || p.entry.id != d.people.entry.id:
		return Person{}, refusePerson(fault.SignInFailed, "people sign in elsewhere now")
	}
	now, err := d.people.admit(p.proven())
	if err == nil && now.id != p.id {
		return Person{}, refusePerson(fault.SignInFailed, "another claim names people now")
	}
	return now, err
}

// stillPerson is [Directory.Still] for who has signed in, and speaks for no actor.
func (d *Directory) stillPerson(p Person, r Role, a Actor) fault.Reason {
	now, err := d.StillPerson(p)
	switch {
	case err != nil:
		return fault.CallerUnknown
	case !now.Caller().Has(r):
		return fault.RoleMissing
	case !a.IsZero():
		return fault.ActorNotAllowed
	}
	return fault.None
}

// admit makes a person of claims that were proven.
func (o *door) admit(claims map[string]any) (Person, error) {
	deny := func(detail string) (Person, error) { return Person{}, refusePerson(fault.SignInDenied, detail) }
	value, ok := claims[o.Person].(string)
	id := "user:" + value
	roles := map[Role]bool{}
	for r := range o.entry.roles {
		if o.gives(r).in(claims) {
			roles[r] = true
		}
	}
	switch {
	case !ok || ParseActorID(id) != nil: // mended, two people could become one
		return deny("the claim that names the person holds no id of 1 to 128 letters, digits and \"._@-\"")
	case o.Person == "email" && claims["email_verified"] != true:
		return deny("the provider does not say that the email address is the person's: email_verified is not true")
	case !o.subjects.hold(id):
		return deny("this person is not among the subjects")
	case len(roles) == 0:
		return deny("no claim of this person gives a role")
	}
	return Person{id: id, entry: &entry{id: o.entry.id, roles: roles}, admin: o.Admin.in(claims),
		issuer: o.Issuer, client: o.ClientID, proven: func() map[string]any { return claims }}, nil
}

const maxIDToken = 32 << 10 // bytes; with two hundred groups one has 16 KiB

// providerKeyID is broader than keyID: providers name keys as they like.
var providerKeyID = keyForm{regexp.MustCompile(`^"[!#-\[\]-~]{1,256}"$`), "1 to 256 visible characters"}

// verify proves an ID token and returns its claims. A problem is ours, as in
// [verifier.token]. How long the token is good matters little: nobody brings it here but the
// provider, in its answer to the code.
func (o *door) verify(ctx context.Context, text, nonce string, keys oidc.KeySet) (_ map[string]any, problem string) {
	if len(text) > maxIDToken || !compact.MatchString(text) {
		return nil, "not a signed JWT in compact form of at most 32 KiB"
	}
	parts := strings.Split(text, ".")
	if problem := headerProblem(parts[0], providerKeyID, plainJWT); problem != "" {
		return nil, problem
	}
	if problem := claimsProblem(parts[1], o.reads()); problem != "" {
		return nil, problem
	}
	v := oidc.NewVerifier(o.Issuer, keys, &oidc.Config{ClientID: o.ClientID, SupportedSigningAlgs: algorithms, Now: o.now})
	token, err := v.Verify(ctx, text)
	if expired := (*oidc.TokenExpiredError)(nil); errors.As(err, &expired) {
		return nil, "expired"
	}
	if err != nil {
		return nil, "not signed by the provider with an algorithm that is accepted, or iss, aud or nbf is wrong"
	}
	claims := map[string]any{}
	if token.Claims(&claims) != nil {
		return nil, "not one strict JSON object"
	}
	return claims, o.meant(token, claims, nonce)
}

// meant checks what the library leaves to its users.
func (o *door) meant(t *oidc.IDToken, claims map[string]any, nonce string) string {
	for _, name := range []string{"exp", "nbf", "iat"} {
		if value, there := claims[name]; there && !isNumber(value) { // the library takes texts, too
			return name + " is not a number"
		}
	}
	azp, named := claims["azp"]
	switch {
	case t.Issuer != o.Issuer: // the library takes two spellings for Google
		return "iss is not the provider"
	case t.Subject == "":
		return "sub is missing"
	case named && azp != o.ClientID, !named && len(t.Audience) > 1:
		return "it was issued to another client: azp"
	case t.IssuedAt.IsZero() || t.IssuedAt.After(o.now().Add(leeway)):
		return "iat is missing, or lies ahead"
	case nonce == "" || subtle.ConstantTimeCompare([]byte(t.Nonce), []byte(nonce)) != 1:
		return "nonce is not what was asked with"
	}
	return ""
}

func isNumber(v any) bool { _, ok := v.(float64); return ok }

// reads are the claims that decide here, of which there may be no other spelling.
func (o *door) reads() []string {
	names := map[string]bool{"nonce": true, "azp": true, "email_verified": true, o.Person: true, o.Audit.Name: true, o.Approve.Name: true, o.Admin.Name: true}
	delete(names, "")
	return slices.AppendSeq(slices.Clone(registered), maps.Keys(names))
}

func refusePerson(reason fault.Reason, detail string) error {
	return fault.New("identity.Person", reason, detail)
}
