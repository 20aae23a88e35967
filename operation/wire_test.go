package operation_test

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"onbehalf.internal/broker/brokertest"
	"onbehalf.internal/broker/internal/devidp"
	"onbehalf.internal/broker/internal/devmcp"
	"onbehalf.internal/broker/internal/devvault"
)

// TestLegsOnTheWire: with the era known, an operation is these requests and no
// others.
func TestLegsOnTheWire(t *testing.T) {
	rig := brokertest.New(t, nil)
	for _, tc := range []struct {
		server string
		mcp    []string
	}{
		{"records", []string{"tools/call"}},
		{"archive", []string{"initialize", "notifications/initialized", "tools/call", "DELETE"}},
	} {
		rig.Call(t, brokertest.Call{Server: tc.server}) // finds out the era
		mcp := rig.Records
		if tc.server == "archive" {
			mcp = rig.Archive
			parted(t, mcp, 1)
		}
		vault, provider, requests := len(rig.Vault.Requests()), len(rig.Provider.Requests()), len(mcp.Requests())
		a := rig.Call(t, brokertest.Call{Server: tc.server})
		if a.State != "succeeded" {
			t.Fatalf("%s: %s", tc.server, a.Body)
		}
		if n := len(rig.Provider.Requests()) - provider; n != 1 {
			t.Errorf("%s: %d exchanges", tc.server, n)
		}
		if tc.server == "archive" {
			parted(t, mcp, 2)
		}
		var seen []string
		for _, r := range mcp.Requests()[requests:] {
			seen = append(seen, cmp.Or(r.Method, r.HTTPMethod))
		}
		if !slices.Equal(seen, tc.mcp) {
			t.Errorf("%s: the server saw %q, want %q", tc.server, seen, tc.mcp)
		}
		want := []string{"GET kv/data/broker/subjects/7", "POST cubbyhole/op"}
		for range tc.mcp {
			want = append(want, "GET cubbyhole/op")
		}
		want = append(want, "DELETE cubbyhole/op")
		if got := vaultCalls(rig.Vault.Requests()[vault:]); !slices.Equal(got, want) {
			t.Errorf("%s: Vault saw %q, want %q", tc.server, got, want)
		}
	}
}

// TestCutOffByHandshake: a server that works on is told, and its session ends,
// before the hold does and not on the answer's path; the record has it all.
func TestCutOffByHandshake(t *testing.T) {
	rig := brokertest.New(t, nil)
	rig.Call(t, brokertest.Call{Server: "archive"}) // finds out the era
	parted(t, rig.Archive, 1)
	release := rig.Archive.Hold("tools/call")
	defer release()
	vault, requests := len(rig.Vault.Requests()), len(rig.Archive.Requests())
	a := rig.Call(t, brokertest.Call{Server: "archive", Timeout: "400ms"})
	if a.State != "unknown" || a.Cause != "wall_clock" || a.Hold != "dropped" {
		t.Fatalf("%s", a.Body)
	}
	parted(t, rig.Archive, 2)
	var seen []string
	for _, r := range rig.Archive.Requests()[requests:] {
		seen = append(seen, cmp.Or(r.Method, r.HTTPMethod))
	}
	slices.Sort(seen[3:]) // two connections: either may come first
	want := []string{"initialize", "notifications/initialized", "tools/call", "DELETE", "notifications/cancelled"}
	if !slices.Equal(seen, want) {
		t.Errorf("the server saw %q, want %q", seen, want)
	}
	calls := vaultCalls(rig.Vault.Requests()[vault:])
	if reads := len(calls) - 3; reads != 5 || calls[len(calls)-1] != "DELETE cubbyhole/op" {
		t.Errorf("Vault saw %q, want a read for each leg and the drop after the last", calls)
	}
	if err := rig.Stop(); err != nil { // when all is recorded
		t.Fatal(err)
	}
	if err := rig.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	again := rig.Get(t, "/v1/operations/"+a.ID, brokertest.Call{})
	var legs []string
	for _, l := range again.Legs {
		legs = append(legs, l.Name)
	}
	wantLegs := []string{"subject", "exchange", "hold", "initialize", "notifications/initialized", "tools/call", "notifications/cancelled", "delete", "drop"}
	if !slices.Equal(legs, wantLegs) {
		t.Errorf("legs %q, want %q", legs, wantLegs)
	}
}

