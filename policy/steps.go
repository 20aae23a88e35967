package policy

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"onbehalf.internal/broker/fault"
)

// A Check is one step of a decision, for Explain.
type Check struct {
	Name  string `json:"name"`  // "server known", "grant", …
	Value string `json:"value"` // what was looked at
	OK    bool   `json:"ok"`
	Where string `json:"where,omitempty"` // file:line or suspension that decided; empty where nothing is written
}

// A step is one condition of a decision and the refusal when it does not hold.
// Later steps may rely on what earlier ones found.
type step struct {
	name   string
	reason fault.Reason
	check  func(*trial) finding
}

// execution is what a tool call has to pass. The order is the order of the
// reasons in package fault: a suspension wins, then the refusal that gives least
// away comes first.
var execution = []step{
	{"not suspended", fault.Suspended, notSuspended},
	{"server known", fault.ServerUnknown, serverKnown},
	{"server in the caller's list", fault.ServerNotAllowed, serverListed},
	{"server enabled", fault.ServerDisabled, serverEnabled},
	{"data class declared", fault.ServerInert, dataClassDeclared},
	{"tool known", fault.ToolUnknown, toolKnown},
	{"tool enabled", fault.ToolDisabled, toolEnabled},
	{"tool offered", fault.ToolNotOffered, toolOffered},
	{"tool unchanged", fault.ToolChanged, toolUnchanged},
	{"administrator", fault.AdminRequired, adminWhereNeeded},
	{"data class within the zone", fault.ZoneExceeded, withinZone},
	{"grant", fault.NoGrant, grantThere},
	{"grant enabled", fault.GrantDisabled, grantEnabled},
	{"grant not expired", fault.GrantExpired, grantAlive},
	{"audience within profile and grant", fault.AudienceNotAllowed, audienceWithin},
	{"scopes within profile and grant", fault.ScopeNotAllowed, scopesWithin},
	{"approval", fault.None, approvalOrNone},
}

// standing is what has to hold still when a result is handed out: execution without
// what concerns the call alone.
var standing = without(execution, fault.ToolNotOffered, fault.ToolChanged, fault.AdminRequired)

// discovery is what an import or a probe has to pass. Neither returns data of
// an actor, so tool, zone and grant are not asked.
var discovery = []step{
	{"not suspended", fault.Suspended, notSuspended},
	{"server known", fault.ServerUnknown, serverKnown},
	{"server in the caller's list", fault.ServerNotAllowed, serverListed},
	{"server enabled", fault.ServerDisabled, serverEnabled},
	{"data class declared", fault.ServerInert, dataClassDeclared},
	{"discovery credential", fault.DiscoveryMissing, discoveryThere},
}

// scheduled is what has to hold where no caller asks.
var scheduled = without(discovery, fault.ServerNotAllowed)

// dry is what has to hold for a dry exchange, in which no credential of the server's
// is used.
var dry = append(without(discovery, fault.DiscoveryMissing), step{"identity provider", fault.NoGrant, providerThere})

// without is steps but those that refuse for one of the reasons.
func without(steps []step, reasons ...fault.Reason) []step {
	return slices.DeleteFunc(slices.Clone(steps), func(s step) bool { return slices.Contains(reasons, s.reason) })
}

// A trial is one question on its way through the steps.
type trial struct {
	snapshot                    *Snapshot
	at                          time.Time
	caller, actor, server, tool string
	admin                       bool // the actor's assertion says so
	zone                        Zone // what the request asks for; 0: the caller's
	offline                     bool // what servers offer is not looked at; no decision is

	srv     *Server  // after server known
	who     *Caller  // after server in the caller's list
	rule    Tool     // after tool known
	profile *Profile // after data class declared; nil for legacy servers
	grant   *Grant   // after grant; nil for legacy servers
}

type finding struct {
	ok           bool
	value, where string
}

// first returns the reason of the first step that does not hold.
func (t *trial) first(steps []step) fault.Reason {
	for _, s := range steps {
		if !s.check(t).ok {
			return s.reason
		}
	}
	return fault.None
}

// A Case is a question that nobody has asked yet, and what is taken for granted
// in it.
type Case struct {
	Caller, Actor, Server, Tool string

	Zone    Zone // a stricter one than the caller's; 0: the caller's
	Admin   bool // the actor is an administrator, as an assertion would prove
	Offline bool // servers offer what the file names: nobody is there who could know
}

// trial is the case on its way through the steps.
func (s *Snapshot) trial(c Case, at time.Time) *trial {
	return &trial{snapshot: s, at: at, caller: c.Caller, actor: c.Actor, server: c.Server, tool: c.Tool,
		zone: c.Zone, admin: c.Admin, offline: c.Offline}
}

// Explain is Decide with every check shown, up to and including the one that
// refuses. The reason is empty when the call is allowed. The actor is taken for no
// administrator, since nothing is there to prove it.
func (s *Snapshot) Explain(caller, actor, server, tool string, at time.Time) (checks []Check, reason string) {
	return s.ExplainCase(Case{Caller: caller, Actor: actor, Server: server, Tool: tool}, at)
}

// ExplainCase is Explain with something taken for granted.
func (s *Snapshot) ExplainCase(c Case, at time.Time) (checks []Check, reason string) {
	t := s.trial(c, at)
	for _, step := range execution {
		f := step.check(t)
		checks = append(checks, Check{step.name, f.value, f.ok, f.where})
		if !f.ok {
			return checks, string(step.reason)
		}
	}
	return checks, ""
}

