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
	Retry fault.Retry
	Legs  []legBar
	Span  time.Duration
	Audit string // address of its records
}

// A legBar is a leg on the line of its operation's time, in thousandths of its budget.
type legBar struct {
	audit.Leg
	Row, From, Width int
	Started          time.Duration // after the operation's beginning
}

// To is where the leg ended.
func (l legBar) To() int { return l.From + l.Width }

// operation shows one with its legs against the budget.
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
	p.Legs, p.Span = timeline(op.Legs)
	return answer{page: "operation", title: "Operation", model: p}, nil
}

// timeline places legs by what was left of the budget when each began. The first began
// with all of it; what goes on after the deadline makes the line longer.
func timeline(legs []audit.Leg) (bars []legBar, span time.Duration) {
	if len(legs) == 0 {
		return nil, 0
	}
	budget := legs[0].Budget
	span = max(budget, time.Millisecond)
	for _, l := range legs {
		span = max(span, budget-l.Budget+l.Took)
	}
	for i, l := range legs {
		begun := max(budget-l.Budget, 0)
		bars = append(bars, legBar{l, i, int(begun * 1000 / span), max(int(l.Took*1000/span), 2), begun})
	}
	return bars, span
}
