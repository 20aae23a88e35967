package exchange

import (
	"cmp"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/secret"
)

const (
	minLife    = 2 * time.Second // less would end on the way to the server
	defaultMax = 5 * time.Minute // where the profile has no max_ttl
)

// An order is what is asked for, and what the answer is held against.
type order struct {
	profile  *policy.Profile
	audience string
	scopes   []string
	subject  string // the sub that the token must carry; empty: any
}

// complete refuses an order that could only end in a refusal.
func (o order) complete(s Subject) error {
	switch {
	case o.profile.BrokerIsSubject() && !s.Token.IsZero():
		return refuse(fault.InternalError, "the profile exchanges nobody's credential, and there is one")
	case !o.profile.BrokerIsSubject() && s.Token.IsZero():
		return refuse(fault.CredentialMissing, "the subject credential is empty")
	case o.profile.Response.RequireSubject && o.subject == "":
		return refuse(fault.WrongSubject, "the profile requires that the grant pins the subject, and it does not")
	}
	return nil
}

// mayRepeat reports whether the request may leave a second time. An assertion
// and a refresh token may be spent by the first.
func (o order) mayRepeat(s Subject) bool {
	return !s.oneTime(o.profile) && o.profile.SubjectParam != "assertion"
}

// form is the request of RFC 8693 §2.1, or what the profile's grant has in its
// place: that of RFC 6749 §4.4.2 hands in nothing. The token type is asked for by
// name, if the grant knows one: left to choose, servers have answered with a
// refresh token.
func (o order) form(s Subject, actor secret.Text) url.Values {
	p := o.profile
	f := make(url.Values)
	maps.Copy(f, p.ExtraParams)
	// Ours come last: an extra parameter never replaces one of them.
	f.Set("grant_type", cmp.Or(p.GrantType, grantType))
	if !p.BrokerIsSubject() {
		o.handIn(f, s, actor)
	}
	setAll(f, "requested_token_type", cmp.Or(p.RequestedTokenType, accessTokenType))
	audience, resource := o.target()
	setAll(f, "audience", audience, p.Audience...)
	setAll(f, "resource", resource, p.Resource...)
	setAll(f, "scope", strings.Join(o.scopes, cmp.Or(p.ScopeSeparator, " ")))
	return f
}

// handIn puts the tokens into f that are exchanged.
func (o order) handIn(f url.Values, s Subject, actor secret.Text) {
	p := o.profile
	f.Set(cmp.Or(p.SubjectParam, "subject_token"), s.Token.Reveal())
	subjectType := p.SubjectTokenType
	if subjectType != policy.Omit {
		subjectType = cmp.Or(s.Type, subjectType, accessTokenType)
	}
	setAll(f, "subject_token_type", subjectType)
	if !actor.IsZero() {
		f.Set("actor_token", actor.Reveal())
		f.Set("actor_token_type", cmp.Or(p.Actor.TokenType, accessTokenType))
	}
}

// target is how the server's audience is asked for.
func (o order) target() (audience, resource string) {
	switch o.profile.AudienceParam {
	case policy.Omit:
		return "", ""
	case "resource":
		return "", o.audience
	default:
		return o.audience, ""
	}
}

// setAll sets what there is, each once: an empty parameter must be left out
// (RFC 6749 §3.2 treats it as absent, not every server does).
func setAll(f url.Values, name, first string, more ...string) {
	f.Del(name)
	if first != "" && first != policy.Omit {
		f.Set(name, first)
	}
	for _, v := range more {
		if v != "" && v != first {
			f.Add(name, v)
		}
	}
}

// accept holds a against the order, as far as it can be without a look into
// the token.
func (o order) accept(a answer) (Issued, error) {
	if a.audience != nil && !o.meant(a.audience) {
		return Issued{}, refuse(fault.WrongAudience, "the answer is for an audience that was not asked for")
	}
	if a.scopes == nil && o.profile.Response.RequireScopeEcho {
		return Issued{}, refuse(fault.ScopeNarrowed, "the answer does not say which scopes it grants")
	}
	issued := Issued{Token: a.token, Scopes: slices.Clone(bare(o.scopes, o.profile.Response.ScopePrefix))}
	if err := o.granted(&issued, a.scopes); err != nil {
		return Issued{}, err
	}
	var err error
	issued.Expires, err = o.expiry(a)
	if err != nil {
		return Issued{}, err
	}
	return issued, nil
}

// kind refuses what is not the kind of token that was asked for. sent is the
// subject token that was exchanged.
func (o order) kind(a answer, sent secret.Text, tokenType string) error {
	want := o.profile.RequestedTokenType
	if want == "" || want == policy.Omit {
		want = accessTokenType
	}
	absent := a.issuedType == "" && o.profile.Response.IssuedTypeOptional
	switch {
	case a.token.Equal(sent):
		return malformed("it hands the subject token back")
	case a.issuedType != want && !absent:
		return refuse(fault.WrongTokenType, "what was issued is not said to be of the type that was asked for")
	case !strings.EqualFold(a.tokenType, tokenType):
		return refuse(fault.WrongTokenType, "what was issued is not said to be a token that is used like the one asked for")
	}
	return nil
}

