package httpapi

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"onbehalf.internal/broker/auditlog"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/grants"
	"onbehalf.internal/broker/policy"
)

// Grants is a page of what is known of grants. It may be empty though there is a next one.
type Grants struct {
	Grants   []grants.Row `json:"grants"`
	Next     string       `json:"next,omitempty"` // after= of the next page
	Counted  time.Time    `json:"counted_since"`  // since when uses are: "never" begins there
	Snapshot string       `json:"snapshot"`       // of the configuration; with another one, begin anew
	Ledger   Ledger       `json:"ledger"`
}

const (
	grantsPage   = 1000 // rows, without a limit
	mostGrants   = 5000 // rows of a page
	mostAsked    = 500  // grants of a page whose credentials Vault is asked for
	askedPage    = 100  // the same without a limit
	unusedDays   = 90
	expiringDays = 30
	mostDays     = 3660
)

// grants answers GET /v1/grants: each grant at each tool that it opens.
func (a *API) grants(ctx context.Context, r *request) (answer, error) {
	q := grants.Question{Limit: grantsPage}
	return a.grantsPage(ctx, r, &q, filters(&q), a.Grants.List)
}

// whoCan answers GET /v1/grants/who-can: for whom a tool may be called now.
func (a *API) whoCan(ctx context.Context, r *request) (answer, error) {
	q := grants.Question{Limit: grantsPage}
	return a.grantsPage(ctx, r, &q, []param{word("server", &q.Server), word("tool", &q.Tool), word("actor", &q.Actor)},
		func(ctx context.Context, q grants.Question) (grants.Page, error) {
			if err := needs(map[string]string{"server": q.Server, "tool": q.Tool}); err != nil {
				return grants.Page{}, err
			}
			return a.Grants.WhoCan(ctx, q)
		})
}

// unused answers GET /v1/grants/unused: what was not used for so many days.
func (a *API) unused(ctx context.Context, r *request) (answer, error) {
	q, days := grants.Question{Limit: grantsPage}, unusedDays
	return a.grantsPage(ctx, r, &q, append(filters(&q), upTo("days", &days, mostDays)), func(ctx context.Context, q grants.Question) (grants.Page, error) {
		return a.Grants.Unused(ctx, q, days)
	})
}

// expiring answers GET /v1/grants/expiring: what has expired, or soon will have.
func (a *API) expiring(ctx context.Context, r *request) (answer, error) {
	q, days := grants.Question{Limit: grantsPage}, expiringDays
	return a.grantsPage(ctx, r, &q, []param{between("days", &days, 0, mostDays)}, func(ctx context.Context, q grants.Question) (grants.Page, error) {
		return a.Grants.Expiring(ctx, q, days)
	})
}

// orphaned answers GET /v1/grants/orphaned: what opens nothing, or has no credential.
func (a *API) orphaned(ctx context.Context, r *request) (answer, error) {
	q, ask := grants.Question{Limit: askedPage}, true
	return a.grantsPage(ctx, r, &q, []param{choice("vault", &ask, "skip", "ask")}, func(ctx context.Context, q grants.Question) (grants.Page, error) {
		if ask {
			q.Limit = min(q.Limit, mostAsked)
		}
		return a.Grants.Orphaned(ctx, q, ask)
	})
}

func filters(q *grants.Question) []param {
	return []param{word("actor", &q.Actor), word("profile", &q.Profile), word("server", &q.Server), word("tool", &q.Tool)}
}

// grantsPage reads the query into q and answers with the page that read makes of it, once
// it is on record that somebody is let read it.
func (a *API) grantsPage(ctx context.Context, r *request, q *grants.Question, known []param,
	read func(context.Context, grants.Question) (grants.Page, error)) (answer, error) {
	known = append(known, upTo("limit", &q.Limit, mostGrants),
		param{"after", func(text string) (err error) { q.After, err = grants.ParsePlace(text); return err }})
	if err := readQuery(r.http.URL.RawQuery, known...); err != nil {
		return answer{}, err
	}
	if err := a.lookAtGrants(ctx, r, q.Filter); err != nil {
		return answer{}, err
	}
	p, err := read(ctx, *q)
	if err != nil {
		return answer{}, err
	}
	shown := Grants{Grants: p.Rows, Counted: p.Counted, Snapshot: p.Snapshot, Ledger: a.ledger()}
	if p.More {
		shown.Next = p.Next.Words()
	}
	return inJSON(http.StatusOK, shown), nil
}

// lookAtGrants refuses what is misspelt and records the reading.
func (a *API) lookAtGrants(ctx context.Context, r *request, f policy.Filter) error {
	if what := a.Policy.Current().Misnamed(f); what != "" {
		return fault.New("httpapi.grants", fault.MalformedRequest, what)
	}
	return a.Auditors.Look(ctx, auditor(r), auditlog.Grants, auditlog.Filter{Actor: f.Actor, Server: f.Server, Tool: f.Tool})
}

func auditor(r *request) auditlog.Auditor { return auditlog.Auditor{Caller: r.caller.ID()} }

// An Explanation is a decision that nobody has asked for, check by check up to the one that
// refuses.
type Explanation struct {
	Allowed  bool           `json:"allowed"`
	Reason   fault.Reason   `json:"reason,omitempty"` // why not
	Checks   []policy.Check `json:"checks"`
	Snapshot string         `json:"snapshot"`
	Ledger   Ledger         `json:"ledger"`
}

// explain answers GET /v1/grants/explain, from the snapshot that decides now: with what is
// suspended, and what servers offer.
func (a *API) explain(ctx context.Context, r *request) (answer, error) {
	var c policy.Case
	err := readQuery(r.http.URL.RawQuery, word("caller", &c.Caller), word("actor", &c.Actor), word("server", &c.Server), word("tool", &c.Tool),
		param{"zone", func(text string) error { return readZone(text, &c.Zone) }}, choice("admin", &c.Admin, "no", "yes"))
	if err == nil {
		err = needs(map[string]string{"caller": c.Caller, "actor": c.Actor, "server": c.Server, "tool": c.Tool})
	}
	if err != nil {
		return answer{}, err
	}
	s := a.Policy.Current()
	if c.Admin && !s.Directory.Proves(c.Caller, c.Actor) {
		return answer{}, fault.New("httpapi.explain", fault.MalformedRequest, "admin: the caller cannot prove it for the actor")
	}
	if what := s.Misnamed(policy.Filter{Actor: c.Actor}); what != "" {
		return answer{}, fault.New("httpapi.explain", fault.MalformedRequest, what)
	}
	if err := a.Auditors.Look(ctx, auditor(r), auditlog.Grants, auditlog.Filter{Actor: c.Actor, Server: c.Server, Tool: c.Tool}); err != nil {
		return answer{}, err
	}
	checks, reason := s.Trace(c, r.received)
	return inJSON(http.StatusOK, Explanation{reason == fault.None, reason, checks, s.Hash, a.ledger()}), nil
}

func readZone(text string, into *policy.Zone) (err error) {
	z, ok := policy.ParseZone(text)
	if !ok {
		return errors.New("one of " + strings.Join(policy.Zones(), ", "))
	}
	*into = z
	return nil
}
