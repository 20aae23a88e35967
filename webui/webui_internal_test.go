package webui

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/signin"
)

// TestTimeline: where bars begin and end.
func TestTimeline(t *testing.T) {
	const ms = time.Millisecond
	leg := func(name string, left, took time.Duration) audit.Leg {
		return audit.Leg{Name: name, Budget: left, Took: took}
	}
	for name, row := range map[string]struct {
		legs []audit.Leg
		want [][2]int // from, width
		span time.Duration
	}{
		"none":              {nil, nil, 0},
		"one after another": {[]audit.Leg{leg("exchange", 1000*ms, 100*ms), leg("tools/call", 900*ms, 400*ms)}, [][2]int{{0, 200}, {200, 800}}, 500 * ms},
		"with a gap":        {[]audit.Leg{leg("exchange", 1000*ms, 100*ms), leg("tools/call", 500*ms, 500*ms)}, [][2]int{{0, 100}, {500, 500}}, 1000 * ms},
		"too short to see":  {[]audit.Leg{leg("hold", 1000*ms, 0), leg("tools/call", 1000*ms, 1000*ms)}, [][2]int{{0, 3}, {0, 1000}}, 1000 * ms},
		"clean-up has a budget of its own": {[]audit.Leg{leg("tools/call", 5000*ms, 600*ms), leg("delete", 1000*ms, 200*ms), leg("drop", 5000*ms, 200*ms)},
			[][2]int{{0, 600}, {600, 200}, {800, 200}}, 1000 * ms},
		"after the deadline": {[]audit.Leg{leg("tools/call", 1000*ms, 1000*ms), leg("drop", 5000*ms, 1000*ms)}, [][2]int{{0, 500}, {500, 500}}, 2000 * ms},
		"nothing took time":  {[]audit.Leg{leg("hold", 0, 0)}, [][2]int{{0, 3}}, 0},
	} {
		bars, span := timeline(row.legs)
		if len(bars) != len(row.want) || span != row.span {
			t.Errorf("%s: %d bars of %v, want %d of %v", name, len(bars), span, len(row.want), row.span)
			continue
		}
		for i, b := range bars {
			if b.From != row.want[i][0] || b.Width != row.want[i][1] {
				t.Errorf("%s: bar %d: %d, %d, want %v", name, i, b.From, b.Width, row.want[i])
			}
		}
	}
}

// TestShown: text from outside is cut, with its length, and what cannot be seen is
// spelled out.
func TestShown(t *testing.T) {
	for in, want := range map[string]string{
		"":                             "",
		"plain":                        "plain",
		"a\u202eb":                     `a\u{202e}b`,
		strings.Repeat("x", 300):       strings.Repeat("x", 300),
		strings.Repeat("x", 10_000):    strings.Repeat("x", 300) + "… (10000 bytes)",
		strings.Repeat("ä", 151):       strings.Repeat("ä", 150) + "… (302 bytes)",
		strings.Repeat("x", 299) + "ä": strings.Repeat("x", 299) + "… (301 bytes)",
	} {
		if got := shown(in); got != want {
			t.Errorf("%.20q (%d bytes): %q", in, len(in), got)
		}
	}
}

// TestSessionsAreBounded: the one that nobody has used for longest ends for one more,
// and attempts to sign in are as few.
func TestSessionsAreBounded(t *testing.T) {
	now := time.Now()
	s := newSessions(func() time.Time { return now })
	for range mostSessions + 10 {
		s.begin(session{})
		s.attempt(signin.Attempt{Until: now.Add(time.Hour)})
		now = now.Add(time.Millisecond)
	}
	if len(s.open) != mostSessions || len(s.attempts) != mostAttempts {
		t.Errorf("%d are open, %d have begun", len(s.open), len(s.attempts))
	}
	for _, o := range s.open {
		if o.was.Before(now.Add(-mostSessions * time.Millisecond)) {
			t.Error("an older one is open than was ended")
		}
	}
}

// TestPanic: who looks is told that something went wrong, and the log where; never what.
func TestPanic(t *testing.T) {
	var log bytes.Buffer
	u := &UI{Config: Config{Origin: "http://broker.example", Log: slog.New(slog.NewTextHandler(&log, nil))}, pages: parsePages()}
	w := httptest.NewRecorder()
	u.guard(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("a secret") })).ServeHTTP(w, httptest.NewRequest("GET", "http://broker.example/ui/", nil))
	if w.Code != 500 || strings.Contains(w.Body.String()+log.String(), "secret") || !strings.Contains(log.String(), "at=onbehalf.internal/broker/webui.TestPanic") {
		t.Errorf("%d %s\n%s", w.Code, w.Body, log.String())
	}
}
