package policy

import (
	"strings"
	"time"

	"onbehalf.internal/broker/secret"
)

const (
	leastAssertionTTL = 5 * time.Second
	mostAssertionTTL  = 10 * time.Minute
)

func readClient(s *section, p *Profile) (c Client) {
	if s == nil {
		return c
	}
	defer s.end()
	s.need("auth")
	c.Auth = s.text("auth", oneOf("basic", "basic_raw", "post", "private_key_jwt", "mtls", "none", "anonymous"))
	if c.Auth == "anonymous" {
		s.without("with auth anonymous, which sends nothing of a client", "id")
	} else {
		s.need("id")
		c.ID = s.text("id", atMost(255))
	}
	s.readClientKey(&c)
	if c.Auth == "private_key_jwt" {
		s.readAssertion(&c, p)
	} else {
		s.without("without auth private_key_jwt", "alg", "kid", "audience", "assertion_ttl")
	}
	switch {
	case c.Auth == "basic_raw" && strings.Contains(c.ID, ":"):
		s.report("id", `holds a ":", which ends the id in a header that is not encoded; write auth: basic or post`)
	case (p.Actor.Source == clientCredentials || p.BrokerIsSubject()) && (c.Auth == "none" || c.Auth == "anonymous"):
		s.report("auth", "is "+c.Auth+", but client_credentials is what a client without a credential cannot ask for (RFC 6749 §4.4)")
	}
	return c
}

// readClientKey reads what the client proves itself with.
func (s *section) readClientKey(c *Client) {
	if c.Auth != "mtls" {
		s.without("without auth mtls", "certificate")
	}
	switch c.Auth {
	case "none", "anonymous":
		s.without("with auth "+c.Auth, "key")
	case "private_key_jwt":
		s.need("key")
		c.Key, c.Transit = s.keyRef("key")
	case "mtls":
		c.Key, c.Certificate = s.needRef("key"), s.needRef("certificate")
	default:
		c.Key = s.needRef("key")
	}
}

// keyRef returns the reference of a key at key: to a field that holds it, or to
// one that stays in Vault and signs there.
func (s *section) keyRef(key string) (ref secret.Ref, transit secret.TransitRef) {
	n, ok := s.scalar(key, text)
	if !ok {
		return ref, transit
	}
	var err error
	if strings.HasPrefix(n.value, "vault-transit:") {
		transit, err = secret.ParseTransitRef(n.value)
	} else {
		ref, err = secret.ParseRef(n.value)
	}
	if err != nil {
		s.reportAt(n.line, key, hidden+` must name a field in Vault, written "vault:<mount>/<path>#<field>", or a key that signs there, "vault-transit:<mount>/<key>"; `+noSecrets)
	}
	return ref, transit
}

// readAssertion reads how the assertion of private_key_jwt is made.
func (s *section) readAssertion(c *Client, p *Profile) {
	c.Alg = s.text("alg", oneOf("RS256", "PS256", "ES256", "ES384", "EdDSA"))
	c.Kid = s.text("kid", keyID)
	c.Audience = s.textOr("audience", "token_endpoint", audience)
	c.AssertionTTL = s.duration("assertion_ttl", leastAssertionTTL, mostAssertionTTL)
	if !c.Transit.IsZero() && !s.has("alg") {
		s.report("alg", "is missing: a key that stays in Vault cannot be asked what it is for")
	}
	if c.Audience == "issuer" && p.Response.ExpectIssuer == "" {
		s.report("audience", "is issuer, but response.expect_issuer names none")
	}
}

// needRef returns the credential reference at key, which has to be there.
func (s *section) needRef(key string) secret.Ref {
	s.need(key)
	return s.ref(key)
}
