package ledger_test

import (
	"os"
	"testing"
	"time"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/fault"
)

// TestCopy: a copy knows what was, and the original went on. Whatever had not run
// by then may have run since, so that the copy begins none of it again.
func TestCopy(t *testing.T) {
	for _, row := range []struct {
		name  string
		end   fault.Outcome // as the copy has it; zero: it is open
		sent  bool
		want  fault.Outcome
		retry fault.Retry
	}{
		{"reserved", fault.Outcome{}, false, fault.Doubt(fault.ProcessDied), fault.RetryLookFirst},
		{"sending", fault.Outcome{}, true, fault.Doubt(fault.ProcessDied), fault.RetryLookFirst},
		{"not sent", notSent, false, fault.Doubt(fault.NoRecord), fault.RetryLookFirst},
		{"refused", refused, true, fault.Doubt(fault.NoRecord), fault.RetryLookFirst},
		{"in doubt", inDoubt, true, inDoubt, fault.RetryLookFirst},
		{"succeeded", succeeded, true, succeeded, fault.RetryNever},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := newRig(t)
			op := r.begin(another(1))
			if row.sent {
				r.must(r.Sending(t.Context(), op.ID, 1, audit.Record{}))
			}
			if row.end != (fault.Outcome{}) {
				r.must(r.Finish(t.Context(), op.ID, 1, row.end, nil, nil, "", audit.Record{}))
			}
			r.Store.Close()
			r.must(os.Remove(r.Path + ".lock")) // a copy is what comes without it
			for range 2 {                       // and stays one
				r.Now = r.Now.Add(time.Hour)
				r.reopen()
				if _, _, err := r.Recover(t.Context()); err != nil {
					t.Fatal(err)
				}
				if got := r.get(op); got.Outcome != row.want || got.Retry(r.Now) != row.retry {
					t.Errorf("it is %v, retry %s", got.Outcome, got.Retry(r.Now))
				}
				got, begun, err := r.Begin(t.Context(), another(1), audit.Record{})
				if begun || err != nil || got.ID != op.ID || got.Outcome != row.want {
					t.Errorf("its key again: %v, %v, %v", got.Outcome, begun, err)
				}
			}
			second := another(2)
			second.Supersedes = op.ID
			if _, begun, err := r.Begin(t.Context(), second, audit.Record{}); !begun || err != nil {
				t.Errorf("a second run: %v, %v", begun, err)
			}
			fresh := r.begin(another(3))
			r.must(r.Finish(t.Context(), fresh.ID, 1, notSent, nil, nil, "", audit.Record{}))
			if _, begun, err := r.Begin(t.Context(), another(3), audit.Record{}); !begun || err != nil {
				t.Errorf("what the new ledger has seen itself: %v, %v", begun, err)
			}
			r.records()
		})
	}
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}