// parted waits until a server with sessions was told n times that one is over,
// which an answer does not wait for.
func parted(t *testing.T, mcp *devmcp.Server, n int) {
	t.Helper()
	if err := mcp.Await(t.Context(), func() bool { return partings(mcp) == n }); err != nil {
		t.Fatalf("the session's end: %v", err)
	}
}

func partings(mcp *devmcp.Server) (n int) {
	for _, r := range mcp.Requests() {
		if r.HTTPMethod == "DELETE" {
			n++
		}
	}
	return n
}

// vaultCalls are the calls without the random end of a hold's path.
func vaultCalls(requests []devvault.Request) (calls []string) {
	for _, r := range requests {
		path := r.Path
		if strings.HasPrefix(path, holds) {
			path = strings.TrimSuffix(holds, "/")
		}
		calls = append(calls, r.Method+" "+path)
	}
	return calls
}

// TestSameKeyAtOnce: of a hundred requests with one key exactly one sends; all get
// its answer.
func TestSameKeyAtOnce(t *testing.T) {
	rig := brokertest.New(t, nil)
	call := brokertest.Call{Tool: "drop", Arguments: map[string]string{"job": "one"}, Key: "one"}
	answers := make([]brokertest.Answer, 100)
	var all sync.WaitGroup
	for i := range answers {
		all.Go(func() {
			var err error
			if answers[i], err = rig.Do(t.Context(), call); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	begun := 0
	for _, a := range answers {
		if a.Status != 200 || a.ID != answers[0].ID || a.State != "unknown" {
			t.Errorf("%d %s", a.Status, a.Body)
		}
		if a.Header.Get("Broker-Replayed") == "" {
			begun++
		}
	}
	if n := rig.Records.Calls("drop"); n != 1 || begun != 1 || rig.Records.Arrived("tools/call") != 1 {
		t.Errorf("the tool ran %d times in %d calls, %d requests say that they began it", n, rig.Records.Arrived("tools/call"), begun)
	}
	if n := rig.Provider.Exchanges(); n != 1 {
		t.Errorf("%d exchanges", n)
	}
}

// TestSecondRun: what may have run is run again by a new key that names it, once;
// the old key still sends nothing, and each operation names the other.
func TestSecondRun(t *testing.T) {
	rig := brokertest.New(t, nil)
	drop := brokertest.Call{Tool: "drop", Arguments: map[string]string{"job": "j"}, Key: "first"}
	first := rig.Call(t, drop)
	if first.State != "unknown" {
		t.Fatalf("%s", first.Body)
	}
	again := drop
	again.Key, again.Supersedes = "second", first.ID
	second := rig.Call(t, again)
	if second.ID == first.ID || second.Supersedes != first.ID || rig.Records.Calls("drop") != 2 {
		t.Errorf("the second run: %s; %d calls", second.Body, rig.Records.Calls("drop"))
	}
	if repeat := rig.Call(t, again); repeat.ID != second.ID || repeat.Header.Get("Broker-Replayed") == "" {
		t.Errorf("the second run's key again: %s", repeat.Body)
	}
	if old := rig.Call(t, drop); old.ID != first.ID || old.Superseded != second.ID {
		t.Errorf("the old key: %s", old.Body)
	}
	again.Key = "third"
	if third := rig.Call(t, again); third.Reason != "request_key_conflict" {
		t.Errorf("a third run: %s", third.Body)
	}
	if n := rig.Records.Calls("drop"); n != 2 {
		t.Errorf("%d calls", n)
	}
}

// TestExpired: a week later the result is gone, and the key still sends nothing;
// a month later the key is refused.
func TestExpired(t *testing.T) {
	rig := brokertest.New(t, nil)
	c := brokertest.Call{Key: uuid.Must(uuid.NewV7()).String()}
	first := rig.Call(t, c)
	if !first.ResultExpires.Equal(first.Created.Add(7*24*time.Hour)) || !first.KeyExpires.Equal(first.Created.Add(30*24*time.Hour)) {
		t.Errorf("%s", first.Body)
	}
	age := func(by time.Duration) { // as if all of it had happened so long ago
		t.Helper()
		if err := rig.Stop(); err != nil {
			t.Fatal(err)
		}
		db, err := sql.Open("sqlite", rig.DatabasePath())
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		for _, statement := range []string{`UPDATE operations SET created = created - ?`, `UPDATE results SET created = created - ?`, `UPDATE meta SET since = since - ?`} {
			if _, err := db.Exec(statement, by.Nanoseconds()); err != nil {
				t.Fatal(err)
			}
		}
		if err := rig.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	until := func(done func(brokertest.Answer) bool) brokertest.Answer {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		for {
			got, err := rig.Look(ctx, "/v1/operations?request_key="+c.Key, c)
			if err != nil || done(got) {
				return got
			}
		}
	}
	age(8 * 24 * time.Hour)
	if got := until(func(a brokertest.Answer) bool { return a.State == "expired" }); got.Ran != "yes" || got.Retry != "never" || got.Result != nil {
		t.Errorf("after a week: %s", got.Body)
	}
	for _, got := range mesh(t, rig, c) {
		if got.ID != first.ID || got.State != "expired" || got.Result != nil {
			t.Errorf("the key again: %s", got.Body)
		}
	}
	changed := c
	changed.Tool = "job"
	if got := rig.Call(t, changed); got.Reason != "request_key_conflict" {
		t.Errorf("the key with another payload: %s", got.Body)
	}
	age(23 * 24 * time.Hour)
	until(func(a brokertest.Answer) bool { return a.Status == 404 })
	c.Key = olderBy(uuid.Must(uuid.NewV7()), 31*24*time.Hour)
	if got := rig.Call(t, c); got.Reason != "no_record" {
		t.Errorf("a key from before the ledger's memory: %s", got.Body)
	}
	if n := rig.Records.Calls("whoami"); n != 1 || rig.Provider.Exchanges() != 1 {
		t.Errorf("%d calls, %d exchanges", n, rig.Provider.Exchanges())
	}
}

// olderBy is a UUIDv7 that was made so much earlier.
func olderBy(u uuid.UUID, by time.Duration) string {
	at := binary.BigEndian.Uint64(u[:8])>>16 - uint64(by.Milliseconds())
	binary.BigEndian.PutUint64(u[:8], at<<16|binary.BigEndian.Uint64(u[:8])&0xffff)
	return u.String()
}

// TestRepeatIsByteExact: a repeat and both retrievals give the bytes of the
// first answer.
func TestRepeatIsByteExact(t *testing.T) {
	rig := brokertest.New(t, nil)
	call := brokertest.Call{Key: "k", Arguments: map[string]any{}}
	first := rig.Call(t, call)
	if _, err := rig.Do(t.Context(), brokertest.Call{Key: "other"}); err != nil { // the first one's drop is recorded by now
		t.Fatal(err)
	}
	for name, a := range map[string]brokertest.Answer{
		"repeat": rig.Call(t, call),
		"by id":  rig.Get(t, "/v1/operations/"+first.ID, brokertest.Call{}),
		"by key": rig.Get(t, "/v1/operations?request_key=k", brokertest.Call{}),
	} {
		if a.Status != 200 || !bytes.Equal(a.Body, first.Body) {
			t.Errorf("%s:\n%s\nwant\n%s", name, a.Body, first.Body)
		}
	}
	if n := rig.Records.Calls("whoami"); n != 2 {
		t.Errorf("whoami ran %d times", n)
	}
}

// TestNotYours: another actor's operation does not exist, byte for byte, and
// neither does another caller's.
func TestNotYours(t *testing.T) {
	rig := brokertest.New(t, nil)
	a := rig.Call(t, brokertest.Call{Key: "k"})
	absent := rig.Get(t, "/v1/operations/"+strings.Repeat("a", 26), brokertest.Call{})
	if absent.Status != 404 {
		t.Fatalf("%d %s", absent.Status, absent.Body)
	}
	noKey := rig.Get(t, "/v1/operations?request_key=another", brokertest.Call{})
	portal := brokertest.Call{Bearer: rig.PortalBearer(), Assertion: rig.Assert("user:7")}
	for name, pair := range map[string][2]brokertest.Answer{
		"another actor":          {rig.Get(t, "/v1/operations/"+a.ID, brokertest.Call{Actor: "user:8"}), absent},
		"another actor, by key":  {rig.Get(t, "/v1/operations?request_key=k", brokertest.Call{Actor: "user:8"}), noKey},
		"another caller":         {rig.Get(t, "/v1/operations/"+a.ID, portal), absent},
		"another caller, by key": {rig.Get(t, "/v1/operations?request_key=k", portal), noKey},
	} {
		if got, want := pair[0], pair[1]; got.Status != 404 || !bytes.Equal(got.Body, want.Body) {
			t.Errorf("%s: %d %s, want %s", name, got.Status, got.Body, want.Body)
		}
	}
}

// TestSafeIsSafe: after "safe" the same key runs, once, as the next attempt.
func TestSafeIsSafe(t *testing.T) {
	rig := brokertest.New(t, nil)
	rig.Provider.Break(devidp.Fail(1, 500, ""))
	first := rig.Call(t, brokertest.Call{Key: "k"})
	if first.State != "not_sent" || first.Retry != "safe" || first.Attempt != 1 {
		t.Fatalf("%s", first.Body)
	}
	second := rig.Call(t, brokertest.Call{Key: "k"})
	if second.State != "succeeded" || second.ID != first.ID || second.Attempt != 2 {
		t.Errorf("%s", second.Body)
	}
	third := rig.Call(t, brokertest.Call{Key: "k"})
	if third.Attempt != 2 || third.Header.Get("Broker-Replayed") != "true" || rig.Records.Calls("whoami") != 1 {
		t.Errorf("%s", third.Body)
	}
}

// TestSafeIsSafeAtOnce: the next attempt does not wait for the drop of the last.
func TestSafeIsSafeAtOnce(t *testing.T) {
	b := &bench{Rig: brokertest.New(t, nil), t: t}
	b.Call(t, brokertest.Call{}) // finds out the era
	b.at("tools/call", status(401))
	b.Vault.Fail("DELETE", holds, 1, devvault.Failure{Hang: true})
	if first := b.Call(t, brokertest.Call{Key: "k"}); first.State != "refused" || first.Hold != "pending" {
		t.Fatalf("%s", first.Body)
	}
	b.Records.Break(nil)
	if second := b.Call(t, brokertest.Call{Key: "k"}); second.State != "succeeded" || second.Attempt != 2 {
		t.Errorf("%s", second.Body)
	}
}

// TestGrantGoneLater: what happened is told, the result is withheld, and the
// same key starts nothing.
func TestGrantGoneLater(t *testing.T) {
	rig := brokertest.New(t, nil)
	rig.Call(t, brokertest.Call{Key: "k"})
	rig.Provider.Break(devidp.Fail(1, 500, ""))
	rig.Call(t, brokertest.Call{Key: "not-sent"})
	if err := rig.Edit(disableGrant); err != nil {
		t.Fatal(err)
	}
	exchanges := rig.Provider.Exchanges()
	for name, a := range map[string]brokertest.Answer{
		"repeat":    rig.Call(t, brokertest.Call{Key: "k"}),
		"retrieval": rig.Get(t, "/v1/operations?request_key=k", brokertest.Call{}),
	} {
		if a.Status != 200 || a.State != "succeeded" || a.Ran != "yes" || a.Withheld != "grant_revoked" || a.Result != nil {
			t.Errorf("%s: %d %s", name, a.Status, a.Body)
		}
	}
	if a := rig.Call(t, brokertest.Call{Key: "not-sent"}); a.Status != 200 || a.State != "not_sent" || a.Attempt != 1 {
		t.Errorf("a repeat without a grant: %d %s", a.Status, a.Body)
	}
	if a := rig.Call(t, brokertest.Call{Key: "new"}); a.Status != 403 || a.Reason != "grant_disabled" {
		t.Errorf("a new call without a grant: %d %s", a.Status, a.Body)
	}
	if n := rig.Provider.Exchanges() - exchanges; n != 0 {
		t.Errorf("%d exchanges without a grant", n)
	}
}

// TestCallerHangsUp: a caller that goes away after the send ends its wait and
// nothing else.
func TestCallerHangsUp(t *testing.T) {
	rig := brokertest.New(t, nil)
	release := rig.Records.Hold("tools/call")
	defer release()
	ctx, hangUp := context.WithCancel(t.Context())
	gone := make(chan error)
	go func() {
		_, err := rig.Do(ctx, brokertest.Call{Key: "k"})
		gone <- err
	}()
	if err := rig.Records.Await(t.Context(), func() bool { return rig.Records.Arrived("tools/call") == 1 }); err != nil {
		t.Fatal(err)
	}
	hangUp()
	if err := <-gone; err == nil {
		t.Fatal("the caller did not hang up")
	}
	if a := rig.Get(t, "/v1/operations?request_key=k", brokertest.Call{}); a.Status != 202 || a.State != "sending" || a.Retry != "wait" {
		t.Errorf("while it runs: %d %s", a.Status, a.Body)
	}
	open := rig.Get(t, "/v1/operations?state=open", brokertest.Call{})
	if open.Status != 200 || !bytes.Contains(open.Body, []byte(`"request_key":"k"`)) {
		t.Errorf("open operations: %s", open.Body)
	}
	release()
	a := rig.Call(t, brokertest.Call{Key: "k"}) // waits on the job that exists
	if a.State != "succeeded" || a.Hold != "dropped" || rig.Records.Calls("whoami") != 1 {
		t.Errorf("%s", a.Body)
	}
}

// TestCorrectedCall: a call that the server refused over its version is sent once
// more, in the same attempt, through the same checks.
func TestCorrectedCall(t *testing.T) {
	rig := brokertest.New(t, nil)
	rig.Call(t, brokertest.Call{}) // finds out the era
	refused := 0
	rig.Records.Break(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if refused > 0 || devmcp.MethodOf(r) != "tools/call" {
				next.ServeHTTP(w, r)
				return
			}
			refused++
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusBadRequest)
			io.WriteString(w, `{"jsonrpc":"2.0","id":null,"error":{"code":-32022,"message":"no","data":{"supported":["2026-07-28"]}}}`)
		})
	})
	reads := rig.Vault.Count("GET", holds)
	a := rig.Call(t, brokertest.Call{})
	if a.State != "succeeded" || a.Attempt != 1 || !strings.HasSuffix(a.LegNames(), "tools/call tools/call drop") || refused != 1 {
		t.Errorf("%s", a.Body)
	}
	if n := rig.Vault.Count("GET", holds) - reads; n != 2 {
		t.Errorf("%d reads of the hold for two calls", n)
	}
	if n := rig.Records.Calls("whoami"); n != 2 {
		t.Errorf("whoami ran %d times in two operations", n)
	}
}

