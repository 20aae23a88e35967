//go:build real

package counterparts_test

import (
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"onbehalf.internal/broker/internal/counterparts"
)

// TestLogin: a token is a person's, for the one server that was asked for, and for no other.
func TestLogin(t *testing.T) {
	l := counterparts.Login(t, "https://broker.example/mcp/")
	const records = "https://broker.example/mcp/records"
	for page, life := range map[string]bool{"callback": true, "kept": false} {
		token := l.Token(t, page, "7", records, "mcp")
		var claims struct {
			jwt.RegisteredClaims
			Scope string
		}
		if _, _, err := jwt.NewParser().ParseUnverified(token.AccessToken, &claims); err != nil {
			t.Fatal(err)
		}
		if claims.Subject != "7" || len(claims.Audience) != 1 || claims.Audience[0] != records || claims.Scope != "mcp" || claims.ExpiresAt.After(time.Now()) != life ||
			token.RefreshToken == "" {
			t.Errorf("%s: %+v", page, claims)
		}
	}
	good := l.Issuer + "/auth?client_id=desk&response_type=code&scope=mcp&redirect_uri=http://127.0.0.1:1/callback&resource=" + records +
		"&code_challenge_method=S256&code_challenge=" + strings.Repeat("x", 43)
	for old, new := range map[string]string{"": "", "broker.example": "elsewhere.example", "code_challenge": "x", "callback": "elsewhere", "desk": "chair"} {
		back, err := l.SignIn(t.Context(), "7", strings.ReplaceAll(good, old, new))
		if came := err == nil && back.Query().Get("code") != ""; came != (old == "") {
			t.Errorf("with %q for %q: came back with a code: %t, %v", new, old, came, err)
		}
	}
}
