package exchange_test

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"onbehalf.internal/broker/exchange"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/policy"
)

// FuzzAnswer holds what every accepted answer has in common, and that a
// refused one is refused in our words alone.
func FuzzAnswer(f *testing.F) {
	for _, seed := range []string{
		answer(), answer("expires_in", `"300"`, "scope", ""), answer("scope", `["files.read","email"]`),
		answer("access_token", quote(jwt())), answer("access_token", quote(jwt("aud", `["mcp-files"]`, "exp", "1.5"))),
		answer("error", `"invalid_target"`), answer("access_token", `"a\r\nb"`), `{"error":null}`, "[]", "",
	} {
		f.Add([]byte(seed), true)
		f.Add([]byte(seed), false)
	}
	header := regexp.MustCompile(`^[A-Za-z0-9._~+/-]+=*$`)
	f.Fuzz(func(t *testing.T, body []byte, opaque bool) {
		o := exchange.Order{Profile: &policy.Profile{}, Audience: audience, Scopes: []string{"files.read"}}
		r := &o.Profile.Response
		r.AllowedExtraScopes = []string{"email"}
		if opaque {
			r.TokenFormat, r.AudienceUnverified = "opaque", true
		}
		issued, err := exchange.Accept(o, body)
		if err != nil {
			if e, ours := err.(*fault.Error); !ours || !e.Reason.Known() || !ascii(e.Detail) {
				t.Fatalf("error %q", err)
			}
			if !issued.Token.IsZero() {
				t.Fatal("a token beside an error")
			}
			return
		}
		token := issued.Token.Reveal()
		var said map[string]any
		if json.Unmarshal(body, &said) != nil || said["access_token"] != token || !header.MatchString(token) || len(token) > 16<<10 {
			t.Fatalf("accepted token %q", token)
		}
		if life := issued.Expires.Sub(time.Unix(0, 0)); life > 5*time.Minute || opaque && life < time.Second {
			t.Fatalf("accepted a life of %v", life)
		}
		if !slices.Contains(issued.Scopes, "files.read") || slices.ContainsFunc(issued.Scopes, func(s string) bool { return s != "files.read" && s != "email" }) {
			t.Fatalf("accepted scopes %q", issued.Scopes)
		}
	})
}

func ascii(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}

// FuzzKeys holds that a key set of any shape gives keys that can verify, or
// none, and that no header makes a token good that none of them signed.
func FuzzKeys(f *testing.F) {
	s := newSigner("a")
	f.Add([]byte(jwks(s.jwk(nil))), "ES256", "a")
	f.Add([]byte(`{"keys":[{"kty":"oct","k":"c2VjcmV0"}]}`), "HS256", "")
	f.Add([]byte(`{"keys":[null,{},[]]}`), "none", "a")
	f.Fuzz(func(t *testing.T, set []byte, alg, kid string) {
		key := exchange.FindKey(set, kid, alg)
		switch key.(type) {
		case nil, *rsa.PublicKey, *ecdsa.PublicKey, ed25519.PublicKey:
		default:
			t.Fatalf("a key of type %T", key)
		}
		if key != nil && !slices.Contains([]string{"RS256", "PS256", "ES256", "ES384", "EdDSA"}, alg) {
			t.Fatalf("a key for alg %q", alg)
		}
	})
}

// FuzzIntrospection holds that nothing but the word true makes a token active.
func FuzzIntrospection(f *testing.F) {
	for _, seed := range []string{`{"active":true,"aud":"mcp-files","exp":1796040100}`, `{"active":"true"}`, `{"active":true,"cnf":{"x5t#S256":"x"}}`, `{}`, `[]`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		active, err := exchange.Introspected(body)
		if err != nil {
			if e, ours := err.(*fault.Error); !ours || !e.Reason.Known() || !ascii(e.Detail) {
				t.Fatalf("error %q", err)
			}
			return
		}
		var said struct{ Active any }
		var members map[string]json.RawMessage
		if json.Unmarshal(body, &said) != nil || json.Unmarshal(body, &members) != nil || string(members["active"]) != "true" || !active {
			t.Fatalf("%q was taken for active", body)
		}
	})
}
