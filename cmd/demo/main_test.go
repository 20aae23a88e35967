package main

import (
	"bytes"
	"strings"
	"testing"
)

// TestOnce: the story goes as it should, and says so in words.
func TestOnce(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), []string{"-once"}, &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for _, want := range []string{"NOT Vault", "1. A permitted call", "exchange", "tools/call", `"subject":"user:7"`, "hold: dropped",
		"HTTP 403, no_grant", "never_without_looking", "replayed: true", "The tool ran 1 time."} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in the story:\n%s", want, out.String())
		}
	}
}

// TestOnceFails: a story that does not go as it should is a failure.
func TestOnceFails(t *testing.T) {
	s := &story{}
	s.check("this holds", true)
	if s.verdict() != nil {
		t.Error("a good story failed")
	}
	s.check("this does not", false)
	if s.verdict() == nil {
		t.Error("a bad story passed")
	}
}
