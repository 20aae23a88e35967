package secret_test

import (
	"strings"
	"testing"

	"onbehalf.internal/broker/secret"
)

func TestParseTransitRef(t *testing.T) {
	for _, ok := range []string{"vault-transit:transit/broker", "vault-transit:t-1/a.b_c@d"} {
		ref, err := secret.ParseTransitRef(ok)
		if err != nil || ref.String() != ok || ref.IsZero() {
			t.Errorf("%q: %v, %v", ok, ref, err)
		}
	}
	for _, bad := range []string{
		"", "vault-transit:", "vault-transit:transit", "vault-transit:transit/", "vault-transit:/key", "vault:transit/key", "transit/key",
		"vault-transit:a/b/c", "vault-transit:../sys", "vault-transit:a/..", "vault-transit:a/b..c", "vault-transit:a/b#c", "vault-transit:a/b?x",
		"vault-transit:a/%2e", "vault-transit:a/b c", "vault-transit:a/b\n", "VAULT-TRANSIT:a/b",
	} {
		if ref, err := secret.ParseTransitRef(bad); err == nil {
			t.Errorf("%q: accepted as %v", bad, ref)
		}
	}
}

// FuzzParseTransitRef: what is accepted comes back unchanged and holds nothing
// that a URL could read as something else.
func FuzzParseTransitRef(f *testing.F) {
	f.Add("vault-transit:transit/broker")
	f.Add("vault-transit:a/../b")
	f.Fuzz(func(t *testing.T, s string) {
		ref, err := secret.ParseTransitRef(s)
		if err == nil && (ref.String() != s || strings.ContainsAny(ref.Mount()+ref.Key(), "/?#% \\\r\n") || strings.Contains(s, "..")) {
			t.Errorf("%q was accepted as %v", s, ref)
		}
	})
}
