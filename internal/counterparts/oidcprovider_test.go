//go:build real || interop

package counterparts_test

import (
	"strings"
	"testing"

	"onbehalf.internal/broker/internal/counterparts"
)

func TestOIDCProvider(t *testing.T) { realm(t, counterparts.OIDCProvider(t)) }

// realm looks whether a realm gives a person's tokens, each a new one, and
// revokes them.
func realm(t *testing.T, r *counterparts.Realm) {
	t.Helper()
	first, second, short := r.Subject(t), r.Subject(t), r.ShortSubject(t)
	if first == second || second == short || first == short {
		t.Error("two logins gave one token")
	}
	r.Revoke(t, first)
	for name, text := range map[string]string{"key": r.Key, "certificate": r.Certificate, "authority": r.CA} {
		if !strings.HasPrefix(text, "-----BEGIN ") {
			t.Errorf("the %s is no PEM", name)
		}
	}
}
