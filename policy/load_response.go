package policy

import (
	"slices"
	"time"

	"onbehalf.internal/broker/identity"
)

const (
	defaultMaxTTL = 5 * time.Minute
	mostTTL       = time.Hour
	defaultSkew   = 5 * time.Second
	mostSkew      = time.Minute
)

// readAnswer reads what has to come back, and who else is asked about it.
func (s *section) readAnswer(p *Profile, last bool) {
	if !last {
		p.Response = readBridgeResponse(s.child("response"))
		s.without("with then: it belongs to the second step", "introspection", "revoke")
		return
	}
	s.need("response")
	if introspection := s.child("introspection"); introspection != nil {
		introspection.need("endpoint")
		p.Introspection = introspection.endpoint("endpoint", p.AllowCIDRs)
		introspection.end()
	}
	p.Revocation = readRevocation(s.child("revoke"), p)
	p.Response = readResponse(s.child("response"), p)
	if p.Introspection != nil && p.Response.TokenFormat != "opaque" {
		s.report("introspection", "has no effect unless response.token_format is opaque: claims of a jwt are read from it; remove it")
	}
}

// readBridgeResponse reads the rules for what the first of two steps issues.
func readBridgeResponse(s *section) (r Response) {
	if s == nil {
		return r
	}
	defer s.end()
	r.ExpectIssuer = s.text("expect_issuer", audience)
	r.RequireAct = s.text("require_act", audience)
	s.without("with then: the rules for the token that the server gets stand in then.response",
		"issued_token_type", "token_format", "jwks_url", "jwks_file", "expect_audience", "audience_unverified", "require_subject",
		"allowed_extra_scopes", "required_scopes", "scope_prefix", "require_scope_echo", "default_ttl", "max_ttl", "clock_skew")
	return r
}

func readResponse(s *section, p *Profile) (r Response) {
	if s == nil {
		return r
	}
	defer s.end()
	s.need("token_format")
	r = Response{
		TokenFormat:        s.text("token_format", oneOf("jwt", "jwt_verified", "opaque")),
		AudienceUnverified: s.flag("audience_unverified", false),
		RequireSubject:     s.flag("require_subject", false),
		AllowedExtraScopes: s.texts("allowed_extra_scopes", maxScopes, scope),
		RequiredScopes:     s.texts("required_scopes", maxScopes, scope),
		RequireScopeEcho:   s.flag("require_scope_echo", false),
		DefaultTTL:         s.duration("default_ttl", time.Second, mostTTL),
		MaxTTL:             s.duration("max_ttl", time.Second, mostTTL),
		ClockSkew:          s.durationOr("clock_skew", defaultSkew, 0, mostSkew),
	}
	if r.MaxTTL == 0 {
		r.MaxTTL = defaultMaxTTL
	}
	if r.DefaultTTL > r.MaxTTL {
		s.report("default_ttl", "is more than max_ttl, which is "+r.MaxTTL.String())
	}
	r.ScopePrefix = s.text("scope_prefix", scope)
	s.checkRequired(r, p)
	r.IssuedTypeOptional = s.readIssuedType(p)
	s.readKeys(&r, p)
	readAudienceControl(s, &r, p)
	return r
}

// checkRequired reports required scopes that could never be granted.
func (s *section) checkRequired(r Response, p *Profile) {
	possible := slices.Concat(p.AllowedScopes, r.AllowedExtraScopes)
	slices.Sort(possible)
	s.within("required_scopes", r.RequiredScopes, possible, "allowed_scopes or allowed_extra_scopes")
}

// readIssuedType reports whether an answer may do without issued_token_type.
func (s *section) readIssuedType(p *Profile) bool {
	byDefault := "optional"
	if p.GrantType == tokenExchange {
		byDefault = "required"
	}
	optional := s.textOr("issued_token_type", byDefault, oneOf("required", "optional")) == "optional"
	if optional && p.GrantType == tokenExchange {
		s.report("issued_token_type", "is optional, but token exchange requires it (RFC 8693 §2.2.1): without it nobody knows what was issued; remove it")
	}
	return optional
}

// readKeys reads where the keys are that verify a token.
func (s *section) readKeys(r *Response, p *Profile) {
	if r.TokenFormat != "jwt_verified" {
		s.without("without token_format jwt_verified", "jwks_url", "jwks_file")
		return
	}
	r.JWKS = s.endpoint("jwks_url", p.AllowCIDRs)
	if s.has("jwks_url") == s.has("jwks_file") {
		s.report("jwks_url", "or jwks_file must be there, and not both: jwt_verified needs the provider's keys")
	}
	name := s.text("jwks_file", atMost(4096))
	if name == "" {
		return
	}
	b, what := s.l.read(name, maxOther)
	if what != "" {
		s.report("jwks_file", "the file "+what)
	} else if _, err := identity.ParseKeySet(b); err != nil {
		s.report("jwks_file", "the file is no key set with a usable key (RFC 7517 §5)")
	}
	r.Keys = b
}

// readAudienceControl holds that every profile either has the audience of what
// it gets checked or says that nobody does.
func readAudienceControl(s *section, r *Response, p *Profile) {
	if r.TokenFormat == "opaque" && p.Introspection == nil {
		s.without("with token_format opaque: only a jwt can be looked into, or introspection asked", "expect_issuer", "expect_audience", "require_act")
		unseen(s, r, p)
		return
	}
	r.ExpectIssuer = s.text("expect_issuer", audience)
	r.ExpectAudience = s.texts("expect_audience", maxAudiences, audience)
	r.RequireAct = s.text("require_act", audience)
	if r.AudienceUnverified {
		s.report("audience_unverified", "must not be true with token_format jwt or with introspection: the audience is checked; remove it")
	}
}

// unseen reports what an opaque token cannot show, and a request for one that
// does not even say for whom it is to be.
func unseen(s *section, r *Response, p *Profile) {
	if !r.AudienceUnverified {
		s.report("audience_unverified", "must be true with token_format opaque: nobody can check for whom such a token is, and you have to say that you know;"+
			" better: add introspection: {endpoint: …} to the profile, or have the provider issue JWTs and write token_format: jwt")
	}
	if p.AudienceParam == Omit && p.Audience == nil && p.Resource == nil && p.ExtraParams == nil {
		s.report("audience_unverified", "is not enough: the request does not say for whom the token is to be; add audience, resource or what this provider has in their place in extra_params")
	}
	if r.RequireSubject {
		s.report("require_subject", "cannot hold with token_format opaque: such a token shows no sub; add introspection")
	}
	if p.Actor.Source != "" {
		s.report("token_format", "is opaque, but an actor token is sent, and only claims show whether it was heeded; add introspection or write jwt")
	}
}

func readRevocation(s *section, p *Profile) (r Revocation) {
	if s == nil {
		return r
	}
	defer s.end()
	s.need("mode")
	switch s.text("mode", oneOf("off", "best_effort")) {
	case "off":
		s.without("with mode off", "endpoint", "hint")
	case "best_effort":
		s.need("endpoint")
		r.Endpoint = s.endpoint("endpoint", p.AllowCIDRs)
		if r.Hint = s.textOr("hint", "access_token", oneOf("access_token", Omit)); r.Hint == Omit {
			r.Hint = ""
		}
	default:
		s.skip() // what belongs to a mode nobody knows cannot be judged
	}
	return r
}
