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
	"onbehalf.internal/broker/store"
)

func denial(tool string) audit.Record {
	return audit.Record{Caller: "gateway", Actor: "user:7", Server: "records", Tool: tool, Reason: fault.ToolUnknown,
		RequestKey: audit.DigestOf("key")}
}

// deny records one and returns how many records that wrote.
func (r *rig) deny(rec audit.Record) int {
	r.t.Helper()
	before := len(r.records())
	if err := r.Deny(r.t.Context(), rec); err != nil {
		r.t.Error(err)
	}
	return len(r.records()) - before
}

func TestEqualDenialsCoalesce(t *testing.T) {
	r := newRig(t)
	otherReason := denial("search")
	otherReason.Reason = fault.ToolDisabled
	for _, tc := range []struct {
		name  string
		after time.Duration
		rec   audit.Record
		wrote int
	}{
		{"the first is written", 0, denial("search"), 1},
		{"the next is counted", 0, denial("search"), 0},
		{"until the minute ends", 59 * time.Second, denial("search"), 0},
		{"another tool is another", 0, denial("save"), 1},
		{"another reason is another", 0, otherReason, 1},
		{"after the minute: the count and a new first", time.Second, denial("search"), 2},
		{"nothing was counted: a new first alone", time.Minute, denial("search"), 1},
		{"a long name is one name", 0, denial(strings.Repeat("x", 300)), 1},
		{"even if its end differs", 0, denial(strings.Repeat("x", 300) + "y"), 0},
	} {
		r.Now = r.Now.Add(tc.after)
		if got := r.deny(tc.rec); got != tc.wrote {
			t.Errorf("%s: wrote %d, want %d", tc.name, got, tc.wrote)
		}
	}
	want := map[string]any{"kind": "denial", "caller": "gateway", "actor": "user:7", "server": "records", "tool": "search",
		"reason": "tool_unknown", "count": 2.0, "time": "2026-11-30T12:01:00.000000000Z"}
	got := r.records()[3]
	for _, name := range []string{"seq", "prev", "hash", "v"} {
		delete(got, name)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the counted ones: %s", diff)
	}
}

func TestFlush(t *testing.T) {
	r := newRig(t)
	for range 3 {
		r.deny(denial("search"))
	}
	for range 2 { // the second time there is nothing left
		if err := r.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"denial tool_unknown", "denial tool_unknown 2"}, r.kinds()); diff != "" {
		t.Error(diff)
	}
}

// TestDenialsAreKept: a count that could not be written is written later, and
// a denial that could not be written is not taken for a repeated one.
func TestDenialsAreKept(t *testing.T) {
	r := newRig(t)
	broken := func(at store.Moment, _ []audit.Record) error {
		if at == store.Applying {
			return errors.New("broken")
		}
		return nil
	}
	r.Fail = broken
	if err := r.Deny(t.Context(), denial("search")); fault.ReasonOf(err) != fault.StoreFailed {
		t.Errorf("Deny = %v", err)
	}
	r.Fail = nil
	if got := r.deny(denial("search")); got != 1 {
		t.Errorf("the first that could be written wrote %d", got)
	}
	r.deny(denial("search"))
	r.Fail = broken
	if err := r.Flush(t.Context()); fault.ReasonOf(err) != fault.StoreFailed {
		t.Errorf("Flush = %v", err)
	}
	r.Fail = nil
	if err := r.Flush(t.Context()); err != nil {
		t.Errorf("Flush = %v", err)
	}
	if diff := cmp.Diff([]string{"denial tool_unknown", "denial tool_unknown 1"}, r.kinds()); diff != "" {
		t.Error(diff)
	}
}

// TestDenialsAreBounded: more kinds than are remembered are written one by one.
func TestDenialsAreBounded(t *testing.T) {
	r := newRig(t)
	var wg sync.WaitGroup
	for n := range 1024 {
		wg.Go(func() {
			if err := r.Deny(t.Context(), denial(fmt.Sprint("tool", n))); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if first, again := r.deny(denial("more")), r.deny(denial("more")); first != 1 || again != 1 {
		t.Errorf("beyond the limit: wrote %d and %d, want 1 and 1", first, again)
	}
	if got := r.deny(denial("tool7")); got != 0 {
		t.Errorf("one that is remembered: wrote %d, want 0", got)
	}
}

func TestManyDenials(t *testing.T) {
	r := newRig(t)
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			if err := r.Deny(t.Context(), denial("search")); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if err := r.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"denial tool_unknown", "denial tool_unknown 99"}, r.kinds()); diff != "" {
		t.Error(diff)
	}
}
