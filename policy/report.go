package policy

import (
	"cmp"
	"iter"
	"slices"
	"time"

	"onbehalf.internal/broker/fault"
)

// A Row says who may do what as whom: one grant at one tool. It is made of the
// file alone, so suspensions and what servers offer are not in it.
type Row struct {
	Actor      string
	Callers    []string // who may call for the actor, sorted; none: nobody
	Profile    string   // empty: a legacy server
	Credential string   // as whom: a reference
	Server     string   // empty: the grant opens no tool, and audiences and scopes are its bounds
	Audiences  []string // one, where a server is
	Scopes     []string
	Tool       string
	Effect     string
	DataClass  string
	Approval   bool // each call needs one
	Admin      bool // the actor has to be an administrator
	Since      string
	ApprovedBy string
	Reason     string
	Expires    string // the first day without it; empty: there is none
	Enabled    bool
	Status     Status
	Where      string // file:line of the grant; of the server, where none is needed
	Why        string // of [Snapshot.Orphaned]: why it opens nothing
}

// A Status is what a grant is at one time.
type Status string

const (
	Active        Status = "active"
	Disabled      Status = "disabled"
	Expired       Status = "expired"
	NoGrantNeeded Status = "no grant needed" // a legacy server
)

// A Filter keeps the rows of what it names; an empty word keeps all.
type Filter struct{ Actor, Profile, Server, Tool string }

// opening is what a grant and a tool have to pass for the one to open the other,
// whoever calls, and whenever.
var opening = without(execution, fault.ServerNotAllowed, fault.AdminRequired, fault.ZoneExceeded,
	fault.GrantDisabled, fault.GrantExpired)

// calling is what a caller has to pass for that; a row tells the rest itself.
var calling = without(execution, fault.GrantDisabled, fault.GrantExpired)

// List yields what each grant makes possible, disabled and expired ones too, sorted
// by actor, profile, server and tool. No grant is missing: one that opens no tool
// has a row without a server. Rows are made one at a time.
func (s *Snapshot) List(f Filter, at time.Time) iter.Seq[Row] {
	r := s.report(at)
	return func(yield func(Row) bool) {
		for _, g := range s.granted(f) {
			for row := range r.rows(g) {
				if f.keeps(row) && !yield(row) {
					return
				}
			}
		}
	}
}

// WhoCan yields one row for each actor for whom somebody may call the tool, sorted.
// Of a legacy server, which asks for no grant, an actor may be "user:" or "service:"
// for all of a kind.
func (s *Snapshot) WhoCan(server, tool string, at time.Time) iter.Seq[Row] {
	r := s.report(at)
	return func(yield func(Row) bool) {
		v, ok := s.servers[server]
		if !ok {
			return
		}
		for actor := range s.candidates(v) {
			if row, ok := r.allowed(r.callers, actor, remote{v, tool}); ok && !yield(row) {
				return
			}
		}
	}
}

// Can yields one row for each tool that somebody, or the caller that is named, may
// call for the actor, sorted by server and tool.
func (s *Snapshot) Can(caller, actor string, at time.Time) iter.Seq[Row] {
	r := s.report(at)
	if caller != "" {
		r.callers = slices.DeleteFunc(r.callers, func(c string) bool { return c != caller })
	}
	return func(yield func(Row) bool) {
		for _, v := range s.Servers() {
			for _, tool := range v.ToolNames() {
				if row, ok := r.allowed(r.callers, actor, remote{v, tool}); ok && !yield(row) {
					return
				}
			}
		}
	}
}

// Expiring yields the grants that have expired at the given time, or will have
// after the days that follow, the first to end first.
func (s *Snapshot) Expiring(days int, at time.Time) iter.Seq[Row] {
	grants := slices.DeleteFunc(s.granted(Filter{}), func(g *Grant) bool { return !g.expired(at.AddDate(0, 0, days)) })
	slices.SortStableFunc(grants, func(a, b *Grant) int { return a.Expires.Compare(b.Expires) })
	return func(yield func(Row) bool) {
		for _, g := range grants {
			if !yield(g.row(at)) {
				return
			}
		}
	}
}

// Orphaned yields the grants that open no tool of an enabled server, with the
// reason, sorted by actor and profile.
func (s *Snapshot) Orphaned(at time.Time) iter.Seq[Row] {
	r := s.report(at)
	return func(yield func(Row) bool) {
		for _, g := range s.granted(Filter{}) {
			row := g.row(at)
			if row.Why = r.orphan(g); row.Why != "" && !yield(row) {
				return
			}
		}
	}
}

// Speaks is the check that comes before those of [Snapshot.Explain], of whether a
// request of the caller can be for the actor at all. [Snapshot.Decide] does not
// make it: package identity has, before anybody can ask.
func (s *Snapshot) Speaks(caller, actor string) (c Check, reason fault.Reason) {
	reason = s.Directory.Speaks(caller, actor)
	c = Check{Name: "caller speaks for the actor", Value: caller + " for " + actor, OK: reason == fault.None}
	if who, ok := s.callers[caller]; ok {
		c.Where = who.Where
	}
	return c, reason
}

// A report is one reading of a snapshot.
type report struct {
	*Snapshot
	at      time.Time
	callers []string
	remotes map[string][]remote // :: profile → the tools of its servers, sorted
}

// A remote is one declared tool of a server.
type remote struct {
	*Server
	tool string
}

