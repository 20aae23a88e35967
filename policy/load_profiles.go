package policy

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"onbehalf.internal/broker/secret"
)

const (
	maxAudiences = 32
	maxScopes    = 64
	maxParams    = 64

	accessToken   = "urn:ietf:params:oauth:token-type:access_token" // RFC 8693 §3
	defaultMaxTTL = 5 * time.Minute
	mostTTL       = time.Hour
)

func readProfiles(root *section, grants map[string]map[string]*Grant) map[string]*Profile {
	profiles := map[string]*Profile{}
	for id, s := range root.children("profiles", profileID) {
		p := readProfile(s, id)
		profiles[id] = p
		grants[id] = readGrants(s, p)
	}
	return profiles
}

func readProfile(s *section, id string) *Profile {
	s.need("token_endpoint", "client", "allowed_audiences", "allowed_scopes", "response")
	p := &Profile{
		ID:               id,
		Where:            s.where(),
		AllowCIDRs:       s.cidrs("allow_cidrs"),
		CA:               s.certificates("ca_file"),
		AllowedAudiences: s.texts("allowed_audiences", maxAudiences, audience),
		AllowedScopes:    s.texts("allowed_scopes", maxScopes, scope),
		Resource:         s.texts("resource", maxAudiences, resourceURI),
		ExtraParams:      readParams(s.child("extra_params")),
		SubjectTokenType: s.textOr("subject_token_type", accessToken, tokenType),
		Response:         readResponse(s.child("response")),
		Timeout:          s.duration("timeout", leastTimeout, mostTimeout),
	}
	p.TokenEndpoint = s.endpoint("token_endpoint", p.AllowCIDRs)
	p.Client = readClient(s.child("client"), p.Response)
	return p
}

func readClient(s *section, r Response) (c Client) {
	if s == nil {
		return c
	}
	defer s.end()
	s.need("id", "auth")
	c.ID = s.text("id", atMost(255))
	c.Auth = s.text("auth", oneOf("basic", "post", "private_key_jwt", "none"))
	if c.Auth == "none" {
		s.without("with auth none", "key")
	} else {
		c.Key = s.needRef("key")
	}
	if c.Auth != "private_key_jwt" {
		s.without("without auth private_key_jwt", "alg", "kid", "audience")
		return c
	}
	c.Alg = s.text("alg", oneOf("RS256", "PS256", "ES256", "ES384", "EdDSA"))
	c.Kid = s.text("kid", keyID)
	c.Audience = s.textOr("audience", "token_endpoint", audience)
	if c.Audience == "issuer" && r.ExpectIssuer == "" {
		s.report("audience", "is issuer, but response.expect_issuer names none")
	}
	return c
}

// needRef returns the credential reference at key, which has to be there.
func (s *section) needRef(key string) secret.Ref {
	s.need(key)
	return s.ref(key)
}

func readResponse(s *section) (r Response) {
	if s == nil {
		return r
	}
	defer s.end()
	s.need("token_format")
	r = Response{
		TokenFormat:        s.text("token_format", oneOf("jwt", "opaque")),
		AudienceUnverified: s.flag("audience_unverified", false),
		AllowedExtraScopes: s.texts("allowed_extra_scopes", maxScopes, scope),
		RequireScopeEcho:   s.flag("require_scope_echo", false),
		DefaultTTL:         s.duration("default_ttl", time.Second, mostTTL),
		MaxTTL:             s.duration("max_ttl", time.Second, mostTTL),
	}
	if r.MaxTTL == 0 {
		r.MaxTTL = defaultMaxTTL
	}
	if r.DefaultTTL > r.MaxTTL {
		s.report("default_ttl", "is more than max_ttl, which is "+r.MaxTTL.String())
	}
	readAudienceControl(s, &r)
	return r
}

// readAudienceControl holds that every profile either has the audience of what
// it gets checked or says that nobody does.
func readAudienceControl(s *section, r *Response) {
	switch {
	case r.TokenFormat == "opaque":
		s.without("with token_format opaque: only a jwt can be looked into", "expect_issuer", "expect_audience", "require_act")
		if !r.AudienceUnverified {
			s.report("audience_unverified", "must be true with token_format opaque: nobody can check for whom such a token is, and you have to say that you know")
		}
	default:
		r.ExpectIssuer = s.text("expect_issuer", audience)
		r.ExpectAudience = s.texts("expect_audience", maxAudiences, audience)
		r.RequireAct = s.text("require_act", audience)
		if r.AudienceUnverified {
			s.report("audience_unverified", "must not be true with token_format jwt: the audience is checked; remove it")
		}
	}
}

// readParams reads a mapping of names to one text or a list of texts.
func readParams(s *section) url.Values {
	if s == nil {
		return nil
	}
	if len(s.node.members) > maxParams {
		s.l.problem(s.file, s.line, s.path, fmt.Sprintf("has more than %d parameters", maxParams))
		return nil
	}
	params := url.Values{}
	for _, m := range s.node.members {
		value, _ := s.find(m.key)
		switch what := both(paramName, reservedParam)(m.key); {
		case what != "":
			s.report(m.key, "the parameter "+quote(m.key)+" "+what)
		case value == nil:
		case value.kind == list:
			params[m.key] = s.texts(m.key, 16, atMost(1024))
		default:
			params.Add(m.key, s.text(m.key, atMost(1024)))
		}
	}
	return params
}

// within reports the entries at key that the bounds do not hold. Bounds that
// could not be read were reported themselves.
func (s *section) within(key string, entries, bounds []string, owner string) {
	if bounds == nil {
		return
	}
	var extra []string
	for _, entry := range entries {
		if _, ok := slices.BinarySearch(bounds, entry); !ok {
			extra = append(extra, quote(entry))
		}
	}
	if extra != nil {
		s.report(key, strings.Join(extra, ", ")+" is more than "+owner+" allows; add it there or remove it here")
	}
}
