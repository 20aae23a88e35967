package operation

import (
	"strconv"
	"testing"
	"time"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/policy/policytest"
)

// TestTooManyOperations: so many may be open, and one more begins nothing.
func TestTooManyOperations(t *testing.T) {
	s, err := policytest.Load(t.TempDir(), `version: 1
listen: {api: "127.0.0.1:0"}
vault: {address: "http://127.0.0.1:1", auth: {method: token}, hold: {role: broker-op}}
store: {path: unused.db}
operation: {timeout: 20s}
callers:
  gateway: {roles: [operate], bearer_sha256: ["BEARER"], actors: {asserted: ["user:7"]}, servers: [open], zone: local}
servers:
  open:
    url: https://open.example.org/mcp
    enabled: true
    data_class: publicContent
    requires_approval: false
    auth: {mode: legacy}
    tools: {search: {enabled: true}}
`)
	if err != nil {
		t.Fatal(err)
	}
	d, err := policytest.Decide(s, "user:7", "open", "search")
	if err != nil {
		t.Fatal(err)
	}
	r := New(Config{Now: time.Now})
	for n := range maxOpen {
		r.running[strconv.Itoa(n)] = &work{}
	}
	if _, err := r.admit(t.Context(), sealed{}, d, ""); fault.ReasonOf(err) != fault.TooManyOperations || len(r.running) != maxOpen {
		t.Errorf("%v, with %d open", err, len(r.running))
	}
}
