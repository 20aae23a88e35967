package policy

import (
	"slices"
	"time"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/identity"
)

// approving is what an approver has to pass for a call: execution, as if it were
// the approver's own, without what concerns the grant. The actor has that.
var approving = slices.DeleteFunc(slices.Clone(execution), func(s step) bool {
	return slices.Contains([]fault.Reason{fault.NoGrant, fault.GrantDisabled, fault.GrantExpired, fault.AudienceNotAllowed, fault.ScopeNotAllowed}, s.reason)
})

// A Consent is an approver as it was verified when it decided: what is left of it
// when its assertion is gone.
type Consent struct {
	By      string // the caller that brought it
	Issuer  string
	Subject string // "user:8"
	Admin   bool   // its assertion said so
}

// ConsentOf is the consent of a, brought by c.
func ConsentOf(c identity.Caller, a identity.Approver) Consent {
	return Consent{c.ID(), a.Issuer(), a.String(), a.Admin()}
}

// MayApprove says whether c may decide about a call that caller makes for actor. It
// is pure and total like Decide, and is asked when the decision is made, and again
// before it is used. The error is a *fault.Error: approver_is_actor,
// approver_not_allowed, or what Decide would refuse the call for.
func (s *Snapshot) MayApprove(caller, actor, server, tool string, c Consent, at time.Time) error {
	const op = "policy.MayApprove"
	switch {
	case c.Subject == "" || c.Subject == actor:
		return fault.New(op, fault.ApproverIsActor, "another person has to decide")
	case !s.Directory.Approves(c.By, c.Issuer, c.Subject):
		return fault.New(op, fault.ApproverNotAllowed, "this caller may not bring this approver")
	}
	t := &trial{snapshot: s, at: at, caller: caller, actor: c.Subject, server: server, tool: tool, admin: c.Admin}
	if reason := t.first(approving); reason != fault.None {
		return t.refusal(op, reason)
	}
	return nil
}

// NeedsApproval reports whether a person has to approve a call at this server now. A
// server that is not there any more needs one, too.
func (s *Snapshot) NeedsApproval(server string) bool {
	v, ok := s.servers[server]
	return !ok || v.RequiresApproval
}
