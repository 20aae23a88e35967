package policy

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/identity"
)

// A Question is what Decide answers.
type Question struct {
	Caller       identity.Caller
	Actor        identity.Actor
	Server, Tool string
	Zone         Zone // a stricter one than the caller's; 0: the caller's
}

// A Decision allows one operation. Only this package makes one; the zero
// Decision allows nothing.
type Decision struct{ d *decided }

type decided struct {
	q         Question
	server    *Server
	profile   *Profile // nil for legacy servers
	grant     *Grant   // nil for legacy servers and discovery
	budget    time.Duration
	calls     Calls
	offered   string
	snapshot  string
	discovery bool
	scheduled bool // the broker itself has asked
	dry       bool // a discovery that sends the server nothing
}

// Caller is who asked.
func (d Decision) Caller() identity.Caller { return d.d.q.Caller }

// Actor is on whose behalf; zero for discovery.
func (d Decision) Actor() identity.Actor { return d.d.q.Actor }

// Server is where the operation goes.
func (d Decision) Server() *Server { return d.d.server }

// Tool is the remote name of the tool; empty for discovery.
func (d Decision) Tool() string { return d.d.q.Tool }

// Profile is the identity provider to exchange at; nil for legacy servers.
func (d Decision) Profile() *Profile { return d.d.profile }

// Grant is what allows the actor; nil for legacy servers and discovery.
func (d Decision) Grant() *Grant { return d.d.grant }

// Audience is whom the exchanged token must be for; empty for legacy servers.
func (d Decision) Audience() string { return d.d.server.Auth.Audience }

// Scopes is what the exchanged token must be good for; nil for legacy servers.
func (d Decision) Scopes() []string { return d.d.server.Auth.Scopes }

// Budget is the timeout of the tool, else of the server, else of operations.
func (d Decision) Budget() time.Duration { return d.d.budget }

// Pin is the definition of the tool that the operator has looked at; empty: none.
func (d Decision) Pin() string { return d.d.server.Tools[d.d.q.Tool].Pin }

// Offered is the definition of the tool as the last import found it; empty: it did
// not, or there was none.
func (d Decision) Offered() string { return d.d.offered }

// Calls is how many operations there may be.
func (d Decision) Calls() Calls { return d.d.calls }

// Idle is how long a leg may go without a byte: of the tool, else of the server;
// 0 is as long as the budget.
func (d Decision) Idle() time.Duration {
	return cmp.Or(d.d.server.Tools[d.d.q.Tool].Idle, d.d.server.Idle)
}

// Drain is how long the answer is read after time alone has cut the call off.
func (d Decision) Drain() time.Duration { return d.d.server.Tools[d.d.q.Tool].Drain }

// Cancels reports whether the operation ends when its caller has gone.
func (d Decision) Cancels() bool { return d.d.server.Tools[d.d.q.Tool].Cancels }

// UpstreamKey is how the tool takes a key by which it does nothing twice.
func (d Decision) UpstreamKey() UpstreamKey { return d.d.server.Tools[d.d.q.Tool].Key }

// NeedsApproval reports whether a person has to approve this very call before it is
// sent; the snapshot in force when it is sent has the last word.
func (d Decision) NeedsApproval() bool { return !d.d.discovery && d.d.server.RequiresApproval }

// Snapshot is the hash of the snapshot that decided.
func (d Decision) Snapshot() string { return d.d.snapshot }

// Discovery reports whether this allows an import or a probe, and so no tool call.
func (d Decision) Discovery() bool { return d.d.discovery }

// IsZero reports whether d allows nothing.
func (d Decision) IsZero() bool { return d.d == nil }

// Decide says whether the actor may call the tool at the given time. It is pure
// and total. The error is a *fault.Error of kind denied.
func (s *Snapshot) Decide(q Question, at time.Time) (Decision, error) {
	t := &trial{
		snapshot: s, at: at,
		caller: q.Caller.ID(), actor: q.Actor.String(), server: q.Server, tool: q.Tool,
		admin: q.Actor.Admin(), zone: q.Zone,
	}
	if reason := t.first(execution); reason != fault.None {
		return Decision{}, t.refusal("policy.Decide", reason)
	}
	offer, _, _ := s.Offer(q.Server, q.Tool)
	return Decision{&decided{
		q: q, server: t.srv, profile: t.profile, grant: t.grant, offered: offer.Pin,
		budget: s.budget(t.srv, t.rule), calls: s.Calls, snapshot: s.Hash,
	}}, nil
}

// DecideDiscovery allows an import or a probe of a server by its discovery
// credential; a legacy server has one credential for everything. It can never
// allow a tool call. The error is a *fault.Error of kind denied.
func (s *Snapshot) DecideDiscovery(c identity.Caller, server string, at time.Time) (Decision, error) {
	return s.discover("policy.DecideDiscovery", discovery, decided{q: Question{Caller: c, Server: server}}, at)
}

// DecideScheduled is DecideDiscovery for what the broker does by itself, where the
// operator has it import or probe a server every so often.
func (s *Snapshot) DecideScheduled(server string, at time.Time) (Decision, error) {
	return s.discover("policy.DecideScheduled", scheduled, decided{q: Question{Server: server}, scheduled: true}, at)
}

// DecideDry allows that the identity provider of a server is asked for a token for
// nobody, to see what it says. What it issues is never sent to the server. Like an
// import it is a discovery, and can never allow a tool call. The error is a
// *fault.Error of kind denied.
func (s *Snapshot) DecideDry(c identity.Caller, server string, at time.Time) (Decision, error) {
	return s.discover("policy.DecideDry", dry, decided{q: Question{Caller: c, Server: server}, dry: true}, at)
}

