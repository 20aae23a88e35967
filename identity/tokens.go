package identity

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"onbehalf.internal/broker/fault"
)

// Tokens says which access tokens of OAuth prove a caller and its actor in one: people
// who have let an MCP client act for them.
type Tokens struct {
	Issuer   string
	Audience string // of each token; empty: the address that it is shown to
	Type     string // typ in its header; empty: at+jwt
	Keys     KeySet
	Person   string   // the claim whose value, behind "user:", is the actor; empty: sub
	Subjects []string // exact actor ids, or "user:" for all
	Scopes   []string // each token has all of them
	Admin    Claim    // as in SignedActors
}

const (
	maxToken     = 16 << 10       // bytes; a header of HTTP is not larger here
	maxTokenLife = 24 * time.Hour // of an access token; nobody can call it back
	accessToken  = "at+jwt"       // RFC 9068 §2.1
)

// A front is where people come from by access tokens: Tokens that were checked.
type front struct {
	Tokens
	entry    *entry
	subjects subjects
	now      func() time.Time
}

func newFront(t Tokens, e *entry, now func() time.Time) *front {
	if t.Person == "" {
		t.Person = "sub"
	}
	if t.Type == "" {
		t.Type = accessToken
	}
	return &front{Tokens: t, entry: e, subjects: newSubjects(t.Subjects), now: now}
}

// Fronts are whose access tokens are believed, sorted by issuer.
func (d *Directory) Fronts() (all []Tokens) {
	for _, f := range d.fronts {
		all = append(all, f.Tokens)
	}
	slices.SortFunc(all, func(a, b Tokens) int { return strings.Compare(a.Issuer, b.Issuer) })
	return all
}

// Token proves caller and actor by the access token in h (RFC 9068 §4), which was shown
// to the resource with this address (RFC 8707). The reason of the error is caller_unknown
// where there is no token, assertion_invalid where it is not believed here,
// insufficient_scope, actor_invalid or actor_not_allowed.
func (d *Directory) Token(h http.Header, resource string) (Caller, Actor, error) {
	token, ok := readBearer(h)
	if !ok {
		return nobody(fault.CallerUnknown, "one Authorization header with an access token is needed")
	}
	text := token.Reveal()
	if len(text) > maxToken || !compact.MatchString(text) {
		return nobody(fault.AssertionInvalid, "the access token is not a signed JWT in compact form of at most 16 KiB")
	}
	problem := "iss is nobody whose tokens are believed here"
	for _, f := range d.fronts {
		if f.Issuer != issuerOf(text) {
			continue
		}
		var claims jwt.MapClaims
		var key any
		if claims, key, problem = f.verify(text, resource); problem == "" {
			return f.admit(claims, key)
		}
	}
	return nobody(fault.AssertionInvalid, "the access token: "+problem)
}

// issuerOf is who a token says has issued it: it proves nothing, and tells whom to ask.
func issuerOf(text string) string {
	claims, _ := members(strings.Split(text, ".")[1])
	var issuer string
	json.Unmarshal(claims["iss"], &issuer)
	return issuer
}

// verify proves a token and returns its claims and the key that has signed it. A problem
// is ours, as in [verifier.token].
func (f *front) verify(text, resource string) (_ jwt.MapClaims, key any, problem string) {
	parts := strings.Split(text, ".")
	if problem := headerProblem(parts[0], providerKeyID, f.typed); problem != "" {
		return nil, nil, problem
	}
	if problem := claimsProblem(parts[1], f.reads()); problem != "" {
		return nil, nil, problem
	}
	if f.Audience != "" {
		resource = f.Audience
	}
	token, err := newParser(f.Issuer, resource, f.now).Parse(text, f.Keys.key)
	if err != nil {
		return nil, nil, inOurWords(err)
	}
	claims := token.Claims.(jwt.MapClaims)
	key, _ = f.Keys.key(token) // it has verified the token
	return claims, key, f.meant(claims)
}

// typed is what typ must be; RFC 9068 §4 allows two spellings of its own.
func (f *front) typed(typ string) string {
	if typ == `"`+f.Type+`"` || f.Type == accessToken && typ == `"application/at+jwt"` {
		return ""
	}
	return "typ is not " + f.Type
}

// meant checks what the library leaves to its users.
func (f *front) meant(claims jwt.MapClaims) string {
	aud, err := claims.GetAudience()
	iat, err2 := claims.GetIssuedAt()
	exp, err3 := claims.GetExpirationTime()
	client, _ := claims["client_id"].(string)
	jti, _ := claims["jti"].(string)
	_, bound := claims["cnf"]
	switch {
	case err != nil || len(aud) != 1: // others could bring it here
		return "aud must be this address alone"
	case err2 != nil || err3 != nil || iat == nil || exp == nil:
		return "iat or exp is missing"
	case exp.Sub(iat.Time) > maxTokenLife:
		return "valid for more than 24 hours"
	case f.Type == accessToken && (client == "" || jti == ""): // RFC 9068 §2.2
		return "client_id or jti is missing"
	case bound: // to a key that nobody shows here (RFC 7800): who brings it need not be its holder
		return "it is bound to a key (cnf)"
	}
	return ""
}

