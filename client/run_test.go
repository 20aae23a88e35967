package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"onbehalf.internal/broker/client"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/internal/testhttp"
)

// TestNext: what is done after each advice, for every state there is, and after each kind
// of problem.
func TestNext(t *testing.T) {
	advised := map[fault.State]string{
		fault.Succeeded: "tell", fault.ToolError: "tell", fault.RPCError: "tell", fault.InDoubt: "tell",
		fault.ResolvedRan: "tell", fault.Expired: "tell", fault.AwaitingApproval: "tell",
		fault.Reserved: "follow", fault.Sending: "follow",
		fault.PeerRefused: "send", fault.NotSent: "send", fault.ResolvedNotRan: "send",
	}
	for _, a := range fault.Advices() {
		op := &client.Operation{State: a.State, Ran: a.Ran, Retry: a.Retry, Cause: fault.ConnectFailed}
		if got := client.Next(op, "", false, false); got != advised[a.State] {
			t.Errorf("%s with %s: %s, want %q", a.State, a.Retry, got, advised[a.State])
		}
	}
	for cause, want := range map[fault.Reason]string{
		fault.ProviderUnreachable: "send", fault.BudgetSpent: "send", fault.CheckStale: "send", fault.ProcessDied: "send", fault.VaultSealed: "send",
		fault.CallerCancelled: "tell", fault.CallerGone: "tell", fault.ApprovalDenied: "tell", fault.ApprovalExpired: "tell", fault.SubjectRejected: "tell", fault.GrantRevoked: "tell",
	} {
		op := &client.Operation{State: fault.NotSent, Retry: fault.RetrySafe, Cause: cause}
		if got := client.Next(op, "", false, false); got != want {
			t.Errorf("safe after %s: %s, want %s", cause, got, want)
		}
	}
	for _, tc := range []struct {
		reason             fault.Reason
		unclear, neverSent bool
		want               string
	}{
		{fault.ConnectionLost, true, false, "ask"}, {fault.Intermediary, true, false, "ask"}, {fault.StoreFailed, true, false, "ask"},
		{fault.ReplyTooLarge, true, false, "tell"}, // it would be again
		{fault.ConnectFailed, false, false, "again"}, {fault.Draining, false, false, "again"}, {fault.RateLimited, false, false, "again"},
		{fault.OperationNotFound, false, true, "send"}, {fault.OperationNotFound, false, false, "tell"},
		{fault.HostRefused, false, false, "tell"}, {fault.TLSFailed, false, false, "tell"},
		{fault.NoGrant, false, false, "tell"}, {fault.NoRecord, false, false, "tell"}, {fault.RequestKeyConflict, false, false, "tell"}, {fault.InternalError, false, false, "tell"},
	} {
		if got := client.Next(nil, tc.reason, tc.unclear, tc.neverSent); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.reason, got, tc.want)
		}
	}
}

const opID = "abcdefghijklmnopqrstuvwxyz"

// An answer is what the broker, or something before it, does with one request.
type answer func(w http.ResponseWriter, key string)

