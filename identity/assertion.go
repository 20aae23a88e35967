package identity

import (
	"crypto"
	"encoding/base64"
	"errors"
	"regexp"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/secret"
	"onbehalf.internal/broker/strictjson"
)

const (
	maxAssertion = 8 << 10          // bytes; refused before anything is decoded
	maxLifetime  = 5 * time.Minute  // an assertion is made for one request
	leeway       = 60 * time.Second // how far two clocks may differ
)

// algorithms are the ones we accept, all asymmetric (RFC 8725 §3.1): who can
// verify an assertion must not be able to make one.
var algorithms = []string{"RS256", "PS256", "ES256", "ES384", "EdDSA"}

var (
	// compact is RFC 7515 §7.1. Go's base64 skips line breaks, so we look first.
	compact = regexp.MustCompile(`^[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+$`)
	keyID   = keyForm{regexp.MustCompile(`^"[A-Za-z0-9_-]{1,64}"$`), `1 to 64 letters, digits and "_-"`}
	tokenID = regexp.MustCompile(`^[ -~]{1,128}$`)
)

// A keyForm is what a kid may look like, as JSON: a number is none.
type keyForm struct {
	*regexp.Regexp
	says string
}

// A verifier believes the assertions that one SignedActors describes.
type verifier struct {
	parser           *jwt.Parser
	issuer, audience string
	keys             KeySet
	subjects         subjects
	admin            Claim
	now              func() time.Time
}

// A proof is what an assertion was believed by.
type proof struct {
	issuer, audience string
	key              crypto.PublicKey
	admin            bool
	claim            string // that named the actor; of an assertion: empty, it is sub
}

// newVerifier takes a config without problems.
func newVerifier(c SignedActors, now func() time.Time) *verifier {
	v := &verifier{issuer: c.Issuer, audience: c.Audience, keys: c.Keys, subjects: newSubjects(c.Subjects), admin: c.Admin, now: now}
	v.parser = newParser(c.Issuer, c.Audience, now)
	return v
}

// newParser takes an issuer and an audience that are not empty. Every option is needed: the
// library's defaults accept a token without exp, iss or aud.
func newParser(issuer, audience string, now func() time.Time) *jwt.Parser {
	return jwt.NewParser(
		jwt.WithValidMethods(algorithms),
		jwt.WithExpirationRequired(),
		jwt.WithIssuer(issuer),
		jwt.WithAudience(audience),
		jwt.WithIssuedAt(),
		jwt.WithLeeway(leeway),
		jwt.WithStrictDecoding(),
		jwt.WithTimeFunc(now),
	)
}

// verify proves the assertion and returns the actor that it names (RFC 7519).
func (v *verifier) verify(assertion secret.Text) (Actor, error) {
	token, problem := v.token(assertion)
	if problem != "" {
		return Actor{}, refuse(fault.AssertionInvalid, problem)
	}
	claims := token.Claims.(jwt.MapClaims)
	sub, _ := claims["sub"].(string)
	jti, _ := claims["jti"].(string)
	switch {
	case !tokenID.MatchString(jti):
		return Actor{}, refuse(fault.AssertionInvalid, "jti must be 1 to 128 printable ASCII characters")
	case ParseActorID(sub) != nil:
		return Actor{}, refuse(fault.ActorInvalid, "sub is not an actor id")
	case !v.believes(sub):
		return Actor{}, refuse(fault.ActorNotAllowed, "this caller may not bring assertions for this actor")
	}
	key, _ := v.keys.key(token) // it has verified the token
	return Actor{sub, jti, &proof{issuer: v.issuer, audience: v.audience, key: key, admin: v.admin.in(claims)}}, nil
}

// still reports why an actor that an assertion named would not be believed now;
// None if it would. When the assertion expires is not asked: it began the
// operation in time.
func (v *verifier) still(a Actor) fault.Reason {
	switch {
	case v == nil || !v.believes(a.id):
		return fault.ActorNotAllowed
	case a.proof.issuer != v.issuer || a.proof.audience != v.audience || !v.keys.has(a.proof.key):
		return fault.AssertionInvalid
	}
	return fault.None
}

// believes reports whether id, an actor id, is among the subjects.
func (v *verifier) believes(id string) bool { return v.subjects.hold(id) }

// subjects are ids of actors, and "user:" or "service:" for all of a kind.
type subjects map[string]bool

func newSubjects(list []string) subjects {
	s := subjects{}
	for _, id := range list {
		s[id] = true
	}
	return s
}

// hold reports whether id, an actor id, is one of them.
func (s subjects) hold(id string) bool {
	kind, _, _ := strings.Cut(id, ":")
	return s[id] || s[kind+":"]
}

