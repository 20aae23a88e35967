package operation

import (
	"time"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/ledger"
	"onbehalf.internal/broker/trace"
)

// A Traced is an attempt that has ended, with what became of its hold. A late answer
// and the revocation follow, each by itself. What was denied, and what waits for an
// approval, is none.
type Traced struct {
	Kind         string        // call, import or probe; late or revocation, which stand below a call
	ID           string        // of a call
	Attempt      int           // of a call
	Caller       string        // empty: by schedule
	Server, Tool string        // declared ones
	Outcome      fault.Outcome // by then
	Retry        fault.Retry
	Legs         []audit.Leg
	At, Parent   trace.Context // Parent is zero where nobody said one
	Began, Ended time.Time     // from the receipt to the outcome
}

// placed is where an attempt stands in a trace.
type placed struct {
	at, parent trace.Context
	received   time.Time
}

// place gives an attempt its place.
func (r *Runner) place(w *work, ask sealed) {
	if r.traced == nil {
		return
	}
	w.placed = placed{at: ask.Trace.Child(), parent: ask.Trace, received: ask.Received}
	if r.propagate {
		w.call.Trace = w.placed.at
	}
}

func (r *Runner) traceCall(w *work) {
	if r.traced == nil {
		return
	}
	t := tracedOf("call", w.op, w.allLegs())
	t.At, t.Parent, t.Began = w.placed.at, w.placed.parent, w.placed.received
	r.traced(t)
}

// traceLater tells of what came when the caller had its answer.
func (r *Runner) traceLater(w *work, kind string, op ledger.Operation, legs []audit.Leg) {
	if r.traced == nil {
		return
	}
	t := tracedOf(kind, op, legs)
	t.At, t.Parent, t.Began, t.Ended = w.placed.at.Child(), w.placed.at, legs[0].Began, r.now()
	r.traced(t)
}

func tracedOf(kind string, op ledger.Operation, legs []audit.Leg) Traced {
	return Traced{Kind: kind, ID: op.ID, Attempt: op.Attempt, Caller: op.Caller, Server: op.Server, Tool: op.Tool,
		Outcome: op.Outcome, Retry: op.Retry(op.Updated), Legs: legs, Ended: op.Updated}
}

// traceAsked tells of an import or a probe, which no caller places.
func (r *Runner) traceAsked(kind string, talk *discovery, began time.Time) {
	if r.traced == nil {
		return
	}
	found := talk.found
	r.traced(Traced{Kind: kind, Caller: talk.begun.Caller, Server: found.Server, Outcome: found.Outcome, Retry: found.Outcome.Retry(),
		Legs: found.Legs, At: trace.Context{}.Child(), Began: began, Ended: r.now()})
}
