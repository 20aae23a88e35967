package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"onbehalf.internal/broker/identity"
)

// readCallers returns what policy and what identity keep of each caller.
func readCallers(root *section) (map[string]*Caller, []identity.CallerConfig) {
	callers := map[string]*Caller{}
	var entries []identity.CallerConfig
	servers := root.names("servers")
	digests := map[[32]byte]string{} // → the caller it belongs to
	people := ""                     // the caller that has sign_in
	var fronts []string              // those that have tokens
	for id, s := range root.children("callers", callerID) {
		s.notYet("client_cert", "jwt")
		callers[id] = &Caller{ID: id, Zone: 1, Where: s.where()}
		entry := identity.CallerConfig{ID: id}
		switch {
		case s.has("tokens"):
			fronts = append(fronts, id)
			readTokens(s, callers[id], &entry, servers)
		case !s.has("sign_in"):
			readProgram(s, callers[id], &entry, servers, digests)
		case people != "":
			s.report("sign_in", "is at caller "+quote(people)+" already; people come in at one of them")
			s.skip()
		default:
			people = id
			readSignIn(s, &entry)
		}
		entries = append(entries, entry)
	}
	if people != "" && !root.has("ui") {
		root.report("callers", "holds sign_in at "+quote(people)+", which needs ui: without the page nobody signs in")
	}
	endFronts(root, fronts)
	return callers, entries
}

// readProgram reads a caller that proves itself by a bearer.
func readProgram(s *section, c *Caller, entry *identity.CallerConfig, servers []string, digests map[[32]byte]string) {
	s.asked = append(s.asked, "sign_in", "tokens")
	s.need("roles", "bearer_sha256")
	c.Servers = s.texts("servers", 4096, among("servers", servers))
	c.Zone = Zone(max(1, s.choice("zone", zones...)))
	entry.BearerSHA256 = readDigests(s, c.ID, digests)
	for _, role := range s.texts("roles", 4, oneOf("operate", "approve", "audit", "admin")) {
		entry.Roles = append(entry.Roles, identity.Role(role))
	}
	readActors(s.child("actors"), entry)
	entry.Approvers = readSigned(s.child("approvers"))
}

// readDigests reads the SHA-256 of one bearer, or of two while it is rotated.
// They are not shown.
func readDigests(s *section, id string, taken map[[32]byte]string) (digests [][32]byte) {
	const key = "bearer_sha256"
	for i, n := range s.items(key, 2) {
		entry := fmt.Sprintf("%s[%d]", key, i)
		if !s.isOf(n, entry, text) {
			continue
		}
		var d [32]byte
		if digest.MatchString(n.value) {
			hex.Decode(d[:], []byte(n.value))
		}
		first, twice := taken[d]
		switch {
		case d == [32]byte{}:
			s.reportAt(n.line, entry, hidden+" must be the SHA-256 of a bearer in 64 digits of lower-case hex")
		case d == sha256.Sum256(nil):
			s.reportAt(n.line, entry, "is the SHA-256 of nothing; hash the bearer itself, without a line break")
		case twice:
			s.reportAt(n.line, entry, "is a bearer of caller "+quote(first)+" already; each caller needs its own")
		default:
			taken[d] = id
			digests = append(digests, d)
		}
	}
	return digests
}

func readActors(s *section, entry *identity.CallerConfig) {
	if s == nil {
		return
	}
	defer s.end()
	entry.Asserted = s.texts("asserted", 1024, actorID)
	entry.Signed = readSigned(s.child("signed"))
}

// readSigned reads whose assertions are believed, of actors or of approvers.
func readSigned(s *section) *identity.SignedActors {
	if s == nil {
		return nil
	}
	defer s.end()
	s.need("issuer", "jwks", "audience", "subjects")
	return &identity.SignedActors{
		Issuer:   s.text("issuer", audience),
		Audience: s.text("audience", audience),
		Subjects: s.texts("subjects", 1024, actorOrPrefix),
		Keys:     s.keySet("jwks"),
		Admin:    readClaim(s.child("admin"), claimName),
	}
}

// readClaim reads which claim says something, and by which value: of an assertion, that
// its actor is an administrator.
func readClaim(s *section, name rule) (c identity.Claim) {
	if s == nil {
		return c
	}
	defer s.end()
	s.need("claim", "value")
	return identity.Claim{Name: s.text("claim", name), Value: s.text("value", audience)}
}

// claimName leaves out the claims that mean something else already (RFC 7519 §4.1).
func claimName(s string) string {
	switch s {
	case "iss", "sub", "aud", "exp", "nbf", "iat", "jti":
		return quote(s) + " has a meaning of its own; name another claim"
	}
	return argument(s)
}

// keySet returns the keys of the JWKS file at key.
func (s *section) keySet(key string) identity.KeySet {
	name := s.text(key, keyFile)
	if name == "" {
		return identity.KeySet{}
	}
	b, what := s.l.read(name, maxOther)
	if what != "" {
		s.report(key, "the file "+what)
		return identity.KeySet{}
	}
	keys, err := identity.ParseKeySet(b)
	if err != nil {
		s.report(key, "the file holds no key set with a key that can be used")
	}
	return keys
}

func keyFile(s string) string {
	if strings.Contains(s, "://") {
		return "is a URL, which is not available yet; name a file"
	}
	return atMost(4096)(s)
}
