package policy

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"time"

	"onbehalf.internal/broker/fault"
)

// A Row says who may do what as whom: one grant at one tool. The callers and the tools
// of a list are those of the file: a suspension changes the status of a row and not what
// it says, and what servers offer is not in it.
type Row struct {
	Actor      string   `json:"actor"`
	Callers    []string `json:"callers"` // who may call for the actor, sorted; none: nobody
	Profile    string   `json:"profile,omitempty"`
	Credential string   `json:"credential"`       // as whom: a reference
	Server     string   `json:"server,omitempty"` // empty: the grant opens no tool, and audiences and scopes are its bounds
	Audiences  []string `json:"audience"`         // one, where a server is
	Scopes     []string `json:"scopes"`
	Tool       string   `json:"tool,omitempty"`
	Effect     string   `json:"effect,omitempty"`
	DataClass  string   `json:"data_class,omitempty"`
	Approval   bool     `json:"approval"`      // each call needs one
	Admin      bool     `json:"administrator"` // the actor has to be one
	Since      string   `json:"since,omitempty"`
	ApprovedBy string   `json:"approved_by,omitempty"`
	Reason     string   `json:"reason,omitempty"`
	Expires    string   `json:"expires,omitempty"` // the first day without it; empty: there is none
	Enabled    bool     `json:"enabled"`
	Status     Status   `json:"status"`
	Where      string   `json:"where"`         // file:line of the grant; of the server, where none is needed
	Why        string   `json:"why,omitempty"` // of [Snapshot.Orphaned]: why it opens nothing
}

// A RowID is what rows are sorted by; no two rows of a list have the same.
type RowID struct{ Actor, Profile, Server, Tool string }

// ID is the row's.
func (r Row) ID() RowID { return RowID{r.Actor, r.Profile, r.Server, r.Tool} }

// Compare orders rows; the zero RowID comes before all of them.
func (id RowID) Compare(o RowID) int {
	return cmp.Or(cmp.Compare(id.Actor, o.Actor), cmp.Compare(id.Profile, o.Profile), cmp.Compare(id.Server, o.Server), cmp.Compare(id.Tool, o.Tool))
}

// A Status is what a grant is at one time.
type Status string

const (
	Active        Status = "active"
	Disabled      Status = "disabled"
	Expired       Status = "expired"
	Suspended     Status = "suspended"       // its actor, profile or server is, and it would be active
	NoGrantNeeded Status = "no grant needed" // a legacy server
)

// A Filter keeps the rows of what it names; an empty word keeps all.
type Filter struct {
	Actor, Profile, Server, Tool string
	After                        RowID // rows that come after this one
}

// opening is what a grant and a tool have to pass for the one to open the other,
// whoever calls, and whenever.
var opening = without(calling, fault.ServerNotAllowed, fault.AdminRequired, fault.ZoneExceeded)

// calling is what a caller has to pass for that; a row tells the rest itself, or it is
// not of the file.
var calling = without(execution, fault.GrantDisabled, fault.GrantExpired, fault.Suspended, fault.ToolNotOffered, fault.ToolChanged)

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
//
// A snapshot that a Holder holds is asked as it is: what is suspended, or not offered, is
// not in it. Of another one nobody knows that.
func (s *Snapshot) WhoCan(f Filter, at time.Time) iter.Seq[Row] {
	r := s.report(at)
	return func(yield func(Row) bool) {
		v, ok := s.servers[f.Server]
		if !ok {
			return
		}
		for actor := range s.candidates(v) {
			if !matches(f.Actor, actor) || actor <= f.After.Actor {
				continue
			}
			if row, ok := r.allowed(r.callers, actor, remote{v, f.Tool}); ok && !yield(row) {
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
			if !yield(s.row(g, at)) {
				return
			}
		}
	}
}

// Orphaned yields the grants that open no tool of an enabled server, with the
// reason, sorted by actor and profile.
func (s *Snapshot) Orphaned(at time.Time) iter.Seq[Row] {
	return func(yield func(Row) bool) {
		for row := range s.Whole(Filter{}, at) {
			if row.Why != "" && !yield(row) {
				return
			}
		}
	}
}

// Whole yields one row for each grant, without a server, sorted by actor and profile; with
// the reason where it opens no tool of an enabled server.
func (s *Snapshot) Whole(f Filter, at time.Time) iter.Seq[Row] {
	r := s.report(at)
	return func(yield func(Row) bool) {
		for _, g := range s.granted(f) {
			row := s.row(g, at)
			row.Why = r.orphan(g)
			if f.keeps(row) && !yield(row) {
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
			if matches(f.Profile, profile) && matches(f.Actor, actor) && cmp.Or(cmp.Compare(f.After.Actor, actor), cmp.Compare(f.After.Profile, profile)) <= 0 {
				all = append(all, g)
			}
		}
	}
	slices.SortFunc(all, func(a, b *Grant) int {
		return cmp.Or(cmp.Compare(a.Actor, b.Actor), cmp.Compare(a.Profile, b.Profile))
	})
	return all
}

func (f Filter) keeps(r Row) bool {
	return matches(f.Server, r.Server) && matches(f.Tool, r.Tool) && r.ID().Compare(f.After) > 0
}

// Misnamed says what f names that cannot be, or is not in the file; "" for nothing. An
// empty answer to a misspelt question reads like "nobody". An actor without a grant is a
// good question.
func (s *Snapshot) Misnamed(f Filter) string {
	if what := (Target{Sort: "actor", Name: f.Actor}).Problem(); f.Actor != "" && what != "" {
		return "actor: " + what
	}
	if _, ok := s.profiles[f.Profile]; f.Profile != "" && !ok {
		return fmt.Sprintf("profile: the configuration has no profile %q", f.Profile)
	}
	if _, ok := s.servers[f.Server]; f.Server != "" && !ok {
		return fmt.Sprintf("server: the configuration has no server %q", f.Server)
	}
	for _, v := range s.servers {
		if _, ok := v.Tools[f.Tool]; ok && matches(f.Server, v.ID) {
			return ""
		}
	}
	if f.Tool != "" {
		return fmt.Sprintf("tool: the configuration has no tool %q there", f.Tool)
	}
	return ""
}

func matches(wanted, is string) bool { return wanted == "" || wanted == is }

// rows yields what g makes possible; if nothing, the grant by itself.
func (r *report) rows(g *Grant) iter.Seq[Row] {
	return func(yield func(Row) bool) {
		opened := false
		for to := range r.opened(g) {
			opened = true
			row := r.row(g, r.at).of(to)
			row.Status = r.stopped(row, r.at)
			row.Callers = r.through(calling, r.callers, g.Actor, to)
			if !yield(row) {
				return
			}
		}
		if !opened {
			yield(r.row(g, r.at))
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
		Admin: r.Directory.Proves(caller, actor), Offline: r.suspended == nil}, r.at).first(steps)
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
		row = r.row(g, r.at)
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
func (s *Snapshot) row(g *Grant, at time.Time) Row {
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
	row.Status = s.stopped(row, at)
	return row
}

// stopped is the row's status, or that a suspension is over it.
func (s *Snapshot) stopped(row Row, at time.Time) Status {
	if _, stopped := s.suspended.over(row.Actor, row.Server, row.Profile, at); stopped && row.Status == Active {
		return Suspended
	}
	return row.Status
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
