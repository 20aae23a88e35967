package ledger_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/ledger"
	"onbehalf.internal/broker/seal"
	"onbehalf.internal/broker/secret"
)

const day = 24 * time.Hour

// finished takes an operation to an outcome, with a result if there can be one.
func (r *rig) finished(op ledger.Operation, out fault.Outcome, result []byte) ledger.Operation {
	r.t.Helper()
	op = r.begin(op)
	ctx := r.t.Context()
	if out.Ran != fault.RanNo {
		if err := r.Sending(ctx, op.ID, op.Attempt, audit.Record{}); err != nil {
			r.t.Fatal(err)
		}
	}
	if err := r.Finish(ctx, op.ID, op.Attempt, out, result, nil, "", audit.Record{}); err != nil {
		r.t.Fatal(err)
	}
	return op
}

func (r *rig) sweepAll() {
	r.t.Helper()
	for more := true; more; {
		var err error
		if more, err = r.Sweep(r.t.Context()); err != nil {
			r.t.Fatal(err)
		}
	}
}

// TestAge: what is left of an operation as it grows old. An open one stays.
func TestAge(t *testing.T) {
	body := []byte(`{"content":[]}`)
	absent := fault.Outcome{}
	expired := func(o fault.Outcome) fault.Outcome { o.State = fault.Expired; return o }
	for _, tc := range []struct {
		name              string
		out               fault.Outcome
		result            []byte
		at6d, at8d, at31d fault.Outcome
		retry             fault.Retry
	}{
		{"succeeded", succeeded, body, succeeded, expired(succeeded), absent, fault.RetryNever},
		{"tool_error", toolError, body, toolError, expired(toolError), absent, fault.RetryNever},
		{"rpc_error", rpcError, body, rpcError, expired(rpcError), absent, fault.RetryNever},
		{"unknown", inDoubt, nil, inDoubt, inDoubt, absent, fault.RetryLookFirst},
		{"not_sent", notSent, nil, notSent, notSent, absent, fault.RetrySafe},
		{"refused", refused, nil, refused, refused, absent, fault.RetrySafe},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t)
			op := r.finished(op1(), tc.out, tc.result)
			open := r.begin(another(2))
			for _, step := range []struct {
				age  time.Duration
				want fault.Outcome
			}{{6 * day, tc.at6d}, {8 * day, tc.at8d}, {31 * day, tc.at31d}} {
				r.Now = noon.Add(step.age)
				r.sweepAll()
				got, found, err := r.Find(t.Context(), op.Caller, op.Actor, op.RequestKey)
				if err != nil || found != (step.want != absent) || got.Outcome != step.want {
					t.Errorf("after %v: %v, %v, %v; want %v", step.age, got.Outcome, found, err, step.want)
				}
				if keeps := step.age < 7*day && tc.result != nil; (got.Result != nil) != keeps {
					t.Errorf("after %v: a result: %v", step.age, got.Result != nil)
				}
				if step.age == 8*day && got.Outcome.Retry() != tc.retry {
					t.Errorf("retry = %s", got.Outcome.Retry())
				}
				if r.get(open).Outcome.State != fault.Reserved {
					t.Errorf("after %v the open operation is gone", step.age)
				}
			}
		})
	}
}

// TestSweepInChunks: whatever has aged out goes, a chunk a commit, and the audit
// says how much. With nothing to do nothing is written.
func TestSweepInChunks(t *testing.T) {
	r := newRig(t)
	const many = 120
	for n := range many {
		r.finished(another(n), succeeded, []byte(`{}`))
	}
	before := len(r.records())
	r.sweepAll()
	if got := len(r.records()); got != before {
		t.Errorf("a sweep of nothing wrote %d records", got-before)
	}
	for _, step := range []struct {
		age         time.Duration
		result, ops float64
	}{{8 * day, many, 0}, {31 * day, 0, many}} {
		r.Now = noon.Add(step.age)
		r.sweepAll()
		var results, operations float64
		for _, m := range r.records()[before:] {
			if m["kind"] != "retention" {
				t.Errorf("a record of kind %v", m["kind"])
			}
			swept := m["swept"].(map[string]any)
			if swept["results"].(float64) > 50 || swept["operations"].(float64) > 50 {
				t.Errorf("a commit swept %v", swept)
			}
			results, operations = results+swept["results"].(float64), operations+swept["operations"].(float64)
		}
		if results != step.result || operations != step.ops {
			t.Errorf("after %v: %v results and %v operations swept", step.age, results, operations)
		}
		before = len(r.records())
	}
	if left, err := r.List(t.Context(), "gateway", "user:7", time.Time{}, 1000); err != nil || len(left) != 0 {
		t.Errorf("%d left, %v", len(left), err)
	}
}

