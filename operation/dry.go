package operation

import (
	"context"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/identity"
)

// DryExchange asks the identity provider of a server for a token for nobody, see
// package session: decision on disk, exchange, how it went on disk. What is
// found is nil where the provider answered as it should. An error means that this
// request began nothing, or that what it found could not be written.
func (r *Runner) DryExchange(ctx context.Context, by identity.Caller, server string) (found, err error) {
	received := r.now()
	decision, err := r.policy.Current().DecideDry(by, server, received)
	if err != nil {
		return nil, r.denyDiscovery(ctx, Asker{Caller: by}, server, err)
	}
	legs, leave, err := r.enter(ctx, "dry exchange for "+server, received.Add(decision.Budget()))
	if err != nil {
		return nil, err
	}
	defer leave()
	commit, cancel := context.WithTimeout(context.WithoutCancel(ctx), decision.Budget()+finishBudget)
	defer cancel()
	rec := audit.Record{Time: received, Caller: by.ID(), Server: server, Snapshot: decision.Snapshot(),
		Profile: decision.Profile().ID, Audience: decision.Audience(), Scopes: decision.Scopes()}
	if err := r.ledger.Decided(commit, rec); err != nil {
		return nil, err
	}
	session, found := r.sessions.DryExchange(legs, decision)
	session.Describe(&rec)
	rec.Time, rec.Legs = r.now(), session.Legs()
	if found != nil {
		rec.Reason = fault.ReasonOf(found)
	}
	return found, r.ledger.DryExchanged(commit, rec)
}
