package operation_test

import (
	"errors"
	"fmt"
	"testing"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/brokertest"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/store"
)

// An approvalBroken is one commit of the path that fails, before or after it took
// effect, and what is left: on disk for the next process, and when everybody has
// carried on from there.
type approvalBroken struct {
	step string // the approval's decision in the record of the commit; or its kind
	at   store.Moment

	answer string // to the request whose commit it was: status, then state and cause, or reason
	left   string // state and cause after a restart, then what the approval says
	words  int    // times that a person has to decide from there on
	ran    int    // times the tool ran in the end
}

// TestEveryApprovalStepBroken: whatever commit fails, the call runs once, after a yes
// that is on disk, or, where it may have left, not again.
func TestEveryApprovalStepBroken(t *testing.T) {
	const failed = "503 store_failed"
	for _, row := range []approvalBroken{
		{"asked", store.Applying, failed, "never", 1, 1},
		{"asked", store.Committing, failed, "never", 1, 1},
		{"asked", store.Committed, failed, "awaiting_approval undecided", 1, 1},
		{"approved", store.Applying, failed, "awaiting_approval undecided", 1, 1},
		{"approved", store.Committing, failed, "awaiting_approval undecided", 1, 1},
		{"approved", store.Committed, failed, "awaiting_approval approved", 0, 1},
		{"denied", store.Applying, failed, "awaiting_approval undecided", 1, 1},
		{"denied", store.Committing, failed, "awaiting_approval undecided", 1, 1},
		{"denied", store.Committed, failed, "not_sent approval_denied denied", 1, 1},
		{"decision", store.Applying, failed, "awaiting_approval approved", 0, 1},
		{"decision", store.Committing, failed, "awaiting_approval approved", 0, 1},
		{"decision", store.Committed, failed, "not_sent process_died", 0, 1},
		{"sending", store.Applying, "200 not_sent store_failed", "not_sent store_failed", 0, 1},
		{"sending", store.Committing, "200 not_sent store_failed", "not_sent process_died", 0, 1},
		{"sending", store.Committed, "200 not_sent store_failed", "unknown process_died", 0, 0},
		{"outcome", store.Committing, "200 succeeded", "unknown process_died", 0, 1},
		{"outcome", store.Committed, "200 succeeded", "succeeded", 0, 1},
	} {
		t.Run(fmt.Sprint(row.step, " ", row.at), func(t *testing.T) {
			b := &bench{t: t}
			b.Rig = brokertest.New(t, &brokertest.Options{Tamper: b.interfere, Config: brokertest.Approving})
			call := brokertest.Call{Key: "k"}
			b.breakStep(row.step, row.at)
			if got := b.untilBroken(row.step, call); got != row.answer {
				t.Errorf("the answer is %q, want %q", got, row.answer)
			}
			if n := b.Records.Arrived("tools/call"); row.step != "outcome" && n != 0 {
				t.Errorf("%d calls have left", n)
			}
			b.must(b.Stop())
			b.tamper.Store(nil)
			b.must(b.Restart(t.Context()))
			if got := b.left(call); got != row.left {
				t.Errorf("left is %q, want %q", got, row.left)
			}
			if n := b.carryOn(call); n != row.words {
				t.Errorf("a person had to decide %d times, want %d", n, row.words)
			}
			if n := b.Records.Calls("whoami"); n != row.ran {
				t.Errorf("the tool ran %d times, want %d", n, row.ran)
			}
		})
	}
}

// breakStep breaks the commit with a record of this step.
func (b *bench) breakStep(step string, at store.Moment) {
	f := func(now store.Moment, records []audit.Record) error {
		for _, r := range records {
			if now == at && (string(r.Kind) == step || r.Kind == audit.Approval && r.Approved.Decision == step) {
				return errors.New("the disk is gone")
			}
		}
		return nil
	}
	b.tamper.Store(&f)
}

// untilBroken makes the requests in their order up to the one whose commit breaks.
func (b *bench) untilBroken(step string, call brokertest.Call) string {
	a := b.Call(b.t, call)
	if a.State != fault.AwaitingApproval {
		return fmt.Sprint(a.Status, " ", a.Reason)
	}
	word := "approve"
	if step == "denied" {
		word = "deny"
	}
	if d := b.Decide(b.t, a, word); d.Status != 200 {
		return fmt.Sprint(d.Status, " ", d.Reason)
	}
	if a = b.Call(b.t, call); a.State == "" {
		return fmt.Sprint(a.Status, " ", a.Reason)
	}
	return words(fmt.Sprint(a.Status), string(a.State), string(a.Cause))
}

func words(all ...string) (s string) {
	for _, w := range all {
		if w != "" && s != "" {
			s += " "
		}
		s += w
	}
	return s
}

// left is what the next process says of the call.
func (b *bench) left(call brokertest.Call) string {
	a := b.Get(b.t, "/v1/operations?request_key="+call.Key, call)
	switch {
	case a.Status == 404:
		return "never"
	case a.Approval == nil:
		return words(string(a.State), string(a.Cause))
	case a.Approval.Decision == "":
		return words(string(a.State), string(a.Cause), "undecided")
	}
	return words(string(a.State), string(a.Cause), a.Approval.Decision)
}

// carryOn is what a gateway and a person do from there, until nothing is left to do.
func (b *bench) carryOn(call brokertest.Call) (words int) {
	for range 4 {
		a := b.Call(b.t, call)
		switch {
		case a.State == fault.AwaitingApproval:
			ok(b.t, b.Decide(b.t, a, "approve"))
			words++
		case a.Retry != fault.RetrySafe:
			return words
		}
	}
	return words
}
