package operation_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"onbehalf.internal/broker/brokertest"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/internal/devmcp"
	"onbehalf.internal/broker/internal/testhttp"
)

// What a gateway calls a timeout has four shapes, and each asks for another move.
// A test a shape: what the gateway reads, and that the move works by the API alone.

// recoverable names the tool that says what became of a call.
func recoverable(yaml string) string {
	return strings.ReplaceAll(yaml, "    tools:", "    recovery: {tool: job}\n    tools:")
}

// told is all that a gateway decides by.
func told(a brokertest.Answer) string {
	look := "nothing"
	if a.LookWith != nil {
		look = a.LookWith.Tool
	}
	return fmt.Sprintf("%d %s, ran %s by %s, %s, %s; look with %s", a.Status, a.State, a.Ran, a.Evidence, a.Retry, cmp.Or(a.Cause, "no cause"), look)
}

// begin makes a call, and again with the same key while nothing of it has left:
// a deadline that is short enough to wait for may pass earlier on a busy machine.
func begin(t *testing.T, rig *brokertest.Rig, c brokertest.Call) brokertest.Answer {
	t.Helper()
	a := rig.Call(t, c)
	for range 9 {
		if a.State == fault.NotSent {
			a = rig.Call(t, c)
		}
	}
	return a
}

// stays retrieves a by id and by key, and has a mesh repeat its call, five times at
// once and five in a row: each time it is a again, and the server hears nothing.
func stays(t *testing.T, rig *brokertest.Rig, c brokertest.Call, a brokertest.Answer) {
	t.Helper()
	heard := heardBy(rig)
	got := map[string]brokertest.Answer{
		"by id":  rig.Get(t, "/v1/operations/"+a.ID, brokertest.Call{}),
		"by key": rig.Get(t, "/v1/operations?request_key="+c.Key, brokertest.Call{}),
	}
	for n, b := range mesh(t, rig, c) {
		got[fmt.Sprint("repeat ", n)] = b
	}
	for how, b := range got {
		if b.ID != a.ID || b.Attempt != a.Attempt || told(b) != told(a) || !bytes.Equal(b.Result, a.Result) || !bytes.Equal(b.Error, a.Error) {
			t.Errorf("%s: %s\nwant %s", how, b.Body, a.Body)
		}
	}
	if now := heardBy(rig); now != heard {
		t.Errorf("%d calls and exchanges behind the repeats", now-heard)
	}
}

// heardBy is how often the servers and the provider were asked for something new.
// The end of a session, which comes beside an answer, is not.
func heardBy(rig *brokertest.Rig) int {
	return rig.Records.Arrived("tools/call") + rig.Archive.Arrived("tools/call") + rig.Archive.Arrived("initialize") + rig.Provider.Exchanges()
}

// mesh makes a call five times at once, and then five times in a row.
func mesh(t *testing.T, rig *brokertest.Rig, c brokertest.Call) []brokertest.Answer {
	t.Helper()
	answers := make([]brokertest.Answer, 10)
	var all sync.WaitGroup
	for n := range 5 {
		all.Go(func() {
			var err error
			if answers[n], err = rig.Do(t.Context(), c); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for n := 5; n < 10; n++ {
		answers[n] = rig.Call(t, c)
	}
	return answers
}

// lookFor asks the server how often a job was done, by the tool that a names.
func lookFor(t *testing.T, rig *brokertest.Rig, a brokertest.Answer, job string) (ran int) {
	t.Helper()
	if a.LookWith == nil {
		t.Fatalf("nothing says how to look: %s", a.Body)
	}
	got := rig.Call(t, brokertest.Call{Server: a.Server, Tool: a.LookWith.Tool, Arguments: map[string]string{"job": job}})
	if _, err := fmt.Sscanf(got.Text, `{"job":"`+job+`","ran":%d}`, &ran); err != nil {
		t.Fatalf("%v: %s", err, got.Body)
	}
	return ran
}

func eras(rig *brokertest.Rig) map[string]*devmcp.Server {
	return map[string]*devmcp.Server{"records": rig.Records, "archive": rig.Archive}
}

const inDoubt = "200 unknown, ran unknown by none, never_without_looking, %s; look with job"

// TestWallClockAborts, the first shape: the deadline passes, and the job goes on.
// A look that finds nothing is no proof while it may still come.
func TestWallClockAborts(t *testing.T) {
	rig := brokertest.New(t, &brokertest.Options{Config: recoverable})
	for name, server := range eras(rig) {
		t.Run(name, func(t *testing.T) {
			finish := make(chan struct{})
			server.Break(firstCall(func(w http.ResponseWriter, r *http.Request, next http.Handler) { <-finish; next.ServeHTTP(w, r) }))
			c := brokertest.Call{Server: name, Tool: "drop", Arguments: map[string]string{"job": name, "then": "goes_on"}, Key: name, Timeout: "500ms"}
			a := begin(t, rig, c)
			if want := fmt.Sprintf(inDoubt, "wall_clock"); told(a) != want {
				t.Fatalf("%s, want %s", told(a), want)
			}
			stays(t, rig, c, a)
			if n := lookFor(t, rig, a, name); n != 0 {
				t.Errorf("the job was done %d times before it could be", n)
			}
			close(finish)
			if err := server.Await(t.Context(), func() bool { return server.Done(name) > 0 }); err != nil {
				t.Fatal(err)
			}
			if n := lookFor(t, rig, a, name); n != 1 {
				t.Errorf("a second look says that the job was done %d times", n)
			}
			stays(t, rig, c, a)
			if n := server.Calls("drop"); n != 1 {
				t.Errorf("the tool ran %d times", n)
			}
		})
	}
}

// firstCall gives the first tools/call to f.
func firstCall(f func(w http.ResponseWriter, r *http.Request, next http.Handler)) func(http.Handler) http.Handler {
	first := make(chan bool, 1)
	first <- true
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if devmcp.MethodOf(r) == "tools/call" {
				select {
				case <-first:
					f(w, r, next)
					return
				default:
				}
			}
			next.ServeHTTP(w, r)
		})
	}
}

