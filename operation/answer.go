package operation

import (
	"context"
	"errors"
	"time"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/identity"
	"onbehalf.internal/broker/ledger"
	"onbehalf.internal/broker/policy"
)

// An Answer is an operation as its caller may see it.
type Answer struct {
	ledger.Operation
	Replayed bool         // this request did not begin it
	Withheld fault.Reason // why there is no Result though there is one; None otherwise
	Volatile bool         // the outcome is not on disk
	Look     *Look        // how to find out what became of it; nil: not known here, or not needed

	// DrainsUntil is until when an answer may still come that takes the place of the
	// doubt; zero: none is waited for.
	DrainsUntil time.Time
}

// replay answers a repeat with the job that exists.
func (r *Runner) replay(ctx context.Context, ask sealed, job ledger.Operation) (Answer, error) {
	if job.Fingerprint != ask.fingerprint {
		return Answer{}, fault.New("operation.replay", fault.RequestKeyConflict, "request_key was used for another server, tool or arguments: use a new key for a new request")
	}
	answer, err := Answer{Operation: job}, error(nil)
	switch w := r.carried(job.ID); {
	case w != nil:
		r.joined(w)
		answer, err = r.wait(ctx, w, job, ask.Wait)
	case job.Outcome.State.Open(): // it ended since it was read
		answer, err = r.read(ctx, job)
	}
	answer.Replayed = true
	return r.show(ask.question(), answer), err
}

// carried returns the attempt of this operation that is being carried, or nil.
func (r *Runner) carried(id string) *work {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.running[id]
}

// read returns the operation as it is in the ledger now, also to a caller whose
// wait is over.
func (r *Runner) read(ctx context.Context, job ledger.Operation) (Answer, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishBudget)
	defer cancel()
	job, err := r.ledger.Get(ctx, job.Caller, job.Actor, job.ID)
	return Answer{Operation: r.noticed(ctx, job)}, err
}

// wait waits for the end of w's attempt, at most that long, or for ctx.
func (r *Runner) wait(ctx context.Context, w *work, job ledger.Operation, atMost time.Duration) (Answer, error) {
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	select {
	case <-w.ended:
		if w.answer.ID != "" {
			return w.answer, nil
		}
	case <-timer.C:
	case <-ctx.Done():
		r.left(w)
	}
	return r.read(ctx, job) // still going on, or abandoned before it began
}

// notBegun answers a request whose Begin was refused, or that found the
// operation begun by another request.
func (r *Runner) notBegun(ctx context.Context, ask sealed, job ledger.Operation, err error) (Answer, error) {
	switch reason := fault.ReasonOf(err); {
	case errors.Is(err, errRunning), err == nil:
	case reason == fault.RunBudgetSpent, reason == fault.HourBudgetSpent:
		return r.deny(ctx, ask, job, err)
	default:
		return Answer{}, err
	}
	return r.replay(ctx, ask, job)
}

// deny records a refusal. Where the key is known, its operation is told all
// the same: what happened, happened.
func (r *Runner) deny(ctx context.Context, ask sealed, job ledger.Operation, refusal error) (Answer, error) {
	rec := audit.Record{
		Kind: audit.Denial, Time: r.now(), Caller: ask.Caller.ID(), Actor: ask.Actor.String(),
		Server: ask.Server, Tool: ask.Tool, Snapshot: r.policy.Current().Hash, Reason: fault.ReasonOf(refusal),
	}
	if rec.Reason == fault.ToolChanged {
		rec.Redefined = r.redefined(ask.Server, ask.Tool)
	}
	if err := r.ledger.Deny(ctx, rec); err != nil {
		return Answer{}, err
	}
	if job.ID != "" {
		return r.replay(ctx, ask, job)
	}
	return Answer{}, refusal
}

// redefined says what a tool is, and what it should be.
func (r *Runner) redefined(server, tool string) *audit.Redefined {
	s := r.policy.Current()
	declared, _ := s.Server(server)
	offer, _, _ := s.Offer(server, tool)
	return &audit.Redefined{Tool: tool, Old: declared.Tools[tool].Pin, New: offer.Pin}
}

// show says how to look where that is the next thing to do, and withholds the
// result where the grant no longer stands, or a suspension does.
func (r *Runner) show(q policy.Question, a Answer) Answer {
	a.Look = r.lookWith(a.Operation, r.now())
	if a.DrainsUntil = (time.Time{}); a.Outcome.State == fault.InDoubt {
		a.DrainsUntil = r.drainsUntil(a.ID)
	}
	if a.Closed != fault.None {
		a.Withheld = a.Closed
	}
	if a.Result == nil {
		return a
	}
	if reason := r.policy.Current().Withholds(q, r.now()); reason != fault.None {
		a.Result, a.Withheld = nil, reason
	}
	return a
}

// Get returns the operation with this id if caller ran it for actor; otherwise
// it does not exist.
func (r *Runner) Get(ctx context.Context, caller identity.Caller, actor identity.Actor, id string) (Answer, error) {
	job, err := r.ledger.Get(ctx, caller.ID(), actor.String(), id)
	if err != nil {
		return Answer{}, err
	}
	return r.look(caller, actor, r.noticed(ctx, job)), nil
}

// GetByKey is Get for the caller's own key.
func (r *Runner) GetByKey(ctx context.Context, caller identity.Caller, actor identity.Actor, key string) (Answer, error) {
	job, known, err := r.ledger.Find(ctx, caller.ID(), actor.String(), key)
	if err == nil && !known {
		err = fault.New("operation.GetByKey", fault.OperationNotFound, "")
	}
	if err != nil {
		return Answer{}, err
	}
	return r.look(caller, actor, r.noticed(ctx, job)), nil
}

// NeverSent reports whether it is proven that a key which is not there was never
// sent, see [ledger.Ledger.Remembers].
func (r *Runner) NeverSent(firstSent time.Time) bool { return r.ledger.Remembers(firstSent) }

func (r *Runner) look(caller identity.Caller, actor identity.Actor, job ledger.Operation) Answer {
	answer := Answer{Operation: job}
	if w := r.carried(job.ID); w != nil {
		select {
		case <-w.ended:
			if w.answer.ID != "" { // else it was abandoned before it began
				answer = w.answer
			}
		default:
		}
	}
	return r.show(policy.Question{Caller: caller, Actor: actor, Server: job.Server, Tool: job.Tool}, answer)
}

// Cancel asks the operation to end before its deadline, or its drain. It is a
// request, not a result: the answer is the operation as it stands, and its outcome
// says what had left by then.
func (r *Runner) Cancel(ctx context.Context, caller identity.Caller, actor identity.Actor, id string) (Answer, error) {
	answer, err := r.Get(ctx, caller, actor, id)
	if err != nil {
		return answer, err
	}
	if awaits(answer.Operation) {
		return r.look(caller, actor, r.endAwaiting(ctx, answer.Operation, fault.CallerCancelled)), nil
	}
	r.giveUp(id)
	return answer, nil
}

// List returns what caller did for actor since then, newest first, without
// results.
func (r *Runner) List(ctx context.Context, caller identity.Caller, actor identity.Actor, since time.Time, limit int) ([]ledger.Operation, error) {
	return r.ledger.List(ctx, caller.ID(), actor.String(), since, limit)
}

// Open returns caller's open operations over all its actors, without results:
// for a gateway that crashed.
func (r *Runner) Open(ctx context.Context, caller identity.Caller) ([]ledger.Operation, error) {
	return r.ledger.Open(ctx, caller.ID())
}
