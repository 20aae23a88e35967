package ledger_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/ledger"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/store"
)

func suspension(id, sort, name string, until time.Time) policy.Suspension {
	return policy.Suspension{ID: id, Target: policy.Target{Sort: sort, Name: name}, Reason: `phished, "again" – ü`, By: "admin", Since: noon, Until: until}
}

// TestSuspensionsSurvive: what was not lifted and is not over is there in the
// next process as it was, and the audit has who, what, until when and why.
func TestSuspensionsSurvive(t *testing.T) {
	r := newRig(t)
	want := []policy.Suspension{
		suspension("a", "actor", "user:7", time.Time{}),
		suspension("b", "server", "records", noon.Add(time.Hour)),
		suspension("c", "profile", "company", noon.Add(time.Minute)),
		suspension("d", "actor", "user:7", noon.Add(time.Hour)),
	}
	for _, s := range want {
		if err := r.Suspend(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Lift(t.Context(), want[3], "second", "a mistake", noon.Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	r.reopen()
	for then, want := range map[time.Time][]policy.Suspension{
		noon: want[:3], noon.Add(time.Minute - 1): want[:3], noon.Add(time.Minute): want[:2], noon.Add(time.Hour): want[:1],
	} {
		got, err := r.Suspensions(t.Context(), then)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("at %v: %v %s", then, err, diff)
		}
	}
	records := r.records()
	for i, want := range []map[string]any{
		{"kind": "suspension", "caller": "admin", "actor": "user:7", "suspension": map[string]any{"id": "a", "text": `phished, "again" – ü`}},
		{"kind": "suspension", "caller": "admin", "server": "records",
			"suspension": map[string]any{"id": "b", "until": "2026-11-30T13:00:00Z", "text": `phished, "again" – ü`}},
		{"kind": "suspension", "caller": "admin", "profile": "company",
			"suspension": map[string]any{"id": "c", "until": "2026-11-30T12:01:00Z", "text": `phished, "again" – ü`}},
		{"kind": "suspension", "caller": "admin", "actor": "user:7",
			"suspension": map[string]any{"id": "d", "until": "2026-11-30T13:00:00Z", "text": `phished, "again" – ü`}},
		{"kind": "lifting", "caller": "second", "actor": "user:7",
			"suspension": map[string]any{"id": "d", "until": "2026-11-30T13:00:00Z", "text": "a mistake"}},
	} {
		got := records[i]
		for _, name := range []string{"seq", "prev", "v", "hash", "time"} {
			delete(got, name)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("record %d: %s", i, diff)
		}
	}
}

// TestSuspensionsFail: a commit that fails leaves neither row nor record, and
// nothing is lifted twice.
func TestSuspensionsFail(t *testing.T) {
	r := newRig(t)
	a := suspension("a", "actor", "user:7", time.Time{})
	if err := r.Suspend(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	r.Fail = func(at store.Moment, _ []audit.Record) error {
		if at == store.Applying {
			return errors.New("no")
		}
		return nil
	}
	if err := r.Suspend(t.Context(), suspension("b", "actor", "user:8", time.Time{})); fault.ReasonOf(err) != fault.StoreFailed {
		t.Errorf("Suspend = %v", err)
	}
	if err := r.Lift(t.Context(), a, "admin", "r", noon); fault.ReasonOf(err) != fault.StoreFailed {
		t.Errorf("Lift = %v", err)
	}
	r.Fail = nil
	if got, err := r.Suspensions(t.Context(), noon); err != nil || len(got) != 1 || len(r.records()) != 1 {
		t.Errorf("%v, %v, %d records", got, err, len(r.records()))
	}
	if err := r.Lift(t.Context(), a, "admin", "r", noon); err != nil {
		t.Fatal(err)
	}
	if err := r.Lift(t.Context(), a, "admin", "r", noon); err != ledger.ErrOrder || len(r.records()) != 2 {
		t.Errorf("lifted twice: %v, %d records", err, len(r.records()))
	}
	r.Store.Close()
	if _, err := r.Suspensions(t.Context(), noon); fault.ReasonOf(err) != fault.StoreFailed {
		t.Errorf("of a closed store: %v", err)
	}
}