// TestItNeverRan is the first shape where the job was never begun: who knows that
// makes it run by a new key that names the old, once however often it is sent.
func TestItNeverRan(t *testing.T) {
	rig := brokertest.New(t, &brokertest.Options{Config: recoverable})
	for name, server := range eras(rig) {
		t.Run(name, func(t *testing.T) {
			server.Break(firstCall(hang))
			c := brokertest.Call{Server: name, Tool: "drop", Arguments: map[string]string{"job": name, "then": "invalid"}, Key: name, Timeout: "500ms"}
			a := begin(t, rig, c)
			if want := fmt.Sprintf(inDoubt, "wall_clock"); told(a) != want {
				t.Fatalf("%s, want %s", told(a), want)
			}
			if n := lookFor(t, rig, a, name); n != 0 {
				t.Fatalf("the job was done %d times", n)
			}
			again := c
			again.Key, again.Supersedes, again.Timeout = name+"-again", a.ID, ""
			for n, b := range mesh(t, rig, again) {
				if b.Supersedes != a.ID || b.State != fault.RPCError {
					t.Errorf("the second run, repeat %d: %s", n, b.Body)
				}
			}
			if n := lookFor(t, rig, a, name); n != 1 || server.Calls("drop") != 1 {
				t.Errorf("done %d times in %d runs", n, server.Calls("drop"))
			}
			if old := rig.Call(t, c); old.ID != a.ID || old.Superseded == "" || told(old) != told(a) {
				t.Errorf("the old key: %s", old.Body)
			}
		})
	}
}