// TestRemembers: absence is proof only from a ledger that is as old as the key
// and has not forgotten since.
func TestRemembers(t *testing.T) {
	r := newRig(t)
	r.Now = noon.Add(60 * day)
	for _, tc := range []struct {
		name  string
		first time.Time
		want  bool
	}{
		{"no time", time.Time{}, false},
		{"before the ledger began", noon.Add(-time.Millisecond), false},
		{"as it began, and forgotten", noon, false},
		{"just forgotten", noon.Add(30 * day), false},
		{"not forgotten yet", noon.Add(30*day + time.Millisecond), true},
		{"now", noon.Add(60 * day), true},
	} {
		if got := r.Remembers(tc.first); got != tc.want {
			t.Errorf("%s: %v", tc.name, got)
		}
		op := op1()
		op.ID, op.RequestKey, op.JTI, op.FirstSent = "id of "+tc.name, tc.name, "", tc.first
		_, begun, err := r.Begin(t.Context(), op, audit.Record{})
		if runs := tc.want || tc.first.IsZero(); begun != runs || !runs && fault.ReasonOf(err) != fault.NoRecord {
			t.Errorf("%s: begun = %v, %v", tc.name, begun, err)
		}
	}
	r.Now = noon.Add(time.Millisecond)
	if !r.Remembers(noon) {
		t.Error("a key of the moment in which the ledger began is not remembered")
	}
}

// TestSecondRun: what a new key may be the second run of, and that there is one.
func TestSecondRun(t *testing.T) {
	for _, tc := range []struct {
		name   string
		make   func(r *rig) ledger.Operation
		change func(*ledger.Operation)
		want   fault.Reason
	}{
		{"unknown", func(r *rig) ledger.Operation { return r.finished(op1(), inDoubt, nil) }, nil, fault.None},
		{"rpc_error", func(r *rig) ledger.Operation { return r.finished(op1(), rpcError, []byte(`{}`)) }, nil, fault.None},
		{"succeeded", func(r *rig) ledger.Operation { return r.finished(op1(), succeeded, []byte(`{}`)) }, nil, fault.None},
		{"not_sent", func(r *rig) ledger.Operation { return r.finished(op1(), notSent, nil) }, nil, fault.RequestKeyConflict},
		{"refused", func(r *rig) ledger.Operation { return r.finished(op1(), refused, nil) }, nil, fault.RequestKeyConflict},
		{"open", func(r *rig) ledger.Operation { return r.begin(op1()) }, nil, fault.RequestKeyConflict},
		{"not there", func(*rig) ledger.Operation { return ledger.Operation{ID: "nobody"} }, nil, fault.OperationNotFound},
		{"another caller's", func(r *rig) ledger.Operation { return r.finished(op1(), inDoubt, nil) }, func(o *ledger.Operation) { o.Caller = "portal" }, fault.OperationNotFound},
		{"another actor's", func(r *rig) ledger.Operation { return r.finished(op1(), inDoubt, nil) }, func(o *ledger.Operation) { o.Actor = "user:8" }, fault.OperationNotFound},
		{"another server", func(r *rig) ledger.Operation { return r.finished(op1(), inDoubt, nil) }, func(o *ledger.Operation) { o.Server = "archive" }, fault.RequestKeyConflict},
		{"another tool", func(r *rig) ledger.Operation { return r.finished(op1(), inDoubt, nil) }, func(o *ledger.Operation) { o.Tool = "purge" }, fault.RequestKeyConflict},
		{"superseded already", func(r *rig) ledger.Operation {
			old := r.finished(op1(), inDoubt, nil)
			next := another(3)
			next.Supersedes = old.ID
			r.begin(next)
			return old
		}, nil, fault.RequestKeyConflict},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t)
			old := tc.make(r)
			next := another(2)
			next.Supersedes = old.ID
			if tc.change != nil {
				tc.change(&next)
			}
			_, begun, err := r.Begin(t.Context(), next, audit.Record{})
			if begun != (tc.want == fault.None) || err != nil && fault.ReasonOf(err) != tc.want {
				t.Fatalf("begun = %v, %v; want %q", begun, err, tc.want)
			}
			if err == nil && (r.get(old).SupersededBy != next.ID || r.get(next).Supersedes != old.ID) {
				t.Error("the two do not name each other")
			}
			if records := r.records(); err == nil && records[len(records)-1]["supersedes"] != old.ID {
				t.Error("the audit does not say what is superseded")
			}
		})
	}
}

