package httpapi

import (
	"strings"
	"testing"
	"time"
	"unicode"
)

// FuzzReadSuspension: whatever is read is one named target with a reason that
// can be shown, and an end that lies ahead or none.
func FuzzReadSuspension(f *testing.F) {
	for _, s := range []string{
		`{"actor":"user:7","reason":"r"}`, `{"server":"records","reason":"ü \"x\"","until":"2027-01-31T12:00:00+02:00"}`,
		`{"profile":"company","reason":"r","until":null}`, `{"actor":"user:","reason":"r"}`, `{"actor":"","server":"a","reason":"r"}`, `{}`, ``,
	} {
		f.Add([]byte(s))
	}
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, body []byte) {
		s, err := readSuspension(body, now)
		if err != nil {
			return
		}
		_, id, _ := strings.Cut(s.Target.Name, ":")
		switch {
		case s.Target.Problem() != "", s.Target.Name == "", s.Target.Sort == "actor" && id == "":
			t.Errorf("target %q", s.Target)
		case s.Reason == "", len(s.Reason) > 512, strings.ContainsFunc(s.Reason, unicode.IsControl):
			t.Errorf("reason %q", s.Reason)
		case !s.Until.IsZero() && (!s.Until.After(now) || s.Until.UnixNano() < now.UnixNano()):
			t.Errorf("until %v", s.Until)
		case !s.Stands(now), s.ID != "", s.By != "":
			t.Errorf("%+v", s)
		}
	})
}
