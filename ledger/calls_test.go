package ledger_test

import (
	"sync"
	"testing"
	"time"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/ledger"
	"onbehalf.internal/broker/policy"
)

// TestCalls: a run has its calls, and an hour has, counted for one caller and one
// actor. A repeat of a key is no new call.
func TestCalls(t *testing.T) {
	r := newRig(t)
	begin := func(key, run string, change func(*ledger.Operation)) fault.Reason {
		op := another(0)
		op.ID, op.RequestKey, op.JTI = key, key, ""
		op.RunID, op.Calls = run, policy.Calls{PerRun: 2, PerHour: 5}
		if change != nil {
			change(&op)
		}
		_, _, err := r.Begin(t.Context(), op, audit.Record{})
		if err == nil {
			return fault.None
		}
		return fault.ReasonOf(err)
	}
	other := func(op *ledger.Operation) { op.Actor = "user:8" }
	for _, tc := range []struct {
		key, run string
		change   func(*ledger.Operation)
		want     fault.Reason
	}{
		{"a", "run", nil, fault.None},
		{"a", "run", nil, fault.None},
		{"b", "run", nil, fault.None},
		{"c", "run", nil, fault.RunBudgetSpent},
		{"a", "run", nil, fault.None},
		{"d", "run", other, fault.None},
		{"e", "another", nil, fault.None},
		{"f", "", nil, fault.None}, // no run: the hour counts it
		{"g", "", nil, fault.None},
		{"h", "", nil, fault.HourBudgetSpent},
		{"h", "", func(op *ledger.Operation) { op.Calls.PerHour = 0 }, fault.None},
		{"i", "run", func(op *ledger.Operation) { op.Calls = policy.Calls{} }, fault.None},
		{"j", "", other, fault.None},
	} {
		if got := begin(tc.key, tc.run, tc.change); got != tc.want {
			t.Errorf("%s of run %q: %q, want %q", tc.key, tc.run, got, tc.want)
		}
	}
	r.Now = r.Now.Add(time.Hour + time.Second)
	if got := begin("k", "", nil); got != fault.None {
		t.Errorf("an hour later: %q", got)
	}
	if got := begin("l", "run", nil); got != fault.RunBudgetSpent {
		t.Errorf("an hour later, in the run: %q", got)
	}
}

// TestCallsAtOnce: of any number that come at once, as many are begun as may be.
func TestCallsAtOnce(t *testing.T) {
	r := newRig(t)
	var all sync.WaitGroup
	begun := make(chan bool, 32)
	for n := range cap(begun) {
		all.Go(func() {
			op := another(n)
			op.RunID, op.Calls = "run", policy.Calls{PerRun: 7}
			_, ok, _ := r.Begin(t.Context(), op, audit.Record{})
			begun <- ok
		})
	}
	all.Wait()
	close(begun)
	n := 0
	for ok := range begun {
		if ok {
			n++
		}
	}
	if n != 7 {
		t.Errorf("%d were begun, want 7", n)
	}
}
