package subject_test

import (
	"strings"
	"testing"

	"onbehalf.internal/broker/secret"
	"onbehalf.internal/broker/subject"
)

// TestSendable: a token is visible ASCII of a bounded length; every byte is
// tried.
func TestSendable(t *testing.T) {
	for b := range 256 {
		want := b > ' ' && b < 0x7f
		if got := subject.Sendable(secret.New("tok" + string([]byte{byte(b)}) + "en")); got != want {
			t.Errorf("byte %#x: %t", b, got)
		}
	}
	for length, want := range map[int]bool{0: false, 1: true, 16384: true, 16385: false} {
		if got := subject.Sendable(secret.New(strings.Repeat("a", length))); got != want {
			t.Errorf("length %d: %t", length, got)
		}
	}
}
