package operation_test

import (
	"database/sql"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"onbehalf.internal/broker/brokertest"
	"onbehalf.internal/broker/fault"
)

// keyed makes the tool drop take a key in its argument job, and job look it up.
func keyed(yaml string) string {
	yaml = strings.ReplaceAll(yaml, "drop: {enabled: true,", "drop: {enabled: true, request_key: {argument: job, window: 1h},")
	return strings.ReplaceAll(yaml, "    tools:", "    recovery: {tool: job, argument: job}\n    tools:")
}

// look does what look_with says and returns how often the job was done.
func look(t *testing.T, rig *brokertest.Rig, a brokertest.Answer) (ran int) {
	t.Helper()
	if a.LookWith == nil {
		t.Fatalf("nothing says how to look: %s", a.Body)
	}
	got := rig.Call(t, brokertest.Call{Tool: a.LookWith.Tool, Arguments: a.LookWith.Arguments})
	var result struct {
		StructuredContent struct{ Ran int }
	}
	if err := json.Unmarshal(got.Result, &result); err != nil {
		t.Fatalf("%v: %s", err, got.Body)
	}
	return result.StructuredContent.Ran
}

// TestKeyThatTheServerHonours: a call in doubt may be made again, with the same
// key; what one attempt left in doubt no later one denies.
func TestKeyThatTheServerHonours(t *testing.T) {
	rig := brokertest.New(t, &brokertest.Options{Config: keyed})
	c := brokertest.Call{Tool: "drop", Key: "k"}
	first := rig.Call(t, c)
	if first.State != fault.InDoubt || first.Retry != fault.RetrySafe {
		t.Fatalf("the first attempt: %s", first.Body)
	}
	second := rig.Call(t, c)
	if second.ID != first.ID || second.Attempt != 2 || second.State != fault.InDoubt {
		t.Errorf("the second attempt: %s", second.Body)
	}

	// A third one that does not get that far: something may have run all the same.
	rig.Provider.Break(func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
	})
	third := rig.Call(t, c)
	if third.Attempt != 3 || third.State != fault.InDoubt || third.Ran != fault.RanUnknown || third.Evidence != fault.EvidenceNone {
		t.Errorf("the third attempt: %s", third.Body)
	}
	rig.Provider.Break(nil)

	// When the server may have forgotten the key, looking is what is left.
	if err := rig.Stop(); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", rig.DatabasePath())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(`UPDATE operations SET repeat_until = ?`, time.Now().UnixNano()); err != nil {
		t.Fatal(err)
	}
	if err := rig.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	late := rig.Call(t, c)
	if late.Attempt != 3 || late.Retry != fault.RetryLookFirst {
		t.Errorf("after the window: %s", late.Body)
	}
	if ran := look(t, rig, late); ran != 2 {
		t.Errorf("the server did the job of this key %d times, want 2: the two attempts that it saw", ran)
	}
}

// TestKeyInArguments: an argument that the broker sets may not be given, and
// nothing is begun.
func TestKeyInArguments(t *testing.T) {
	rig := brokertest.New(t, &brokertest.Options{Config: keyed})
	got := rig.Call(t, brokertest.Call{Tool: "drop", Key: "k", Arguments: map[string]string{"job": "mine"}})
	if got.Status != 400 || got.Reason != fault.MalformedRequest || !strings.Contains(got.Detail, `"job"`) {
		t.Errorf("%d %s", got.Status, got.Body)
	}
	if absent := rig.Get(t, "/v1/operations?request_key=k", brokertest.Call{}); absent.Status != 404 {
		t.Errorf("%s", absent.Body)
	}
}

// TestOtherWayForTheKey: a configuration that passes the key in another way, or
// not at all, does not make a call in doubt again.
func TestOtherWayForTheKey(t *testing.T) {
	for name, way := range map[string]string{"not at all": "", "by _meta": ", request_key: {meta: example.org/key, window: 1h}"} {
		t.Run(name, func(t *testing.T) {
			rig := brokertest.New(t, &brokertest.Options{Config: keyed})
			c := brokertest.Call{Tool: "drop", Key: "k"}
			first := rig.Call(t, c)
			err := rig.Edit(func(yaml string) string {
				return strings.ReplaceAll(yaml, ", request_key: {argument: job, window: 1h}", way)
			})
			if err != nil {
				t.Fatal(err)
			}
			if again := rig.Call(t, c); again.ID != first.ID || again.Attempt != 1 || rig.Records.Calls("drop") != 1 {
				t.Errorf("%s, %d calls", again.Body, rig.Records.Calls("drop"))
			}
		})
	}
}

// TestLookWithoutAKey: a server without keys can still say what looks; the
// caller has to know what for.
func TestLookWithoutAKey(t *testing.T) {
	rig := brokertest.New(t, &brokertest.Options{Config: func(yaml string) string {
		return strings.ReplaceAll(yaml, "    tools:", "    recovery: {tool: job}\n    tools:")
	}})
	got := rig.Call(t, brokertest.Call{Tool: "drop", Key: "k", Arguments: map[string]string{"job": "j"}})
	if got.LookWith == nil || got.LookWith.Tool != "job" || got.LookWith.Arguments != nil {
		t.Errorf("%s", got.Body)
	}
	if got := rig.Get(t, "/v1/operations?request_key=k", brokertest.Call{}); got.LookWith == nil {
		t.Errorf("retrieved: %s", got.Body)
	}
	if got := rig.Call(t, brokertest.Call{}); got.LookWith != nil {
		t.Errorf("a result: %s", got.Body)
	}
}