// TestCancel: it reaches the leg in flight, and the outcome says what had left.
func TestCancel(t *testing.T) {
	for _, tc := range []struct {
		method, state, retry string
	}{
		{"server/discover", "not_sent", "safe"},
		{"tools/call", "unknown", "never_without_looking"},
	} {
		rig := brokertest.New(t, nil)
		release := rig.Records.Hold(tc.method)
		a := rig.Call(t, brokertest.Call{Key: "k", Prefer: "respond-async"})
		if err := rig.Records.Await(t.Context(), func() bool { return rig.Records.Arrived(tc.method) == 1 }); err != nil {
			t.Fatal(err)
		}
		if b := rig.Cancel(t, a.ID, brokertest.Call{Actor: "user:8"}); b.Status != 404 {
			t.Errorf("%s: another actor's cancel: %d", tc.method, b.Status)
		}
		if b := rig.Cancel(t, a.ID, brokertest.Call{}); b.Status != 202 || b.ID != a.ID {
			t.Errorf("%s: %d %s", tc.method, b.Status, b.Body)
		}
		key := "/v1/operations?request_key=k"
		got := rig.Get(t, key, brokertest.Call{})
		for got.Status == 202 {
			got = rig.Get(t, key, brokertest.Call{})
		}
		if string(got.State) != tc.state || got.Cause != "caller_cancelled" || string(got.Retry) != tc.retry {
			t.Errorf("%s: %s", tc.method, got.Body)
		}
		release()
		if b := rig.Cancel(t, a.ID, brokertest.Call{}); b.Status != 200 || b.State != got.State {
			t.Errorf("%s: a cancel after the end: %d %s", tc.method, b.Status, b.Body)
		}
	}
}

