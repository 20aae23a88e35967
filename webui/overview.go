package webui

import (
	"context"
	"time"

	"onbehalf.internal/broker/auditlog"
	"onbehalf.internal/broker/catalogue"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/identity"
	"onbehalf.internal/broker/ledger"
	"onbehalf.internal/broker/policy"
)

type overviewPage struct {
	NotReady string // why; empty: operations can run
	Version  string
	Snapshot string
	Ledger   string
	Since    time.Time

	Servers     []serverRow
	Outcomes    []bar
	Total       int
	From        time.Time
	Suspensions []policy.Suspension
	Chain       auditlog.Head
	Signs       bool   // heads are signed
	Unsigned    uint64 // records after the newest signed head
}

// A serverRow is a declared server with what is known of it.
type serverRow struct {
	*policy.Server
	Found   catalogue.Server
	Changed []string // tools that are refused: they are not what is pinned, or came back
}

// A bar is a part of a whole, drawn.
type bar struct {
	Word  string
	Count int
	Of    int // thousandths
	Kind  string
}

// recent is what the overview counts.
const recent = 24 * time.Hour

// overview shows how the broker is. Who only decides goes on to what waits.
func (u *UI) overview(ctx context.Context, v *visit) (answer, error) {
	if !v.may(identity.Audit) {
		return answer{redirect: "/ui/approvals"}, nil
	}
	if err := u.Auditors.Look(ctx, v.auditor(), auditlog.Servers, auditlog.Filter{}); err != nil {
		return answer{}, err
	}
	now, s := u.Now(), u.Policy.Current()
	p := overviewPage{Version: u.Version, Snapshot: s.Hash, From: now.Add(-recent), Suspensions: s.Suspensions(now), Signs: s.Keys.Audit != ""}
	p.Ledger, p.Since = u.Identity()
	if err := u.Ready(); err != nil {
		p.NotReady = told(err)
	}
	var err error
	if p.Servers, err = u.servers(ctx, s); err != nil {
		return answer{}, err
	}
	counts, err := u.Ledger.Outcomes(ctx, p.From)
	if err != nil {
		return answer{}, err
	}
	p.Outcomes, p.Total = bars(counts)
	if p.Chain, err = u.Auditors.Head(ctx); err != nil {
		return answer{}, err
	}
	p.Unsigned = p.Chain.Chain.Seq - min(p.Chain.Signed, p.Chain.Chain.Seq)
	return answer{page: "overview", title: "Overview", model: p}, nil
}

func (u *UI) servers(ctx context.Context, s *policy.Snapshot) (rows []serverRow, err error) {
	found, err := u.Catalogue.Servers(ctx)
	if err != nil {
		return nil, err
	}
	known := map[string]catalogue.Server{}
	for _, f := range found {
		known[f.Name] = f
	}
	for _, declared := range s.Servers() {
		rows = append(rows, serverRow{declared, known[declared.ID], s.Changed(declared.ID)})
	}
	return rows, nil
}

// bars are the outcomes in their fixed order, those that there are.
func bars(counts []ledger.Count) (all []bar, total int) {
	for _, c := range counts {
		total += c.Operations
	}
	for _, c := range counts {
		all = append(all, bar{string(c.State), c.Operations, c.Operations * 1000 / total, kindOf(c.State)})
	}
	return all, total
}

// kindOf says how a state looks: what is in doubt has to be seen first.
func kindOf(s fault.State) string {
	switch s {
	case fault.Succeeded, fault.ResolvedRan, fault.ResolvedNotRan:
		return "good"
	case fault.InDoubt:
		return "doubt"
	case fault.AwaitingApproval, fault.Reserved, fault.Sending:
		return "open"
	}
	return "bad"
}