// TestServerSaysNo, the second shape: an answer came, and what it is decides. Only a
// refusal by the HTTP status of the call may be sent again.
func TestServerSaysNo(t *testing.T) {
	b := &bench{Rig: brokertest.New(t, &brokertest.Options{Config: recoverable}), t: t}
	b.Call(t, brokertest.Call{}) // finds out the era
	drop := func(job, then string) brokertest.Call {
		return brokertest.Call{Tool: "drop", Key: job, Arguments: map[string]string{"job": job, "then": then}}
	}
	for _, tc := range []struct {
		name, want, says string
		call             brokertest.Call
		ran              int
	}{
		{"the tool failed", "200 tool_error, ran yes by peer, read_the_error, tool_failed; look with nothing", `"isError":true`, brokertest.Call{Tool: "fail", Key: "fail"}, 0},
		{"a JSON-RPC error", "200 rpc_error, ran unknown by peer, never_without_looking, server_error; look with job", `"code":-32602`, drop("error", "invalid"), 1},
		{"the same error under 400", fmt.Sprintf(inDoubt, "status_unclear"), "", drop("400", "400"), 1},
		{"something between", fmt.Sprintf(inDoubt, "intermediary"), "", drop("504", "504"), 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b.t = t
			a := b.Call(t, tc.call)
			if told(a) != tc.want || !strings.Contains(string(a.Result)+string(a.Error), tc.says) || tc.says == "" && (a.Result != nil || a.Error != nil) {
				t.Errorf("%s, want %s with %q\n%s", told(a), tc.want, tc.says, a.Body)
			}
			stays(t, b.Rig, tc.call, a)
			if a.LookWith != nil && lookFor(t, b.Rig, a, tc.call.Key) != tc.ran {
				t.Errorf("the job was done %d times, want %d", b.Records.Done(tc.call.Key), tc.ran)
			}
		})
	}
	for code, cause := range map[int]string{401: "unauthorized", 403: "status_refused", 405: "method_refused"} {
		t.Run(fmt.Sprint("refused with ", code), func(t *testing.T) {
			b.t = t
			b.at("tools/call", status(code))
			c := drop(fmt.Sprint("refused-", code), "invalid")
			a := b.Call(t, c)
			if want := fmt.Sprintf("200 refused, ran no by peer, safe, %s; look with nothing", cause); told(a) != want {
				t.Errorf("%s, want %s", told(a), want)
			}
			b.Records.Break(nil)
			for n, again := range mesh(t, b.Rig, c) {
				if again.ID != a.ID || again.Attempt != 2 || again.State != fault.RPCError {
					t.Errorf("mended, repeat %d: %s", n, again.Body)
				}
			}
			if n := b.Records.Done(c.Key); n != 1 {
				t.Errorf("the job was done %d times", n)
			}
		})
	}
}

// TestGoesOnBehind, the third shape: nothing has failed, the call goes on behind the
// gateway, which has an id, half a stream, or nothing but its own key.
func TestGoesOnBehind(t *testing.T) {
	for name, leave := range map[string]func(*testing.T, *brokertest.Rig, brokertest.Call){
		"it asked for that": func(t *testing.T, rig *brokertest.Rig, c brokertest.Call) {
			c.Prefer = "respond-async"
			if a := rig.Call(t, c); a.Status != 202 || a.ID == "" || a.Header.Get("Location") != "/v1/operations/"+a.ID {
				t.Errorf("%d %v %s", a.Status, a.Header, a.Body)
			}
		},
		"its patience ended": func(t *testing.T, rig *brokertest.Rig, c brokertest.Call) {
			c.Wait = "10ms"
			if a := rig.Call(t, c); a.Status != 202 || a.Retry != fault.RetryWait {
				t.Errorf("%d %s", a.Status, a.Body)
			}
		},
		"its stream broke": func(t *testing.T, rig *brokertest.Rig, c brokertest.Call) { follow(t, rig, c)() },
		"it died": func(t *testing.T, rig *brokertest.Rig, c brokertest.Call) {
			ctx, die := context.WithCancel(t.Context())
			gone := make(chan error)
			go func() { _, err := rig.Do(ctx, c); gone <- err }()
			isOut(t, rig)
			die()
			if err := <-gone; err == nil {
				t.Error("it got an answer")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			rig := brokertest.New(t, &brokertest.Options{Config: recoverable})
			release := rig.Records.Hold("tools/call")
			defer release()
			c := brokertest.Call{Key: "k"}
			leave(t, rig, c)
			isOut(t, rig)
			open := rig.Get(t, "/v1/operations?state=open", brokertest.Call{})
			if open.Status != 200 || !bytes.Contains(open.Body, []byte(`"request_key":"k"`)) {
				t.Errorf("open: %s", open.Body)
			}
			going := rig.Get(t, "/v1/operations?request_key=k", c)
			if told(going) != "202 sending, ran unknown by none, wait, no cause; look with nothing" {
				t.Errorf("while it goes on: %s", told(going))
			}
			if byID := rig.Get(t, "/v1/operations/"+going.ID, c); told(byID) != told(going) {
				t.Errorf("by id: %s", told(byID))
			}
			c.Wait = "10ms"
			if again := rig.Call(t, c); again.ID != going.ID || told(again) != told(going) {
				t.Errorf("the key again: %s", again.Body)
			}
			release()
			c.Wait = ""
			a := rig.Call(t, c) // waits for the job that exists
			if a.ID != going.ID || told(a) != "200 succeeded, ran yes by peer, never, no cause; look with nothing" || a.Result == nil {
				t.Errorf("%s", a.Body)
			}
			stays(t, rig, c, a)
			if n := rig.Records.Calls("whoami"); n != 1 {
				t.Errorf("the tool ran %d times", n)
			}
		})
	}
}

