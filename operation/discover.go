package operation

import (
	"context"
	"time"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/catalogue"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/identity"
	"onbehalf.internal/broker/mcpclient"
	"onbehalf.internal/broker/policy"
)

// A Discovery is how an import or a probe ended.
type Discovery struct {
	Server  string
	Outcome fault.Outcome // succeeded with ran = no; or not_sent, and why
	Legs    []audit.Leg

	Report catalogue.Report // of an import that succeeded
	Sight  mcpclient.Sight  // of a probe
	Era    policy.Era
	Spoken string // the version of the protocol
}

// An Asker is who has a server asked: a caller, or the broker by its schedule.
type Asker struct {
	Caller   identity.Caller
	Schedule bool
}

func (a Asker) decide(s *policy.Snapshot, server string, at time.Time) (policy.Decision, error) {
	if a.Schedule {
		return s.DecideScheduled(server, at)
	}
	return s.DecideDiscovery(a.Caller, server, at)
}

// Import asks a server for its tools by its discovery credential and brings the
// catalogue in line, in one commit. Of a server that gives no list it is written that
// it gave none, and its tools stay as they were. An error means that this request
// began nothing, or that what it found could not be written. progress, if not nil, is
// called for every page.
func (r *Runner) Import(ctx context.Context, by Asker, server string, progress func(Progress)) (Discovery, error) {
	return r.discover(ctx, "import", by, server, func(legs, commit context.Context, talk *discovery) (err error) {
		listed, report := talk.ListTools(legs, talk.gate, func(pages, tools int) {
			if deadline, ok := legs.Deadline(); ok && progress != nil {
				progress(Progress{pages, tools, time.Until(deadline)})
			}
		})
		talk.take(report)
		if report.Outcome.State != fault.Succeeded {
			return r.catalogue.Refused(commit, server, report.Outcome.Cause, "", talk.record(r.now()))
		}
		if talk.found.Report, err = r.catalogue.Import(commit, server, listed.Tools, talk.record(r.now()), invalid(listed)...); err != nil {
			return err
		}
		r.catalogue.Contact(server, lastTook(report.Legs), r.now())
		return r.Offer(commit)
	})
}

// Probe asks a server whether it is there and speaks with us: the handshake, and
// nothing more.
func (r *Runner) Probe(ctx context.Context, by Asker, server string) (Discovery, error) {
	return r.discover(ctx, "probe", by, server, func(legs, commit context.Context, talk *discovery) error {
		sight, report := talk.Conversation.Probe(legs, talk.gate)
		talk.take(report)
		talk.found.Sight = sight
		return r.catalogue.Probed(commit, server, catalogue.Probe{
			Is: string(sight.Is), Reason: report.Outcome.Cause, Latency: sight.Latency, Era: report.Era, Version: report.Version,
			Software: sight.Name, SoftwareVersion: sight.Release,
		}, talk.record(r.now()))
	})
}

// invalid are the tools that the protocol itself forbids (2026-07-28, "Custom Headers
// from Tool Parameters").
func invalid(listed mcpclient.Listing) (skips []catalogue.Skip) {
	for _, name := range listed.Invalid {
		skips = append(skips, catalogue.LeftOut(name, "has an x-mcp-header that the specification does not allow"))
	}
	return skips
}

// Progress is how far an import has come.
type Progress struct {
	Pages, Tools int
	Left         time.Duration // of its budget
}

// lastTook is how long the last of the legs took; 0 without one.
func lastTook(legs []audit.Leg) time.Duration {
	if len(legs) == 0 {
		return 0
	}
	return legs[len(legs)-1].Took
}

// Offer has policy decide by what the catalogue holds.
func (r *Runner) Offer(ctx context.Context) error {
	offers, err := r.catalogue.View(ctx)
	if err == nil {
		r.policy.SetOffers(offers)
	}
	return err
}

// A discovery is one import or probe under way.
type discovery struct {
	*mcpclient.Conversation
	gate  mcpclient.Gate
	begun audit.Record
	found Discovery
}

// take keeps what a report says.
func (t *discovery) take(report mcpclient.Report) {
	t.found.Outcome, t.found.Era, t.found.Spoken = report.Outcome, report.Era, report.Version
	t.found.Legs = report.Legs
}

// record is the audit record of how it ended; the catalogue says the rest.
func (t *discovery) record(at time.Time) audit.Record {
	rec := t.begun
	rec.Time, rec.Legs, rec.Reason = at, t.found.Legs, t.found.Outcome.Cause
	return rec
}

// discover does what an import and a probe have in common, in the order of a call:
// decision on disk, session, legs, outcome on disk. There is no hold to drop, since a
// discovery credential is borrowed from Vault for each leg. A server is asked one
// thing at a time.
func (r *Runner) discover(ctx context.Context, kind string, by Asker, server string, ask func(legs, commit context.Context, talk *discovery) error) (Discovery, error) {
	received := r.now()
	decision, err := by.decide(r.policy.Current(), server, received)
	if err != nil {
		return Discovery{}, r.denyDiscovery(ctx, by, server, err)
	}
	legs, leave, err := r.enter(ctx, server, received.Add(decision.Budget()))
	if err != nil {
		return Discovery{}, err
	}
	defer leave()
	commit, cancel := context.WithTimeout(context.WithoutCancel(ctx), decision.Budget()+finishBudget)
	defer cancel()
	talk := &discovery{Conversation: r.mcp.Open(decision.Server()), found: Discovery{Server: server},
		begun: audit.Record{Caller: by.Caller.ID(), Server: server, Snapshot: decision.Snapshot(), Profile: decision.Server().Auth.Profile}}
	defer talk.Close()
	if err := r.ledger.Decided(commit, talk.record(received)); err != nil {
		return Discovery{}, err
	}
	session, err := r.sessions.Open(legs, decision)
	if err != nil {
		talk.found.Outcome = fault.NotSentBecause(fault.ReasonOf(err))
		r.traceAsked(kind, talk, received)
		return Discovery{}, err
	}
	defer session.Close(commit)
	talk.gate = mcpclient.Gate{Certificate: session.Certificate, Credential: session.Token}
	err = ask(legs, commit, talk)
	talk.Farewell(legs, mcpclient.Gate{Certificate: session.Certificate, Credential: session.Parting})()
	r.traceAsked(kind, talk, received)
	return talk.found, err
}

// denyDiscovery records a refusal.
func (r *Runner) denyDiscovery(ctx context.Context, by Asker, server string, refusal error) error {
	rec := audit.Record{Kind: audit.Denial, Time: r.now(), Caller: by.Caller.ID(), Server: server, Snapshot: r.policy.Current().Hash, Reason: fault.ReasonOf(refusal)}
	if err := r.ledger.Deny(ctx, rec); err != nil {
		return err
	}
	return refusal
}

// enter begins what is no operation and has to end before the broker does, or be cut
// like one.
func (r *Runner) enter(ctx context.Context, server string, deadline time.Time) (_ context.Context, leave func(), err error) {
	const op = "operation.enter"
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.draining:
		return nil, nil, fault.New(op, fault.Draining, "the broker is stopping; ask another one")
	case r.asking[server]:
		return nil, nil, fault.New(op, fault.ServerBusy, "this server is being asked already; ask again in a moment")
	}
	r.asking[server] = true
	r.idle.Add(1)
	life, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	ctx, stop := context.WithDeadline(life, deadline)
	unhook := context.AfterFunc(r.cutting, func() { cancel(errStopping) })
	return ctx, func() {
		unhook()
		stop()
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.asking, server)
		r.idle.Done()
	}, nil
}
