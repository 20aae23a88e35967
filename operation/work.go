package operation

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"time"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/catalogue"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/ledger"
	"onbehalf.internal/broker/mcpclient"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/session"
	"onbehalf.internal/broker/strictjson"
)

// sealed is a request with its digests: what makes it the same request again.
type sealed struct {
	Request
	fingerprint, arguments [32]byte
}

// seal computes the digests over canonical JSON, number literals exact.
func seal(req Request) (sealed, error) {
	arguments, err := strictjson.Digest(req.Arguments)
	if err != nil {
		return sealed{}, fault.New("operation.seal", fault.MalformedRequest, "arguments: "+err.Error())
	}
	words := []string{req.Server, req.Tool}
	if req.Supersedes != "" {
		words = append(words, req.Supersedes)
	}
	names, _ := json.Marshal(words)
	return sealed{req, sha256.Sum256(append(names, arguments[:]...)), arguments}, nil
}

func (a sealed) question() policy.Question {
	return policy.Question{Caller: a.Caller, Actor: a.Actor, Server: a.Server, Tool: a.Tool, Zone: a.Zone}
}

// mayRepeat reports whether the key may run again: only what provably did not
// run, or what its server does not do twice, and only as the same request. What
// waits for an approval may have it by now.
func (a sealed) mayRepeat(job ledger.Operation, at time.Time) bool {
	return (job.Retry(at) == fault.RetrySafe || awaits(job) && !overdue(job, at)) && job.Fingerprint == a.fingerprint
}

// work is one attempt while it is carried. It belongs to the goroutine of
// carry; others read answer after ended is closed.
type work struct {
	life         context.Context         // until cancel
	ctx          context.Context         // until cancel or the deadline
	cancel       context.CancelCauseFunc // nil: its caller's wish, or nobody's
	decision     policy.Decision
	call         mcpclient.Call
	op           ledger.Operation
	conversation *mcpclient.Conversation
	session      *session.Session
	legs         []audit.Leg      // of the MCP conversation; after its end with the farewell
	sent         bool             // tools/call may have left
	draining     bool             // its answer may come late
	redefined    *audit.Redefined // the tool is not the one that is pinned
	asking       int              // requests for it whose callers have not gone; guarded by Runner.mu
	said         said             // has a lock of its own
	placed       placed           // in a trace; zero: there are no traces
	ended        chan struct{}
	released     chan struct{} // closed when it is forgotten: what the ledger says is all there is
	answer       Answer
}

func newWork(ctx context.Context, ask sealed, d policy.Decision, id string, call mcpclient.Call) *work {
	budget := d.Budget()
	if ask.Timeout > 0 {
		budget = min(budget, ask.Timeout)
	}
	deadline := ask.Received.Add(budget)
	// The caller's context ends with its connection; the operation must not.
	life, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	ctx, stop := context.WithDeadline(life, deadline)
	op := ledger.Operation{
		ID: id, Caller: ask.Caller.ID(), Actor: ask.Actor.String(), RequestKey: ask.RequestKey, JTI: ask.Actor.JTI(), RunID: ask.RunID,
		FirstSent: ask.FirstSent, Supersedes: ask.Supersedes, Calls: d.Calls(),
		Server: ask.Server, Tool: ask.Tool, Fingerprint: ask.fingerprint, Arguments: ask.arguments,
		Deadline: deadline, Snapshot: d.Snapshot(), Audience: d.Audience(), Scopes: d.Scopes(),
	}
	if g := d.Grant(); g != nil {
		// A process that dies cannot say later that Vault may have a token.
		op.Grant, op.Profile, op.Hold = g.Where, g.Profile, ledger.HoldHeld
	}
	if key := d.UpstreamKey(); !key.IsZero() {
		// A repeat has to reach the server, whole, while it remembers the key.
		op.Upstream, op.RepeatUntil = carrier(key), ask.Received.Add(key.Window-d.Budget())
	}
	call.Context = op.Profile + " " + op.Actor
	w := &work{life: life, ctx: ctx, cancel: func(why error) { cancel(why); stop() }, decision: d, op: op, call: call,
		asking: 1, ended: make(chan struct{}), released: make(chan struct{})}
	if ask.Progress {
		w.call.Progress = w.said.note
	}
	if d.Server().VerifyPins && d.Pin() != "" {
		w.call.Verify = w.verify
	}
	return w
}

// verify holds the tool, as its server lists it now, against its pin.
func (w *work) verify(tool strictjson.Raw) fault.Reason {
	pin := ""
	if tools, _ := catalogue.Read(w.op.Server, []strictjson.Raw{tool}, func(string) string { return "" }); len(tools) == 1 {
		pin = tools[0].Pin
	}
	if pin == w.decision.Pin() {
		return fault.None
	}
	w.redefined = &audit.Redefined{Tool: w.op.Tool, Old: w.decision.Pin(), New: pin}
	return fault.ToolChanged
}

