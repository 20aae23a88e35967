package operation

import (
	"testing"

	"github.com/google/uuid"
)

// TestUpstreamKey: one key for one caller, actor and request key, a UUID, and
// another for each other one, however the three are cut.
func TestUpstreamKey(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range [][3]string{{"gateway", "user:7", "k"}, {"gateway", "user:8", "k"}, {"portal", "user:7", "k"}, {"gateway", "user:7", "l"},
		{"gatewayuser:7", "", "k"}, {"gateway", "user:", "7k"}} {
		got := upstreamKey(k[0], k[1], k[2])
		u, err := uuid.Parse(got)
		if err != nil || u.Version() != 8 || u.Variant() != uuid.RFC4122 || seen[got] || got != upstreamKey(k[0], k[1], k[2]) {
			t.Errorf("%q: %s, %v", k, got, err)
		}
		seen[got] = true
	}
	if got := upstreamKey("gateway", "user:7", "k"); got != "86c1de60-db99-8dfb-bbab-9d06b403bce8" {
		t.Errorf("%s: a key that changes with a new version makes a server do things twice", got)
	}
}
