package ledger_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/ledger"
	"onbehalf.internal/broker/seal"
	"onbehalf.internal/broker/secret/canary"
	"onbehalf.internal/broker/store"
	"onbehalf.internal/broker/store/storetest"
)

var noon = storetest.Noon

// A rig is a ledger whose clock stands still, on a file that can be opened again.
type rig struct {
	*ledger.Ledger
	*storetest.File
	t   *testing.T
	box *seal.Box
}

func newRig(t *testing.T) *rig {
	r := &rig{File: storetest.New(t), t: t}
	r.reopen()
	return r
}

// reopen is what a new process does after the old one died.
func (r *rig) reopen() {
	r.t.Helper()
	r.File.Reopen()
	r.Ledger = ledger.New(r.Store, ledger.Config{Now: r.Clock, Box: r.box})
}

// records returns the audit as it was exported and verified.
func (r *rig) records() []map[string]any {
	r.t.Helper()
	return storetest.Records(r.t, r.Store)
}

// kinds returns the audit as words: "decision op1 1".
func (r *rig) kinds() (list []string) {
	for _, m := range r.records() {
		words := fmt.Sprint(m["kind"])
		for _, name := range []string{"operation", "attempt", "state", "reason", "count"} {
			if m[name] != nil {
				words += fmt.Sprint(" ", m[name])
			}
		}
		list = append(list, words)
	}
	return list
}

func (r *rig) begin(op ledger.Operation) ledger.Operation {
	r.t.Helper()
	got, begun, err := r.Begin(r.t.Context(), op, audit.Record{})
	if err != nil || !begun {
		r.t.Fatalf("Begin = %v, %v", begun, err)
	}
	return got
}

func (r *rig) get(op ledger.Operation) ledger.Operation {
	r.t.Helper()
	got, err := r.Get(r.t.Context(), op.Caller, op.Actor, op.ID)
	if err != nil {
		r.t.Fatal(err)
	}
	return got
}

// op1 fills every field that the caller of Begin fills.
func op1() ledger.Operation {
	return ledger.Operation{
		ID: "op1", Caller: "gateway", Actor: "user:7", RequestKey: "key1", JTI: "jti1", RunID: "run1",
		Server: "records", Tool: "search", Fingerprint: [32]byte{1}, Arguments: [32]byte{2},
		Deadline: noon.Add(20 * time.Second), Hold: ledger.HoldHeld,
		Snapshot: "sha256:00", Grant: "profiles.yaml:31", Profile: "company", Audience: "mcp-api", Scopes: []string{"read", "list"},
	}
}

// another is op1 under another ID, key and assertion.
func another(n int) ledger.Operation {
	op := op1()
	op.ID, op.RequestKey, op.JTI = fmt.Sprint("op", n), fmt.Sprint("key", n), fmt.Sprint("jti", n)
	return op
}

var legs = []audit.Leg{
	{Name: "exchange", Budget: 20 * time.Second, Took: 3 * time.Millisecond},
	{Name: "tools/call", Budget: 19 * time.Second, Took: time.Second, Reason: fault.WallClock},
}

var (
	succeeded = fault.Outcome{State: fault.Succeeded, Ran: fault.RanYes, Evidence: fault.EvidencePeer}
	toolError = fault.Outcome{State: fault.ToolError, Ran: fault.RanYes, Evidence: fault.EvidencePeer, Cause: fault.ToolFailed}
	rpcError  = fault.Outcome{State: fault.RPCError, Ran: fault.RanUnknown, Evidence: fault.EvidencePeer, Cause: fault.ServerError}
	refused   = fault.RefusedBecause(fault.StatusRefused)
	notSent   = fault.NotSentBecause(fault.ConnectFailed)
	inDoubt   = fault.Doubt(fault.ConnectionLost)
	reserved  = fault.Outcome{State: fault.Reserved, Ran: fault.RanNo, Evidence: fault.EvidenceLocal}
	sending   = fault.Outcome{State: fault.Sending, Ran: fault.RanUnknown, Evidence: fault.EvidenceNone}
)

