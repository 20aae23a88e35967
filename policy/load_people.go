package policy

import (
	"net/netip"
	"net/url"
	"strings"

	"onbehalf.internal/broker/identity"
)

// readUI reads whether there is a web page: it is there when the key is, and may be
// empty.
func readUI(root *section, l Listen) *UI {
	n, ok := root.find("ui")
	if !ok {
		return nil
	}
	ui := &UI{}
	if n.kind != mapping || len(n.members) > 0 {
		if s := root.child("ui"); s != nil {
			ui.Origin = s.text("origin", browserOrigin)
			s.end()
		}
	}
	if strings.HasPrefix(l.API, "unix:") && ui.Origin == "" {
		root.report("ui", "needs origin: a browser does not see a Unix socket, but what stands before it")
	}
	return ui
}

// thisMachine is where http may go without an operator's allow_cidrs.
var thisMachine = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

// browserOrigin accepts an origin (RFC 6454) as browsers write it.
func browserOrigin(s string) string {
	u, what := endpoint(s, thisMachine)
	switch {
	case what != "":
		return what
	case u.Path != "":
		return "must not have a path, nor a slash at its end"
	case u.Scheme == "https" && u.Port() == "443", u.Scheme == "http" && u.Port() == "80":
		return "must leave the port out, as browsers do"
	}
	return ""
}

// readSignIn reads a caller that is people who sign in at the page: s has sign_in.
func readSignIn(s *section, entry *identity.CallerConfig) {
	s.need("roles")
	s.without("for people who sign in", "bearer_sha256", "actors", "approvers", "servers", "zone")
	has := map[identity.Role]bool{}
	for _, role := range s.texts("roles", 2, oneOf("approve", "audit")) {
		entry.Roles = append(entry.Roles, identity.Role(role))
		has[identity.Role(role)] = true
	}
	in := s.child("sign_in")
	if in == nil {
		return
	}
	defer in.end()
	in.need("issuer", "client_id", "subjects")
	for _, role := range []identity.Role{identity.Audit, identity.Approve} {
		switch key := string(role); {
		case has[role]:
			in.need(key)
		case len(has) > 0:
			in.without("without the role "+key, key)
		}
	}
	if has[identity.Audit] && !has[identity.Approve] {
		in.without("without the role approve", "admin")
	}
	cidrs := in.cidrs("allow_cidrs")
	entry.SignIn = &identity.SignIn{
		Issuer:     in.text("issuer", func(v string) string { _, what := endpoint(v, cidrs); return what }),
		ClientID:   in.text("client_id", tokenType),
		Person:     in.text("person", orSub(tokenClaim)),
		Subjects:   in.texts("subjects", 1024, person),
		Audit:      readClaim(in.child("audit"), tokenClaim),
		Approve:    readClaim(in.child("approve"), tokenClaim),
		Admin:      readClaim(in.child("admin"), tokenClaim),
		Secret:     in.ref("client_secret"),
		Scopes:     in.texts("scopes", 16, moreScope),
		AllowCIDRs: cidrs,
		CA:         in.certificates("ca_file"),
	}
}

var claimOfProvider = matching(`[A-Za-z_][A-Za-z0-9_.:/-]{0,255}`, "the name of a claim: 1 to 256 of A-Z a-z 0-9 _ . : / -")

// tokenClaim leaves out the claims that mean something else in an ID token already.
func tokenClaim(s string) string {
	switch s {
	case "iss", "sub", "aud", "exp", "nbf", "iat", "jti", "nonce", "azp", "email_verified":
		return "has a meaning of its own; name another claim"
	}
	return claimOfProvider(s)
}

// orSub lets the claim that names a person be sub, too, which is what it is without the
// key.
func orSub(r rule) rule {
	return func(s string) string {
		if s == "sub" {
			return ""
		}
		return r(s)
	}
}

// person accepts a person, or all of them.
func person(s string) string {
	if what := actorOrPrefix(s); what != "" || !strings.HasPrefix(s, "user:") {
		return `must be a person, "user:" and an id, or "user:" for all`
	}
	return ""
}

func moreScope(s string) string {
	switch s {
	case "openid":
		return "is asked for in any case; remove it"
	case "offline_access":
		return "asks for a token that the broker would throw away; remove it"
	}
	return scope(s)
}

// ParseEndpoint is the rule for addresses in the file, for one that comes from elsewhere:
// https, or http to a loopback host that cidrs allow.
func ParseEndpoint(s string, cidrs []netip.Prefix) (*url.URL, bool) {
	u, what := endpoint(s, cidrs)
	return u, what == ""
}
