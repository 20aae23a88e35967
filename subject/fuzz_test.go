package subject_test

import (
	"strings"
	"testing"
	"time"

	"onbehalf.internal/broker/secret"
	"onbehalf.internal/broker/subject"
)

// FuzzEnded: what is said to have ended has three parts, and stays ended.
func FuzzEnded(f *testing.F) {
	f.Add(jwt(map[string]any{"exp": 1}), int64(100))
	f.Add(jwt(map[string]any{"exp": 1e18}), int64(100))
	f.Add(jwt(map[string]any{"exp": -1.5, "sub": []string{"x"}}), int64(100))
	f.Add("v1.public.token", int64(0))
	f.Fuzz(func(t *testing.T, token string, at int64) {
		now := time.Unix(at%1e11, 0)
		if !subject.Ended(secret.New(token), now) {
			return
		}
		if strings.Count(token, ".") != 2 {
			t.Errorf("%q has ended", token)
		}
		if !subject.Ended(secret.New(token), now.Add(time.Hour)) {
			t.Errorf("%q came back to life", token)
		}
	})
}
