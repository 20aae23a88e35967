package contract

import (
	"fmt"
	"slices"
	"testing"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/brokertest"
	"onbehalf.internal/broker/fault"
)

// TestRunAudit: what was executed is on record, what cannot be recorded is not
// executed, and a call that failed is a failed step and no failed run.
func TestRunAudit(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		steps := []struct {
			answer answer
			told   string
			record string
		}{
			{nil, "200 succeeded  never", "outcome succeeded"},
			{status(503), "200 unknown intermediary never_without_looking", "outcome unknown intermediary"},
			{r.server.answers(toolFailed), "200 tool_error tool_failed read_the_error", "outcome tool_error tool_failed"},
			{nil, "200 succeeded  never", "outcome succeeded"},
		}
		var ids []string
		for _, step := range steps {
			r.server.on("tools/call", step.answer)
			a := r.call(t, brokertest.Call{Run: "run"})
			if told(a) != step.told || a.RunID != "run" {
				t.Errorf("%s, want %s", a.Body, step.told)
			}
			ids = append(ids, a.ID)
		}
		r.must(t, r.Stop())
		for i, step := range steps {
			if got, want := r.records(t, ids[i]), []string{"decision", "sending", step.record}; !slices.Equal(got, want) {
				t.Errorf("the audit has %q, want %q", got, want)
			}
		}
	})
}

// TestUnauditable: whichever record cannot be written, nothing is sent after it.
func TestUnauditable(t *testing.T) {
	for kind, want := range map[audit.Kind]string{audit.Decision: "503  store_failed", audit.Sending: "200 not_sent store_failed safe"} {
		t.Run(string(kind), func(t *testing.T) {
			each(t, func(t *testing.T, r *rig) {
				r.fail(kind)
				if a := r.call(t, brokertest.Call{}); told(a) != want {
					t.Errorf("%s, want %s", a.Body, want)
				}
				r.notSent(t)
			})
		})
	}
}

// TestRunBudget (113): 20 calls for one run, and the next is not made. What was
// refused costs nothing, a repeat neither, and another run has its own. The contract
// counts by the segments of a run; ours by the run.
func TestRunBudget(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		for i := range 20 {
			if a := r.call(t, brokertest.Call{Run: "run", Key: fmt.Sprint("key-", i)}); a.State != fault.Succeeded {
				t.Fatalf("call %d: %s", i+1, a.Body)
			}
			if a := r.call(t, brokertest.Call{Run: "run", Tool: "off"}); a.Reason != fault.ToolDisabled {
				t.Errorf("%s", a.Body)
			}
		}
		if a := r.call(t, brokertest.Call{Run: "run", Key: "key-0"}); a.State != fault.Succeeded {
			t.Errorf("a repeat: %s", a.Body)
		}
		if a := r.call(t, brokertest.Call{Run: "run"}); a.Status != 403 || a.Reason != fault.RunBudgetSpent {
			t.Errorf("call 21: %s", a.Body)
		}
		if n := len(r.server.of("tools/call")); n != 20 {
			t.Errorf("%d calls were sent", n)
		}
		if a := r.call(t, brokertest.Call{Run: "fresh"}); a.State != fault.Succeeded {
			t.Errorf("a fresh run: %s", a.Body)
		}
	})
}

// TestApprovalDefault (9): anything but a literal false means approval. The file is
// strict, so most of it does not load, and what stood before stands.
func TestApprovalDefault(t *testing.T) {
	for _, said := range []string{"", "requires_approval: true", "requires_approval:", `requires_approval: "false"`, "requires_approval: no", "requires_approval: off",
		"requires_approval: 0", "requires_approval: 0.0", "requires_approval: null", "requires_approval: False", "requires_approval: FALSE", "requires_approval: [false]", "requires_approval: {}", "requires_approval: 2", "requires_approval: ~"} {
		t.Run(said, func(t *testing.T) {
			t.Parallel()
			r := start(t, profiles[0], "# approval")
			r.tryEdit("# approval", said) // what does not load says so, and is not in force
			if !r.seen(t).RequiresApproval {
				t.Error("no approval is needed")
			}
			if a := r.call(t, brokertest.Call{}); a.State == fault.Succeeded {
				t.Errorf("%s", a.Body)
			}
			r.notSent(t)
		})
	}
	t.Run("a literal false", func(t *testing.T) {
		r := start(t, profiles[0], "requires_approval: false")
		if a := r.call(t, brokertest.Call{}); a.State != fault.Succeeded || r.seen(t).RequiresApproval {
			t.Errorf("%s", a.Body)
		}
	})
}
