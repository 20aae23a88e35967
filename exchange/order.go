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
	subject  string // the sub that a JWT must carry; empty: any
}

// form is the request of RFC 8693 §2.1. The token type is always asked for by
// name: left to choose, servers have answered with a refresh token.
func (o order) form(subject secret.Text) url.Values {
	p := o.profile
	f := make(url.Values)
	maps.Copy(f, p.ExtraParams)
	// Ours come last: an extra parameter never replaces one of them.
	f.Set("grant_type", grantType)
	f.Set("subject_token", subject.Reveal())
	f.Set("subject_token_type", cmp.Or(p.SubjectTokenType, accessTokenType))
	f.Set("requested_token_type", accessTokenType)
	setAll(f, "audience", o.audience)
	setAll(f, "resource", p.Resource...)
	setAll(f, "scope", strings.Join(o.scopes, " "))
	return f
}

// setAll sets what is not empty: an empty parameter must be left out
// (RFC 6749 §3.2 treats it as absent, not every server does).
func setAll(f url.Values, name string, values ...string) {
	f.Del(name)
	for _, v := range values {
		if v != "" {
			f.Add(name, v)
		}
	}
}

// accept holds a against the order. begun is when the request was about to be
// sent; sent is the subject token that it carried.
func (o order) accept(a answer, begun time.Time, sent secret.Text) (Issued, error) {
	if a.token.Equal(sent) {
		return Issued{}, malformed("it hands the subject token back")
	}
	if a.issuedType != accessTokenType || !strings.EqualFold(a.tokenType, "bearer") {
		return Issued{}, refuse(fault.WrongTokenType, "what was issued is not said to be a bearer access token")
	}
	if a.audience != nil && !o.meant(a.audience) {
		return Issued{}, refuse(fault.WrongAudience, "the answer is for an audience that was not asked for")
	}
	if a.scopes == nil && o.profile.Response.RequireScopeEcho {
		return Issued{}, refuse(fault.ScopeNarrowed, "the answer does not say which scopes it grants")
	}
	scopes, err := o.granted(a.scopes)
	if err != nil {
		return Issued{}, err
	}
	expires, err := o.expiry(a.lifetime, begun)
	if err != nil {
		return Issued{}, err
	}
	issued := Issued{Token: a.token, Expires: expires, Scopes: scopes}
	if o.profile.Response.TokenFormat == "opaque" {
		return o.acceptOpaque(issued)
	}
	return o.acceptJWT(issued)
}

// acceptOpaque refuses what only claims could show. Absence denies.
func (o order) acceptOpaque(issued Issued) (Issued, error) {
	r := o.profile.Response
	switch {
	case !r.AudienceUnverified:
		return Issued{}, refuse(fault.WrongAudience, "the token is opaque, and the profile does not say that its audience goes unverified")
	case o.subject != "":
		return Issued{}, refuse(fault.WrongSubject, "the grant pins the subject, and the token is opaque")
	case r.RequireAct != "":
		return Issued{}, refuse(fault.WrongActor, "the profile requires an actor, and the token is opaque")
	}
	return issued, nil
}

// acceptJWT holds the token's own claims against the order.
func (o order) acceptJWT(issued Issued) (Issued, error) {
	c, err := readClaims(issued.Token)
	if err != nil {
		return Issued{}, err
	}
	r := o.profile.Response
	switch {
	case !o.meant(c.audience):
		return Issued{}, refuse(fault.WrongAudience, "the token is not for the audience asked for, or for others too")
	case r.ExpectIssuer != "" && c.issuer != r.ExpectIssuer:
		return Issued{}, refuse(fault.WrongIssuer, "the token's iss is not the profile's issuer")
	case o.subject != "" && c.subject != o.subject:
		return Issued{}, refuse(fault.WrongSubject, "the token's sub is not the grant's")
	case r.RequireAct != "" && c.actor != r.RequireAct:
		return Issued{}, refuse(fault.WrongActor, "the token's act is not the one that the profile requires")
	}
	for _, said := range [][]string{c.scope, c.scp} {
		if _, err := o.granted(said); err != nil {
			return Issued{}, err
		}
	}
	if c.expires.Before(issued.Expires) { // exp may shorten the life, never lengthen it
		issued.Expires = c.expires
	}
	issued.Subject = c.subject
	return issued, nil
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

// granted returns the scopes of an answer or a token. Not saying any means
// those asked for (RFC 8693 §2.2.1). Fewer are refused as well as more: the
// operation would fail at the server, after it had begun.
func (o order) granted(scopes []string) ([]string, error) {
	if scopes == nil {
		return slices.Clone(o.scopes), nil
	}
	for _, s := range scopes {
		if !slices.Contains(o.scopes, s) && !slices.Contains(o.profile.Response.AllowedExtraScopes, s) {
			return nil, refuse(fault.ScopeWidened, "more was granted than was asked for")
		}
	}
	for _, s := range o.scopes {
		if !slices.Contains(scopes, s) {
			return nil, refuse(fault.ScopeNarrowed, "less was granted than was asked for")
		}
	}
	return scopes, nil
}

// expiry is when the token ends by what the answer says and the profile allows.
func (o order) expiry(lifetime time.Duration, begun time.Time) (time.Time, error) {
	r := o.profile.Response
	lifetime = cmp.Or(lifetime, r.DefaultTTL)
	if lifetime <= 0 {
		return time.Time{}, refuse(fault.LifetimeTooShort, "the answer has no expires_in, and the profile no default_ttl")
	}
	return begun.Add(min(lifetime, cmp.Or(r.MaxTTL, defaultMax))), nil
}
