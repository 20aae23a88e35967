package ledger_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/ledger"
	"onbehalf.internal/broker/store"
)

var word = ledger.Resolution{By: "admin", At: noon.Add(time.Hour), Reason: `the order "7" is not there – ü`}

func (r *rig) resolve(n, attempt int, ran bool, word ledger.Resolution) (ledger.Operation, bool, error) {
	return r.Resolve(r.t.Context(), another(n).ID, attempt, ran, word)
}

// resolves is resolve that has to write.
func (r *rig) resolves(n, attempt int, ran bool) {
	r.t.Helper()
	if _, repeated, err := r.resolve(n, attempt, ran, word); repeated || err != nil {
		r.t.Fatalf("Resolve = %v, %v", repeated, err)
	}
}

// A former is a state before a word, and how an operation gets there.
type former struct {
	name  string
	reach func(r *rig, n int)
}

func steps(outs ...fault.Outcome) func(*rig, int) {
	return func(r *rig, n int) {
		r.begin(another(n))
		for _, out := range outs {
			if err := r.step(n, 1, out); err != nil {
				r.t.Fatal(err)
			}
		}
	}
}

func aged(result []byte, out fault.Outcome) func(*rig, int) {
	return func(r *rig, n int) {
		r.finished(another(n), out, result)
		r.Now = noon.Add(8 * 24 * time.Hour)
		r.sweepAll()
	}
}

func resolvedBefore(ran bool) func(*rig, int) {
	return func(r *rig, n int) {
		r.finished(another(n), inDoubt, nil)
		r.resolves(n, 1, ran)
	}
}

func superseded(r *rig, n int) {
	r.finished(another(n), inDoubt, nil)
	second := another(n + 100)
	second.Supersedes = another(n).ID
	r.begin(second)
}

// TestResolve: each word in each state. What is refused changes and writes
// nothing, and says what stands.
func TestResolve(t *testing.T) {
	const takes, repeats = "", "repeats"
	for _, tc := range []struct {
		former
		yes, no string // takes, repeats, or a part of the detail
	}{
		{former{"reserved", steps()}, "is reserved, ran no: it is still open", "is still open"},
		{former{"sending", steps(sending)}, "is sending, ran unknown: it is still open", "is still open"},
		{former{"succeeded", steps(sending, succeeded)}, "is succeeded, ran yes: it is not in doubt", "not in doubt"},
		{former{"tool_error", steps(sending, toolError)}, "is tool_error, ran yes: it is not in doubt", "not in doubt"},
		{former{"refused", steps(sending, refused)}, "is refused, ran no: it is not in doubt", "not in doubt"},
		{former{"not_sent", steps(notSent)}, "is not_sent, ran no: it is not in doubt", "not in doubt"},
		{former{"expired, ran", aged([]byte(`{}`), succeeded)}, "is expired, ran yes: it is not in doubt", "not in doubt"},
		{former{"unknown", steps(sending, inDoubt)}, takes, takes},
		{former{"rpc_error", func(r *rig, n int) { r.finished(another(n), rpcError, []byte(`{}`)) }}, takes, takes},
		{former{"expired, in doubt", aged([]byte(`{}`), rpcError)}, takes, takes},
		{former{"resolved_ran", resolvedBefore(true)}, repeats, "is resolved_ran, ran yes: who was told so"},
		{former{"resolved_not_ran", resolvedBefore(false)}, takes, repeats},
		{former{"superseded", superseded}, takes, `it has been superseded by "op1`},
	} {
		for n, want := range []string{tc.no, tc.yes} {
			ran := n == 1
			t.Run(fmt.Sprint(tc.name, " ran=", ran), func(t *testing.T) {
				r := newRig(t)
				tc.reach(r, n)
				before, records := r.get(another(n)), len(r.records())
				later := word
				later.By, later.At = "second", word.At.Add(time.Minute)
				got, repeated, err := r.resolve(n, 1, ran, later)
				after := r.get(another(n))
				switch want {
				case takes:
					expect := before
					expect.Outcome, expect.Resolution = resolvedAs(ran, before.Outcome.Cause), &later
					if diff := cmp.Diff(expect, after); diff != "" || repeated || err != nil || len(r.records()) != records+1 {
						t.Errorf("%v, %v, %s, %d records", repeated, err, diff, len(r.records())-records)
					}
					expect.Result = nil
					if diff := cmp.Diff(expect, got); diff != "" {
						t.Errorf("the answer: %s", diff)
					}
				case repeats:
					if diff := cmp.Diff(before, after); diff != "" || !repeated || err != nil || got.Resolution.By != "admin" || len(r.records()) != records {
						t.Errorf("%v, %v, %s, %v", repeated, err, diff, got.Resolution)
					}
				default:
					var e *fault.Error
					if !errors.As(err, &e) || e.Reason != fault.NotInDoubt || !strings.Contains(e.Detail, want) || repeated {
						t.Errorf("Resolve = %v, %v", repeated, err)
					}
					if diff := cmp.Diff(before, after); diff != "" || len(r.records()) != records {
						t.Errorf("refused, but %s, %d records", diff, len(r.records())-records)
					}
				}
			})
		}
	}
}