// isOut waits until a call has reached the server.
func isOut(t *testing.T, rig *brokertest.Rig) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := rig.Records.Await(ctx, func() bool { return rig.Records.Arrived("tools/call") > 0 }); err != nil {
		t.Fatal("no call came")
	}
}

// follow makes c by a stream, whose first event is there when it returns.
func follow(t *testing.T, rig *brokertest.Rig, c brokertest.Call) (hangUp func()) {
	t.Helper()
	body := fmt.Sprintf(`{"server":"records","tool":%q,"request_key":%q}`, cmp.Or(c.Tool, "whoami"), c.Key)
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, "POST", rig.URL+"/v1/operations", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"Authorization": "Bearer " + rig.Bearer, "Broker-Actor": "user:7",
		"Content-Type": "application/json", "Accept": "text/event-stream"} {
		req.Header.Set(name, value)
	}
	res, err := testhttp.Client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	const first = "event: operation\ndata: {\"id\":\""
	got := make([]byte, len(first))
	if _, err := io.ReadFull(res.Body, got); err != nil || string(got) != first {
		t.Errorf("%q, %v", got, err)
	}
	return func() { cancel(); res.Body.Close() }
}

// TestIdleWindowAborts, the fourth shape: nothing came for too long, well before the
// deadline. The job was done: it is the first shape, by another cause.
func TestIdleWindowAborts(t *testing.T) {
	rig := brokertest.New(t, &brokertest.Options{Config: func(yaml string) string {
		return recoverable(strings.ReplaceAll(yaml, "drop: {enabled: true,", "drop: {enabled: true, idle_window: 300ms,"))
	}})
	for name, server := range eras(rig) {
		t.Run(name, func(t *testing.T) {
			c := brokertest.Call{Server: name, Tool: "drop", Arguments: map[string]string{"job": name, "then": "late"}, Key: name}
			a := begin(t, rig, c)
			if want := fmt.Sprintf(inDoubt, "idle"); told(a) != want || !a.Updated.Before(a.Deadline) {
				t.Fatalf("%s at %v, want %s before %v", told(a), a.Updated, want, a.Deadline)
			}
			stays(t, rig, c, a)
			if n := lookFor(t, rig, a, name); n != 1 || server.Calls("drop") != 1 {
				t.Errorf("the job was done %d times in %d runs", n, server.Calls("drop"))
			}
		})
	}
}

// TestAmbiguousServer: the server works, and what it says of that is of no use. In
// both eras each of its endings is what the page of outcomes says, none is "safe",
// and whatever a mesh repeats, the job is done once.
func TestAmbiguousServer(t *testing.T) {
	want := map[string]string{
		"":         fmt.Sprintf(inDoubt, "connection_lost"),
		"202":      fmt.Sprintf(inDoubt, "reply_malformed"),
		"303":      fmt.Sprintf(inDoubt, "redirected"),
		"400":      fmt.Sprintf(inDoubt, "status_unclear"),
		"504":      fmt.Sprintf(inDoubt, "intermediary"),
		"cut":      fmt.Sprintf(inDoubt, "connection_lost"),
		"ends":     fmt.Sprintf(inDoubt, "stream_ended"),
		"other_id": fmt.Sprintf(inDoubt, "reply_mismatched"),
		"late":     fmt.Sprintf(inDoubt, "wall_clock"),
		"goes_on":  fmt.Sprintf(inDoubt, "wall_clock"),
		"invalid":  "200 rpc_error, ran unknown by peer, never_without_looking, server_error; look with job",
	}
	rig := brokertest.New(t, &brokertest.Options{Config: recoverable})
	for name, server := range eras(rig) {
		for _, then := range append(devmcp.Endings(), "") {
			t.Run(name+"/"+cmp.Or(then, "drop"), func(t *testing.T) {
				job := name + "-" + then
				arguments := map[string]string{"job": job}
				c := brokertest.Call{Server: name, Tool: "drop", Arguments: arguments, Key: job}
				if then != "" {
					arguments["then"] = then
				}
				if strings.Contains(want[then], "wall_clock") {
					c.Timeout = "500ms"
				}
				a := begin(t, rig, c)
				if told(a) != want[then] {
					t.Fatalf("%s, want %s", told(a), want[then])
				}
				stays(t, rig, c, a)
				if err := server.Await(t.Context(), func() bool { return server.Done(job) > 0 }); err != nil {
					t.Fatal(err)
				}
				if n := lookFor(t, rig, a, job); n != 1 {
					t.Errorf("the job was done %d times", n)
				}
			})
		}
	}
}
