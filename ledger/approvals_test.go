package ledger_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/ledger"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/store"
)

var (
	call    = [32]byte{7} // the digest of the very call
	eight   = policy.Consent{By: "people", Issuer: "https://people.example", Subject: "user:8", Admin: true}
	waiting = fault.Outcome{State: fault.AwaitingApproval, Ran: fault.RanNo, Evidence: fault.EvidenceLocal}
)

func yes(jti string) ledger.Word {
	return ledger.Word{Approver: eight, JTI: jti, Digest: call, Approved: true, Reason: "looked"}
}

func no(jti string) ledger.Word {
	w := yes(jti)
	w.Approved = false
	return w
}

// ask has op wait for a quarter of an hour.
func (r *rig) ask(op ledger.Operation) ledger.Operation {
	r.t.Helper()
	got, asked, err := r.Ask(r.t.Context(), op, ledger.Approval{Digest: call, Pin: "sha256:1", Arguments: []byte(`{ "q" : 1 }`), Expires: r.Now.Add(15 * time.Minute)}, audit.Record{})
	if err != nil || !asked {
		r.t.Fatalf("Ask = %v, %v", asked, err)
	}
	return got
}

func (r *rig) decide(op ledger.Operation, w ledger.Word) ledger.Operation {
	r.t.Helper()
	got, repeated, err := r.Decide(r.t.Context(), op.ID, w)
	if err != nil || repeated {
		r.t.Fatalf("Decide = %v, %v", repeated, err)
	}
	return got
}

func (r *rig) send(op ledger.Operation) error {
	return r.SendingApproved(r.t.Context(), op.ID, op.Attempt, call, audit.Record{})
}

// TestApproved: asked, decided, begun as the same attempt and sent, with a new
// process between every two steps; then the approval is used up.
func TestApproved(t *testing.T) {
	r := newRig(t)
	again := func() {
		t.Helper()
		r.reopen()
		if a, b, err := r.Recover(t.Context()); a+b != 0 || err != nil {
			t.Fatalf("Recover = %d, %d, %v", a, b, err)
		}
	}
	op := r.ask(op1())
	again()
	if got := r.get(op); got.Outcome != waiting || got.Attempt != 1 || got.Hold != "" || !got.Deadline.Equal(noon.Add(15*time.Minute)) || got.Approval == nil || got.Approval.Digest != call {
		t.Fatalf("%+v, %+v", got, got.Approval)
	}
	list, err := r.Awaiting(t.Context(), 10, 1<<20)
	if err != nil || len(list) != 1 || string(list[0].Approval.Arguments) != `{ "q" : 1 }` || list[0].Approval.Pin != "sha256:1" {
		t.Fatalf("%+v, %v", list, err)
	}
	r.decide(op, yes("a"))
	again()
	if got := r.get(op); got.Outcome != waiting || got.Approval.Decision != ledger.Approved || got.Approval.Approver != eight || !got.Approval.Allows(call, r.Now) {
		t.Fatalf("%+v", got.Approval)
	}
	if list, err := r.Awaiting(t.Context(), 10, 1<<20); err != nil || len(list) != 0 {
		t.Errorf("what was decided is pending: %v, %v", list, err)
	}
	begun := r.begin(op1())
	if begun.Attempt != 1 || begun.ID != op.ID || begun.Outcome.State != fault.Reserved {
		t.Errorf("%+v", begun)
	}
	r.must(r.send(begun))
	r.must(r.Finish(t.Context(), op.ID, 1, refused, nil, nil, "", audit.Record{}))
	again()
	if got := r.get(op); got.Approval.Consumed.IsZero() || got.Approval.Allows(call, r.Now) {
		t.Errorf("it is good for another call: %+v", got.Approval)
	}
	second := r.begin(op1())
	if err := r.send(second); fault.ReasonOf(err) != fault.ApprovalVoid || second.Attempt != 2 {
		t.Errorf("the second time: %v", err)
	}
	kinds := fmt.Sprint(r.kinds())
	want := "[approval op1 1 recovery approval op1 1 awaiting_approval recovery decision op1 1 sending op1 1 sending outcome op1 1 refused status_refused recovery decision op1 2]"
	if kinds != want {
		t.Errorf("%s\nwant %s", kinds, want)
	}
}

