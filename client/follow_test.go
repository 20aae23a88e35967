package client_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"onbehalf.internal/broker/brokertest"
	"onbehalf.internal/broker/client"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/internal/devmcp"
)

const awaiting = `"state":"awaiting_approval","ran":"no","evidence":"local","retry":"wait","approval":{"digest":"sha256:1","expires":"2027-01-31T12:00:00Z"}`

// An event is one of a stream's, or what becomes of the stream.
type event func(w http.ResponseWriter, key string)

func operation(name, members string) event {
	return func(w http.ResponseWriter, key string) {
		fmt.Fprintf(w, "event: %s\ndata: {\"id\":%q,\"request_key\":%q,\ndata: \"server\":\"records\",\"tool\":\"search\",%s}\n\n", name, opID, key, members)
	}
}

func text(s string) event {
	return func(w http.ResponseWriter, _ string) { fmt.Fprint(w, s) }
}

// streamed is an answer of events, after which the connection ends as it should.
func streamed(events ...event) answer {
	return func(w http.ResponseWriter, key string) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(http.StatusOK)
		for _, e := range events {
			e(w, key)
			http.NewResponseController(w).Flush()
		}
	}
}

var (
	begun    = operation("operation", `"state":"sending","ran":"unknown","evidence":"none","retry":"wait"`)
	asking   = operation("operation", awaiting)
	approved = operation("outcome", strings.Replace(awaiting, `"expires"`, `"decision":"approved","expires"`, 1))
	ended    = operation("outcome", `"state":"succeeded","ran":"yes","evidence":"peer","retry":"never","result":{"content":[]}`)
	doubtful = operation("outcome", `"state":"unknown","ran":"unknown","evidence":"none","retry":"never_without_looking","cause":"wall_clock"`)
	odder    = operation("outcome", `"state":"succeeded","ran":"yes","evidence":"peer","retry":"safe"`)
	says     = text("event: progress\ndata: {\"progress\":1,\"total\":9,\"message\":\"reading\"}\n\n")
	oddly    = text("event: progress\ndata: {\"progress\":1,\"progress\":2}\n\n")
	works    = text(": working\n\n")
	broken   = event(func(http.ResponseWriter, string) { panic(http.ErrAbortHandler) })
	quiet    = event(func(w http.ResponseWriter, _ string) { silent(w, ""); panic(http.ErrAbortHandler) })
	anothers = event(func(w http.ResponseWriter, _ string) { ended(w, "another") })
	slow     = event(func(w http.ResponseWriter, _ string) { time.Sleep(20 * time.Second); works(w, "") }) // of a bubble's time
)

