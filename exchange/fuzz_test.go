package exchange_test

import (
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