func TestOneOperation(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()

	want := op1()
	want.Attempt, want.Outcome, want.Created, want.Updated = 1, reserved, noon, noon
	want.ResultExpires, want.KeyExpires = noon.Add(7*24*time.Hour), noon.Add(30*24*time.Hour)
	got := r.begin(op1())
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Begin: %s", diff)
	}
	if diff := cmp.Diff(want, r.get(want)); diff != "" {
		t.Errorf("after Begin: %s", diff)
	}

	r.Now = noon.Add(time.Second)
	if err := r.Sending(ctx, "op1", 1, audit.Record{Epoch: "accessor"}); err != nil {
		t.Fatal(err)
	}
	want.Outcome, want.Updated = sending, r.Now
	if diff := cmp.Diff(want, r.get(want)); diff != "" {
		t.Errorf("after Sending: %s", diff)
	}

	r.Now = noon.Add(2 * time.Second)
	if err := r.Finish(ctx, "op1", 1, toolError, []byte(`{"isError": true}`), legs[:1], ledger.HoldHeld, audit.Record{Time: noon.Add(1900 * time.Millisecond)}); err != nil {
		t.Fatal(err)
	}
	// The caller was told this time, and a retrieval has to say the same.
	want.Outcome, want.Updated, want.Result, want.Legs = toolError, noon.Add(1900*time.Millisecond), []byte(`{"isError": true}`), legs[:1]
	if diff := cmp.Diff(want, r.get(want)); diff != "" {
		t.Errorf("after Finish: %s", diff)
	}

	r.Now = noon.Add(3 * time.Second)
	if err := r.Dropped(ctx, "op1", 1, ledger.HoldDropped, legs, audit.Record{Reason: fault.VaultUnreachable}); err != nil {
		t.Fatal(err)
	}
	want.Hold, want.Legs = ledger.HoldDropped, legs // it ended before
	if diff := cmp.Diff(want, r.get(want)); diff != "" {
		t.Errorf("after Dropped: %s", diff)
	}
	found, ok, err := r.Find(ctx, "gateway", "user:7", "key1")
	if diff := cmp.Diff(want, found); !ok || err != nil || diff != "" {
		t.Errorf("Find = %v, %v, %s", ok, err, diff)
	}

	if diff := cmp.Diff([]string{
		"decision op1 1",
		"sending op1 1 sending",
		"outcome op1 1 tool_error tool_failed",
		"drop op1 1 vault_unreachable",
	}, r.kinds()); diff != "" {
		t.Error(diff)
	}
}

