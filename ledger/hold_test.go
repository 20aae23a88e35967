package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/ledger"
	"onbehalf.internal/broker/store"
)

// end takes an operation to its end, with the hold that Dropped is told.
func (r *rig) end(op ledger.Operation, hold string) {
	r.t.Helper()
	r.begin(op)
	ctx := r.t.Context()
	if err := errors.Join(
		r.Finish(ctx, op.ID, 1, notSent, nil, legs, ledger.HoldHeld, audit.Record{}),
		r.Dropped(ctx, op.ID, 1, hold, legs, audit.Record{})); err != nil {
		r.t.Fatal(err)
	}
}

// TestGone: a pending hold that has ended says so in its row and in a record of its
// own, which leaves the outcome, its time and its legs alone. What is settled stays.
func TestGone(t *testing.T) {
	for _, tc := range []struct {
		name, before, after string
		attempts            int
	}{
		{"pending", ledger.HoldPending, ledger.HoldDropped, 1},
		{"the drop was not written", ledger.HoldHeld, ledger.HoldDropped, 1},
		{"dropped", ledger.HoldDropped, ledger.HoldDropped, 1},
		{"expired", ledger.HoldExpired, ledger.HoldExpired, 1},
		{"another attempt holds", ledger.HoldPending, ledger.HoldHeld, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t)
			r.end(op1(), tc.before)
			if tc.attempts == 2 {
				again := op1()
				again.JTI = "jti2"
				r.begin(again)
			}
			want := r.get(op1())
			want.Hold = tc.after
			before := len(r.records())
			r.Now = noon.Add(time.Hour)
			if err := r.Gone(t.Context(), "op1", 1, ledger.HoldDropped, audit.Record{Actor: "user:7"}); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, r.get(op1())); diff != "" {
				t.Error(diff)
			}
			got := r.records()[before:]
			if len(got) != 1 || got[0]["kind"] != "drop" || got[0]["hold"] != "dropped" || got[0]["operation"] != "op1" || got[0]["attempt"] != 1.0 || got[0]["actor"] != "user:7" {
				t.Errorf("recorded %v", got)
			}
		})
	}
}

// TestExpire: what an earlier process left is over when the wait is, and not before;
// what this process has made pending meanwhile is not touched.
func TestExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.Store.Close()
		const many = 150 // more than one commit takes
		for n := range many {
			r.end(another(n), ledger.HoldPending)
		}
		r.begin(another(many)) // its process dies
		r.end(another(many+1), ledger.HoldDropped)
		if _, _, err := r.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		left, err := r.Pending(t.Context())
		if err != nil || len(left) != many+1 || left[0].ID != "op0" {
			t.Fatalf("%d are left, %v", len(left), err)
		}
		r.end(another(many+2), ledger.HoldPending)
		again := another(3)
		again.JTI = "jti-again"
		r.begin(again)
		before := len(r.records())

		began := time.Now()
		done := make(chan error)
		go func() { done <- r.Expire(t.Context(), left, 76*time.Second) }()
		time.Sleep(76*time.Second - time.Millisecond)
		if got := r.get(another(0)).Hold; got != ledger.HoldPending {
			t.Errorf("too early it is %q", got)
		}
		if err := <-done; err != nil || time.Since(began) != 76*time.Second {
			t.Fatalf("Expire = %v after %v", err, time.Since(began))
		}
		for n, want := range map[int]string{0: ledger.HoldExpired, 3: ledger.HoldHeld, many - 1: ledger.HoldExpired,
			many: ledger.HoldExpired, many + 1: ledger.HoldDropped, many + 2: ledger.HoldPending} {
			if got := r.get(another(n)).Hold; got != want {
				t.Errorf("op%d is %q, want %q", n, got, want)
			}
		}
		got := r.records()[before:]
		if len(got) != many+1 {
			t.Fatalf("%d records, want %d", len(got), many+1)
		}
		for _, rec := range got {
			cause := "connect_failed"
			if rec["operation"] == fmt.Sprint("op", many) {
				cause = "process_died"
			}
			if rec["kind"] != "drop" || rec["hold"] != "expired_with_epoch" || rec["state"] != "not_sent" || rec["reason"] != cause ||
				rec["actor"] != "user:7" || rec["server"] != "records" {
				t.Errorf("recorded %v", rec)
			}
		}
		if left, err := r.Pending(t.Context()); err != nil || len(left) != 1 {
			t.Errorf("%d are left, %v", len(left), err)
		}
	})
}

// TestExpireIsCutShort: a process that ends before the wait leaves it to the next.
func TestExpireIsCutShort(t *testing.T) {
	r := newRig(t)
	r.end(op1(), ledger.HoldPending)
	left, err := r.Pending(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	before := len(r.records())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Expire(ctx, left, time.Hour); err != nil {
		t.Errorf("Expire = %v", err)
	}
	if err := r.Expire(t.Context(), nil, time.Hour); err != nil {
		t.Errorf("Expire of nothing = %v", err)
	}
	if got := r.get(op1()).Hold; got != ledger.HoldPending || len(r.records()) != before {
		t.Errorf("it is %q, and %d records more", got, len(r.records())-before)
	}
	r.Fail = func(at store.Moment, _ []audit.Record) error {
		if at == store.Committing {
			return errors.New("the disk is gone")
		}
		return nil
	}
	if err := r.Expire(t.Context(), left, 0); fault.ReasonOf(err) != fault.StoreFailed {
		t.Errorf("Expire = %v", err)
	}
}