// TestSendingApproved: what is not approved, for this very call, and now, is not sent:
// the operation stays reserved. A record of the used approval is with what is.
func TestSendingApproved(t *testing.T) {
	for _, row := range []struct {
		name   string
		before func(*rig, ledger.Operation)
		digest [32]byte
		want   fault.Reason
	}{
		{"approved", func(r *rig, op ledger.Operation) { r.decide(op, yes("a")) }, call, fault.None},
		{"nobody has decided", func(*rig, ledger.Operation) {}, call, fault.ApprovalVoid},
		{"another call", func(r *rig, op ledger.Operation) { r.decide(op, yes("a")) }, [32]byte{8}, fault.ApprovalVoid},
		{"too late", func(r *rig, op ledger.Operation) {
			r.decide(op, yes("a"))
			r.Now = r.Now.Add(15 * time.Minute)
		}, call, fault.ApprovalVoid},
		{"at the last moment", func(r *rig, op ledger.Operation) {
			r.decide(op, yes("a"))
			r.Now = r.Now.Add(15*time.Minute - 1)
		}, call, fault.None},
	} {
		r := newRig(t)
		op := r.ask(op1())
		row.before(r, op)
		r.begin(op1())
		err := r.SendingApproved(t.Context(), op.ID, 1, row.digest, audit.Record{})
		if (err != nil || row.want != fault.None) && fault.ReasonOf(err) != row.want {
			t.Errorf("%s: %v", row.name, err)
		}
		if sent := r.get(op).Outcome.State == fault.Sending; sent != (row.want == fault.None) {
			t.Errorf("%s: sent %v", row.name, sent)
		}
	}
	r := newRig(t)
	op := r.begin(op1())
	if err := r.send(op); fault.ReasonOf(err) != fault.ApprovalVoid || r.get(op).Outcome.State != fault.Reserved {
		t.Errorf("nobody was asked: %v", err)
	}
}

// TestDecided: what keeps a word from being taken, and that nothing changes then.
func TestDecided(t *testing.T) {
	with := func(w ledger.Word, change func(*ledger.Word)) ledger.Word {
		change(&w)
		return w
	}
	nine := func(w *ledger.Word) { w.Approver.Subject = "user:9" }
	approve := func(r *rig, op ledger.Operation) { r.decide(op, yes("a")) }
	for _, row := range []struct {
		name     string
		before   func(*rig, ledger.Operation)
		word     ledger.Word
		want     fault.Reason
		repeated bool
	}{
		{"another digest", nil, with(yes("a"), func(w *ledger.Word) { w.Digest = [32]byte{8} }), fault.ApprovalMismatch, false},
		{"the same again", approve, yes("a"), fault.None, true},
		{"the same by another assertion", approve, yes("b"), fault.None, true},
		{"the same of another call", approve, with(yes("b"), func(w *ledger.Word) { w.Digest = [32]byte{8} }), fault.ApprovalMismatch, false},
		{"a no after a yes", approve, no("b"), fault.NotAwaiting, false},
		{"another person's yes", approve, with(yes("b"), nine), fault.NotAwaiting, false},
		{"a person of another issuer", approve, with(yes("b"), func(w *ledger.Word) { w.Approver.Issuer = "https://x" }), fault.NotAwaiting, false},
		{"a no again", func(r *rig, op ledger.Operation) { r.decide(op, no("a")) }, no("a"), fault.None, true},
		{"a yes after a no", func(r *rig, op ledger.Operation) { r.decide(op, no("a")) }, yes("b"), fault.NotAwaiting, false},
		{"too late", func(r *rig, _ ledger.Operation) { r.Now = r.Now.Add(15 * time.Minute) }, yes("a"), fault.ApprovalExpired, false},
		{"after the sweep", func(r *rig, _ ledger.Operation) {
			r.Now = r.Now.Add(15 * time.Minute)
			r.Sweep(r.t.Context())
		}, yes("a"), fault.ApprovalExpired, false},
		{"cancelled", func(r *rig, op ledger.Operation) { r.EndAwaiting(r.t.Context(), op, fault.CallerCancelled) }, yes("a"), fault.NotAwaiting, false},
		{"it runs without", func(r *rig, _ ledger.Operation) { r.begin(op1()) }, yes("a"), fault.NotAwaiting, false},
		{"of another call", func(r *rig, _ ledger.Operation) { r.decide(r.ask(another(2)), yes("a")) }, yes("a"), fault.AssertionReplayed, false},
		{"a repeat, of another call", func(r *rig, op ledger.Operation) {
			r.decide(op, yes("b"))
			r.decide(r.ask(another(2)), yes("a"))
		}, yes("a"), fault.AssertionReplayed, false},
		{"the jti of another issuer", func(r *rig, _ ledger.Operation) {
			r.decide(r.ask(another(2)), with(yes("a"), func(w *ledger.Word) { w.Approver.Issuer = "https://x" }))
		}, yes("a"), fault.None, false},
	} {
		r := newRig(t)
		op := r.ask(op1())
		if row.before != nil {
			row.before(r, op)
		}
		before := r.get(op)
		_, repeated, err := r.Decide(t.Context(), op.ID, row.word)
		if (err != nil || row.want != fault.None) && fault.ReasonOf(err) != row.want || repeated != row.repeated {
			t.Errorf("%s: %v, %v, want %q", row.name, repeated, err, row.want)
		}
		after := r.get(op)
		if (err != nil || repeated) && (before.Outcome != after.Outcome || fmt.Sprint(before.Approval) != fmt.Sprint(after.Approval)) {
			t.Errorf("%s: %+v was %+v", row.name, after.Approval, before.Approval)
		}
	}
	r := newRig(t)
	r.begin(op1())
	for _, id := range []string{"op1", "op2"} {
		if _, _, err := r.Decide(t.Context(), id, yes("a")); fault.ReasonOf(err) != fault.ApprovalNotFound {
			t.Errorf("%s: %v", id, err)
		}
	}
}

