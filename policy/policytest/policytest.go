// Package policytest makes decisions for the tests of other packages, in the only
// way there is: a file as an operator writes it is loaded and asked by a caller.
//
// The file has a caller with bearer_sha256: ["BEARER"], whose bearer is [Bearer].
// Nothing here loosens what package policy checks.
package policytest

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"onbehalf.internal/broker/policy"
)

// Bearer is what the caller of the file shows itself with.
const Bearer = "a-bearer-of-the-test"

// Load writes text into dir, with the digest of Bearer in the place of BEARER,
// and loads it.
func Load(dir, text string) (*policy.Snapshot, error) {
	digest := sha256.Sum256([]byte(Bearer))
	path := filepath.Join(dir, "profiles.yaml")
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, "BEARER", hex.EncodeToString(digest[:]))), 0o600); err != nil {
		return nil, err
	}
	return policy.Load(path)
}

// Ask is what the caller asks for an actor that it may assert.
func Ask(s *policy.Snapshot, actor, server, tool string) (policy.Question, error) {
	h := http.Header{"Authorization": {"Bearer " + Bearer}, "Broker-Actor": {actor}}
	caller, err := s.Directory.Caller(h)
	if err != nil {
		return policy.Question{}, err
	}
	who, err := s.Directory.Actor(caller, h)
	return policy.Question{Caller: caller, Actor: who, Server: server, Tool: tool}, err
}

// Decide is the decision about what Ask asks, now.
func Decide(s *policy.Snapshot, actor, server, tool string) (policy.Decision, error) {
	q, err := Ask(s, actor, server, tool)
	if err != nil {
		return policy.Decision{}, err
	}
	return s.Decide(q, time.Now())
}
