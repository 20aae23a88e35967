package operation_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"onbehalf.internal/broker/brokertest"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/httpapi"
)

// resolve says as the admin what became of an attempt.
func resolve(t *testing.T, rig *brokertest.Rig, id, body string) (httpapi.Operation, brokertest.AdminAnswer) {
	t.Helper()
	var op httpapi.Operation
	answer := rig.Admin(t, "POST", "/v1/operations/"+id+"/resolve", body, &op)
	return op, answer
}

// TestResolved: what did not run runs again by its own key, as the next attempt;
// what ran never does. Its caller is told who said so.
func TestResolved(t *testing.T) {
	rig := brokertest.New(t, nil)
	drop := brokertest.Call{Tool: "drop", Arguments: map[string]string{"job": "j"}, Key: "k"}
	first := rig.Call(t, drop)
	if first.State != fault.InDoubt {
		t.Fatalf("%s", first.Body)
	}
	if repeat := rig.Call(t, drop); repeat.Attempt != 1 || rig.Records.Calls("drop") != 1 {
		t.Fatalf("%s", repeat.Body)
	}
	no, a := resolve(t, rig, first.ID, `{"ran":"no","reason":"no order 7"}`)
	if a.Status != 200 || no.State != fault.ResolvedNotRan || no.Retry != fault.RetrySafe || no.Resolution == nil {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	told := rig.Get(t, "/v1/operations/"+first.ID, drop)
	if told.State != fault.ResolvedNotRan || told.Ran != fault.RanNo || told.Evidence != fault.EvidenceOperator || told.Cause != first.Cause ||
		told.Resolution == nil || told.Resolution.By != "admin" || told.Resolution.Reason != "no order 7" || !told.Updated.Equal(first.Updated) {
		t.Errorf("the caller is told %s", told.Body)
	}
	second := rig.Call(t, drop)
	if second.ID != first.ID || second.Attempt != 2 || second.State != fault.InDoubt || second.Resolution != nil || rig.Records.Calls("drop") != 2 {
		t.Errorf("the same key: %s", second.Body)
	}
	// The first no again, whose answer may have been lost, is about the first attempt.
	if _, a := resolve(t, rig, first.ID, `{"ran":"no","reason":"no order 7"}`); a.Status != 422 || a.Reason != fault.NotInDoubt {
		t.Errorf("a late no: %d %s", a.Status, a.Body)
	}
	yes, a := resolve(t, rig, first.ID, `{"ran":"yes","reason":"order 7","attempt":2}`)
	if a.Status != 200 || yes.State != fault.ResolvedRan || yes.Retry != fault.RetryNever {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	if third := rig.Call(t, drop); third.State != fault.ResolvedRan || third.Attempt != 2 || third.Header.Get("Broker-Replayed") == "" || rig.Records.Calls("drop") != 2 {
		t.Errorf("the same key of what ran: %s", third.Body)
	}
	if err := rig.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := rig.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if later := rig.Call(t, drop); later.State != fault.ResolvedRan || later.Resolution == nil || later.Resolution.Reason != "order 7" || rig.Records.Calls("drop") != 2 {
		t.Errorf("after a restart: %s", later.Body)
	}
}

// TestResolveCarried: while an attempt is carried nothing is known to an admin
// either, and what it does at its end is waited for.
func TestResolveCarried(t *testing.T) {
	rig := brokertest.New(t, &brokertest.Options{Config: revoking})
	asked, release := holdRevocation(t, rig.Provider)
	call := brokertest.Call{Tool: "drop", Arguments: map[string]string{"job": "j"}, Key: "k"}
	let, answer := held(t, rig, rig.Records, "tools/call", call)
	open := rig.Get(t, "/v1/operations?request_key=k", call)
	if _, a := resolve(t, rig, open.ID, `{"ran":"no","reason":"r"}`); a.Status != 422 || a.Reason != fault.NotInDoubt || !strings.Contains(a.Detail, "is being carried") {
		t.Errorf("open: %d %s", a.Status, a.Body)
	}
	let()
	if ended := <-answer; ended.State != fault.InDoubt {
		t.Fatalf("%s", ended.Body)
	}
	<-asked // it has ended, and still waits for the revocation
	resolved := make(chan brokertest.Answer)
	go func() {
		if _, a := resolve(t, rig, open.ID, `{"ran":"yes","reason":"r"}`); a.Status != 200 {
			t.Errorf("%d %s", a.Status, a.Body)
		}
		resolved <- rig.Get(t, "/v1/operations/"+open.ID, call)
	}()
	for range 20 { // time enough for a word that does not wait
		rig.Get(t, "/v1/operations/"+open.ID, call)
	}
	release()
	if got := <-resolved; got.State != fault.ResolvedRan {
		t.Errorf("after the word: %s", got.Body)
	}
}

// TestResolvedKeyed: what the server would not do twice is in doubt all the same,
// and a yes ends that its key may be sent again.
func TestResolvedKeyed(t *testing.T) {
	rig := brokertest.New(t, &brokertest.Options{Config: keyed})
	call := brokertest.Call{Tool: "drop", Key: "k"}
	first := rig.Call(t, call)
	if first.Retry != fault.RetrySafe {
		t.Fatalf("%s", first.Body)
	}
	if _, a := resolve(t, rig, first.ID, `{"ran":"yes","reason":"r"}`); a.Status != 200 {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	if got := rig.Call(t, call); got.State != fault.ResolvedRan || got.Attempt != 1 || rig.Records.Calls("drop") != 1 {
		t.Errorf("%s", got.Body)
	}
}

// TestResolvedError: the server's error stays what it is, and is for the
// operation's own caller and actor alone.
func TestResolvedError(t *testing.T) {
	rig := brokertest.New(t, nil)
	const text = "only for the caller"
	rig.Call(t, brokertest.Call{}) // finds out the era
	rig.Records.Break(func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var request struct{ ID json.RawMessage }
			if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
				t.Error(err)
			}
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32603,"message":%q}}`, request.ID, text)
		})
	})
	call := brokertest.Call{Key: "k", Arguments: map[string]string{}}
	first := rig.Call(t, call)
	if first.State != fault.RPCError || !strings.Contains(string(first.Error), text) {
		t.Fatalf("%s", first.Body)
	}
	if a := rig.Admin(t, "GET", "/v1/doubts", "", nil); a.Status != 200 || strings.Contains(string(a.Body), text) || !strings.Contains(string(a.Body), first.ID) {
		t.Errorf("the admin's list: %s", a.Body)
	}
	if _, a := resolve(t, rig, first.ID, `{"ran":"yes","reason":"r"}`); a.Status != 200 || strings.Contains(string(a.Body), text) {
		t.Errorf("the admin's answer: %s", a.Body)
	}
	if got := rig.Call(t, call); got.State != fault.ResolvedRan || string(got.Error) != string(first.Error) || got.Result != nil || got.Text != "" {
		t.Errorf("the caller's answer: %s", got.Body)
	}
	if a := rig.Admin(t, "GET", "/v1/doubts", "", nil); strings.Contains(string(a.Body), first.ID) {
		t.Errorf("still in doubt: %s", a.Body)
	}
}

// TestResolvedAndRevoked: a no is no grant. Where the grant is gone the key sends
// nothing, and what was said is told.
func TestResolvedAndRevoked(t *testing.T) {
	rig := brokertest.New(t, nil)
	call := brokertest.Call{Tool: "drop", Arguments: map[string]string{"job": "j"}, Key: "k"}
	first := rig.Call(t, call)
	if _, a := resolve(t, rig, first.ID, `{"ran":"no","reason":"r"}`); a.Status != 200 {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	if err := rig.Edit(disableGrant); err != nil {
		t.Fatal(err)
	}
	if got := rig.Call(t, call); got.Status != 200 || got.State != fault.ResolvedNotRan || got.Attempt != 1 || rig.Records.Calls("drop") != 1 {
		t.Errorf("%d %s", got.Status, got.Body)
	}
}

// TestResolvedAtOnce: many admins and many repeats of the key at a time. One no
// makes one run more, and a yes that was taken first makes none.
func TestResolvedAtOnce(t *testing.T) {
	rig := brokertest.New(t, nil)
	call := brokertest.Call{Tool: "drop", Arguments: map[string]string{"job": "j"}, Key: "k"}
	first := rig.Call(t, call)
	var all sync.WaitGroup
	var taken [2]atomic.Int32 // no, yes
	for i := range 10 {
		all.Go(func() {
			body := []string{`{"ran":"no","reason":"r"}`, `{"ran":"yes","reason":"r"}`}[i%2]
			switch _, a := resolve(t, rig, first.ID, body); a.Status {
			case 200:
				taken[i%2].Add(1)
			case 422:
			default:
				t.Errorf("%d %s", a.Status, a.Body)
			}
		})
		all.Go(func() {
			if _, err := rig.Do(t.Context(), call); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	calls, last := rig.Records.Calls("drop"), rig.Get(t, "/v1/operations/"+first.ID, call)
	if calls > 2 || calls != last.Attempt || calls == 2 && taken[0].Load() == 0 || taken[0].Load()+taken[1].Load() == 0 {
		t.Errorf("%d calls after %d no and %d yes: %s", calls, taken[0].Load(), taken[1].Load(), last.Body)
	}
}