// token returns an assertion that is signed by one of our keys, from the issuer,
// for us, and not older or longer valid than it may be. If it is not, problem
// says so. A problem is a string and not an error here, so that no error of a
// library can be one.
func (v *verifier) token(assertion secret.Text) (_ *jwt.Token, problem string) {
	text := assertion.Reveal()
	if len(text) > maxAssertion {
		return nil, "longer than 8 KiB"
	}
	if !compact.MatchString(text) {
		return nil, "not a signed JWT in compact form"
	}
	parts := strings.Split(text, ".")
	if problem := headerProblem(parts[0], keyID, plainJWT); problem != "" {
		return nil, problem
	}
	if problem := claimsProblem(parts[1], registered); problem != "" {
		return nil, problem
	}
	token, err := v.parser.Parse(text, v.keys.key)
	if err != nil { // then there may be a token all the same; it proves nothing
		return nil, inOurWords(err)
	}
	return token, v.boundsProblem(token.Claims.(jwt.MapClaims))
}

// headerProblem checks the first segment. The library looks at alg and at
// nothing else in it. typed says what is wrong with its typ, as JSON; empty where it has
// none.
func headerProblem(segment string, kids keyForm, typed func(string) string) string {
	header, problem := members(segment)
	if problem != "" {
		return "header: " + problem
	}
	// crit: nobody here knows an extension (RFC 7515 §4.1.11). The others bring
	// or point to a key; ours come from the configuration alone.
	for _, name := range []string{"crit", "jku", "jwk", "x5u", "x5c"} {
		if _, there := header[name]; there {
			return "header: member " + name + " is refused"
		}
	}
	if problem := typed(string(header["typ"])); problem != "" {
		return "header: " + problem
	}
	if kid, there := header["kid"]; there && !kids.Match(kid) {
		return "header: kid must be " + kids.says
	}
	return ""
}

// plainJWT takes a typ of JWT, or none. RFC 8725 §3.11: a token that was made for something
// else says so.
func plainJWT(typ string) string {
	if typ != "" && typ != `"JWT"` {
		return `typ is not "JWT"`
	}
	return ""
}

// claimsProblem checks the second segment before the library reads it: two
// spellings of one claim are two answers, and readers differ in which they take.
func claimsProblem(segment string, read []string) string {
	claims, problem := members(segment)
	if problem != "" {
		return "claims: " + problem
	}
	for _, known := range read {
		for name := range claims {
			if name != known && strings.EqualFold(name, known) {
				return "claims: another spelling of " + known
			}
		}
	}
	return ""
}

// registered are the claims of RFC 7519 §4.1.
var registered = []string{"iss", "sub", "aud", "exp", "nbf", "iat", "jti"}

func members(segment string) (_ map[string]strictjson.Raw, problem string) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(segment)
	if err != nil {
		return nil, "not base64url"
	}
	m, err := strictjson.Members(b)
	if err != nil {
		return nil, "not one strict JSON object"
	}
	return m, ""
}

// boundsProblem checks what the library has no option for.
func (v *verifier) boundsProblem(claims jwt.MapClaims) string {
	// An assertion that others accept too could be carried here by them.
	if aud, err := claims.GetAudience(); err != nil || len(aud) != 1 {
		return "aud must be this broker alone"
	}
	exp, err := claims.GetExpirationTime()
	if err != nil || exp == nil {
		return "exp is missing"
	}
	// Without iat the lifetime is counted from now, as the issuer's clock may
	// show it. With iat that is not needed: iat itself is at most leeway ahead.
	from := v.now().Add(leeway)
	if iat, err := claims.GetIssuedAt(); err == nil && iat != nil {
		from = iat.Time
	}
	if exp.Sub(from) > maxLifetime {
		return "valid for more than 5 minutes"
	}
	return ""
}

// inOurWords says which check of the library failed. Its own text quotes the
// token's algorithm and the texts of other libraries.
func inOurWords(err error) string {
	for _, known := range []struct {
		err  error
		text string
	}{
		{errNoKey, "no key for this kid and alg"},
		{jwt.ErrTokenUnverifiable, "alg is not accepted"},
		{jwt.ErrTokenSignatureInvalid, "not signed by this caller's issuer, or alg is not accepted"},
		{jwt.ErrTokenRequiredClaimMissing, "exp, iss or aud is missing"},
		{jwt.ErrInvalidType, "exp, nbf, iat, iss or aud has the wrong type"},
		{jwt.ErrTokenInvalidIssuer, "iss is not this caller's issuer"},
		{jwt.ErrTokenInvalidAudience, "aud is not this broker"},
		{jwt.ErrTokenExpired, "expired"},
		{jwt.ErrTokenNotValidYet, "not valid yet"},
		{jwt.ErrTokenUsedBeforeIssued, "iat lies ahead"},
	} {
		if errors.Is(err, known.err) {
			return known.text
		}
	}
	return "malformed"
}
