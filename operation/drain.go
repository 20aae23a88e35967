package operation

import (
	"context"
	"errors"
	"time"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/ledger"
	"onbehalf.internal/broker/mcpclient"
)

// drain waits for the answer to a call that time has cut off, and writes it where
// it says what became of the call. From here on the ledger is all there is to tell,
// so that a repeat with a key that the server honours may begin.
func (r *Runner) drain(w *work) {
	if !w.draining {
		return
	}
	r.mu.Lock()
	delete(r.running, w.op.ID)
	r.mu.Unlock()
	if report, answered := w.conversation.Late(w.life); answered {
		r.belated(w, report)
	}
	r.mu.Lock()
	delete(r.drains, w) // after the ledger has it: what is in neither is over
	r.mu.Unlock()
}

// belated writes an answer that came late. One that cannot be written is kept, as
// [Runner.release] keeps those that came in time.
func (r *Runner) belated(w *work, report mcpclient.Report) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.ctx), finishBudget)
	defer cancel()
	w.legs = append(w.legs, report.Legs...)
	op := w.op
	op.Outcome, op.Result, op.Late, op.Legs, op.Updated, op.Hold = report.Outcome, report.Result, true, w.allLegs(), r.now(), w.answer.Hold
	err := r.ledger.Late(ctx, op.ID, op.Attempt, op.Outcome, op.Result, op.Legs, w.record(audit.Late, op.Updated))
	if errors.Is(err, ledger.ErrOrder) { // a later attempt has begun, and will have the same answer
		return
	}
	r.traceLater(w, "late", op, report.Legs)
	r.contact(w, op.Outcome, w.took("tools/call")+w.took("drain"))
	answer := Answer{Operation: op, Volatile: err != nil}
	r.log.Info("late answer", "operation", op.ID, "attempt", op.Attempt, "server", op.Server, "tool", op.Tool,
		"state", string(op.Outcome.State), "cause", string(op.Outcome.Cause), "ms", op.Updated.Sub(op.Created).Milliseconds())
	r.lateOne(answer)
	if err != nil {
		r.log.Error("outcome not written", "operation", op.ID, "reason", string(fault.ReasonOf(err)))
		r.keep(answer)
	}
}

// keep has a be told from memory: the ledger does not have it.
func (r *Runner) keep(a Answer) {
	over := make(chan struct{})
	close(over)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running[a.ID] == nil {
		r.running[a.ID] = &work{ended: over, released: over, cancel: func(error) {}, op: a.Operation, answer: a}
	}
}

// drainsUntil is until when the answer of this operation may come late; zero: it
// may not.
func (r *Runner) drainsUntil(id string) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	for w := range r.drains {
		if w.op.ID == id {
			return w.answer.DrainsUntil
		}
	}
	return time.Time{}
}

// giveUp ends whatever is still done for this operation, at its caller's wish.
func (r *Runner) giveUp(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := r.running[id]; w != nil {
		w.cancel(nil)
	}
	for w := range r.drains {
		if w.op.ID == id {
			w.cancel(nil)
		}
	}
}

// errGone is why an operation ends whose caller has gone.
var errGone = fault.New("operation.left", fault.CallerGone, "")

// left counts a request whose caller has hung up before it was answered. With the
// last one the operation ends, where the operator says so. A request that was
// answered 202 never leaves: its caller comes back.
func (r *Runner) left(w *work) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w.asking--
	select {
	case <-w.ended:
	default:
		if w.asking == 0 && w.decision.Cancels() && !r.draining { // a broker that stops hangs up, too
			w.cancel(errGone)
		}
	}
}

// joined counts one more request for what is being carried.
func (r *Runner) joined(w *work) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w.asking++
}
