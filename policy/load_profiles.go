package policy

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

const (
	maxAudiences = 32
	maxScopes    = 64
	maxParams    = 64

	accessToken       = "urn:ietf:params:oauth:token-type:access_token"   // RFC 8693 §3
	tokenExchange     = "urn:ietf:params:oauth:grant-type:token-exchange" // RFC 8693 §2.1
	jwtBearer         = "urn:ietf:params:oauth:grant-type:jwt-bearer"     // RFC 7523 §2.1
	clientCredentials = "client_credentials"                              // RFC 6749 §4.4

	leastAnswer = 1 << 10
	mostAnswer  = 64 << 10
)

func readProfiles(root *section, grants map[string]map[string]*Grant) map[string]*Profile {
	profiles := map[string]*Profile{}
	for id, s := range root.children("profiles", profileID) {
		p := readProfile(s, id)
		profiles[id] = p
		grants[id] = readGrants(s, p)
		s.pinned(p, grants[id])
	}
	return profiles
}

func readProfile(s *section, id string) *Profile {
	s.need("allowed_audiences", "allowed_scopes")
	p := &Profile{
		ID:               id,
		AllowedAudiences: s.texts("allowed_audiences", maxAudiences, audience),
		AllowedScopes:    s.texts("allowed_scopes", maxScopes, scope),
	}
	two := s.has("then")
	s.step(p, tokenExchange, !two)
	if two {
		p.Then = readThen(s.child("then"), p)
		s.checkBridge(p)
	}
	return p
}

// readThen reads the second step of two. Its bounds are the profile's.
func readThen(s *section, first *Profile) *Profile {
	if s == nil {
		return nil
	}
	defer s.end()
	p := &Profile{ID: first.ID, AllowedAudiences: first.AllowedAudiences, AllowedScopes: first.AllowedScopes}
	s.step(p, jwtBearer, true)
	if p.BrokerIsSubject() {
		s.report("grant_type", "is client_credentials, but the second step takes what the first one issued; name another or remove it")
	}
	return p
}

// step reads what one token endpoint is asked, and how; last is where the
// token comes from that the server gets.
func (s *section) step(p *Profile, grant string, last bool) {
	s.need("token_endpoint", "client")
	p.Where = s.where()
	p.AllowCIDRs = s.cidrs("allow_cidrs")
	p.CA = s.certificates("ca_file")
	p.TokenEndpoint = s.endpoint("token_endpoint", p.AllowCIDRs)
	p.ServerName = s.readServerName(p.TokenEndpoint)
	p.Timeout = s.duration("timeout", leastTimeout, mostTimeout)
	p.ConnectTimeout = s.duration("connect_timeout", leastTimeout, mostTimeout)
	p.MaxAnswer = s.count("max_answer", leastAnswer, mostAnswer)
	s.readGrantType(p, grant)
	s.readTarget(p)
	p.Actor = readActor(s.child("actor"), p)
	p.ExtraParams = readParams(s.child("extra_params"))
	s.readAnswer(p, last)
	p.Client = readClient(s.child("client"), p)
}

// readServerName reads the name that the certificate has to carry in the place
// of to's host.
func (s *section) readServerName(to *url.URL) string {
	if s.has("server_name") && to != nil && to.Scheme != "https" {
		s.report("server_name", "has no effect without TLS; remove it")
	}
	return s.text("server_name", hostName)
}

// hostName accepts what a handshake can ask for: a name, no address (RFC 6066 §3).
func hostName(s string) string {
	if _, err := netip.ParseAddr(s); err == nil || strings.ContainsAny(s, ":[]") || canonicalHost(s) != "" {
		return "must be a host name in lower case, without a port and no address, such as identity.example.org"
	}
	return ""
}

// readGrantType reads what is handed in, and for what.
func (s *section) readGrantType(p *Profile, grant string) {
	p.GrantType = s.textOr("grant_type", grant, both(tokenType, subjectGrant))
	asked := accessToken
	if p.GrantType != tokenExchange {
		asked = Omit
	}
	p.RequestedTokenType = s.textOr("requested_token_type", asked, tokenType)
	if p.GrantType == tokenExchange && p.RequestedTokenType == Omit {
		s.report("requested_token_type", "cannot be omitted in token exchange: left to choose, providers have issued refresh tokens; name the type or another grant_type")
	}
	if p.BrokerIsSubject() {
		s.without("with grant_type client_credentials: the broker itself is the subject", "subject_param", "subject_token_type", "then")
		return
	}
	s.readSubject(p)
}