func resolvedAs(ran bool, cause fault.Reason) fault.Outcome {
	if ran {
		return fault.Outcome{State: fault.ResolvedRan, Ran: fault.RanYes, Evidence: fault.EvidenceOperator, Cause: cause}
	}
	return fault.Outcome{State: fault.ResolvedNotRan, Ran: fault.RanNo, Evidence: fault.EvidenceOperator, Cause: cause}
}

// TestResolutionRecord: the audit has who did it and why, and whose operation it is.
func TestResolutionRecord(t *testing.T) {
	r := newRig(t)
	r.finished(another(1), inDoubt, nil)
	r.resolves(1, 1, false)
	records := r.records()
	got := records[len(records)-1]
	for _, name := range []string{"seq", "prev", "v", "hash"} {
		delete(got, name)
	}
	if diff := cmp.Diff(map[string]any{
		"kind": "resolution", "time": "2026-11-30T13:00:00.000000000Z", "caller": "gateway", "actor": "user:7", "operation": "op1", "attempt": 1.0,
		"request_key": audit.DigestOf("key1").String(), "server": "records", "tool": "search", "arguments": audit.Digest(op1().Arguments).String(),
		"state": "resolved_not_ran", "ran": "no", "evidence": "operator", "reason": "connection_lost",
		"resolution": map[string]any{"by": "admin", "text": word.Reason},
	}, got); diff != "" {
		t.Error(diff)
	}
	if _, _, err := r.Resolve(t.Context(), "none", 1, true, word); fault.ReasonOf(err) != fault.OperationNotFound {
		t.Errorf("of none: %v", err)
	}
}

// TestResolvedRunsAgain: what did not run runs again by its key, as its next
// attempt, of which nobody has said anything; what ran does not.
func TestResolvedRunsAgain(t *testing.T) {
	r := newRig(t)
	for n, ran := range []bool{false, true} {
		op := r.finished(another(n), rpcError, []byte(`{"code":-32603}`))
		r.resolves(n, 1, ran)
		if got := r.get(op); string(got.Result) != `{"code":-32603}` {
			t.Errorf("the error of the server is %q", got.Result)
		}
		again := another(n)
		again.Resolution = &word // which is not for Begin to say
		got, begun, err := r.Begin(t.Context(), again, audit.Record{})
		if begun == ran || err != nil {
			t.Fatalf("ran=%v: Begin = %v, %v", ran, begun, err)
		}
		if ran {
			continue
		}
		if got.Attempt != 2 || got.Outcome != reserved || got.Resolution != nil || got.Result != nil || r.get(op).Resolution != nil {
			t.Errorf("the next attempt: %+v", got)
		}
		// A word about the first attempt, late or twice, is not about the second.
		for _, late := range []bool{false, true} {
			if _, _, err := r.resolve(n, 1, late, word); fault.ReasonOf(err) != fault.NotInDoubt {
				t.Errorf("late: %v", err)
			}
		}
		if err := errors.Join(r.step(n, 2, sending), r.step(n, 2, inDoubt)); err != nil {
			t.Fatal(err)
		}
		for _, late := range []bool{false, true} {
			if _, _, err := r.resolve(n, 1, late, word); fault.ReasonOf(err) != fault.NotInDoubt {
				t.Errorf("about another attempt that is in doubt: %v", err)
			}
		}
		r.resolves(n, 2, true)
		if _, repeated, err := r.resolve(n, 1, true, word); repeated || fault.ReasonOf(err) != fault.NotInDoubt {
			t.Errorf("the word about the second attempt, about the first: %v, %v", repeated, err)
		}
	}
}

// TestResolvedWhole: a no speaks of every attempt, so that a later one that does
// not leave is not in doubt for an earlier one's sake.
func TestResolvedWhole(t *testing.T) {
	r := newRig(t)
	op := another(1)
	op.Upstream, op.RepeatUntil = "argument job", noon.Add(time.Hour)
	r.finished(op, inDoubt, nil)
	if got := r.begin(op); !got.Doubted {
		t.Fatal("the second attempt does not know of the first")
	}
	if err := r.step(1, 2, inDoubt); err != nil {
		t.Fatal(err)
	}
	r.resolves(1, 2, false)
	third := r.begin(op)
	if third.Attempt != 3 || third.Doubted || third.Outcome != reserved || third.Settled(notSent) != notSent {
		t.Errorf("%+v", third)
	}
}