// dial connects in the background. What breaks here breaks again, and is told,
// in the leg that needs the connection.
func (w *work) dial() {
	defer func() { recover() }()
	w.conversation.Ready(w.ctx)
}

// protect runs the legs. A panic ends the operation like any other fault: in
// doubt once tools/call may have left, not sent before.
func (w *work) protect(legs func() (fault.Outcome, strictjson.Raw)) (outcome fault.Outcome, result strictjson.Raw) {
	defer func() {
		switch {
		case recover() == nil:
		case w.sent:
			outcome, result = fault.Doubt(fault.InternalError), nil
		default:
			outcome, result = fault.NotSentBecause(fault.InternalError), nil
		}
	}()
	return legs()
}

// A closing is what an operation does beside the commit of its outcome: a legacy
// server is told that it is over, and the hold is dropped.
type closing struct {
	dropped, done chan struct{}
	holds         bool        // there is a hold to be dropped
	hold          string      // "", "dropped" or "pending"; read after dropped
	legs          []audit.Leg // of the farewell; read after done
}

// close begins with the farewell, whose legs need the hold, and drops the hold
// as soon as they have left.
func (w *work) close() *closing {
	c := &closing{dropped: make(chan struct{}), done: make(chan struct{})}
	if w.session == nil {
		close(c.dropped)
		close(c.done)
		return c
	}
	c.holds = w.session.Holds()
	go func() {
		defer close(c.done)
		legs := w.conversation.Farewell(w.ctx, mcpclient.Gate{Certificate: w.session.Certificate, Credential: w.session.Parting})
		c.hold = w.session.Close(w.ctx)
		close(c.dropped)
		c.legs = legs()
	}()
	return c
}

// within waits for the drop at most that long, and not at all for what there is
// nothing to say of.
func (c *closing) within(d time.Duration) string {
	if !c.holds {
		return ""
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-c.dropped:
		return c.hold
	case <-timer.C:
		return ledger.HoldPending
	}
}

// whole waits for all of it; each part has a budget of its own.
func (c *closing) whole() *closing {
	<-c.done
	return c
}

// over reports whether nothing of w stands in the way of a next attempt: there
// is none, or it ended in the ledger. What it still has to do is its drop.
func (w *work) over() bool {
	if w == nil {
		return true
	}
	select {
	case <-w.ended:
		return !w.answer.Volatile
	default:
		return false
	}
}

// allLegs are the session's and the conversation's legs in their order; the
// drop and the revocation come last.
func (w *work) allLegs() []audit.Leg {
	var before, after []audit.Leg
	if w.session != nil {
		for _, leg := range w.session.Legs() {
			if leg.Name == "drop" || leg.Name == "revoke" {
				after = append(after, leg)
			} else {
				before = append(before, leg)
			}
		}
	}
	return append(append(before, w.legs...), after...)
}

// took is how long the last leg of that name took.
func (w *work) took(name string) (d time.Duration) {
	for _, leg := range w.legs {
		if leg.Name == name {
			d = leg.Took
		}
	}
	return d
}

// record is the audit record of this attempt, as far as it has come.
func (w *work) record(kind audit.Kind, at time.Time) audit.Record {
	r := subjectOf(w.op)
	r.Kind, r.Time, r.Pin = kind, at, w.decision.Offered()
	if kind == audit.Outcome {
		r.Redefined = w.redefined
	}
	if w.session != nil {
		w.session.Describe(&r)
	}
	if kind == audit.Outcome || kind == audit.Drop {
		o := w.op.Outcome
		r.State, r.Ran, r.Evidence, r.Reason, r.Legs = o.State, o.Ran, o.Evidence, o.Cause, w.allLegs()
	}
	return r
}

// subjectOf names who did what for whom; never arguments or results.
func subjectOf(op ledger.Operation) audit.Record {
	return audit.Record{
		Caller: op.Caller, Actor: op.Actor, Operation: op.ID, Attempt: op.Attempt, RequestKey: audit.DigestOf(op.RequestKey),
		Server: op.Server, Tool: op.Tool, Arguments: op.Arguments,
		Grant: op.Grant, Snapshot: op.Snapshot, Profile: op.Profile, Audience: op.Audience, Scopes: op.Scopes,
	}
}

// logLine is the one line an operation leaves in the log: ids and words of
// ours, no key, no argument, nothing that a server said.
func (w *work) logLine() []any {
	a := w.answer
	line := []any{
		"operation", a.ID, "attempt", a.Attempt, "caller", a.Caller, "actor", a.Actor, "server", a.Server, "tool", a.Tool,
		"state", string(a.Outcome.State), "ran", string(a.Outcome.Ran), "evidence", string(a.Outcome.Evidence), "cause", string(a.Outcome.Cause),
		"retry", string(a.Operation.Retry(a.Updated)), "hold", a.Hold, "legs", len(a.Legs), "ms", a.Updated.Sub(a.Created).Milliseconds(),
	}
	if !w.placed.at.IsZero() {
		line = append(line, "trace_id", w.placed.at.ID())
	}
	return line
}