// TestSteps tries every step in every state.
func TestSteps(t *testing.T) {
	const never = ""
	states := []struct {
		name  string
		reach []fault.Outcome // by Sending and Finish, after Begin
	}{
		{"reserved", nil},
		{"sending", []fault.Outcome{sending}},
		{"succeeded", []fault.Outcome{sending, succeeded}},
		{"tool_error", []fault.Outcome{sending, toolError}},
		{"rpc_error", []fault.Outcome{sending, rpcError}},
		{"refused", []fault.Outcome{sending, refused}},
		{"not_sent", []fault.Outcome{notSent}},
		{"unknown", []fault.Outcome{sending, inDoubt}},
	}
	finish := func(out fault.Outcome) func(*rig, int) error {
		return func(r *rig, n int) error { return r.step(n, 1, out) }
	}
	both := []string{"reserved", "sending"}
	for _, step := range []struct {
		name string
		do   func(r *rig, n int) error
		from []string    // where it is allowed; everywhere else it changes nothing
		to   fault.State // never: the state stays
	}{
		{"Begin", func(r *rig, n int) error {
			_, begun, err := r.Begin(r.t.Context(), another(n), audit.Record{})
			if err == nil && !begun {
				return ledger.ErrOrder
			}
			return err
		}, []string{"refused", "not_sent"}, fault.Reserved},
		{"Sending", finish(sending), []string{"reserved"}, fault.Sending},
		{"Finish not_sent", finish(notSent), both, fault.NotSent},
		{"Finish refused", finish(refused), both, fault.PeerRefused},
		{"Finish succeeded", finish(succeeded), []string{"sending"}, fault.Succeeded},
		{"Finish tool_error", finish(toolError), []string{"sending"}, fault.ToolError},
		{"Finish rpc_error", finish(rpcError), []string{"sending"}, fault.RPCError},
		{"Finish unknown", finish(inDoubt), []string{"sending"}, fault.InDoubt},
		{"Finish reserved", finish(reserved), nil, never},
		{"Finish with no state", finish(fault.Outcome{}), nil, never},
		{"Finish sending", func(r *rig, n int) error {
			return r.Finish(r.t.Context(), another(n).ID, 1, sending, nil, nil, "", audit.Record{})
		}, nil, never},
		{"Sending of another attempt", func(r *rig, n int) error { return r.step(n, 2, sending) }, nil, never},
		{"Finish of another attempt", func(r *rig, n int) error { return r.step(n, 2, notSent) }, nil, never},
		{"Sending of none", func(r *rig, n int) error { return r.step(n+100, 1, sending) }, nil, never},
		{"Dropped", func(r *rig, n int) error {
			return r.Dropped(r.t.Context(), another(n).ID, 1, ledger.HoldPending, nil, audit.Record{})
		}, []string{"reserved", "sending", "succeeded", "tool_error", "rpc_error", "refused", "not_sent", "unknown"}, never},
	} {
		t.Run(step.name, func(t *testing.T) {
			r := newRig(t)
			for n, state := range states {
				op := r.begin(another(n))
				for _, out := range state.reach {
					if err := r.step(n, 1, out); err != nil {
						t.Fatal(err)
					}
				}
				before, records := r.get(op), len(r.records())
				allowed := slices.Contains(step.from, state.name)
				err := step.do(r, n)
				if (err == nil) != allowed || err != nil && !errors.Is(err, ledger.ErrOrder) {
					t.Errorf("in %s: %v, want allowed %v", state.name, err, allowed)
				}
				want := before.Outcome.State
				if allowed && step.to != never {
					want = step.to
				}
				after := r.get(op)
				if after.Outcome.State != want {
					t.Errorf("in %s: now %s, want %s", state.name, after.Outcome.State, want)
				}
				if diff := cmp.Diff(before, after); !allowed && diff != "" {
					t.Errorf("in %s: refused, but %s", state.name, diff)
				}
				if wrote := len(r.records()) - records; (wrote == 1) != allowed || wrote > 1 {
					t.Errorf("in %s: %d records, allowed %v", state.name, wrote, allowed)
				}
			}
		})
	}
}

// step is Sending or Finish, as out says.
func (r *rig) step(n, attempt int, out fault.Outcome) error {
	if out == sending {
		return r.Sending(r.t.Context(), another(n).ID, attempt, audit.Record{})
	}
	return r.Finish(r.t.Context(), another(n).ID, attempt, out, nil, nil, "", audit.Record{})
}

// TestDroppedWaits: nobody waits for this record, so it makes no commit of its own
// where another comes.
func TestDroppedWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.Store.Close()
		op := r.begin(another(1))
		start := time.Now()
		dropped := make(chan error)
		go func() {
			dropped <- r.Dropped(t.Context(), op.ID, 1, ledger.HoldDropped, legs, audit.Record{})
		}()
		synctest.Wait()
		if got := r.get(op).Hold; got == ledger.HoldDropped {
			t.Error("it has made a commit of its own")
		}
		r.begin(another(2))
		if err := <-dropped; err != nil || time.Since(start) != 0 || r.get(op).Hold != ledger.HoldDropped {
			t.Errorf("Dropped = %v after %v, with hold %q", err, time.Since(start), r.get(op).Hold)
		}
	})
}

