package webui

import (
	"context"
	"net/url"
	"time"

	"onbehalf.internal/broker/auditlog"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/grants"
	"onbehalf.internal/broker/policy"
)

const (
	grantsShown = 100
	soon        = 30 // days until a grant ends that are worth a mark
	unused      = 90 // days without a use that are
)

type grantsPage struct {
	Filter         policy.Filter
	Show           string
	Rows           []grantRow
	Next           string    // address of the next page; empty: this is the last
	Counted        time.Time // since when uses are
	Servers, Shows []string
}

type grantRow struct {
	grants.Row
	Soon, Idle bool // it ends soon; it is active, and nobody has used it for long
}

// views are what the list can show, in the order in which they are offered.
var views = []string{"all", "unused", "expiring", "orphaned"}

// grants shows the flat list: who may do what as whom, why, since when and last used when.
func (u *UI) grants(ctx context.Context, v *visit) (answer, error) {
	const op = "webui.grants"
	q := grants.Question{Limit: grantsShown, Filter: policy.Filter{Actor: v.query("actor"), Profile: v.query("profile"), Server: v.query("server"), Tool: v.query("tool")}}
	if after := v.query("after"); after != "" {
		var err error
		if q.After, err = grants.ParsePlace(after); err != nil {
			return answer{}, fault.New(op, fault.MalformedRequest, "after: "+err.Error())
		}
	}
	if err := u.Auditors.Look(ctx, v.auditor(), auditlog.Grants, auditlog.Filter{Actor: q.Actor, Server: q.Server, Tool: q.Tool}); err != nil {
		return answer{}, err
	}
	var found grants.Page
	var err error
	switch v.query("show") {
	case "", "all":
		found, err = u.Grants.List(ctx, q)
	case "unused":
		found, err = u.Grants.Unused(ctx, q, unused)
	case "expiring":
		found, err = u.Grants.Expiring(ctx, q, soon)
	case "orphaned":
		found, err = u.Grants.Orphaned(ctx, q, true)
	default:
		return answer{}, fault.New(op, fault.MalformedRequest, "show: a view of this page")
	}
	if err != nil {
		return answer{}, err
	}
	p := grantsPage{Filter: q.Filter, Show: v.query("show"), Shows: views, Counted: found.Counted}
	for _, row := range found.Rows {
		p.Rows = append(p.Rows, marked(row, u.Now()))
	}
	for _, s := range u.Policy.Current().Servers() {
		p.Servers = append(p.Servers, s.ID)
	}
	if found.More {
		p.Next = v.again("after", found.Next.Words())
	}
	return answer{page: "grants", title: "Grants", model: p}, nil
}

func marked(row grants.Row, now time.Time) grantRow {
	ends := now.AddDate(0, 0, soon).UTC().Format(time.DateOnly)
	active := row.Status == policy.Active
	return grantRow{row, active && row.Expires != "" && row.Expires <= ends, active && row.Server != "" && row.LastUsed.Before(now.AddDate(0, 0, -unused))}
}

type explainPage struct {
	policy.Case
	Callers []string // that could ask
	Checks  []policy.Check
	Reason  fault.Reason // None: it is allowed
	Back    string       // address of the actor's grants
}

// explain shows each check of a decision as it would be made now, with suspensions and
// with what servers offer. Whether the actor is an administrator an assertion says; where
// the caller can bring one that does, it is taken for granted.
func (u *UI) explain(ctx context.Context, v *visit) (answer, error) {
	c := policy.Case{Caller: v.query("caller"), Actor: v.query("actor"), Server: v.query("server"), Tool: v.query("tool")}
	if err := u.Auditors.Look(ctx, v.auditor(), auditlog.Grants, auditlog.Filter{Actor: c.Actor, Server: c.Server, Tool: c.Tool}); err != nil {
		return answer{}, err
	}
	s := u.Policy.Current()
	c.Admin = s.Directory.Proves(c.Caller, c.Actor)
	p := explainPage{Case: c, Back: "/ui/grants?" + url.Values{"actor": {c.Actor}, "server": {c.Server}}.Encode()}
	for _, caller := range s.Callers() {
		p.Callers = append(p.Callers, caller.ID)
	}
	p.Checks, p.Reason = s.Trace(c, u.Now())
	return answer{page: "explain", title: "Why", model: p}, nil
}