// TestOneLogLine: an operation leaves one line of its own words.
func TestOneLogLine(t *testing.T) {
	rig := brokertest.New(t, nil)
	rig.Call(t, brokertest.Call{Tool: "drop", Arguments: map[string]string{"job": "a-secret-argument"}, Key: "a-key-of-the-gateway"})
	if err := rig.Stop(); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(rig.Log()) {
		if strings.Contains(line, `"msg":"operation"`) {
			lines = append(lines, line)
		}
		for _, foreign := range []string{"a-secret-argument", "a-key-of-the-gateway"} {
			if strings.Contains(line, foreign) {
				t.Errorf("%q is in the log: %s", foreign, line)
			}
		}
	}
	if len(lines) != 1 {
		t.Fatalf("%d lines for one operation:\n%s", len(lines), rig.Log())
	}
	for _, want := range []string{`"actor":"user:7"`, `"server":"records"`, `"tool":"drop"`, `"state":"unknown"`, `"cause":"connection_lost"`,
		`"retry":"never_without_looking"`, `"hold":"dropped"`} {
		if !strings.Contains(lines[0], want) {
			t.Errorf("no %s in %s", want, lines[0])
		}
	}
}

// TestAsync: 202 with the job's address at once, 200 when it has ended.
func TestAsync(t *testing.T) {
	rig := brokertest.New(t, nil)
	release := rig.Records.Hold("tools/call")
	defer release()
	a := rig.Call(t, brokertest.Call{Key: "k", Prefer: "respond-async"})
	if a.Status != 202 || a.Retry != "wait" || a.Header.Get("Location") != "/v1/operations/"+a.ID {
		t.Fatalf("%d %v %s", a.Status, a.Header, a.Body)
	}
	if !strings.HasSuffix(a.Header.Get("Broker-Outcome"), "; retry=wait") {
		t.Errorf("Broker-Outcome: %q", a.Header.Get("Broker-Outcome"))
	}
	if b := rig.Call(t, brokertest.Call{Key: "k", Wait: "10ms"}); b.Status != 202 || b.ID != a.ID {
		t.Errorf("a short wait: %d %s", b.Status, b.Body)
	}
	release()
	if b := rig.Call(t, brokertest.Call{Key: "k"}); b.Status != 200 || b.Header.Get("Broker-Outcome") != "succeeded; retry=never" {
		t.Errorf("%d %v %s", b.Status, b.Header, b.Body)
	}
}