// TestDenied: a no ends the operation in one commit with the word; the same key asks
// anew, with another attempt and another approval.
func TestDenied(t *testing.T) {
	r := newRig(t)
	op := r.decide(r.ask(op1()), no("a"))
	if op.Outcome != fault.NotSentBecause(fault.ApprovalDenied) || r.get(op).Outcome != op.Outcome || r.get(op).Approval.Reason != "looked" {
		t.Errorf("%v", op.Outcome)
	}
	if kinds := fmt.Sprint(r.kinds()); kinds != "[approval op1 1 approval op1 1 awaiting_approval outcome op1 1 not_sent approval_denied]" {
		t.Errorf("%s", kinds)
	}
	next := r.ask(op1())
	if next.ID != op.ID || next.Attempt != 2 || next.Approval.Decision != "" || r.get(op).Approval.Decision != "" {
		t.Errorf("%+v", next)
	}
	if _, asked, err := r.Ask(t.Context(), op1(), ledger.Approval{Digest: call, Expires: r.Now.Add(time.Hour)}, audit.Record{}); asked || err != nil {
		t.Errorf("asked twice: %v, %v", asked, err)
	}
	r.decide(op, yes("b"))
	if begun := r.begin(op1()); begun.Attempt != 2 || r.send(begun) != nil {
		t.Errorf("%+v", begun)
	}
}

// TestUnusedApproval: an attempt that ended before it was sent has not used it.
func TestUnusedApproval(t *testing.T) {
	r := newRig(t)
	r.decide(r.ask(op1()), yes("a"))
	for attempt := 1; attempt <= 2; attempt++ {
		op := r.begin(op1())
		r.must(r.Finish(t.Context(), op.ID, attempt, notSent, nil, nil, "", audit.Record{}))
	}
	if op := r.begin(op1()); op.Attempt != 3 || r.send(op) != nil {
		t.Errorf("%+v", op)
	}
}

