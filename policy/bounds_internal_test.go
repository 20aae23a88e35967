package policy

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"onbehalf.internal/broker/fault"
)

// Load refuses a server outside its profile's bounds. Decide does not rely on
// that: it is total, and asks the profile again.
func TestDecideAsksTheProfileToo(t *testing.T) {
	server := &Server{
		Enabled: true, DataClass: 1, Tools: map[string]Tool{"search": {Enabled: true}},
		Auth: Auth{Mode: "delegated", Profile: "p", Audience: "a", Scopes: []string{"s"}},
	}
	decide := func(p *Profile) string {
		s := &Snapshot{
			callers:  map[string]*Caller{"gateway": {Servers: []string{"records"}}},
			servers:  map[string]*Server{"records": server},
			profiles: map[string]*Profile{"p": p},
			grants: map[string]map[string]*Grant{"p": {"user:7": {
				Enabled: true, AllowedAudiences: []string{"a"}, AllowedScopes: []string{"s"},
			}}},
		}
		_, reason := s.Explain("gateway", "user:7", "records", "search", time.Time{})
		return reason
	}
	for _, r := range []struct {
		audience, scope string
		want            fault.Reason
	}{
		{"a", "s", fault.None},
		{"b", "s", fault.AudienceNotAllowed},
		{"a", "t", fault.ScopeNotAllowed},
	} {
		if got := decide(&Profile{AllowedAudiences: []string{r.audience}, AllowedScopes: []string{r.scope}}); got != string(r.want) {
			t.Errorf("profile with %s and %s: %q, want %q", r.audience, r.scope, got, r.want)
		}
	}
	server.Auth.Scopes = nil
	if got := decide(&Profile{AllowedAudiences: []string{"a"}, AllowedScopes: []string{"s"}}); got != string(fault.ScopeNotAllowed) {
		t.Errorf("no scopes at all: %q, want %q", got, fault.ScopeNotAllowed)
	}
}

// TestLimitsAreDocumented: the table of docs/operations.md is the one that counts.
func TestLimitsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range limits {
		row := fmt.Sprintf("| `%s` | %d | %d | %d | ", l.key, l.byDefault, l.least, l.top)
		if strings.Count(string(text), row) != 1 {
			t.Errorf("docs/operations.md has no row %q", row)
		}
	}
	if filled := (Limits{Body: 7}).Filled(); filled.Body != 7 || filled.Pages != 50 {
		t.Errorf("Filled() = %+v", filled)
	}
}