// TestTimeoutOnlyShortens: a caller's timeout never lengthens the budget.
func TestTimeoutOnlyShortens(t *testing.T) {
	rig := brokertest.New(t, nil) // its operations have 5 s
	for asked, most := range map[string]time.Duration{"": 5 * time.Second, "1h": 5 * time.Second, "2s": 2 * time.Second} {
		a := rig.Call(t, brokertest.Call{Timeout: asked})
		if budget := a.Deadline.Sub(a.Created); budget > most || budget < most-time.Second {
			t.Errorf("timeout %q: a budget of %v", asked, budget)
		}
	}
}

// TestSignedActor: an assertion is good for its request key alone.
func TestSignedActor(t *testing.T) {
	rig := brokertest.New(t, nil)
	call := brokertest.Call{Bearer: rig.PortalBearer(), Assertion: rig.Assert("user:7"), Key: "k"}
	if a := rig.Call(t, call); a.State != "succeeded" || !strings.Contains(a.Text, `"subject":"user:7"`) {
		t.Fatalf("%s", a.Body)
	}
	if a := rig.Call(t, call); a.Status != 200 || a.Header.Get("Broker-Replayed") != "true" {
		t.Errorf("the same again: %d %s", a.Status, a.Body)
	}
	other := call
	other.Key = "another"
	if a := rig.Call(t, other); a.Status != 401 || a.Reason != "assertion_replayed" {
		t.Errorf("the assertion with another key: %d %s", a.Status, a.Body)
	}
	if a := rig.Get(t, "/v1/operations?request_key=k", call); a.Status != 200 {
		t.Errorf("a read does not consume it: %d %s", a.Status, a.Body)
	}
	asserted := brokertest.Call{Bearer: rig.PortalBearer(), Actor: "user:7"}
	if a := rig.Call(t, asserted); a.Status != 403 || a.Reason != "actor_not_allowed" {
		t.Errorf("the portal's bare word: %d %s", a.Status, a.Body)
	}
}