// readSubject reads how the subject token is handed in.
func (s *section) readSubject(p *Profile) {
	param := "subject_token"
	if p.GrantType == jwtBearer {
		param = "assertion"
	}
	p.SubjectParam = s.textOr("subject_param", param, oneOf("subject_token", "assertion"))
	kind := accessToken
	if p.SubjectParam == "assertion" {
		kind = Omit
	}
	p.SubjectTokenType = s.textOr("subject_token_type", kind, tokenType)
	exchanges := p.GrantType == tokenExchange
	switch {
	case exchanges && p.SubjectParam == "assertion":
		s.report("subject_param", "is assertion, which token exchange does not have; name another grant_type, such as "+quote(jwtBearer)+", or remove it")
	case exchanges && p.SubjectTokenType == Omit:
		s.report("subject_token_type", "cannot be omitted in token exchange (RFC 8693 §2.1); name the type or another grant_type")
	case p.SubjectParam == "assertion" && p.SubjectTokenType != Omit:
		s.report("subject_token_type", "has no effect with subject_param assertion; remove it")
	}
}

// subjectGrant refuses grants in which neither a subject token is handed in nor
// the broker itself is the subject.
func subjectGrant(s string) string {
	switch s {
	case "password", "authorization_code", "refresh_token", "implicit",
		"urn:ietf:params:oauth:grant-type:device_code", "urn:openid:params:grant-type:ciba":
		return "is a grant in which nobody's credential is exchanged; name another or remove it"
	}
	return ""
}

// readTarget reads how it is said for whom the token is, and for what.
func (s *section) readTarget(p *Profile) {
	byDefault := "audience"
	if p.GrantType != tokenExchange {
		byDefault = Omit // RFC 6749 and RFC 7523 have no such parameter
	}
	p.AudienceParam = s.textOr("audience_param", byDefault, oneOf("audience", "resource", Omit))
	p.Audience = s.texts("audience", maxAudiences, audience)
	p.Resource = s.texts("resource", maxAudiences, resourceURI)
	p.ScopeSeparator = s.textOr("scope_separator", " ", oneOf(",", ";", "+", "|"))
	for _, a := range p.AllowedAudiences {
		if what := resourceURI(a); what != "" && p.AudienceParam == "resource" {
			s.report("audience_param", "is resource, but "+quote(a)+" of allowed_audiences "+what+" (RFC 8707 §2); mend it or write audience_param: audience")
		}
	}
	for _, entry := range p.AllowedScopes {
		if strings.Contains(entry, p.ScopeSeparator) {
			s.report("scope_separator", "is in "+quote(entry)+" of allowed_scopes, which would read as two; name another")
		}
	}
}

func readActor(s *section, p *Profile) (a Actor) {
	if s == nil {
		return a
	}
	defer s.end()
	s.need("source")
	a.Source = s.text("source", oneOf("stored", clientCredentials))
	a.TokenType = s.textOr("token_type", accessToken, tokenType)
	switch a.Source {
	case "stored":
		a.Credential = s.needRef("credential")
		s.without("with source stored", "scopes")
	case clientCredentials:
		a.Scopes = s.texts("scopes", maxScopes, scope)
		s.without("with source client_credentials: the broker asks for it", "credential")
	default:
		s.skip() // what belongs to a source nobody knows cannot be judged
	}
	if p.GrantType != tokenExchange {
		s.report("source", "has no place in this grant_type: actor tokens belong to token exchange (RFC 8693 §2.1); remove actor")
	}
	return a
}

// checkBridge holds that the first of two steps asks for what the second one
// takes, and says for which server.
func (s *section) checkBridge(p *Profile) {
	if p.RequestedTokenType == accessToken || p.RequestedTokenType == Omit {
		s.report("requested_token_type", `must name what the second step takes, such as "urn:ietf:params:oauth:token-type:id-jag" or "urn:ietf:params:oauth:token-type:jwt"`)
	}
	if p.Audience == nil && p.Resource == nil {
		s.report("audience", "is missing: with then, it names the authorization server of the second step, for which the assertion of the first one must be")
	}
}

// pinned reports the grants that do not name their subject, where the profile
// wants that.
func (s *section) pinned(p *Profile, grants map[string]*Grant) {
	if !p.Issuing().Response.RequireSubject {
		return
	}
	for actor, g := range grants {
		if file, line, ok := strings.Cut(g.Where, ":"); ok && g.Subject == "" {
			n, _ := strconv.Atoi(line)
			s.l.problem(file, n, "subject", "is missing in the grant of "+quote(actor)+", and profile "+quote(p.ID)+" has require_subject; write the sub that its tokens must carry")
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