// Trace is ExplainCase after the check that a request has to pass before: whether the
// caller speaks for the actor at all.
func (s *Snapshot) Trace(c Case, at time.Time) (checks []Check, reason fault.Reason) {
	speaks, why := s.Speaks(c.Caller, c.Actor)
	if why != fault.None {
		return []Check{speaks}, why
	}
	checks, refused := s.ExplainCase(c, at)
	return append([]Check{speaks}, checks...), fault.Reason(refused)
}

func serverKnown(t *trial) finding {
	v, ok := t.snapshot.servers[t.server]
	if !ok {
		return finding{false, t.server, ""}
	}
	t.srv = v
	return finding{true, t.server, v.Where}
}

func serverListed(t *trial) finding {
	c, ok := t.snapshot.callers[t.caller]
	if !ok {
		return finding{false, t.caller, ""}
	}
	t.who = c
	_, listed := slices.BinarySearch(c.Servers, t.server)
	return finding{listed, t.caller, c.Where}
}

func serverEnabled(t *trial) finding {
	return finding{t.srv.Enabled, t.server, t.srv.Where}
}

func dataClassDeclared(t *trial) finding {
	t.profile = t.snapshot.profiles[t.srv.Auth.Profile]
	return finding{t.srv.DataClass != 0, t.srv.DataClass.String(), t.srv.Where}
}

func toolKnown(t *trial) (f finding) {
	t.rule, f.ok = t.srv.Tools[t.tool]
	return finding{f.ok, t.tool, cmp.Or(t.rule.Where, t.srv.Where)}
}

func toolEnabled(t *trial) finding {
	return finding{t.rule.Enabled, t.tool, t.rule.Where}
}

// withinZone takes the stricter zone: a request can give away trust, not get any.
func withinZone(t *trial) finding {
	zone := t.who.Zone
	if t.zone != 0 {
		zone = min(zone, t.zone)
	}
	return finding{t.srv.DataClass <= zone.Ceiling(), zone.String(), t.who.Where}
}

// adminWhereNeeded: an administrator is what an assertion proves to be one. An actor
// that was asserted by name is none.
func adminWhereNeeded(t *trial) finding {
	if !t.rule.RequiresAdmin {
		return finding{true, "not needed", t.rule.Where}
	}
	return finding{t.admin, t.actor, t.rule.Where}
}

// grantThere asks for an actor at every server, and for the actor's own grant at
// delegated ones. There is no other grant to fall back to.
func grantThere(t *trial) finding {
	if t.srv.Auth.Mode == "legacy" {
		return finding{t.actor != "", "none needed: a legacy server", t.srv.Where}
	}
	g, ok := t.snapshot.grants[t.srv.Auth.Profile][t.actor]
	if !ok {
		return finding{false, t.actor, ""}
	}
	t.grant = g
	return finding{true, t.actor, g.Where}
}

func grantEnabled(t *trial) finding {
	return t.ofGrant(t.actor, func(g *Grant) bool { return g.Enabled })
}

func grantAlive(t *trial) finding {
	return t.ofGrant(t.grant.until(), func(g *Grant) bool { return !g.expired(t.at) })
}

// The audience and all scopes have to be in both bounds; too much is refused,
// not cut.
func audienceWithin(t *trial) finding {
	return t.ofGrant(t.srv.Auth.Audience, func(g *Grant) bool {
		return contains(t.profile.AllowedAudiences, t.srv.Auth.Audience) && contains(g.AllowedAudiences, t.srv.Auth.Audience)
	})
}

func scopesWithin(t *trial) finding {
	return t.ofGrant(strings.Join(t.srv.Auth.Scopes, " "), func(g *Grant) bool {
		return len(t.srv.Auth.Scopes) > 0 &&
			contains(t.profile.AllowedScopes, t.srv.Auth.Scopes...) && contains(g.AllowedScopes, t.srv.Auth.Scopes...)
	})
}

// approvalOrNone refuses nothing: it says whether the call has to wait for a person.
func approvalOrNone(t *trial) finding {
	if t.srv.RequiresApproval {
		return finding{true, "an approver decides", t.srv.Where}
	}
	return finding{true, "not needed", t.srv.Where}
}

func discoveryThere(t *trial) finding {
	if t.srv.Auth.Mode == "legacy" {
		return finding{true, "none needed: a legacy server", t.srv.Where}
	}
	return finding{!t.srv.Auth.Discovery.IsZero(), t.server, t.srv.Where}
}

func providerThere(t *trial) finding {
	return finding{t.profile != nil, t.server, t.srv.Where}
}

// ofGrant checks the grant, where one is needed.
func (t *trial) ofGrant(value string, holds func(*Grant) bool) finding {
	if t.grant == nil {
		return finding{t.srv.Auth.Mode == "legacy", "none needed: a legacy server", t.srv.Where}
	}
	return finding{holds(t.grant), value, t.grant.Where}
}

// contains reports whether every wanted entry is in the sorted bounds.
func contains(bounds []string, wanted ...string) bool {
	return !slices.ContainsFunc(wanted, func(w string) bool {
		_, ok := slices.BinarySearch(bounds, w)
		return !ok
	})
}