// TestOneSecondRun: of many second runs at once, one begins.
func TestOneSecondRun(t *testing.T) {
	r := newRig(t)
	old := r.finished(op1(), inDoubt, nil)
	results := make(chan error)
	for n := range 20 {
		next := another(n + 2)
		next.Supersedes = old.ID
		go func() {
			_, _, err := r.Begin(t.Context(), next, audit.Record{})
			results <- err
		}()
	}
	begun := 0
	for range 20 {
		switch err := <-results; {
		case err == nil:
			begun++
		case fault.ReasonOf(err) != fault.RequestKeyConflict:
			t.Error(err)
		}
	}
	if begun != 1 {
		t.Errorf("%d second runs", begun)
	}
}

// TestSealed: a result is not in the file, and comes back whole; without its key
// all else is still told.
func TestSealed(t *testing.T) {
	r := newRig(t)
	key, err := seal.Own(secret.New("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="))
	if err != nil {
		t.Fatal(err)
	}
	r.box = seal.New(key)
	r.reopen()
	body := []byte(`{"content":[{"type":"text","text":"what-the-server-said"}]}`)
	op := r.finished(op1(), succeeded, body)
	if got := r.get(op); string(got.Result) != string(body) || got.Closed != fault.None {
		t.Errorf("%q", got.Result)
	}
	r.box = nil
	r.reopen()
	if got := r.get(op); got.Result != nil || got.Closed != fault.ResultClosed || got.Outcome != succeeded {
		t.Errorf("without the key: %q, %+v", got.Result, got.Outcome)
	}
	for _, suffix := range []string{"", "-wal"} {
		if raw, err := os.ReadFile(r.Path + suffix); err == nil && strings.Contains(string(raw), "what-the-server-said") {
			t.Errorf("the result is in broker.db%s", suffix)
		}
	}
}

// TestDoubtStays: what one attempt left in doubt no later one denies, also when
// a later one did not leave, or its process died before it did.
func TestDoubtStays(t *testing.T) {
	keyed := op1()
	keyed.Upstream, keyed.RepeatUntil = "argument key", noon.Add(time.Hour)
	second := func(t *testing.T, change func(*ledger.Operation)) (*rig, ledger.Operation, bool) {
		r := newRig(t)
		r.finished(keyed, inDoubt, nil)
		next := keyed
		next.JTI = ""
		if change != nil {
			change(&next)
		}
		got, begun, err := r.Begin(t.Context(), next, audit.Record{})
		if err != nil {
			t.Fatal(err)
		}
		return r, got, begun
	}
	unknown := func(t *testing.T, r *rig, cause fault.Reason) {
		t.Helper()
		got := r.get(keyed)
		if got.Outcome != fault.Doubt(cause) || got.Attempt != 2 || !got.Doubted {
			t.Errorf("%+v", got)
		}
	}
	t.Run("open", func(t *testing.T) {
		_, got, begun := second(t, nil)
		if !begun || got.Outcome.Ran != fault.RanUnknown || got.Outcome.Evidence != fault.EvidenceNone || !got.RepeatUntil.Equal(noon.Add(time.Hour)) {
			t.Errorf("%v, %+v", begun, got)
		}
	})
	t.Run("not sent", func(t *testing.T) {
		r, got, _ := second(t, nil)
		if err := r.Finish(t.Context(), got.ID, 2, got.Settled(notSent), nil, nil, "", audit.Record{}); err != nil {
			t.Fatal(err)
		}
		unknown(t, r, notSent.Cause)
	})
	t.Run("process died", func(t *testing.T) {
		r, _, _ := second(t, nil)
		r.reopen()
		if _, _, err := r.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		unknown(t, r, fault.ProcessDied)
	})
	t.Run("answered", func(t *testing.T) {
		r, got, _ := second(t, nil)
		if err := r.Sending(t.Context(), got.ID, 2, audit.Record{}); err != nil {
			t.Fatal(err)
		}
		if err := r.Finish(t.Context(), got.ID, 2, got.Settled(succeeded), []byte(`{}`), nil, "", audit.Record{}); err != nil || r.get(keyed).Outcome != succeeded {
			t.Errorf("%v, %v", err, r.get(keyed).Outcome)
		}
	})
	for name, change := range map[string]func(*ledger.Operation){
		"another way":  func(o *ledger.Operation) { o.Upstream = "meta a/b" },
		"no way":       func(o *ledger.Operation) { o.Upstream = "" },
		"after window": nil,
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.finished(keyed, inDoubt, nil)
			next := keyed
			next.JTI = ""
			if change == nil {
				r.Now = noon.Add(time.Hour)
			} else {
				change(&next)
			}
			if _, begun, err := r.Begin(t.Context(), next, audit.Record{}); begun || err != nil {
				t.Errorf("begun = %v, %v", begun, err)
			}
		})
	}
}