func TestNextAttempt(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	r.begin(op1())
	if err := r.Sending(ctx, "op1", 1, audit.Record{}); err != nil {
		t.Fatal(err)
	}
	if err := r.Finish(ctx, "op1", 1, refused, []byte("body"), legs, "", audit.Record{}); err != nil {
		t.Fatal(err)
	}
	r.Now = noon.Add(time.Hour)
	again := op1()
	again.ID, again.JTI, again.RunID, again.Deadline = "op9", "jti9", "run9", r.Now.Add(time.Second)
	again.Snapshot, again.Grant, again.Hold = "sha256:11", "profiles.yaml:99", ""
	got := r.begin(again)

	want := again
	want.ID, want.Attempt, want.Outcome, want.Created, want.Updated = "op1", 2, reserved, noon, r.Now
	want.ResultExpires, want.KeyExpires = noon.Add(7*day), noon.Add(30*day)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Begin: %s", diff)
	}
	if diff := cmp.Diff(want, r.get(want)); diff != "" {
		t.Errorf("afterwards: %s", diff)
	}

	// The first attempt's late steps do not touch the second.
	if err := r.Finish(ctx, "op1", 1, inDoubt, nil, nil, "", audit.Record{}); !errors.Is(err, ledger.ErrOrder) {
		t.Errorf("Finish of the first attempt = %v", err)
	}
	if err := r.Dropped(ctx, "op1", 1, ledger.HoldDropped, legs, audit.Record{}); err != nil {
		t.Errorf("Dropped of the first attempt = %v", err)
	}
	if diff := cmp.Diff(want, r.get(want)); diff != "" {
		t.Errorf("after late steps: %s", diff)
	}
	if diff := cmp.Diff([]string{
		"decision op1 1", "sending op1 1 sending", "outcome op1 1 refused status_refused", "decision op1 2", "drop op1 1",
	}, r.kinds()); diff != "" {
		t.Error(diff)
	}
}

func TestBeginRefuses(t *testing.T) {
	type change func(*ledger.Operation)
	for _, tc := range []struct {
		name  string
		again change
		want  fault.Reason // None: it begins
	}{
		{"another key, another assertion", func(op *ledger.Operation) { op.RequestKey, op.JTI = "key2", "jti2" }, fault.None},
		{"another actor, another assertion", func(op *ledger.Operation) { op.Actor, op.JTI = "user:8", "jti2" }, fault.None},
		{"another caller, the same of everything", func(op *ledger.Operation) { op.Caller = "other" }, fault.None},
		{"another key, by name alone", func(op *ledger.Operation) { op.RequestKey, op.JTI = "key2", "" }, fault.None},

		{"another payload", func(op *ledger.Operation) { op.Fingerprint[0]++ }, fault.RequestKeyConflict},
		{"another payload, another assertion", func(op *ledger.Operation) { op.Fingerprint[0]++; op.JTI = "jti2" }, fault.RequestKeyConflict},
		{"another key, the same assertion", func(op *ledger.Operation) { op.RequestKey = "key2" }, fault.AssertionReplayed},
		{"another actor, the same assertion", func(op *ledger.Operation) { op.Actor = "user:8" }, fault.AssertionReplayed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t)
			first := r.begin(op1())
			op := op1()
			op.ID = "op2"
			tc.again(&op)
			got, begun, err := r.Begin(t.Context(), op, audit.Record{})
			if tc.want == fault.None {
				if err != nil || !begun || got.ID != "op2" {
					t.Errorf("Begin = %q, %v, %v", got.ID, begun, err)
				}
				return
			}
			if fault.ReasonOf(err) != tc.want || begun {
				t.Errorf("Begin = %v, %v, want %s", begun, err, tc.want)
			}
			if diff := cmp.Diff(first, r.get(first)); diff != "" {
				t.Errorf("the first has changed: %s", diff)
			}
			if n := len(r.records()); n != 1 {
				t.Errorf("%d records, want 1", n)
			}
		})
	}
}