func stands(status int, members string) answer {
	return func(w http.ResponseWriter, key string) {
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"id":%q,"request_key":%q,"server":"records","tool":"search","new_member":[1],"legs":[],%s}`, opID, key, members)
	}
}

func problem(reason fault.Reason, more string) answer {
	return func(w http.ResponseWriter, _ string) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.Header().Set("Retry-After", "2")
		w.WriteHeader(fault.Status(reason))
		fmt.Fprintf(w, `{"title":"t","status":%d,"kind":%q,"reason":%q%s}`, fault.Status(reason), reason.Kind(), reason, more)
	}
}

// odd reads as a problem of the broker's, whose status that reason never has.
func odd(w http.ResponseWriter, _ string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(502)
	fmt.Fprint(w, `{"title":"t","status":502,"kind":"denied","reason":"no_grant"}`)
}

func foreign(status int) answer {
	return func(w http.ResponseWriter, _ string) {
		w.Header().Set("Location", "http://elsewhere.example/")
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(status)
		fmt.Fprint(w, "<h1>canary</h1>")
	}
}

var (
	done      = stands(200, `"state":"succeeded","ran":"yes","evidence":"peer","retry":"never","result":{"content":[]}`)
	failed    = stands(200, `"state":"tool_error","ran":"yes","evidence":"peer","retry":"read_the_error","cause":"tool_failed","result":{"isError":true}`)
	notSent   = stands(200, `"state":"not_sent","ran":"no","evidence":"local","retry":"safe","cause":"connect_failed"`)
	rejected  = stands(200, `"state":"not_sent","ran":"no","evidence":"local","retry":"safe","cause":"subject_rejected"`)
	unknown   = stands(200, `"state":"unknown","ran":"unknown","evidence":"none","retry":"never_without_looking","cause":"wall_clock"`)
	sending   = stands(202, `"state":"sending","ran":"unknown","evidence":"none","retry":"wait"`)
	asks      = stands(202, `"state":"awaiting_approval","ran":"no","evidence":"local","retry":"wait","approval":{"digest":"sha256:1","expires":"2027-01-31T12:00:00Z"}`)
	withheld  = stands(200, `"state":"succeeded","ran":"yes","evidence":"peer","retry":"never","withheld":"grant_revoked"`)
	newState  = stands(200, `"state":"paused","ran":"no","evidence":"local","retry":"safe"`)
	badPair   = stands(200, `"state":"succeeded","ran":"yes","evidence":"peer","retry":"safe"`)
	openSafe  = stands(202, `"state":"sending","ran":"unknown","evidence":"none","retry":"safe"`)
	opened200 = stands(200, `"state":"sending","ran":"unknown","evidence":"none","retry":"wait"`)
	twice     = stands(200, `"state":"not_sent","state":"succeeded","ran":"no","evidence":"local","retry":"safe"`)
	cut       = func(http.ResponseWriter, string) { panic(http.ErrAbortHandler) }
	half      = func(w http.ResponseWriter, _ string) {
		w.Header().Set("Content-Length", "100")
		w.Write([]byte(`{"id":`))
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	silent = func(w http.ResponseWriter, _ string) { // until the client hangs up
		conn, _, _ := w.(http.Hijacker).Hijack()
		io.Copy(io.Discard, conn)
		conn.Close()
	}
	neverSent = problem(fault.OperationNotFound, `,"never_sent":true`)
	nobody    = problem(fault.OperationNotFound, `,"never_sent":false`)
)

func otherKey(w http.ResponseWriter, _ string) { done(w, "another") }

// TestRun: in front of an honest small broker that is cut off, restarted and stood in for.
// What is wanted is each request, P for the call and K and I for a look by key and id.
func TestRun(t *testing.T) {
	for _, tc := range []struct {
		name    string
		answers []answer
		want    string // requests, then how it ended
	}{
		{"well", []answer{done}, "P ok"},
		{"the tool failed", []answer{failed}, "P tool_failed tool_error"},
		{"in doubt", []answer{unknown, done}, "P wall_clock unknown"},
		{"withheld", []answer{withheld}, "P grant_revoked succeeded"},
		{"an approval is asked for", []answer{asks, done}, "P  awaiting_approval"},
		{"safe, and passes", []answer{notSent, notSent, done}, "PPP ok"},
		{"safe, and does not pass", []answer{rejected, done}, "P subject_rejected not_sent"},
		{"goes on", []answer{sending, sending, done}, "PII ok"},
		{"goes on and is safe", []answer{sending, notSent, done}, "PIP ok"},
		{"followed through a restart", []answer{sending, cut, foreign(502), sending, unknown}, "PIIII wall_clock unknown"},
		{"denied", []answer{problem(fault.NoGrant, ""), done}, "P no_grant"},
		{"no record", []answer{problem(fault.NoRecord, ""), done}, "P no_record"},
		{"draining", []answer{problem(fault.Draining, ""), done}, "PP ok"},
		{"rate limited", []answer{problem(fault.RateLimited, ""), done}, "PP ok"},
		{"dropped after accepting", []answer{cut, done}, "PK ok"},
		{"dropped before accepting", []answer{cut, neverSent, done}, "PKP ok"},
		{"dropped twice", []answer{cut, neverSent, cut, cut, sending, done}, "PKPKKI ok"},
		{"half an answer", []answer{half, done}, "PK ok"},
		{"nobody knows", []answer{cut, nobody, done}, "PK operation_not_found open"},
		{"asked by key and forbidden", []answer{cut, problem(fault.GrantRevoked, "")}, "PK grant_revoked open"},
		{"a gateway's 502", []answer{foreign(502), done}, "PK ok"},
		{"a gateway's 503", []answer{foreign(503), neverSent, done}, "PKP ok"},
		{"a gateway's 429", []answer{foreign(429), neverSent, done}, "PKP ok"},
		{"a gateway's 403", []answer{foreign(403), neverSent, problem(fault.NoGrant, "")}, "PKP no_grant"},
		{"a redirect", []answer{foreign(307), neverSent, done}, "PKP ok"},
		{"may be on disk", []answer{problem(fault.StoreFailed, ""), done}, "PK ok"},
		{"a problem of somebody else", []answer{problem("no_such_word", ""), neverSent, done}, "PKP ok"},
		{"a problem with another status", []answer{odd, neverSent, done}, "PKP ok"},
		{"a state of tomorrow", []answer{newState, unknown}, "PK wall_clock unknown"},
		{"words that do not go together", []answer{badPair, done}, "PK ok"},
		{"open, and safe", []answer{openSafe, done}, "PK ok"},
		{"open with 200", []answer{opened200, done}, "PK ok"},
		{"a member twice", []answer{twice, done}, "PK ok"},
		{"another key's answer", []answer{otherKey, done}, "PK ok"},
		{"nothing comes", []answer{silent, done}, "PK ok"},
		{"an intermediary for good", slices.Repeat([]answer{foreign(502)}, 8), "PKKKKKKK intermediary open"},
		{"safe for good", slices.Repeat([]answer{notSent}, 8), "PPPPPPPP connect_failed not_sent"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := serve(t, tc.answers...)
				op, err := b.client(t).Run(t.Context(), client.Call{Actor: "user:7", Server: "records", Tool: "search", Arguments: map[string]string{"q": "a<b"}})
				if got := b.asked() + " " + ending(op, err); got != tc.want {
					t.Errorf("got %q, want %q (%v)", got, tc.want, err)
				}
				if err != nil && strings.Contains(err.Error(), "canary") {
					t.Errorf("foreign text: %v", err)
				}
				b.oneCall(t)
			})
		})
	}
}

// ending is how a Run ended, in words.
func ending(op *client.Operation, err error) string {
	if err == nil {
		return "ok"
	}
	e, _ := errors.AsType[*client.Error](err)
	words := string(e.Reason)
	if e.Operation != op {
		words += " and another operation"
	}
	if op != nil {
		words += " " + string(op.State)
	}
	if e.Open {
		words += " open"
	}
	return words
}

// TestRunEnds: the context ends the work wherever it is, and the error says whether the
// key has to be asked for.
func TestRunEnds(t *testing.T) {
	for _, tc := range []struct {
		name    string
		answers []answer
		want    string
	}{
		{"while the call is out", []answer{silent}, "P wall_clock open"},
		{"while it goes on", []answer{sending, sending, sending, sending, sending, sending, sending}, "PIIIIII  sending"},
		{"between tries", []answer{problem(fault.Draining, ""), problem(fault.Draining, "")}, "PP draining"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := serve(t, tc.answers...)
				ctx, cancel := context.WithTimeout(t.Context(), 3500*time.Millisecond)
				defer cancel()
				began := time.Now()
				op, err := b.client(t).Run(ctx, client.Call{Actor: "user:7", Server: "records", Tool: "search"})
				if got := b.asked() + " " + ending(op, err); got != tc.want {
					t.Errorf("got %q, want %q", got, tc.want)
				}
				if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 3500*time.Millisecond {
					t.Errorf("%v after %v", err, time.Since(began))
				}
			})
		})
	}
}

// TestRunPauses: as long as the broker asks for, and longer each time where it does not.
func TestRunPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := serve(t, problem(fault.Draining, ""), notSent, notSent, done)
		began := time.Now()
		if _, err := b.client(t).Run(t.Context(), client.Call{Server: "records", Tool: "search"}); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != 2*time.Second+200*time.Millisecond+400*time.Millisecond {
			t.Errorf("it took %v", took)
		}
	})
}

// TestWhoFails: an error of Bearer or Assertion ends the call before it leaves.
func TestWhoFails(t *testing.T) {
	broken := errors.New("broken")
	for _, conf := range []client.Config{
		{Address: "http://127.0.0.1:1", Bearer: func(context.Context) (string, error) { return "", broken }},
		{Address: "http://127.0.0.1:1", Bearer: bearer, Assertion: func(context.Context, string) (string, error) { return "", broken }},
	} {
		c, err := client.New(conf)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Run(t.Context(), client.Call{Actor: "user:7", Server: "records", Tool: "search"})
		e, _ := errors.AsType[*client.Error](err)
		if !errors.Is(err, broken) || e.Kind() != fault.Unauthenticated || e.Open {
			t.Errorf("%v", err)
		}
	}
}

func TestNew(t *testing.T) {
	for address, good := range map[string]bool{
		"http://127.0.0.1:8471": true, "http://127.0.0.1:8471/": true, "https://broker.example": true, "unix:/run/broker/api.sock": true,
		"": false, "127.0.0.1:8471": false, "ftp://a": false, "http://a/v1": false, "http://%zz": false,
	} {
		if _, err := client.New(client.Config{Address: address, Bearer: bearer}); (err == nil) != good {
			t.Errorf("%q: %v", address, err)
		}
	}
	if _, err := client.New(client.Config{Address: "http://127.0.0.1:1"}); err == nil {
		t.Error("a client without a bearer")
	}
}

func bearer(context.Context) (string, error) { return "b-1", nil }

// A broker gives its answers one after the other.
type broker struct {
	mu       sync.Mutex // guards what follows
	answers  []answer
	requests []seen
	at       *testhttp.Pipes
}

type seen struct{ letter, key, firstSent, body string }

// serve serves answers on pipes.
func serve(t *testing.T, answers ...answer) *broker {
	b := &broker{answers: answers}
	b.at = testhttp.OnPipes(t, b)
	return b
}

func (b *broker) client(t *testing.T) *client.Client { return b.clientOf(t, client.Config{}) }

func (b *broker) clientOf(t *testing.T, conf client.Config) *client.Client {
	conf.Address, conf.Bearer, conf.Dial = "http://broker.example", bearer, b.at.Dial
	c, err := client.New(conf)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (b *broker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var call struct {
		Key       string `json:"request_key"`
		FirstSent string `json:"first_sent"`
	}
	var body json.RawMessage
	s := seen{letter: "I"}
	switch {
	case r.Header.Get("Authorization") != "Bearer b-1":
		s.letter = "?"
	case r.Method == "POST":
		json.NewDecoder(r.Body).Decode(&body)
		json.Unmarshal(body, &call)
		s = seen{"P", call.Key, call.FirstSent, string(body)}
	case r.URL.Query().Has("request_key"):
		s = seen{"K", r.URL.Query().Get("request_key"), r.URL.Query().Get("first_sent"), ""}
	case r.URL.Path != "/v1/operations/"+opID:
		s.letter = "?"
	}
	b.mu.Lock()
	b.requests = append(b.requests, s)
	next := answer(cut) // one request too many
	if n := len(b.requests); n <= len(b.answers) {
		next = b.answers[n-1]
	}
	key := b.requests[0].key
	b.mu.Unlock()
	next(w, key)
}

func (b *broker) asked() (letters string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.requests {
		letters += s.letter
	}
	return letters
}

// oneCall holds that all tries were of one key, a UUIDv7, first sent at one time, with the
// same bytes.
func (b *broker) oneCall(t *testing.T) {
	t.Helper()
	first := b.requests[0]
	if u, err := uuid.Parse(first.key); err != nil || u.Version() != 7 {
		t.Errorf("the key is %q", first.key)
	}
	if at, err := time.Parse(time.RFC3339Nano, first.firstSent); err != nil || time.Since(at) > time.Hour {
		t.Errorf("first sent %q", first.firstSent)
	}
	for _, s := range b.requests[1:] {
		want := first
		want.letter = s.letter
		switch s.letter {
		case "K":
			want.body = ""
		case "I":
			want = seen{letter: "I"}
		}
		if diff := cmp.Diff(want, s, cmp.AllowUnexported(seen{})); diff != "" {
			t.Error(diff)
		}
	}
}