// discover completes d, a discovery, if it passes the steps.
func (s *Snapshot) discover(op string, steps []step, d decided, at time.Time) (Decision, error) {
	t := &trial{snapshot: s, at: at, caller: d.q.Caller.ID(), server: d.q.Server}
	if reason := t.first(steps); reason != fault.None {
		return Decision{}, t.refusal(op, reason)
	}
	d.server, d.profile, d.budget, d.snapshot, d.discovery = t.srv, t.profile, s.budget(t.srv, Tool{}), s.Hash, true
	return Decision{&d}, nil
}

// Dry reports whether this allows a dry exchange, and nothing else.
func (d Decision) Dry() bool { return d.d != nil && d.d.dry }

// budget returns the most specific timeout that is set.
func (s *Snapshot) budget(v *Server, t Tool) time.Duration {
	switch {
	case t.Timeout > 0:
		return t.Timeout
	case v.Timeout > 0:
		return v.Timeout
	default:
		return s.Timeout
	}
}

// Longest is the longest budget that a call of what is enabled can have, and that of
// operations at least.
func (s *Snapshot) Longest() time.Duration {
	longest := s.Timeout
	for _, v := range s.servers {
		for _, t := range v.Tools {
			if v.Enabled && t.Enabled {
				longest = max(longest, s.budget(v, t))
			}
		}
	}
	return longest
}

// refusal names what was asked for and nothing that the asker did not know.
func (t *trial) refusal(op string, reason fault.Reason) *fault.Error {
	return fault.New(op, reason, fmt.Sprintf("caller %.64q, actor %.64q, server %.64q, tool %.64q",
		t.caller, t.actor, t.server, t.tool))
}

// Stands decides d's question again on s, which may be a newer snapshot, and asks
// its directory whether the caller may still speak for the actor. The error is
// a *fault.Error with reason suspended, tool_changed, or grant_revoked for the rest: what is
// refused now, or allowed with another credential, audience, scope or address,
// is not what the operation began with.
func (s *Snapshot) Stands(d Decision, at time.Time) error {
	const op = "policy.Stands"
	if d.IsZero() {
		return fault.New(op, fault.GrantRevoked, "there is no decision")
	}
	// The profile that it began with, too: the server may be at another one by now.
	if _, stopped := s.suspended.over(d.Actor().String(), d.Server().ID, d.Server().Auth.Profile, at); stopped {
		return fault.New(op, fault.Suspended, "")
	}
	if reason := s.Directory.Still(d.Caller(), d.role(), d.Actor()); reason != fault.None && !d.d.scheduled {
		return fault.New(op, fault.GrantRevoked, "now "+string(reason))
	}
	now, err := s.again(d, at)
	switch reason := fault.ReasonOf(err); {
	case err == nil:
	case reason == fault.Suspended, reason == fault.ToolChanged:
		return fault.New(op, reason, "")
	default:
		return fault.New(op, fault.GrantRevoked, "now "+string(reason))
	}
	if what := now.differs(d); what != "" {
		return fault.New(op, fault.GrantRevoked, "another "+what)
	}
	return nil
}

// Withholds says why the result of q's operation may not be handed out now:
// suspended or grant_revoked; None where it may. What became of the tool since, or
// whether it would have to be approved now, does not matter to a result.
func (s *Snapshot) Withholds(q Question, at time.Time) fault.Reason {
	t := &trial{snapshot: s, at: at, caller: q.Caller.ID(), actor: q.Actor.String(), server: q.Server, tool: q.Tool, zone: q.Zone}
	switch reason := t.first(standing); {
	case reason == fault.Suspended:
		return fault.Suspended
	case reason != fault.None || s.Directory.Still(q.Caller, identity.Operate, q.Actor) != fault.None:
		return fault.GrantRevoked
	}
	return fault.None
}

// role is what the caller has to be.
func (d Decision) role() identity.Role {
	if d.d.discovery {
		return identity.Admin
	}
	return identity.Operate
}

func (s *Snapshot) again(d Decision, at time.Time) (Decision, error) {
	switch {
	case d.d.dry:
		return s.DecideDry(d.Caller(), d.Server().ID, at)
	case d.d.scheduled:
		return s.DecideScheduled(d.Server().ID, at)
	case d.d.discovery:
		return s.DecideDiscovery(d.Caller(), d.Server().ID, at)
	}
	return s.Decide(d.d.q, at)
}

// differs names what is not the same in d and in e; both answer one question.
func (d Decision) differs(e Decision) string {
	mine, theirs := d.binds(), e.binds()
	for i, b := range mine {
		if i >= len(theirs) || theirs[i] != b {
			return b.what
		}
	}
	return ""
}

// A binding is one value that an operation was begun with and must end with.
type binding struct{ what, value string }

func (d Decision) binds() []binding {
	auth := d.d.server.Auth
	all := []binding{{"server address", d.d.server.URL.String()}, {"auth mode", auth.Mode}}
	switch {
	case auth.Mode == "legacy":
		return append(all, binding{"credential", auth.Credential.String()},
			binding{"placement", auth.Placement}, binding{"header", auth.Header})
	case d.d.discovery && !d.d.dry:
		return append(all, binding{"credential", auth.Discovery.String()})
	case !d.d.dry:
		all = append(all, binding{"credential", d.d.grant.Credential.String()}, binding{"subject", d.d.grant.Subject})
	}
	all = append(all, binding{"audience", auth.Audience}, binding{"scope", strings.Join(auth.Scopes, " ")})
	for p := d.d.profile; p != nil; p = p.Then {
		all = append(all, binding{"token endpoint", p.TokenEndpoint.String()})
	}
	return all
}
