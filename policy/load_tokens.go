package policy

import (
	"strings"

	"onbehalf.internal/broker/identity"
)

// readMCP reads whether MCP clients come to the broker: it has no default, since
// tokens are made for the addresses below it.
func readMCP(root *section) *MCP {
	s := root.child("mcp")
	if s == nil {
		return nil
	}
	defer s.end()
	s.need("origin")
	return &MCP{Origin: s.text("origin", browserOrigin)}
}

// readTokens reads a caller that is people whose MCP clients bring access tokens: s has
// tokens.
func readTokens(s *section, c *Caller, entry *identity.CallerConfig, servers []string) {
	s.need("roles")
	s.without("for people who come with access tokens", "bearer_sha256", "actors", "approvers", "sign_in")
	c.Servers = s.texts("servers", 4096, among("servers", servers))
	c.Zone = Zone(max(1, s.choice("zone", zones...)))
	for _, role := range s.texts("roles", 1, oneOf("operate")) {
		entry.Roles = append(entry.Roles, identity.Role(role))
	}
	t := s.child("tokens")
	if t == nil {
		return
	}
	defer t.end()
	t.need("issuer", "jwks", "subjects")
	entry.Tokens = &identity.Tokens{
		Issuer:   t.text("issuer", func(v string) string { _, what := endpoint(v, thisMachine); return what }),
		Audience: t.text("audience", audience),
		Type:     t.text("type", headerType),
		Person:   t.text("person", orSub(accessClaim)),
		Subjects: t.texts("subjects", 1024, person),
		Scopes:   t.texts("scopes", 16, scope),
		Admin:    readClaim(t.child("admin"), accessClaim),
		Keys:     t.keySet("jwks"),
	}
}

// headerType is the media type that a token says it has, without "application/" (RFC 7515
// §4.1.9).
var headerType = matching(`[A-Za-z0-9][A-Za-z0-9+._-]{0,63}`, "the typ of a token's header: at+jwt (the default), or JWT where the issuer writes nothing better")

// accessClaim leaves out the claims that mean something else in an access token already.
func accessClaim(s string) string {
	switch s {
	case "client_id", "scope", "cnf", "act":
		return "has a meaning of its own; name another claim"
	}
	return tokenClaim(s)
}

// endFronts reports callers that are people with access tokens where no MCP client can come.
func endFronts(root *section, fronts []string) {
	if len(fronts) > 0 && !root.has("mcp") {
		root.report("callers", "holds tokens at "+quote(strings.Join(fronts, ", "))+", which needs mcp: there is no address that tokens are for")
	}
}