// TestRunWithProgress: the stream that a call is answered by, whatever becomes of it. Of
// what is not an outcome nothing is believed but that the operation is there.
func TestRunWithProgress(t *testing.T) {
	for _, tc := range []struct {
		name    string
		answers []answer
		want    string // requests, how it ended, what was heard
	}{
		{"well", []answer{streamed(begun, says, works, says, ended)}, "P ok 2"},
		{"in doubt", []answer{streamed(begun, doubtful)}, "P wall_clock unknown 0"},
		{"an approval is asked for", []answer{streamed(asking, quiet)}, "P  awaiting_approval 0"},
		{"silence between heartbeats", []answer{streamed(begun, slow, slow, slow, slow, slow, ended)}, "P ok 0"},
		{"denied", []answer{problem(fault.NoGrant, "")}, "P no_grant 0"},
		{"draining", []answer{problem(fault.Draining, ""), streamed(begun, ended)}, "PP ok 0"},
		{"a progress that is none", []answer{streamed(begun, oddly, says, ended)}, "P ok 1"},
		{"an event of tomorrow", []answer{streamed(begun, text("event: pause\ndata: {}\n\n"), ended)}, "P ok 0"},
		{"cut after the beginning", []answer{streamed(begun, says, broken), streamed(begun, says, ended)}, "PI ok 2"},
		{"ended without an outcome", []answer{streamed(begun), streamed(begun), streamed(begun, ended)}, "PII ok 0"},
		{"cut before the beginning", []answer{streamed(broken), done}, "PK ok 0"},
		{"cut before anything", []answer{cut, neverSent, streamed(begun, ended)}, "PKP ok 0"},
		{"silent after the beginning", []answer{streamed(begun, quiet), streamed(begun, ended)}, "PI ok 0"},
		{"silent before it", []answer{silent, done}, "PK ok 0"},
		{"words that do not go together", []answer{streamed(begun, odder), done}, "PK ok 0"},
		{"another's outcome", []answer{streamed(begun, anothers), done}, "PK ok 0"},
		{"a page", []answer{foreign(502), done}, "PK ok 0"},
		{"JSON in place of a stream", []answer{done, done}, "PK ok 0"},
		{"too large", []answer{streamed(begun, text("event: outcome\ndata: "+strings.Repeat("x", 3000)+"\n\n"))}, "P reply_too_large sending 0"},
		{"too large in lines", []answer{streamed(text("event: operation\n" + strings.Repeat("data: xxxxxxxxxxxxxxx\n", 400)))}, "P reply_too_large open 0"},
		{"for good without an outcome", slices.Repeat([]answer{streamed(begun)}, 30), ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := serve(t, tc.answers...)
				c := b.clientOf(t, client.Config{MaxAnswer: 2000})
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				defer cancel()
				heard := 0
				op, err := c.Run(ctx, client.Call{Actor: "user:7", Server: "records", Tool: "search", Arguments: map[string]string{"q": "a<b"},
					Progress: func(p client.Progress) {
						if heard++; p.Done != 1 || p.Total != 9 || p.Message != "reading" {
							t.Errorf("heard %+v", p)
						}
					}})
				if got := fmt.Sprintf("%s %s %d", b.asked(), ending(op, err), heard); tc.want != "" && got != tc.want {
					t.Errorf("got %q, want %q (%v)", got, tc.want, err)
				}
				if tc.want == "" && (ctx.Err() == nil || op == nil || op.State != fault.Sending) {
					t.Errorf("%s: %v, %v", b.asked(), op, err)
				}
				b.oneCall(t)
			})
		})
	}
}

// TestFollowTheApproval: Follow waits for the person, through what cuts it off.
func TestFollowTheApproval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		of := func(e event) event { return func(w http.ResponseWriter, _ string) { e(w, "a-key") } }
		b := serve(t, streamed(of(asking), slow, broken), streamed(of(asking)), streamed(of(asking), slow, slow, of(approved)))
		op, err := b.client(t).Follow(t.Context(), "user:7", opID, nil)
		if err != nil || op.Approval == nil || op.Approval.Decision != "approved" || b.asked() != "III" {
			t.Errorf("%s: %+v, %v", b.asked(), op, err)
		}
	})
}

// TestProgress: what a tool says is heard while it works, by who made the call and by who
// follows it.
func TestProgress(t *testing.T) {
	rig := brokertest.New(t, nil)
	say := make(chan string)
	rig.Records.Break(devmcp.Working(say, `{"content":[],"n":1.0}`))
	c := of(t, rig, rig.URL)
	heard := make(chan client.Progress, 8)
	go func() {
		for _, word := range []string{"one", "two"} {
			say <- word
			if p := <-heard; p.Message != word || p.Total != 9 {
				t.Errorf("heard %+v", p)
			}
		}
		close(say)
	}()
	op, err := c.Run(t.Context(), client.Call{Actor: "user:7", Server: "records", Tool: "whoami", Progress: func(p client.Progress) { heard <- p }})
	if err != nil || string(op.Result) != `{"content":[],"n":1.0}` {
		t.Fatalf("%v, %v", op, err)
	}
	again, err := c.Follow(t.Context(), "user:7", op.ID, nil)
	if err != nil || string(again.Result) != string(op.Result) {
		t.Errorf("%v, %v", again, err)
	}
}