// TestNobodyElsesToken: two actors' operations interleaved; each request at the
// server carries its own actor's token.
func TestNobodyElsesToken(t *testing.T) {
	rig := brokertest.New(t, &brokertest.Options{Config: func(yaml string) string {
		grant := yaml[strings.Index(yaml, `      "user:7":`):strings.Index(yaml, "\nservers:")]
		return strings.Replace(yaml, grant, grant+strings.NewReplacer("user:7", "user:8", "subjects/7", "subjects/8").Replace(grant), 1)
	}})
	var all sync.WaitGroup
	for i := range 24 {
		actor := fmt.Sprintf("user:%d", 7+i%2)
		all.Go(func() {
			call := brokertest.Call{Actor: actor, Server: []string{"records", "archive"}[i/2%2], Key: fmt.Sprint("k", i)}
			a, err := rig.Do(t.Context(), call)
			for range 3 { // a busy machine may be late for a check: "safe", then
				if a.Retry == "safe" {
					a, err = rig.Do(t.Context(), call)
				}
			}
			if err != nil || a.State != "succeeded" || !strings.Contains(a.Text, `"subject":"`+actor+`"`) {
				t.Errorf("%s: %v %s", actor, err, a.Body)
			}
		})
	}
	all.Wait()
	tokens := append(rig.Records.Tokens(), rig.Archive.Tokens()...)
	if slices.Contains(tokens, rig.Bearer) {
		t.Error("the gateway's bearer reached a server")
	}
	if n := rig.Records.Calls("whoami") + rig.Archive.Calls("whoami"); n != 24 {
		t.Errorf("24 operations, the tool ran %d times", n)
	}
}

// TestDrain: a stopping broker refuses what is new and ends what has begun.
func TestDrain(t *testing.T) {
	rig := brokertest.New(t, nil)
	release := rig.Records.Hold("tools/call")
	got := make(chan brokertest.Answer)
	go func() {
		a, err := rig.Do(t.Context(), brokertest.Call{Key: "k"})
		if err != nil {
			t.Error(err)
		}
		got <- a
	}()
	if err := rig.Records.Await(t.Context(), func() bool { return rig.Records.Arrived("tools/call") == 1 }); err != nil {
		t.Fatal(err)
	}
	stopped := make(chan error)
	go func() { stopped <- rig.Stop() }()
	for rig.Broker.Ready() == nil { // draining is seen at once
		runtime.Gosched()
	}
	if a := rig.Call(t, brokertest.Call{}); a.Status != http.StatusServiceUnavailable || a.Reason != "draining" {
		t.Errorf("a new call while draining: %d %s", a.Status, a.Body)
	}
	release()
	if a := <-got; a.State != "succeeded" || a.Hold != "dropped" {
		t.Errorf("%s", a.Body)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if n := rig.Vault.Residue(); n != 0 {
		t.Errorf("%d holds left", n)
	}
}
