package httpapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"onbehalf.internal/broker/brokertest"
	"onbehalf.internal/broker/httpapi"
	"onbehalf.internal/broker/internal/devmcp"
	"onbehalf.internal/broker/internal/testhttp"
)

// An event is one of a stream; a comment has the name ":".
type event struct{ name, data string }

// A stream reads events as a browser would.
type stream struct {
	*http.Response
	lines *bufio.Reader
}

// open asks for a stream.
func open(t *testing.T, rig *brokertest.Rig, method, path, body string) *stream {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, method, rig.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+rig.Bearer)
	req.Header.Set("Broker-Actor", "user:7")
	req.Header.Set("Accept", "application/json;q=0.5, text/event-stream")
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := testhttp.Client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	return &stream{res, bufio.NewReader(res.Body)}
}

// next is the next event; the zero one at the end.
func (s *stream) next(t *testing.T) (e event) {
	t.Helper()
	var data []string
	for {
		line, err := s.lines.ReadString('\n')
		switch line = strings.TrimSuffix(line, "\n"); {
		case err == io.EOF && e.name == "":
			return event{}
		case err != nil:
			t.Fatal(err)
		case line == "" && e.name != "":
			e.data = strings.Join(data, "\n")
			return e
		case strings.HasPrefix(line, ":"):
			e.name = ":"
		default:
			field, value, _ := strings.Cut(line, ": ")
			if field == "event" {
				e.name = value
			} else {
				data = append(data, value)
			}
		}
	}
}

// nextOf is the next event that is no comment.
func (s *stream) nextOf(t *testing.T, name string) (op httpapi.Operation, data string) {
	t.Helper()
	e := s.next(t)
	for e.name == ":" {
		e = s.next(t)
	}
	if e.name != name {
		t.Fatalf("event %q with %s, want %q", e.name, e.data, name)
	}
	if err := json.Unmarshal([]byte(e.data), &op); err != nil {
		t.Fatalf("%v: %s", err, e.data)
	}
	return op, e.data
}

// TestStream: the first event carries the id, progress is passed on as it comes,
// the outcome is the body that the call would have had, and it is the last.
func TestStream(t *testing.T) {
	rig := brokertest.New(t, nil)
	say := make(chan string)
	rig.Records.Break(devmcp.Working(say, `{"content":[],"n":1.0}`))
	s := open(t, rig, "POST", "/v1/operations", strings.Replace(good, "KEY", "k", 1))
	if s.StatusCode != 200 || s.Header.Get("Content-Type") != "text/event-stream" || s.Header.Get("X-Accel-Buffering") != "no" || s.ContentLength != -1 {
		t.Errorf("%d %v", s.StatusCode, s.Header)
	}
	first, _ := s.nextOf(t, "operation")
	if first.ID == "" || !first.State.Open() || s.Header.Get("Location") != "/v1/operations/"+first.ID {
		t.Errorf("%+v", first)
	}
	for n, word := range []string{"one", "two"} {
		say <- word
		if _, data := s.nextOf(t, "progress"); data != fmt.Sprintf(`{"progress":%d,"total":9,"message":%q}`, n+1, word) {
			t.Errorf("%s", data)
		}
	}

	// Who comes back gets the rest.
	back := open(t, rig, "GET", "/v1/operations/"+first.ID, "")
	if again, _ := back.nextOf(t, "operation"); again.ID != first.ID {
		t.Errorf("%+v", again)
	}
	if _, data := back.nextOf(t, "progress"); !strings.Contains(data, "two") {
		t.Errorf("where it stands: %s", data)
	}
	say <- "three"
	back.nextOf(t, "progress")
	s.nextOf(t, "progress")
	close(say)
	told, _ := s.nextOf(t, "outcome")
	toldAgain, _ := back.nextOf(t, "outcome")
	if e := s.next(t); e != (event{}) {
		t.Errorf("after the outcome: %v", e)
	}
	whole := rig.Get(t, "/v1/operations?request_key=k", brokertest.Call{})
	for name, got := range map[string]httpapi.Operation{"told": told, "told again": toldAgain, "retrieved": whole.Operation} {
		if got.ID != first.ID || got.State != "succeeded" || string(got.Result) != `{"content":[],"n":1.0}` {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if late := open(t, rig, "GET", "/v1/operations/"+first.ID, ""); late.Header.Get("Content-Type") != "text/event-stream" {
		t.Error("a stream of an operation that has ended")
	} else {
		late.nextOf(t, "operation")
		if got, data := late.nextOf(t, "outcome"); string(got.Result) != string(told.Result) {
			t.Errorf("%s", data)
		}
	}
}

// TestStreamOfNothing: what begins nothing is a problem, not a stream.
func TestStreamOfNothing(t *testing.T) {
	rig := brokertest.New(t, nil)
	for path, s := range map[string]*stream{
		"bad body":     open(t, rig, "POST", "/v1/operations", `{}`),
		"unknown tool": open(t, rig, "POST", "/v1/operations", strings.Replace(good, "whoami", "nothing", 1)),
		"absent":       open(t, rig, "GET", "/v1/operations/"+strings.Repeat("a", 26), ""),
	} {
		if s.StatusCode < 400 || s.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %d %v", path, s.StatusCode, s.Header)
		}
	}
}

// TestReaderGoesAway: the operation goes on.
func TestReaderGoesAway(t *testing.T) {
	rig := brokertest.New(t, nil)
	say := make(chan string)
	rig.Records.Break(devmcp.Working(say, `{"content":[],"n":1.0}`))
	s := open(t, rig, "POST", "/v1/operations", strings.Replace(good, "KEY", "k", 1))
	s.nextOf(t, "operation")
	s.Body.Close()
	say <- "to nobody"
	close(say)
	if got := rig.Call(t, brokertest.Call{Key: "k"}); got.State != "succeeded" || got.Header.Get("Broker-Replayed") != "true" {
		t.Errorf("%s", got.Body)
	}
}

// TestHeartbeat: silence does not last.
func TestHeartbeat(t *testing.T) {
	rig := brokertest.New(t, &brokertest.Options{Heartbeat: 10 * time.Millisecond})
	say := make(chan string)
	rig.Records.Break(devmcp.Working(say, `{"content":[],"n":1.0}`))
	s := open(t, rig, "POST", "/v1/operations", strings.Replace(good, "KEY", "k", 1))
	s.nextOf(t, "operation")
	for range 3 {
		if e := s.next(t); e.name != ":" {
			t.Errorf("%v", e)
		}
	}
	close(say)
	s.nextOf(t, "outcome")
}

// TestGrantGoneWhileItRuns: the server's words are told only while the grant stands.
func TestGrantGoneWhileItRuns(t *testing.T) {
	rig := brokertest.New(t, nil)
	say := make(chan string)
	rig.Records.Break(devmcp.Working(say, `{"content":[],"n":1.0}`))
	s := open(t, rig, "POST", "/v1/operations", strings.Replace(good, "KEY", "k", 1))
	s.nextOf(t, "operation")
	say <- "one"
	s.nextOf(t, "progress")
	if err := rig.Edit(func(yaml string) string {
		return strings.Replace(yaml, "enabled: true\n        credential", "enabled: false\n        credential", 1)
	}); err != nil {
		t.Fatal(err)
	}
	say <- "secret of the records"
	if _, data := s.nextOf(t, "progress"); strings.Contains(data, "secret") {
		t.Errorf("%s", data)
	}
	close(say)
	if last, data := s.nextOf(t, "outcome"); last.Withheld != "grant_revoked" || last.Result != nil {
		t.Errorf("%s", data)
	}
}