func (s *Snapshot) report(at time.Time) *report {
	r := &report{Snapshot: s, at: at, remotes: map[string][]remote{}}
	for _, c := range s.Callers() {
		r.callers = append(r.callers, c.ID)
	}
	for _, v := range s.Servers() {
		for _, tool := range v.ToolNames() {
			r.remotes[v.Auth.Profile] = append(r.remotes[v.Auth.Profile], remote{v, tool})
		}
	}
	return r
}

// granted returns the grants that the filter can keep, sorted by actor and profile.
func (s *Snapshot) granted(f Filter) (all []*Grant) {
	for profile, grants := range s.grants {
		for actor, g := range grants {
			if matches(f.Profile, profile) && matches(f.Actor, actor) {
				all = append(all, g)
			}
		}
	}
	slices.SortFunc(all, func(a, b *Grant) int {
		return cmp.Or(cmp.Compare(a.Actor, b.Actor), cmp.Compare(a.Profile, b.Profile))
	})
	return all
}

func (f Filter) keeps(r Row) bool { return matches(f.Server, r.Server) && matches(f.Tool, r.Tool) }

func matches(wanted, is string) bool { return wanted == "" || wanted == is }

// rows yields what g makes possible; if nothing, the grant by itself.
func (r *report) rows(g *Grant) iter.Seq[Row] {
	return func(yield func(Row) bool) {
		opened := false
		for to := range r.opened(g) {
			opened = true
			row := g.row(r.at).of(to)
			row.Callers = r.through(calling, r.callers, g.Actor, to)
			if !yield(row) {
				return
			}
		}
		if !opened {
			yield(g.row(r.at))
		}
	}
}

// opened yields the tools that g opens.
func (r *report) opened(g *Grant) iter.Seq[remote] {
	return func(yield func(remote) bool) {
		for _, to := range r.remotes[g.Profile] {
			if r.first(opening, "", g.Actor, to) == fault.None && !yield(to) {
				return
			}
		}
	}
}

// first is the reason of the first of the steps that refuses, with an administrator
// wherever the caller can prove one.
func (r *report) first(steps []step, caller, actor string, to remote) fault.Reason {
	return r.trial(Case{Caller: caller, Actor: actor, Server: to.ID, Tool: to.tool,
		Admin: r.Directory.Proves(caller, actor), Offline: true}, r.at).first(steps)
}

// through returns those of the callers that speak for the actor and pass the steps.
func (r *report) through(steps []step, callers []string, actor string, to remote) (through []string) {
	for _, c := range callers {
		if r.Directory.Speaks(c, actor) == fault.None && r.first(steps, c, actor, to) == fault.None {
			through = append(through, c)
		}
	}
	return through
}

// allowed is the row of what some of the callers may do now; false if none may.
func (r *report) allowed(callers []string, actor string, to remote) (Row, bool) {
	through := r.through(execution, callers, actor, to)
	if len(through) == 0 {
		return Row{}, false
	}
	row := to.legacyRow(actor)
	if g, ok := r.Grant(to.Auth.Profile, actor); ok {
		row = g.row(r.at)
	}
	row = row.of(to)
	row.Callers = through
	return row, true
}

// candidates yields the actors to ask about, sorted: those with a grant, or whom
// a caller speaks for where none is needed.
func (s *Snapshot) candidates(v *Server) iter.Seq[string] {
	var actors []string
	for actor := range s.grants[v.Auth.Profile] {
		actors = append(actors, actor)
	}
	if v.Auth.Mode == "legacy" {
		for caller := range s.callers {
			actors = append(actors, s.Directory.Actors(caller)...)
		}
	}
	slices.Sort(actors)
	return slices.Values(slices.Compact(actors))
}

// orphan says why g opens no tool; "" if it opens one.
func (r *report) orphan(g *Grant) (why string) {
	for _, to := range r.remotes[g.Profile] {
		reason := r.first(opening, "", g.Actor, to)
		if reason == fault.None {
			return ""
		}
		why += to.ID + "/" + to.tool + ": " + string(reason) + "; "
	}
	if why == "" {
		return "no server with a tool uses the profile"
	}
	return why[:len(why)-2]
}

// row is g by itself.
func (g *Grant) row(at time.Time) Row {
	row := Row{Actor: g.Actor, Profile: g.Profile, Credential: g.Credential.String(),
		Audiences: g.AllowedAudiences, Scopes: g.AllowedScopes, Since: g.Since, ApprovedBy: g.ApprovedBy, Reason: g.Reason,
		Enabled: g.Enabled, Status: Active, Where: g.Where}
	if !g.Expires.IsZero() {
		row.Expires = g.Expires.Format(time.DateOnly)
	}
	switch {
	case !g.Enabled:
		row.Status = Disabled
	case g.expired(at):
		row.Status = Expired
	}
	return row
}

// legacyRow is what an actor has where the server's one credential is everybody's.
func (to remote) legacyRow(actor string) Row {
	row := Row{Actor: actor, Credential: "none", Enabled: true, Status: NoGrantNeeded, Where: to.Where}
	if !to.Auth.Credential.IsZero() {
		row.Credential = to.Auth.Credential.String()
	}
	return row
}

// of is the row for one tool.
func (row Row) of(to remote) Row {
	rule := to.Tools[to.tool]
	row.Server, row.Tool, row.Effect, row.DataClass = to.ID, to.tool, rule.Effect, to.DataClass.String()
	row.Audiences, row.Scopes = nil, to.Auth.Scopes
	if to.Auth.Audience != "" {
		row.Audiences = []string{to.Auth.Audience}
	}
	row.Approval, row.Admin = to.RequiresApproval, rule.RequiresAdmin
	return row
}