// TestAssertionByName: many operations of asserted actors have no JTI.
func TestAssertionByName(t *testing.T) {
	r := newRig(t)
	for n := range 3 {
		op := another(n)
		op.JTI = ""
		r.begin(op)
	}
}

func TestManyBegins(t *testing.T) {
	r := newRig(t)
	var mu sync.Mutex
	var wg sync.WaitGroup
	won, ids := 0, map[string]bool{}
	for i := range 100 {
		wg.Go(func() {
			op := op1()
			op.ID, op.JTI = fmt.Sprint("op", i), fmt.Sprint("jti", i)
			got, begun, err := r.Begin(context.Background(), op, audit.Record{})
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			ids[got.ID] = true
			if begun {
				won++
			}
		})
	}
	wg.Wait()
	if won != 1 || len(ids) != 1 || len(r.records()) != 1 {
		t.Errorf("%d began, %d ids, %d records, want one each", won, len(ids), len(r.records()))
	}
}

// TestManyNextAttempts: a safe outcome is begun again by one alone.
func TestManyNextAttempts(t *testing.T) {
	r := newRig(t)
	r.begin(op1())
	if err := r.Finish(t.Context(), "op1", 1, notSent, nil, nil, "", audit.Record{}); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	won := make(chan int, 50)
	for range 50 {
		wg.Go(func() {
			got, begun, err := r.Begin(context.Background(), op1(), audit.Record{})
			if err != nil {
				t.Error(err)
			}
			if begun {
				won <- got.Attempt
			}
		})
	}
	wg.Wait()
	close(won)
	if attempt := <-won; attempt != 2 || len(won) != 0 {
		t.Errorf("attempt %d began, and %d more", attempt, len(won))
	}
}

// TestNotYours: what is not there and what is another's look the same.
func TestNotYours(t *testing.T) {
	r := newRig(t)
	r.begin(op1())
	want := "ledger.Get: operation_not_found"
	for _, tc := range []struct{ name, caller, actor, id string }{
		{"absent", "gateway", "user:7", "op2"},
		{"another actor's", "gateway", "user:8", "op1"},
		{"another caller's", "other", "user:7", "op1"},
		{"nobody's", "", "", ""},
	} {
		op, err := r.Get(t.Context(), tc.caller, tc.actor, tc.id)
		if fmt.Sprint(err) != want || !cmp.Equal(op, ledger.Operation{}) {
			t.Errorf("%s: %v, %v", tc.name, op, err)
		}
	}
	for _, tc := range []struct{ name, caller, actor, key string }{
		{"absent", "gateway", "user:7", "key2"},
		{"another actor's", "gateway", "user:8", "key1"},
		{"another caller's", "other", "user:7", "key1"},
	} {
		op, found, err := r.Find(t.Context(), tc.caller, tc.actor, tc.key)
		if found || err != nil || !cmp.Equal(op, ledger.Operation{}) {
			t.Errorf("Find %s: %v, %v, %v", tc.name, op, found, err)
		}
	}
}

