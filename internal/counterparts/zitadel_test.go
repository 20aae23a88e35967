//go:build real

package counterparts_test

import (
	"testing"

	"onbehalf.internal/broker/internal/counterparts"
)

func TestZitadel(t *testing.T) {
	z := counterparts.Zitadel(t)
	tokens := map[string]bool{}
	for _, subject := range []string{z.Subject(t), z.Subject(t), z.PlainSubject(t), z.ServiceSubject(t)} {
		tokens[subject] = true
	}
	if len(tokens) != 4 {
		t.Errorf("four logins gave %d tokens", len(tokens))
	}
}
