package operation

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"strings"
	"time"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/identity"
	"onbehalf.internal/broker/ledger"
	"onbehalf.internal/broker/policy"
)

// A CallDigest stands for one very call: who asks for whom, what is called by which
// definition, with which arguments. A person approves it and nothing else.
type CallDigest [sha256.Size]byte

func (d CallDigest) String() string { return "sha256:" + hex.EncodeToString(d[:]) }

// ParseCallDigest reads what String wrote.
func ParseCallDigest(s string) (d CallDigest, ok bool) {
	text, found := strings.CutPrefix(s, "sha256:")
	b, err := hex.DecodeString(text)
	if !found || err != nil || len(b) != len(d) || strings.ToLower(text) != text {
		return d, false
	}
	return CallDigest(b), true
}

// callDigest is over every part with its length, so that no two calls make the same
// bytes. arguments is their own digest.
func callDigest(caller, actor, server, tool, pin string, arguments [32]byte) CallDigest {
	h := sha256.New()
	for _, s := range []string{"broker approval", caller, actor, server, tool, pin, string(arguments[:])} {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(s))))
		h.Write([]byte(s))
	}
	return CallDigest(h.Sum(nil))
}

// pinned is the digest of op's call by what its server offers in this snapshot, and
// the pin that is in it.
func pinned(s *policy.Snapshot, op ledger.Operation) (d CallDigest, pin string) {
	offer, _, _ := s.Offer(op.Server, op.Tool)
	return callDigest(op.Caller, op.Actor, op.Server, op.Tool, offer.Pin, op.Arguments), offer.Pin
}

// awaits reports whether the operation waits for an approval, overdue whether it has
// done so for too long.
func awaits(op ledger.Operation) bool { return op.Outcome.State == fault.AwaitingApproval }

func overdue(op ledger.Operation, at time.Time) bool { return awaits(op) && !at.Before(op.Deadline) }

// approved reports whether job, which ask repeats, has an approval for the call as it
// would be made now, of a person who would be asked now.
func (r *Runner) approved(ask sealed, job ledger.Operation) bool {
	if job.ID == "" {
		return false
	}
	s := r.policy.Current()
	digest, _ := pinned(s, job)
	return job.Approval.Allows(digest, r.now()) && consents(s, job, r.now())
}

// consents asks the approver's own gate again.
func consents(s *policy.Snapshot, op ledger.Operation, at time.Time) bool {
	return op.Approval != nil && s.MayApprove(op.Caller, op.Actor, op.Server, op.Tool, op.Approval.Approver, at) == nil
}

// await answers a request whose call nobody has approved. What waits already goes on
// waiting, unless it was approved and that no longer holds; else a person is asked.
func (r *Runner) await(ctx context.Context, ask sealed, d policy.Decision, job ledger.Operation) (Answer, error) {
	switch {
	case awaits(job) && job.Approval.Decision == "":
		return r.replay(ctx, ask, job)
	case awaits(job):
		r.endAwaiting(ctx, job, fault.ApprovalVoid)
		return r.replay(ctx, ask, job)
	}
	call, err := callOf(ask, d)
	if err != nil {
		return Answer{}, err
	}
	id := job.ID
	if id == "" {
		id = ledger.NewID()
	}
	if err := r.mayAsk(id); err != nil {
		return r.notBegun(ctx, ask, job, err)
	}
	w := newWork(ctx, ask, d, id, call)
	w.cancel(nil) // nothing is carried
	digest, pin := pinned(r.policy.Current(), w.op)
	asked, fresh, err := r.ledger.Ask(ctx, w.op, ledger.Approval{Digest: digest, Pin: pin, Arguments: ask.Arguments,
		Expires: r.now().Add(d.Server().ApprovalExpires)}, w.record(audit.Approval, r.now()))
	if err != nil || !fresh {
		return r.notBegun(ctx, ask, asked, err)
	}
	r.log.Info("approval", "operation", asked.ID, "attempt", asked.Attempt, "caller", asked.Caller, "actor", asked.Actor,
		"server", asked.Server, "tool", asked.Tool, "decision", "asked", "digest", digest.String())
	return r.show(ask.question(), Answer{Operation: asked}), nil
}

// mayAsk is what admit asks, for an attempt that is not carried yet. What an earlier
// one still does after its end is not told any more.
func (r *Runner) mayAsk(id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case !r.running[id].over():
		return errRunning
	case r.draining:
		return fault.New("operation.mayAsk", fault.Draining, "the broker is stopping; ask another one")
	}
	delete(r.running, id)
	return nil
}