func TestLists(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	for n := range 5 {
		r.Now = noon.Add(time.Duration(n) * time.Minute)
		r.begin(another(n))
	}
	foreign := another(5)
	foreign.Actor = "user:8"
	r.begin(foreign)
	others := another(6)
	others.Caller = "other"
	r.begin(others)
	if err := r.Finish(ctx, "op1", 1, refused, []byte("body"), nil, "", audit.Record{}); err != nil {
		t.Fatal(err)
	}
	if err := r.Sending(ctx, "op2", 1, audit.Record{}); err != nil {
		t.Fatal(err)
	}
	ids := func(list []ledger.Operation, err error) string {
		if err != nil {
			t.Error(err)
		}
		var ids []string
		for _, op := range list {
			ids = append(ids, op.ID)
			if op.Result != nil {
				t.Errorf("%s is listed with its result", op.ID)
			}
		}
		return strings.Join(ids, " ")
	}
	for _, tc := range []struct{ name, got, want string }{
		{"all", ids(r.List(ctx, "gateway", "user:7", time.Time{}, 10)), "op4 op3 op2 op1 op0"},
		{"since", ids(r.List(ctx, "gateway", "user:7", noon.Add(2*time.Minute), 10)), "op4 op3 op2"},
		{"limit", ids(r.List(ctx, "gateway", "user:7", time.Time{}, 2)), "op4 op3"},
		{"no limit is none", ids(r.List(ctx, "gateway", "user:7", time.Time{}, -1)), ""},
		{"another actor", ids(r.List(ctx, "gateway", "user:8", time.Time{}, 10)), "op5"},
		{"nobody", ids(r.List(ctx, "gateway", "user:9", time.Time{}, 10)), ""},
		{"open", ids(r.Open(ctx, "gateway")), "op0 op2 op3 op4 op5"},
		{"another caller's open", ids(r.Open(ctx, "other")), "op6"},
		{"nobody's open", ids(r.Open(ctx, "")), ""},
	} {
		if tc.got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, tc.got, tc.want)
		}
	}
}

func TestRecover(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	for n := range 5 {
		r.begin(another(n))
	}
	unsaid, without := another(5), another(6)
	unsaid.Hold, without.Hold, without.Profile = "", "", ""
	r.begin(unsaid)
	r.begin(without)
	var errs []error
	errs = append(errs,
		r.Sending(ctx, "op1", 1, audit.Record{}),
		r.Sending(ctx, "op2", 1, audit.Record{}),
		r.Finish(ctx, "op2", 1, succeeded, []byte("result"), legs, ledger.HoldHeld, audit.Record{}), // its hold is still held
		r.Sending(ctx, "op3", 1, audit.Record{}),
		r.Finish(ctx, "op3", 1, inDoubt, nil, legs, "", audit.Record{}),
		r.Dropped(ctx, "op3", 1, ledger.HoldDropped, legs, audit.Record{}),
		r.Finish(ctx, "op4", 1, notSent, nil, nil, "", audit.Record{}),
		r.Dropped(ctx, "op4", 1, "", nil, audit.Record{}))
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	before := len(r.records())

	r.Now = noon.Add(time.Hour)
	r.reopen()
	notSent, inDoubt, err := r.Recover(ctx)
	if notSent != 3 || inDoubt != 1 || err != nil {
		t.Errorf("Recover = %d, %d, %v", notSent, inDoubt, err)
	}
	for _, tc := range []struct {
		id, hold string
		outcome  fault.Outcome
		updated  time.Time // when it ended: now, or while its process lived
	}{
		{"op0", ledger.HoldPending, fault.NotSentBecause(fault.ProcessDied), r.Now},
		{"op1", ledger.HoldPending, fault.Doubt(fault.ProcessDied), r.Now},
		{"op2", ledger.HoldPending, succeeded, noon},
		{"op3", ledger.HoldDropped, fault.Doubt(fault.ConnectionLost), noon},
		{"op4", "", fault.NotSentBecause(fault.ConnectFailed), noon},
		{"op5", ledger.HoldPending, fault.NotSentBecause(fault.ProcessDied), r.Now}, // delegated, and nobody said
		{"op6", "", fault.NotSentBecause(fault.ProcessDied), r.Now},                 // without a profile there is no hold
	} {
		op, err := r.Get(ctx, "gateway", "user:7", tc.id)
		if err != nil || op.Outcome != tc.outcome || op.Hold != tc.hold || !op.Updated.Equal(tc.updated) {
			t.Errorf("%s: %v with hold %q at %v, %v, want %v with hold %q at %v", tc.id, op.Outcome, op.Hold, op.Updated, err, tc.outcome, tc.hold, tc.updated)
		}
	}
	if diff := cmp.Diff([]string{"recovery", "outcome op0 1 not_sent process_died", "outcome op1 1 unknown process_died",
		"outcome op5 1 not_sent process_died", "outcome op6 1 not_sent process_died"},
		r.kinds()[before:]); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]any{"not_sent": 3.0, "in_doubt": 1.0, "holds": 4.0}, r.records()[before]["recovered"]); diff != "" {
		t.Error(diff)
	}

	if notSent, inDoubt, err := r.Recover(ctx); notSent != 0 || inDoubt != 0 || err != nil {
		t.Errorf("a second Recover = %d, %d, %v", notSent, inDoubt, err)
	}
	if got := r.begin(another(0)); got.Attempt != 2 || got.ID != "op0" {
		t.Errorf("what was not sent begins again as %s, attempt %d", got.ID, got.Attempt)
	}
	if _, begun, err := r.Begin(ctx, another(1), audit.Record{}); begun || err != nil {
		t.Errorf("what is in doubt: Begin = %v, %v", begun, err)
	}
}

