package operation

import (
	"time"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/ledger"
	"onbehalf.internal/broker/trace"
)

// A Traced is an operation that is over: its drop, a late answer and the revocation
// are among its legs. What was denied, and what waits for an approval, is none yet.
type Traced struct {
	Kind         string        // call, import or probe
	ID           string        // of a call
	Attempt      int           // of a call
	Caller       string        // empty: by schedule
	Server, Tool string        // declared ones
	Outcome      fault.Outcome // with Late the late one
	Retry        fault.Retry
	Late         bool
	Legs         []audit.Leg
	At, Parent   trace.Context // where it stands, and its caller; zero: its caller did not say
	Began, Ended time.Time     // the receipt, and the outcome
}

// placed is where an attempt stands in a trace.
type placed struct {
	at, parent trace.Context
	received   time.Time
	late       *ledger.Operation // as a late answer left it; nil: none came
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

// traceCall says that an attempt is over.
func (r *Runner) traceCall(w *work) {
	if r.traced == nil {
		return
	}
	op := w.op
	if w.placed.late != nil {
		op = *w.placed.late
	}
	r.traced(Traced{Kind: "call", ID: op.ID, Attempt: op.Attempt, Caller: op.Caller, Server: op.Server, Tool: op.Tool,
		Outcome: op.Outcome, Retry: op.Retry(op.Updated), Late: op.Late, Legs: w.allLegs(),
		At: w.placed.at, Parent: w.placed.parent, Began: w.placed.received, Ended: op.Updated})
}

// traceAsked says that an import or a probe is over.
func (r *Runner) traceAsked(kind string, talk *discovery, began time.Time) {
	if r.traced == nil {
		return
	}
	found := talk.found
	r.traced(Traced{Kind: kind, Caller: talk.begun.Caller, Server: found.Server, Outcome: found.Outcome, Retry: found.Outcome.Retry(),
		Legs: found.Legs, At: trace.Context{}.Child(), Began: began, Ended: r.now()})
}
