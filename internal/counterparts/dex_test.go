//go:build real

package counterparts_test

import (
	"strings"
	"testing"

	"onbehalf.internal/broker/internal/counterparts"
)

func TestDex(t *testing.T) {
	d := counterparts.Dex(t)
	if s := d.Subject(t); strings.Count(s, ".") != 2 {
		t.Errorf("the subject is no JWT: %q", s)
	}
}