// mayLeave writes "sending", and where the newest snapshot asks for an approval, has
// it used up by the same commit.
func (r *Runner) mayLeave(ctx context.Context, w *work) error {
	s, rec := r.policy.Current(), w.record(audit.Sending, r.now())
	if !s.NeedsApproval(w.op.Server) {
		return r.ledger.Sending(ctx, w.op.ID, w.op.Attempt, rec)
	}
	if !consents(s, w.op, r.now()) {
		return fault.New("operation.mayLeave", fault.ApprovalVoid, "nobody who may approve it has")
	}
	digest, _ := pinned(s, w.op)
	return r.ledger.SendingApproved(ctx, w.op.ID, w.op.Attempt, digest, rec)
}

// noticed ends an operation that has waited for too long.
func (r *Runner) noticed(ctx context.Context, job ledger.Operation) ledger.Operation {
	if !overdue(job, r.now()) {
		return job
	}
	return r.endAwaiting(ctx, job, fault.ApprovalExpired)
}

// endAwaiting ends an operation that waits and returns it as it stands then. One that
// cannot be written goes on waiting; the sweep comes back to it.
func (r *Runner) endAwaiting(ctx context.Context, job ledger.Operation, cause fault.Reason) ledger.Operation {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishBudget)
	defer cancel()
	ended, err := r.ledger.EndAwaiting(ctx, job, cause)
	switch {
	case err == nil:
		r.tell()
		return ended
	case errors.Is(err, ledger.ErrOrder): // somebody was faster
		if now, err := r.ledger.Get(ctx, job.Caller, job.Actor, job.ID); err == nil {
			return now
		}
	default:
		r.written("end of waiting not written", job.ID, err)
	}
	return job
}

// Awaiting returns the operations that wait for a person, see [ledger.Ledger.Awaiting].
func (r *Runner) Awaiting(ctx context.Context, limit, atMost int) ([]ledger.Operation, error) {
	return r.ledger.Awaiting(ctx, limit, atMost)
}

// Decide records what a person says about a call, see [ledger.Ledger.Decide], if that
// person may decide about it. It begins nothing.
func (r *Runner) Decide(ctx context.Context, by identity.Caller, who identity.Approver, id string, seen CallDigest, approved bool, reason string) (_ ledger.Operation, repeated bool, err error) {
	job, err := r.ledger.Asked(ctx, id)
	if err != nil {
		return ledger.Operation{}, false, err
	}
	s, consent := r.policy.Current(), policy.ConsentOf(by, who)
	if refusal := s.MayApprove(job.Caller, job.Actor, job.Server, job.Tool, consent, r.now()); refusal != nil {
		rec := audit.Record{Kind: audit.Denial, Time: r.now(), Caller: by.ID(), Actor: who.String(),
			Server: job.Server, Tool: job.Tool, Snapshot: s.Hash, Reason: fault.ReasonOf(refusal)}
		if err := r.ledger.Deny(ctx, rec); err != nil {
			return ledger.Operation{}, false, err
		}
		return ledger.Operation{}, false, refusal
	}
	job, repeated, err = r.ledger.Decide(ctx, id, ledger.Word{Approver: consent, JTI: who.JTI(), Digest: seen, Approved: approved, Reason: reason})
	if err == nil && !repeated {
		r.tell()
		r.log.Info("approval", "operation", job.ID, "attempt", job.Attempt, "caller", job.Caller, "actor", job.Actor, "server", job.Server, "tool", job.Tool,
			"decision", job.Approval.Decision, "digest", seen.String(), "approver", consent.Subject, "by", consent.By)
	}
	return job, repeated, err
}

// Waiting returns the request key of the very call that req asks for, where that waits for a
// person, or has an approval that was not used; else "". It is for those who do not mint a
// key for each request: else the call that was approved could not be made.
func (r *Runner) Waiting(ctx context.Context, req Request) (string, error) {
	if !r.policy.Current().NeedsApproval(req.Server) {
		return "", nil
	}
	ask, err := seal(req)
	if err != nil {
		return "", err
	}
	open, err := r.ledger.Open(ctx, req.Caller.ID())
	for _, job := range open {
		if awaits(job) && !overdue(job, r.now()) && job.Actor == req.Actor.String() && job.Fingerprint == ask.fingerprint {
			return job.RequestKey, err
		}
	}
	return "", err
}

// Decided waits until the operation does not wait for a person's decision. It is
// false when ctx ends before, or the broker stops.
func (r *Runner) Decided(ctx context.Context, caller identity.Caller, actor identity.Actor, id string) bool {
	for {
		news, stopping := r.listen() // before the look, so that nothing is missed
		got, err := r.Get(ctx, caller, actor, id)
		switch {
		case err != nil || stopping:
			return false
		case !awaits(got.Operation) || got.Approval.Decision != "":
			return true
		}
		select {
		case <-news:
		case <-ctx.Done():
			return false
		}
	}
}

func (r *Runner) listen() (news <-chan struct{}, stopping bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.news == nil {
		r.news = make(chan struct{})
	}
	return r.news, r.draining
}

func (r *Runner) tell() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tellLocked()
}

func (r *Runner) tellLocked() {
	if r.news != nil {
		close(r.news)
		r.news = nil
	}
}