// TestStoreFails breaks the commit of every step, before and after it took
// effect. No step reports success, and the row is where the disk has it.
func TestStoreFails(t *testing.T) {
	ctx := context.Background()
	steps := []struct {
		name   string
		kind   audit.Kind
		do     func(*rig) error
		before fault.State
		after  fault.State
	}{
		{"Begin", audit.Decision, func(r *rig) error { _, _, err := r.Begin(ctx, another(2), audit.Record{}); return err }, "", fault.Reserved},
		{"Sending", audit.Sending, func(r *rig) error { return r.Sending(ctx, "op1", 1, audit.Record{}) }, fault.Reserved, fault.Sending},
		{"Finish", audit.Outcome, func(r *rig) error {
			return r.Finish(ctx, "op1", 1, notSent, []byte("x"), nil, "", audit.Record{})
		}, fault.Reserved, fault.NotSent},
	}
	for _, step := range steps {
		for _, at := range []store.Moment{store.Applying, store.Committing, store.Committed} {
			t.Run(fmt.Sprint(step.name, " ", at), func(t *testing.T) {
				r := newRig(t)
				r.begin(op1())
				r.Fail = func(now store.Moment, records []audit.Record) error {
					if now == at && records[0].Kind == step.kind {
						return errors.New("broken")
					}
					return nil
				}
				if err := step.do(r); fault.ReasonOf(err) != fault.StoreFailed {
					t.Errorf("%v, want store_failed", err)
				}
				r.Fail = nil
				r.reopen()
				id, want := "op1", step.before
				if step.before == "" {
					id = "op2"
				}
				if at == store.Committed {
					want = step.after
				}
				op, err := r.Get(ctx, "gateway", "user:7", id)
				if op.Outcome.State != want || (err != nil) != (want == "") {
					t.Errorf("%q, %v, want %q", op.Outcome.State, err, want)
				}
			})
		}
	}
}

func TestStoreIsAway(t *testing.T) {
	r := newRig(t)
	r.begin(op1())
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, do := range map[string]func(context.Context) error{
		"Find":    func(ctx context.Context) error { _, _, err := r.Find(ctx, "gateway", "user:7", "key1"); return err },
		"Get":     func(ctx context.Context) error { _, err := r.Get(ctx, "gateway", "user:7", "op1"); return err },
		"List":    func(ctx context.Context) error { _, err := r.List(ctx, "gateway", "user:7", noon, 1); return err },
		"Open":    func(ctx context.Context) error { _, err := r.Open(ctx, "gateway"); return err },
		"Recover": func(ctx context.Context) error { _, _, err := r.Recover(ctx); return err },
		"Begin":   func(ctx context.Context) error { _, _, err := r.Begin(ctx, op1(), audit.Record{}); return err },
		"Sending": func(ctx context.Context) error { return r.Sending(ctx, "op1", 1, audit.Record{}) },
		"Deny":    func(ctx context.Context) error { return r.Deny(ctx, audit.Record{}) },
	} {
		if err := do(ended); fault.ReasonOf(err) != fault.StoreUnavailable {
			t.Errorf("%s with an ended context = %v", name, err)
		}
		r.Store.Close()
		if err := do(t.Context()); fault.KindOf(err) != fault.Unavailable {
			t.Errorf("%s of a closed store = %v", name, err)
		}
		r.reopen()
	}
}

