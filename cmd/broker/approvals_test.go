package main

import (
	"strings"
	"testing"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/httpapi"
)

// TestPrintPending: arguments are one line of text that a terminal does nothing with.
func TestPrintPending(t *testing.T) {
	var out strings.Builder
	p := httpapi.Pending{ID: "id", Pin: "sha256:1", Arguments: []byte("{\"a\":\r\n\t\"\u202e\x1b[2J\x7f\u009b\xff\"}")}
	printPending(&out, p)
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if want := `  arguments  {"a":\r\n\t"\u202e\x1b[2J\x7f\u009b` + "\ufffd" + `"}`; len(lines) != 4 || lines[3] != want {
		t.Errorf("%q, want %q", lines[len(lines)-1], want)
	}
	out.Reset()
	p.Arguments, p.Withheld = nil, fault.VaultSealed
	if printPending(&out, p); !strings.Contains(out.String(), "arguments  withheld: vault_sealed") {
		t.Errorf("%q", out.String())
	}
}