// TestResolvedIsKept: results age out and the word stays, with its advice; then all
// of it goes. It survives a process.
func TestResolvedIsKept(t *testing.T) {
	r := newRig(t)
	for n, ran := range []bool{false, true} {
		r.finished(another(n), rpcError, []byte(`{}`))
		r.resolves(n, 1, ran)
	}
	r.reopen()
	r.Now = noon.Add(8 * 24 * time.Hour)
	r.sweepAll()
	for n, ran := range []bool{false, true} {
		got := r.get(another(n))
		if got.Outcome != resolvedAs(ran, fault.ServerError) || got.Result != nil || got.Resolution == nil || *got.Resolution != word {
			t.Errorf("after a week: %+v", got)
		}
	}
	r.Now = noon.Add(31 * 24 * time.Hour)
	r.sweepAll()
	if _, _, err := r.resolve(0, 1, true, word); fault.ReasonOf(err) != fault.OperationNotFound {
		t.Errorf("after a month: %v", err)
	}
}

// TestResolvedOrSuperseded: it has one way to run again, whoever comes first.
func TestResolvedOrSuperseded(t *testing.T) {
	r := newRig(t)
	r.finished(another(1), inDoubt, nil)
	r.resolves(1, 1, false)
	second := another(2)
	second.Supersedes = "op1"
	if _, _, err := r.Begin(t.Context(), second, audit.Record{}); fault.ReasonOf(err) != fault.RequestKeyConflict {
		t.Errorf("superseding what its own key may run: %v", err)
	}
	r.resolves(1, 1, true)
	if got := r.begin(second); got.Supersedes != "op1" {
		t.Errorf("superseding what ran: %+v", got)
	}
}

// TestResolvedAtOnce: of many words, many repeats of the key, and a sweep, one
// word is taken, or the no and then the yes; the key begins at most one attempt.
func TestResolvedAtOnce(t *testing.T) {
	for range 5 {
		r := newRig(t)
		r.finished(another(1), inDoubt, nil)
		var all sync.WaitGroup
		var mu sync.Mutex
		taken, begun := map[bool]int{}, 0
		for i := range 8 {
			all.Go(func() {
				if _, repeated, err := r.resolve(1, 1, i%2 == 0, word); err == nil && !repeated {
					mu.Lock()
					defer mu.Unlock()
					taken[i%2 == 0]++
				} else if err != nil && fault.ReasonOf(err) != fault.NotInDoubt {
					t.Error(err)
				}
			})
			all.Go(func() {
				_, ok, err := r.Begin(t.Context(), another(1), audit.Record{})
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					t.Error(err)
				} else if ok {
					begun++
				}
			})
			all.Go(func() { r.Sweep(t.Context()) })
		}
		all.Wait()
		got := r.get(another(1))
		wasNo, wasYes := taken[false], taken[true]
		switch {
		case wasNo > 1 || wasYes > 1 || begun > 1 || wasNo+wasYes == 0:
			t.Errorf("taken %v, begun %d", taken, begun)
		case begun == 1 && (wasNo != 1 || wasYes != 0 || got.Attempt != 2):
			t.Errorf("begun after %v; %+v", taken, got.Outcome)
		case begun == 0 && wasYes == 1 && got.Outcome.State != fault.ResolvedRan:
			t.Errorf("taken %v, and it is %s", taken, got.Outcome.State)
		}
	}
}

// TestResolveFails: a commit that fails leaves neither word nor record.
func TestResolveFails(t *testing.T) {
	r := newRig(t)
	r.finished(another(1), inDoubt, nil)
	r.Fail = func(at store.Moment, _ []audit.Record) error {
		if at == store.Applying {
			return errors.New("no")
		}
		return nil
	}
	if _, _, err := r.resolve(1, 1, false, word); fault.ReasonOf(err) != fault.StoreFailed {
		t.Errorf("Resolve = %v", err)
	}
	r.Fail = nil
	r.reopen()
	if got := r.get(another(1)); got.Outcome != inDoubt || got.Resolution != nil {
		t.Errorf("%+v", got)
	}
}

// TestInDoubt: of all callers, newest first, what a word may be said about.
func TestInDoubt(t *testing.T) {
	r := newRig(t)
	for n, out := range []fault.Outcome{inDoubt, succeeded, rpcError, notSent, inDoubt, toolError} {
		op := another(n)
		op.Caller = fmt.Sprint("caller", n)
		r.Now = noon.Add(time.Duration(n) * time.Second)
		r.finished(op, out, nil)
	}
	r.begin(another(9))
	r.resolves(4, 1, true)
	for limit, want := range map[int]string{-1: "", 1: "op2", 10: "op2 op0"} {
		list, err := r.InDoubt(t.Context(), limit)
		var got []string
		for _, op := range list {
			got = append(got, op.ID)
		}
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("InDoubt(%d) = %v, %v; want %s", limit, got, err, want)
		}
	}
}
