package signin_test

import (
	"testing"
	"time"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/identity"
	"onbehalf.internal/broker/signin"
)

// TestKeysAreKept: how often the provider is asked for what seldom changes, and how long
// the old does when it does not answer.
func TestKeysAreKept(t *testing.T) {
	h := newHostile(t)
	d, now := directory(t, h.URL, "page", nil), time.Now()
	p := signin.New(signin.Config{Directory: func() *identity.Directory { return d }, Redirect: home, Now: func() time.Time { return now }})
	signIn := func() error {
		a, err := h.begin(t, p)
		if err == nil {
			_, err = p.End(t.Context(), a, back(a))
		}
		return err
	}
	rotate := func() { h.key, h.kid = newKey(t), h.kid+"x" }
	step := func(name string, wait time.Duration, want fault.Reason, document, keys int) {
		t.Helper()
		now = now.Add(wait)
		if err := signIn(); reason(err) != want {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
		if d, k := h.times(discovery), h.times("/keys"); d != document || k != keys {
			t.Errorf("%s: %d requests for the document and %d for keys, want %d and %d", name, d, k, document, keys)
		}
	}
	step("first", 0, fault.None, 1, 1)
	step("again", time.Second, fault.None, 1, 1)
	rotate()
	step("a new key, a moment later", 28*time.Second, fault.SignInFailed, 1, 1)
	step("the same, when it may be asked for", time.Second, fault.None, 1, 2)
	step("nine minutes later", 9*time.Minute, fault.None, 1, 2)
	step("when they are old", 70*time.Second, fault.None, 2, 3)

	h.serve[discovery], h.serve["/keys"] = says(500, planted), says(500, planted)
	step("an outage, while they are fresh", time.Minute, fault.None, 2, 3)
	step("an outage, when they are old", 10*time.Minute, fault.None, 3, 4)
	step("at once again", time.Second, fault.None, 3, 4)
	step("a little later", 2*time.Second, fault.None, 4, 5)
	step("after an hour", time.Hour, fault.ProviderError, 5, 5)
	step("at once again, without any", time.Second, fault.ProviderUnreachable, 5, 5)

	clear(h.serve)
	step("it is there again", 2*time.Second, fault.None, 6, 6)
	rotate()
	h.serve["/keys"] = says(500, planted)
	step("a new key that cannot be had", time.Minute, fault.SignInFailed, 6, 7)

	other := newHostile(t)
	clear(h.serve)
	d = directory(t, other.URL, "page", nil)
	if a, err := other.begin(t, p); err != nil {
		t.Error(err)
	} else if _, err := p.End(t.Context(), a, back(a)); err != nil {
		t.Errorf("another provider after a reload: %v", err)
	}
	d = directory(t, h.URL, "page", nil)
	step("and back", 0, fault.None, 7, 8)
}