// reads are the claims that decide here, of which there may be no other spelling.
func (f *front) reads() []string {
	names := map[string]bool{"client_id": true, "scope": true, "cnf": true, "email_verified": true, f.Person: true, f.Admin.Name: true}
	delete(names, "")
	return slices.AppendSeq(slices.Clone(registered), maps.Keys(names))
}

// admit makes caller and actor of claims that were proven.
func (f *front) admit(claims jwt.MapClaims, key any) (Caller, Actor, error) {
	value, ok := claims[f.Person].(string)
	scope, _ := claims["scope"].(string)
	id := "user:" + value
	switch {
	case !ok || ParseActorID(id) != nil: // mended, two people could become one
		return nobody(fault.ActorInvalid, `the claim that names the person holds no id of 1 to 128 letters, digits and "._@-"`)
	case f.Person == "email" && claims["email_verified"] != true:
		return nobody(fault.ActorInvalid, "the issuer does not say that the email address is the person's: email_verified is not true")
	case !f.subjects.hold(id):
		return nobody(fault.ActorNotAllowed, "this person is not among the subjects")
	}
	for _, s := range f.Scopes {
		if !slices.Contains(strings.Fields(scope), s) {
			return nobody(fault.InsufficientScope, "the access token does not have every scope that is needed")
		}
	}
	// Without jti: an access token is for many calls, and no call uses it up.
	return Caller{entry: f.entry}, Actor{id, "", &proof{issuer: f.Issuer, audience: f.Audience, key: key, admin: f.Admin.in(claims), claim: f.Person}}, nil
}

// stillFront is [Directory.Still] for who has come by an access token.
func (d *Directory) stillFront(id string, r Role, a Actor) fault.Reason {
	e := d.callers[id]
	switch {
	case e == nil || e.front == nil:
		return fault.CallerUnknown
	case !e.roles[r]:
		return fault.RoleMissing
	case a.IsZero():
		return fault.None
	case a.proof == nil || !e.front.subjects.hold(a.id):
		return fault.ActorNotAllowed
	case a.proof.issuer != e.front.Issuer || a.proof.audience != e.front.Audience || a.proof.claim != e.front.Person || !e.front.Keys.has(a.proof.key):
		return fault.AssertionInvalid
	}
	return fault.None
}

// tokenProblems checks an entry that has tokens.
func (c CallerConfig) tokenProblems() (found []error) {
	t := c.Tokens
	add := func(format string, args ...any) { found = append(found, fmt.Errorf("tokens: "+format, args...)) }
	if len(c.BearerSHA256)+len(c.Asserted) > 0 || c.Signed != nil || c.Approvers != nil || c.SignIn != nil {
		add("a token proves caller and actor: neither bearers nor actors, approvers nor sign_in have a place beside it")
	}
	if !slices.Equal(c.Roles, []Role{Operate}) {
		add("the role is operate, and no other")
	}
	for _, subject := range t.Subjects {
		if subject != "user:" && (ParseActorID(subject) != nil || !strings.HasPrefix(subject, "user:")) {
			add(`subject %.64q: people are "user:" and an id, or "user:" for all`, subject)
		}
	}
	switch {
	case t.Issuer == "" || t.Keys.Len() == 0:
		add("no issuer, or no key")
	case len(t.Subjects) == 0:
		add("no subjects: it would believe nobody")
	}
	return found
}

// doubled names what of caller b the tokens of the entry id would pass for.
func (t *Tokens) doubled(id string, b CallerConfig) (found []error) {
	same := func(issuer, audience string) bool { return issuer == t.Issuer && audience == t.Audience }
	for _, signed := range []*SignedActors{b.Signed, b.Approvers} {
		if signed != nil && same(signed.Issuer, signed.Audience) {
			found = append(found, fmt.Errorf("caller %.64q: tokens: issuer and audience are those of assertions of caller %.64q; give them an audience of their own", id, b.ID))
		}
	}
	if b.SignIn != nil && same(b.SignIn.Issuer, b.SignIn.ClientID) {
		found = append(found, fmt.Errorf("caller %.64q: tokens: issuer and audience are issuer and client id of sign_in of caller %.64q", id, b.ID))
	}
	if b.Tokens != nil && b.ID > id && same(b.Tokens.Issuer, b.Tokens.Audience) {
		found = append(found, errors.New("callers "+fmt.Sprintf("%.64q and %.64q", id, b.ID)+": tokens of one issuer and one audience: nobody could say whose a token is"))
	}
	return found
}

func nobody(reason fault.Reason, detail string) (Caller, Actor, error) {
	return Caller{}, Actor{}, fault.New("identity.Token", reason, detail)
}