// TestLapse: the sweep ends what has waited too long, decided or not, and nothing
// else; what waited is gone with its operation.
func TestLapse(t *testing.T) {
	r := newRig(t)
	first, approved := r.ask(another(1)), r.ask(another(2))
	r.decide(approved, yes("a"))
	r.Now = noon.Add(10 * time.Minute)
	late := r.ask(another(3))
	r.Now = noon.Add(15 * time.Minute)
	if _, err := r.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, op := range []ledger.Operation{first, approved} {
		if got := r.get(op); got.Outcome != fault.NotSentBecause(fault.ApprovalExpired) || !got.Updated.Equal(r.Now) {
			t.Errorf("%s is %v", op.ID, got.Outcome)
		}
	}
	if got := r.get(late); got.Outcome != waiting {
		t.Errorf("%s is %v", late.ID, got.Outcome)
	}
	r.Now = noon.Add(40 * 24 * time.Hour)
	for more := true; more; {
		var err error
		if more, err = r.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	var left int
	if err := r.Store.Read().QueryRow(`SELECT (SELECT COUNT(*) FROM approvals) + (SELECT COUNT(*) FROM operations)`).Scan(&left); err != nil || left != 0 {
		t.Errorf("%d rows are left, %v", left, err)
	}
}

// TestApprovalInACopy: what waits in a copy may have run in the original.
func TestApprovalInACopy(t *testing.T) {
	r := newRig(t)
	op := r.ask(op1())
	r.decide(op, yes("a"))
	r.Store.Close()
	r.must(os.Remove(r.Path + ".lock"))
	r.Now = r.Now.Add(time.Minute)
	r.reopen()
	if _, _, err := r.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := r.get(op); got.Outcome != fault.Doubt(fault.ProcessDied) {
		t.Errorf("%v", got.Outcome)
	}
	if _, begun, err := r.Begin(t.Context(), op1(), audit.Record{}); begun || err != nil {
		t.Errorf("its key runs: %v, %v", begun, err)
	}
}

// TestApprovalInDoubt: what is in doubt at a server that honours keys may be made
// again in time alone, and is in doubt still if nobody approves.
func TestApprovalInDoubt(t *testing.T) {
	for _, late := range []bool{false, true} {
		r := newRig(t)
		keyed := op1()
		keyed.Upstream, keyed.RepeatUntil = "meta k", noon.Add(5*time.Minute)
		op := r.begin(keyed)
		r.must(r.Sending(t.Context(), op.ID, 1, audit.Record{}))
		r.must(r.Finish(t.Context(), op.ID, 1, inDoubt, nil, nil, "", audit.Record{}))
		asked := r.ask(keyed)
		if asked.Attempt != 2 || asked.Outcome.Ran != fault.RanUnknown {
			t.Errorf("%+v", asked.Outcome)
		}
		if late {
			r.Now = keyed.RepeatUntil
		}
		r.decide(op, yes("a"))
		if _, begun, err := r.Begin(t.Context(), keyed, audit.Record{}); begun == late || err != nil {
			t.Errorf("late %v: begun %v, %v", late, begun, err)
		}
		if late {
			if got, err := r.EndAwaiting(t.Context(), r.get(op), fault.ApprovalExpired); err != nil || got.Outcome != fault.Doubt(fault.ApprovalExpired) {
				t.Errorf("%v, %v", got.Outcome, err)
			}
		}
	}
}

// TestAwaitingBounds: a list is bounded by number and by bytes, oldest first; what
// may wait is bounded, too.
func TestAwaitingBounds(t *testing.T) {
	r := newRig(t)
	for n := range 1000 {
		r.Now = noon.Add(time.Duration(n))
		r.ask(another(n))
	}
	for _, row := range []struct{ limit, atMost, want int }{{100, 1 << 20, 100}, {100, 22, 2}, {100, 1, 1}} {
		list, err := r.Awaiting(t.Context(), row.limit, row.atMost)
		if err != nil || len(list) != row.want || list[0].ID != "op0" || list[len(list)-1].ID != fmt.Sprint("op", row.want-1) {
			t.Errorf("%+v: %d, %v", row, len(list), err)
		}
	}
	if _, asked, err := r.Ask(t.Context(), another(1000), ledger.Approval{Expires: r.Now.Add(time.Hour)}, audit.Record{}); asked || fault.ReasonOf(err) != fault.TooManyOperations {
		t.Errorf("one more: %v, %v", asked, err)
	}
}

// TestArgumentsAreSealed: with a key they are not in the file, and they open for
// their operation alone, as arguments alone.
func TestArgumentsAreSealed(t *testing.T) {
	r, v := newRig(t), &vault{}
	r.box = v.box()
	r.reopen()
	op := r.ask(op1())
	var sealed []byte
	if err := r.Store.Read().QueryRow(`SELECT arguments FROM approvals`).Scan(&sealed); err != nil || bytes.Contains(sealed, []byte(`"q"`)) {
		t.Fatalf("%q, %v", sealed, err)
	}
	r.ask(another(2))
	r.must(r.Store.Commit(t.Context(), func(tx *store.Tx) error {
		_, err := tx.Exec(`UPDATE approvals SET arguments = ? WHERE operation = 'op2'`, sealed)
		_, err2 := tx.Exec(`INSERT INTO results (operation, body, created) VALUES ('op1', ?, 0)`, sealed)
		return errors.Join(err, err2)
	}))
	list, err := r.Awaiting(t.Context(), 10, 1<<20)
	if err != nil || len(list) != 2 || string(list[0].Approval.Arguments) != `{ "q" : 1 }` || list[1].Approval.Closed != fault.ResultClosed || list[1].Approval.Arguments != nil {
		t.Errorf("%+v, %+v, %v", list[0].Approval, list[1].Approval, err)
	}
	if got := r.get(op); got.Result != nil || got.Closed != fault.ResultClosed {
		t.Errorf("as a result: %q", got.Result)
	}
}
