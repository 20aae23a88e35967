package fault_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"onbehalf.internal/broker/fault"
)

// TestReasonsAreClosed: every constant of reasons.go has a kind, and is a word.
func TestReasonsAreClosed(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "reasons.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	declared := map[fault.Reason]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || fmt.Sprint(spec.Type) != "Reason" || len(spec.Values) != 1 {
			return true
		}
		word, _ := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if word != "" {
			declared[fault.Reason(word)] = true
		}
		return true
	})
	if len(declared) < 50 {
		t.Fatalf("found only %d constants: the test no longer reads the file", len(declared))
	}
	for r := range declared {
		if !r.Known() {
			t.Errorf("reason %q has no kind", r)
		}
		if !regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`).MatchString(string(r)) {
			t.Errorf("reason %q is not a word", r)
		}
	}
	for _, r := range fault.Reasons() {
		if !declared[r] {
			t.Errorf("reason %q has a kind but no constant", r)
		}
	}
}

func TestReasonOf(t *testing.T) {
	denied := fault.New("policy.Decide", fault.NoGrant, "")
	for _, tc := range []struct {
		err    error
		reason fault.Reason
		kind   fault.Kind
	}{
		{denied, fault.NoGrant, fault.Denied},
		{fmt.Errorf("running: %w", denied), fault.NoGrant, fault.Denied},
		{errors.Join(denied, errors.New("and more")), fault.NoGrant, fault.Denied},
		{errors.New("nobody classified this"), fault.InternalError, fault.Internal},
		{fault.New("x.Y", "made_up", ""), "made_up", fault.Internal},
	} {
		if r, k := fault.ReasonOf(tc.err), fault.KindOf(tc.err); r != tc.reason || k != tc.kind {
			t.Errorf("%v: %s %s, want %s %s", tc.err, r, k, tc.reason, tc.kind)
		}
	}
}

// TestRetry is the table a gateway relies on: only what provably did not run
// may be called safe.
func TestRetry(t *testing.T) {
	for _, tc := range []struct {
		state fault.State
		retry fault.Retry
	}{
		{fault.AwaitingApproval, fault.RetryWait},
		{fault.Reserved, fault.RetryWait},
		{fault.Sending, fault.RetryWait},
		{fault.Succeeded, fault.RetryNever},
		{fault.ToolError, fault.RetryReadTheError},
		{fault.RPCError, fault.RetryLookFirst},
		{fault.PeerRefused, fault.RetrySafe},
		{fault.NotSent, fault.RetrySafe},
		{fault.InDoubt, fault.RetryLookFirst},
		{fault.ResolvedRan, fault.RetryNever},
		{fault.ResolvedNotRan, fault.RetrySafe},
		{fault.Expired, fault.RetryNever},
		{"", fault.RetryLookFirst},
		{"a word from the future", fault.RetryLookFirst},
	} {
		if got := (fault.Outcome{State: tc.state}).Retry(); got != tc.retry {
			t.Errorf("%q: retry %q, want %q", tc.state, got, tc.retry)
		}
	}
}

func TestOutcomesSayWhoSaysSo(t *testing.T) {
	for _, tc := range []struct {
		got, want fault.Outcome
	}{
		{fault.NotSentBecause(fault.BudgetSpent), fault.Outcome{State: "not_sent", Ran: "no", Evidence: "local", Cause: "budget_spent"}},
		{fault.RefusedBecause(fault.Unauthorized), fault.Outcome{State: "refused", Ran: "no", Evidence: "peer", Cause: "unauthorized"}},
		{fault.Doubt(fault.WallClock), fault.Outcome{State: "unknown", Ran: "unknown", Evidence: "none", Cause: "wall_clock"}},
	} {
		if tc.got != tc.want {
			t.Errorf("%+v, want %+v", tc.got, tc.want)
		}
	}
}

// TestEnded: why a context is over, also in the moment in which it has not
// noticed yet.
func TestEnded(t *testing.T) {
	now := time.Now()
	live, cancel := context.WithDeadline(context.Background(), now.Add(time.Hour))
	defer cancel()
	given, cancel := context.WithCancel(live)
	cancel()
	cut, cutBecause := context.WithCancelCause(live)
	cutBecause(fault.New("test", fault.BrokerStopping, ""))
	below, cancel := context.WithTimeout(cut, time.Hour)
	defer cancel()
	foreign, cutBecause := context.WithCancelCause(live)
	cutBecause(errors.New("not ours"))
	late, cancel := context.WithDeadline(context.Background(), now)
	defer cancel()
	for _, tc := range []struct {
		ctx  context.Context
		want fault.Reason
	}{
		{context.Background(), fault.None},
		{live, fault.None},
		{given, fault.CallerCancelled},
		{foreign, fault.CallerCancelled},
		{cut, fault.BrokerStopping},
		{below, fault.BrokerStopping},
		{late, fault.BudgetSpent},
		{unaware{late}, fault.BudgetSpent},
	} {
		if got := fault.Ended(tc.ctx, fault.BudgetSpent); got != tc.want {
			t.Errorf("%v: %q, want %q", tc.ctx, got, tc.want)
		}
	}
}

// unaware is a context whose timer has not fired yet.
type unaware struct{ context.Context }

func (unaware) Err() error { return nil }

// TestOutcomesAreDocumented: docs/outcomes.md has every reason with its kind,
// and nothing that is not in the list.
func TestOutcomesAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/outcomes.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(text), "# Reasons")
	documented := map[fault.Reason]fault.Kind{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| ([a-z_]+) \\| .+ \\|$").FindAllStringSubmatch(list, -1) {
		documented[fault.Reason(row[1])] = fault.Kind(row[2])
	}
	for _, r := range fault.Reasons() {
		if documented[r] != r.Kind() {
			t.Errorf("%s: documented as %q, is %q", r, documented[r], r.Kind())
		}
		delete(documented, r)
	}
	for r := range documented {
		t.Errorf("%s is documented and not in the list", r)
	}
}