// TestNewID: ids have the order in which they were made, and one form.
func TestNewID(t *testing.T) {
	form := regexp.MustCompile(`^[a-z2-7]{26}$`)
	last := ""
	for range 10_000 {
		id := ledger.NewID()
		if !form.MatchString(id) || id <= last {
			t.Fatalf("%q after %q", id, last)
		}
		last = id
	}
}

// TestIndexes holds the promise that no question walks through the table.
func TestIndexes(t *testing.T) {
	r := newRig(t)
	for query, index := range map[string]string{
		`caller = '' AND actor = '' AND request_key = ''`:                                                               "operations_key",
		`caller = '' AND jti = '' AND jti <> '' AND NOT (actor = '' AND request_key = '')`:                              "operations_jti",
		`caller = '' AND actor = '' AND created >= 0 ORDER BY created DESC, id LIMIT 1`:                                 "operations_actor",
		`caller = '' AND (state = 'awaiting_approval' OR state = 'reserved' OR state = 'sending') ORDER BY created, id`: "operations_live",
		`(state = 'awaiting_approval' OR state = 'reserved' OR state = 'sending') AND state <> 'awaiting_approval'`:     "operations_live",
		`hold = 'held'`:                         "operations_live",
		`hold = 'pending' ORDER BY created, id`: "operations_pending",
		`ran = 'unknown' AND (state = 'unknown' OR state = 'rpc_error' OR state = 'expired') ORDER BY created DESC, id LIMIT 1`: "operations_doubt",
	} {
		rows, err := r.Store.Read().Query(`EXPLAIN QUERY PLAN SELECT * FROM operations WHERE ` + query)
		if err != nil {
			t.Fatal(err)
		}
		var plan string
		for rows.Next() {
			var id, parent, unused int
			var detail string
			if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
				t.Fatal(err)
			}
			plan += detail + "; "
		}
		if !strings.Contains(plan, "INDEX "+index) {
			t.Errorf("%s: %s, want index %s", query, plan, index)
		}
	}
}

// TestResultsStayInTheirTable plants a secret as the server's answer: it comes
// back from Get and Find and shows up nowhere else.
func TestResultsStayInTheirTable(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	const planted = "canary-5e1f0c9a7b3d4e62"
	canary.Run(t, func(c *canary.Cage) {
		op := op1()
		r.begin(op)
		c.Value("Sending", r.Sending(ctx, op.ID, 1, audit.Record{}))
		c.Value("Finish", r.Finish(ctx, op.ID, 1, succeeded, []byte(planted), legs, "", audit.Record{}))
		c.Value("Finish again", r.Finish(ctx, op.ID, 1, succeeded, []byte(planted), legs, "", audit.Record{}))
		list, err := r.List(ctx, op.Caller, op.Actor, time.Time{}, 10)
		c.Value("List", list)
		c.Value("error", err)
		var export bytes.Buffer
		c.Value("Export", r.Store.Export(ctx, &export))
		c.Bytes("audit", export.Bytes())
		r.Fail = func(store.Moment, []audit.Record) error { return errors.New(planted) }
		_, _, err = r.Begin(ctx, another(2), audit.Record{})
		c.Value("broken Begin", err)
		c.Value("Err", r.Store.Err())
	}, planted)
	if got := r.get(op1()); string(got.Result) != planted {
		t.Errorf("Result = %q", got.Result)
	}
}