// unseen refuses what only claims could show, of a token that nobody can look
// into. Absence denies.
func (o order) unseen() error {
	r := o.profile.Response
	switch {
	case !r.AudienceUnverified:
		return refuse(fault.WrongAudience, "the token is opaque, and the profile does not say that its audience goes unverified")
	case o.subject != "":
		return refuse(fault.WrongSubject, "the grant pins the subject, and the token is opaque")
	case r.RequireAct != "" || o.profile.Actor.Source != "":
		return refuse(fault.WrongActor, "the token has to name who acts, and it is opaque")
	}
	return nil
}

// holds holds what is said of the token against the order.
func (o order) holds(issued Issued, c *claims, now time.Time, k Key) (Issued, error) {
	r := o.profile.Response
	switch {
	case !o.meant(c.audience):
		return Issued{}, refuse(fault.WrongAudience, "the token is not for the audience asked for, or for others too")
	case r.ExpectIssuer != "" && c.issuer != r.ExpectIssuer:
		return Issued{}, refuse(fault.WrongIssuer, "the token's iss is not the profile's issuer")
	case o.subject != "" && c.subject != o.subject:
		return Issued{}, refuse(fault.WrongSubject, "the token's sub is not the grant's")
	case !o.acts(c.actor):
		return Issued{}, refuse(fault.WrongActor, "the token's act is not the one that the profile requires")
	case c.notBefore.After(now.Add(r.ClockSkew)):
		return Issued{}, refuse(fault.TokenNotYetValid, "the token's nbf is in the future")
	case c.otherBinding, c.thumbprint != "" && c.thumbprint != k.thumbprint():
		return Issued{}, refuse(fault.WrongBinding, "the token is bound to a key or a certificate that is not ours")
	}
	for _, said := range [][]string{c.scope, c.scp} {
		if err := o.granted(&issued, said); err != nil {
			return Issued{}, err
		}
	}
	if !c.endless && c.expires.Before(issued.Expires) { // exp may shorten the life, never lengthen it
		issued.Expires = c.expires
	}
	issued.Subject, issued.Bound = c.subject, c.thumbprint != ""
	return issued, nil
}

// acts reports whether the current actor is the one required. Who sends an
// actor token requires that somebody is named: servers have ignored it and
// issued the user's own token.
func (o order) acts(actor string) bool {
	if required := o.profile.Response.RequireAct; required != "" {
		return actor == required
	}
	return o.profile.Actor.Source == "" || actor != ""
}

// meant reports whether a token for these audiences is the one asked for: all
// of them are expected, since each more is a wider credential, and the one that
// was asked for is among them. Where the profile expects other names than the
// one it asks by, those decide alone.
func (o order) meant(audiences []string) bool {
	expected := o.profile.Response.ExpectAudience
	if len(expected) == 0 {
		expected = []string{o.audience}
	}
	for _, a := range audiences {
		if a == "" || !slices.Contains(expected, a) {
			return false
		}
	}
	return len(audiences) > 0 && (slices.Contains(audiences, o.audience) || !slices.Contains(expected, o.audience))
}

// granted notes in issued the scopes of an answer or a token. Not saying any
// means those asked for (RFC 8693 §2.2.1). More are refused, and fewer too
// unless they are all that the profile requires: the operation would fail at
// the server, after it had begun.
func (o order) granted(issued *Issued, scopes []string) error {
	if scopes == nil {
		return nil
	}
	r := o.profile.Response
	scopes, asked := bare(scopes, r.ScopePrefix), bare(o.scopes, r.ScopePrefix)
	for _, s := range scopes {
		if !slices.Contains(asked, s) && !slices.Contains(r.AllowedExtraScopes, s) {
			return refuse(fault.ScopeWidened, "more was granted than was asked for")
		}
	}
	if !contains(scopes, asked) {
		if len(r.RequiredScopes) == 0 || !contains(scopes, r.RequiredScopes) {
			return refuse(fault.ScopeNarrowed, "less was granted than was asked for")
		}
		issued.Narrowed = true
	}
	if issued.Narrowed { // what is said in two places holds where both say it
		scopes = slices.DeleteFunc(slices.Clone(scopes), func(s string) bool {
			return slices.Contains(asked, s) && !slices.Contains(issued.Scopes, s)
		})
	}
	issued.Scopes = scopes
	return nil
}

// bare returns scopes without the prefix that a provider puts before them in
// one place and not in another.
func bare(scopes []string, prefix string) []string {
	if prefix == "" {
		return scopes
	}
	names := make([]string, len(scopes))
	for i, s := range scopes {
		names[i] = strings.TrimPrefix(s, prefix)
	}
	return names
}

func contains(all, wanted []string) bool {
	for _, w := range wanted {
		if !slices.Contains(all, w) {
			return false
		}
	}
	return true
}

// expiry is when the token ends by what the answer says and the profile allows,
// from when it was asked for: a slow answer must not lengthen its life.
func (o order) expiry(a answer) (time.Time, error) {
	r := o.profile.Response
	lifetime := cmp.Or(a.lifetime, r.DefaultTTL)
	if lifetime <= 0 {
		return time.Time{}, refuse(fault.LifetimeTooShort, "the answer has no expires_in, and the profile no default_ttl")
	}
	return a.asked.Add(min(lifetime, cmp.Or(r.MaxTTL, defaultMax))), nil
}
