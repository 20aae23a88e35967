package webui

import (
	"context"
	"net/url"
	"time"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/auditlog"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/ledger"
)

const operationsShown = 50

type operationsPage struct {
	Search ledger.Search
	States []fault.State
	List   []ledger.Operation
	Older  string // address of the next page; empty: this is the last
	Since  time.Time
}

// operations shows what was asked for, the newest first.
func (u *UI) operations(ctx context.Context, v *visit) (answer, error) {
	s := ledger.Search{ID: v.query("id"), RequestKey: v.query("key"), Caller: v.query("caller"), Actor: v.query("actor"),
		Server: v.query("server"), Tool: v.query("tool"), State: fault.State(v.query("state"))}
	var after ledger.Place
	if text := v.query("after"); text != "" {
		var err error
		if after, err = ledger.ParsePlace(text); err != nil {
			return answer{}, fault.New("webui.operations", fault.MalformedRequest, "after: "+err.Error())
		}
	}
	if err := u.Auditors.Look(ctx, v.auditor(), auditlog.Operations, auditlog.Filter{Actor: s.Actor, Operation: s.ID, Server: s.Server, Tool: s.Tool}); err != nil {
		return answer{}, err
	}
	list, next, err := u.Ledger.Search(ctx, s, after, operationsShown)
	if err != nil {
		return answer{}, err
	}
	p := operationsPage{Search: s, List: list}
	for _, a := range fault.Advices() {
		p.States = append(p.States, a.State)
	}
	_, p.Since = u.Identity()
	if next != (ledger.Place{}) {
		p.Older = v.again("after", next.Words())
	}
	return answer{page: "operations", title: "Operations", model: p}, nil
}

type operationPage struct {
	ledger.Operation
	Retry  fault.Retry
	Do     string // what follows for the caller
	Legs   []legBar
	Span   time.Duration // from the first leg's beginning to the last one's end
	Budget time.Duration // when the first leg began
	Audit  string        // address of its records
}

// Spent is how much of the budget the legs took, in thousandths.
func (p operationPage) Spent() int { return int(min(p.Span, p.Budget) * 1000 / max(p.Budget, 1)) }

// A legBar is a leg on the line of its operation's time, in thousandths of all legs' time.
type legBar struct {
	audit.Leg
	From, Width int
	Started     time.Duration // after the first leg's beginning
}

// To is where the leg ended.
func (l legBar) To() int { return l.From + l.Width }

// operation shows one with its legs.
func (u *UI) operation(ctx context.Context, v *visit) (answer, error) {
	id := v.http.PathValue("id")
	if err := u.Auditors.Look(ctx, v.auditor(), auditlog.Operations, auditlog.Filter{Operation: id}); err != nil {
		return answer{}, err
	}
	list, _, err := u.Ledger.Search(ctx, ledger.Search{ID: id}, ledger.Place{}, 1)
	if err == nil && len(list) == 0 {
		err = fault.New("webui.operation", fault.OperationNotFound, "")
	}
	if err != nil {
		return answer{}, err
	}
	op := list[0]
	p := operationPage{Operation: op, Retry: op.Retry(u.Now()), Audit: "/ui/audit?" + url.Values{"operation": {id}}.Encode()}
	for _, a := range fault.Advices() {
		if a.State == op.Outcome.State {
			p.Do = a.Do
		}
	}
	if p.Legs, p.Span = timeline(op.Legs); len(op.Legs) > 0 {
		p.Budget = op.Legs[0].Budget
	}
	return answer{page: "operation", title: "Operation", model: p}, nil
}

// cleanUp are the legs with a budget of their own: they begin when the one before ended.
var cleanUp = map[string]bool{"notifications/cancelled": true, "delete": true, "drop": true, "revoke": true}

// timeline places legs by what was left of the operation's budget when each began. The
// first began with all of it.
func timeline(legs []audit.Leg) (bars []legBar, span time.Duration) {
	var end time.Duration
	for _, l := range legs {
		begun := max(legs[0].Budget-l.Budget, 0)
		if cleanUp[l.Name] {
			begun = end
		}
		bars = append(bars, legBar{Leg: l, Started: begun})
		end = begun + l.Took
		span = max(span, end)
	}
	for i, b := range bars {
		whole := max(span, time.Microsecond)
		bars[i].From, bars[i].Width = int(b.Started*1000/whole), max(int(b.Took*1000/whole), 3)
	}
	return bars, span
}
