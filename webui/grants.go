package webui

import (
	"context"
	"iter"
	"net/url"
	"strconv"
	"time"

	"onbehalf.internal/broker/auditlog"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/ledger"
	"onbehalf.internal/broker/policy"
)

const (
	grantsShown  = 100
	soon         = 30 // days until a grant ends that are worth a mark
	unused       = 90 * 24 * time.Hour
	usesAtOnce   = 1000 // rows whose uses are asked for together
	farthestPage = 10_000
)

type grantsPage struct {
	Filter         policy.Filter
	Show           string
	Rows           []grantRow
	Newer, Older   string    // addresses of the pages before and after; empty: there is none
	Counted        time.Time // since when uses are counted
	Servers, Shows []string
}

type grantRow struct {
	policy.Row
	ledger.Use
	Soon, Idle bool // it ends soon; it is active, and nobody has used it for long
}

// shows are what the list can be narrowed to.
var shows = map[string]func(grantRow) bool{
	"":         func(grantRow) bool { return true },
	"active":   func(g grantRow) bool { return g.Status == policy.Active },
	"disabled": func(g grantRow) bool { return g.Status == policy.Disabled },
	"expired":  func(g grantRow) bool { return g.Status == policy.Expired },
	"expiring": func(g grantRow) bool { return g.Soon },
	"unused":   func(g grantRow) bool { return g.Idle },
}

// grants shows the flat list: who may do what as whom, why, since when and last used when.
func (u *UI) grants(ctx context.Context, v *visit) (answer, error) {
	p := grantsPage{Filter: policy.Filter{Actor: v.query("actor"), Profile: v.query("profile"), Server: v.query("server"), Tool: v.query("tool")},
		Show: v.query("show"), Shows: []string{"active", "disabled", "expired", "expiring", "unused"}}
	wanted, ok := shows[p.Show]
	number, err := strconv.Atoi(v.query("page"))
	if v.query("page") == "" {
		number, err = 1, nil
	}
	if !ok || err != nil || number < 1 || number > farthestPage {
		return answer{}, fault.New("webui.grants", fault.MalformedRequest, "show or page is none that this page has")
	}
	if err := u.Auditors.Look(ctx, v.auditor(), auditlog.Grants, auditlog.Filter{Actor: p.Filter.Actor, Server: p.Filter.Server, Tool: p.Filter.Tool}); err != nil {
		return answer{}, err
	}
	for _, s := range u.Policy.Current().Servers() {
		p.Servers = append(p.Servers, s.ID)
	}
	before := (number - 1) * grantsShown
	for row, err := range u.granted(ctx, p.Filter, &p.Counted) {
		switch {
		case err != nil:
			return answer{}, err
		case !wanted(row):
		case before > 0:
			before--
		case len(p.Rows) == grantsShown:
			p.Older = atPage(v, number+1)
			return u.grantsAnswer(v, p, number), nil
		default:
			p.Rows = append(p.Rows, row)
		}
	}
	return u.grantsAnswer(v, p, number), nil
}

func (u *UI) grantsAnswer(v *visit, p grantsPage, number int) answer {
	if number > 1 {
		p.Newer = atPage(v, number-1)
	}
	return answer{page: "grants", title: "Grants", model: p}
}

func atPage(v *visit, number int) string {
	return v.again("page", strconv.Itoa(number))
}

// granted yields the rows of the newest configuration, with their uses.
func (u *UI) granted(ctx context.Context, f policy.Filter, counted *time.Time) iter.Seq2[grantRow, error] {
	return func(yield func(grantRow, error) bool) {
		now := u.Now()
		for rows := range batches(u.Policy.Current().List(f, now), usesAtOnce) {
			uses, since, err := u.Ledger.Uses(ctx, f, rows[0].Actor, rows[len(rows)-1].Actor)
			if err != nil {
				yield(grantRow{}, err)
				return
			}
			*counted = since
			for _, row := range rows {
				if !yield(marked(row, uses[row.ID()], now), nil) {
					return
				}
			}
		}
	}
}

func marked(row policy.Row, use ledger.Use, now time.Time) grantRow {
	ends := now.AddDate(0, 0, soon).UTC().Format(time.DateOnly)
	return grantRow{row, use,
		row.Status == policy.Active && row.Expires != "" && row.Expires <= ends,
		row.Status == policy.Active && row.Server != "" && now.Sub(use.Last) > unused}
}

// batches are the rows, so many at a time.
func batches(rows iter.Seq[policy.Row], many int) iter.Seq[[]policy.Row] {
	return func(yield func([]policy.Row) bool) {
		var batch []policy.Row
		for row := range rows {
			if batch = append(batch, row); len(batch) == many {
				if !yield(batch) {
					return
				}
				batch = nil
			}
		}
		if len(batch) > 0 {
			yield(batch)
		}
	}
}

type explainPage struct {
	policy.Case
	Callers []string // that could ask
	Checks  []policy.Check
	Reason  string // empty: it is allowed
	Back    string
}

// explain shows each check of a decision as it would be made now, with suspensions and
// with what servers offer.
func (u *UI) explain(ctx context.Context, v *visit) (answer, error) {
	c := policy.Case{Caller: v.query("caller"), Actor: v.query("actor"), Server: v.query("server"), Tool: v.query("tool")}
	if err := u.Auditors.Look(ctx, v.auditor(), auditlog.Grants, auditlog.Filter{Actor: c.Actor, Server: c.Server, Tool: c.Tool}); err != nil {
		return answer{}, err
	}
	s := u.Policy.Current()
	p := explainPage{Case: c, Back: "/ui/grants?" + url.Values{"actor": {c.Actor}, "server": {c.Server}}.Encode()}
	for _, caller := range s.Callers() {
		p.Callers = append(p.Callers, caller.ID)
	}
	speaks, why := s.Speaks(c.Caller, c.Actor)
	p.Checks, p.Reason = []policy.Check{speaks}, string(why)
	if why == fault.None {
		c.Admin = s.Directory.Proves(c.Caller, c.Actor)
		more, refused := s.ExplainCase(c, u.Now())
		p.Checks, p.Reason = append(p.Checks, more...), refused
	}
	return answer{page: "explain", title: "Why", model: p}, nil
}
