package operation

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/cache"
	"onbehalf.internal/broker/catalogue"
	"onbehalf.internal/broker/catalogue/schema"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/ledger"
	"onbehalf.internal/broker/mcpclient"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/session"
	"onbehalf.internal/broker/strictjson"
)

const (
	// dropWait is how long an answer waits for the hold to be dropped, unless
	// Config says otherwise; after it the answer says "pending" and the drop goes on.
	dropWait = 250 * time.Millisecond
	// finishBudget bounds the commits that end an operation.
	finishBudget = 10 * time.Second
	// maxOpen is how many operations may be open at once.
	maxOpen = 2048
	// maxDrains is how many late answers may be waited for at once. A server that
	// answers nothing must not take the room of those that do.
	maxDrains = 512
	// maxSchemas is how many compiled schemas are kept.
	maxSchemas = 1024
)

// errRunning: this attempt is being carried already; the request is a repeat.
var errRunning = errors.New("the operation is running")

// errStopping is why Cut ends an operation.
var errStopping = fault.New("operation.Cut", fault.BrokerStopping, "")

// Config is what a Runner works with; every field is needed up to Log.
type Config struct {
	Ledger    *ledger.Ledger
	Policy    *policy.Holder
	Sessions  *session.Manager
	MCP       *mcpclient.Client
	Catalogue *catalogue.Catalogue
	Now       func() time.Time
	Log       *slog.Logger
	Ended     func(Answer)  // called once for each operation that ended; nil: nobody listens
	Late      func(Answer)  // called for each answer that came late; nil: nobody listens
	DropWait  time.Duration // how long an answer waits for the drop; 0: 250 ms
	Traced    func(Traced)  // called for each operation that is over, see [Traced]; must not wait; nil: there are no traces
	Propagate bool          // with Traced: servers are told where in a trace they are called
}

// A Runner runs operations.
type Runner struct {
	ledger    *ledger.Ledger
	policy    *policy.Holder
	sessions  *session.Manager
	mcp       *mcpclient.Client
	catalogue *catalogue.Catalogue
	now       func() time.Time
	log       *slog.Logger
	schemas   *cache.Cache[*schema.Schema] // :: server, tool and pin → what the arguments must be
	ended     func(Answer)
	lateOne   func(Answer)
	dropWait  time.Duration
	traced    func(Traced) // nil: there are no traces
	propagate bool

	mu       sync.Mutex       // guards the fields below; never held across I/O
	running  map[string]*work // :: operation id → the attempt that is being carried
	drains   map[*work]bool   // those that have ended and whose answers may come late
	asking   map[string]bool  // servers that are being imported or probed
	draining bool
	closed   bool
	news     chan struct{}   // closed, and made anew, when an operation that waited for a person does not any more
	stopped  audit.Stopped   // Ended and Cut, since draining
	cutting  context.Context // ends with Cut
	cut      context.CancelFunc
	idle     sync.WaitGroup // of carried attempts
	late     sync.WaitGroup // of records of holds that were pending
}

// New returns a Runner.
func New(c Config) *Runner {
	if c.Ended == nil {
		c.Ended = func(Answer) {}
	}
	if c.Late == nil {
		c.Late = func(Answer) {}
	}
	schemas := cache.New[*schema.Schema](maxSchemas, c.Now)
	cutting, cut := context.WithCancel(context.Background())
	return &Runner{ledger: c.Ledger, policy: c.Policy, sessions: c.Sessions, mcp: c.MCP, catalogue: c.Catalogue, schemas: schemas, cutting: cutting, cut: cut, asking: map[string]bool{}, now: c.Now, log: c.Log, ended: c.Ended, lateOne: c.Late,
		dropWait: cmp.Or(c.DropWait, dropWait), traced: c.Traced, propagate: c.Propagate, running: map[string]*work{}, drains: map[*work]bool{}}
}

// admit makes room for an attempt and starts to dial: a connection carries no
// credential, so it may stand before the decision is on disk. One that may show a
// certificate carries one, and is left to the first leg. id is the operation that is
// tried again, or "" for a new one.
func (r *Runner) admit(ctx context.Context, ask sealed, d policy.Decision, id string) (*work, error) {
	const op = "operation.admit"
	if id == "" {
		id = ledger.NewID()
	}
	call, err := callOf(ask, d)
	if err != nil {
		return nil, err
	}
	w := newWork(ctx, ask, d, id, call)
	r.place(w, ask)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case !r.running[id].over():
		err = errRunning
	case r.draining:
		err = fault.New(op, fault.Draining, "the broker is stopping; ask another one")
	case len(r.running) >= maxOpen:
		err = fault.New(op, fault.TooManyOperations, "")
	}
	if err != nil {
		w.cancel(nil)
		return nil, err
	}
	r.running[id] = w
	r.idle.Add(1)
	w.conversation = r.mcp.Open(d.Server())
	if !session.MayBind(d) {
		go w.dial()
	}
	return w, nil
}

// abandon undoes admit: the attempt was not begun.
func (r *Runner) abandon(w *work) {
	w.cancel(nil) // before Close: a dial in the background ends with it
	w.conversation.Close()
	r.mu.Lock()
	delete(r.running, w.op.ID)
	r.mu.Unlock()
	close(w.ended)
	close(w.released)
	r.idle.Done()
}

// release forgets an attempt that ended. An answer that could not be written
// is kept: the ledger does not have it.
func (r *Runner) release(w *work) {
	w.cancel(nil) // before Close: a dial in the background ends with it
	w.conversation.Close()
	r.mu.Lock()
	if !w.answer.Volatile && r.running[w.op.ID] == w {
		delete(r.running, w.op.ID)
	}
	r.mu.Unlock()
	close(w.released)
	r.idle.Done()
}

// sending makes "tools/call may have left" durable. From then on an attempt
// that breaks down is in doubt. It is asked again only for a call that the server
// refused by an HTTP status and that is sent corrected; what it wrote still holds.
func (r *Runner) sending(ctx context.Context, w *work) error {
	if w.sent {
		return nil
	}
	err := r.mayLeave(ctx, w)
	w.sent = err == nil
	if over := fault.Ended(ctx, fault.BudgetSpent); over != fault.None && fault.ReasonOf(err) == fault.StoreUnavailable {
		return fault.New("operation.sending", over, "") // the commit was withdrawn for that
	}
	return err
}

// finish writes the outcome. The answer is whole also if that fails, and says so.
func (r *Runner) finish(w *work, outcome fault.Outcome, result strictjson.Raw) Answer {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.ctx), finishBudget)
	defer cancel()
	at := r.now()
	outcome = w.op.Settled(outcome)
	w.op.Outcome, w.op.Result, w.op.Legs, w.op.Updated = outcome, result, w.allLegs(), at
	if w.session == nil || !w.session.Holds() {
		w.op.Hold = ""
	}
	err := r.ledger.Finish(ctx, w.op.ID, w.op.Attempt, outcome, result, w.op.Legs, w.op.Hold, w.record(audit.Outcome, at))
	answer := Answer{Operation: w.op, Volatile: err != nil}
	r.contact(w, outcome, w.took("tools/call"))
	if err != nil {
		r.log.Error("outcome not written", "operation", w.op.ID, "reason", string(fault.ReasonOf(err)))
	}
	return answer
}

// contact notes that the server has answered. A JSON-RPC error completes nothing.
func (r *Runner) contact(w *work, o fault.Outcome, latency time.Duration) {
	if o.Evidence == fault.EvidencePeer && o.Ran == fault.RanYes {
		r.catalogue.Contact(w.op.Server, latency, r.now())
	}
}

// end counts the operation and lets the answer go.
func (r *Runner) end(w *work, answer Answer, hold string) {
	answer.Hold, answer.Legs = hold, w.allLegs()
	r.ended(answer)
	r.mu.Lock()
	defer r.mu.Unlock()
	if w.draining = w.draining && !answer.Volatile && len(r.drains) < maxDrains; w.draining {
		r.drains[w] = true
		answer.DrainsUntil = r.now().Add(w.call.Drain)
	}
	w.answer = answer
	close(w.ended)
	switch {
	case !r.draining:
	case answer.Outcome.Cause == fault.BrokerStopping:
		r.stopped.Cut++
	default:
		r.stopped.Ended++
	}
}

// recordEnd writes what became of the hold and of a legacy server's session, off
// the answer's path.
func (r *Runner) recordEnd(w *work, c *closing) {
	w.legs = append(w.legs, c.legs...)
	r.log.Info("operation", w.logLine()...)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.ctx), finishBudget)
	defer cancel()
	if c.hold != "" || c.legs != nil {
		r.written("drop not written", w.op.ID, r.ledger.Dropped(ctx, w.op.ID, w.op.Attempt, c.hold, w.allLegs(), w.record(audit.Drop, r.now())))
	}
	if c.hold == ledger.HoldPending {
		r.follow(w)
	}
}

// revoke has the provider end the token where the profile says so. It comes last:
// nothing uses the token then.
func (r *Runner) revoke(w *work) {
	if w.session == nil || w.session.Revoke(w.life) == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.ctx), finishBudget)
	defer cancel()
	legs := w.allLegs()
	reason := legs[len(legs)-1].Reason
	r.traceLater(w, "revocation", w.op, legs[len(legs)-1:])
	r.written("revocation not written", w.op.ID, r.ledger.Revoked(ctx, w.op.ID, w.op.Attempt, legs, reason, w.record(audit.Revocation, r.now())))
}

// follow has it recorded when w's pending hold is gone. Nothing of w stays in
// memory for that but what the record says.
func (r *Runner) follow(w *work) {
	id, attempt, rec := w.op.ID, w.op.Attempt, w.record(audit.Drop, time.Time{})
	rec.Legs = nil // they are in the record of the attempt to drop it
	w.session.WhenGone(func(hold string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.closed { // the next process says it
			return
		}
		r.late.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), finishBudget)
			defer cancel()
			rec.Time = r.now()
			r.written("drop not written", id, r.ledger.Gone(ctx, id, attempt, hold, rec))
		})
	})
}

func (r *Runner) written(failed, id string, err error) {
	if err != nil {
		r.log.Error(failed, "operation", id, "reason", string(fault.ReasonOf(err)))
	}
}

// Refuse takes no new operations from now on. What has begun goes on, and is
// told to whoever asks.
func (r *Runner) Refuse() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.draining = true
	r.tellLocked()
}

// Cut ends every operation that has not ended: the leg in flight is broken off,
// no other one leaves, and the outcome says what had left, with the cause
// broker_stopping. Late answers are not waited for any longer. What an operation
// does at its end it does all the same.
func (r *Runner) Cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range r.running {
		w.cancel(errStopping)
	}
	for w := range r.drains {
		w.cancel(errStopping)
	}
	r.cut()
}

// Stopped counts what became of the operations that were open at Refuse.
func (r *Runner) Stopped() audit.Stopped {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.stopped
	for _, w := range r.running {
		select {
		case <-w.ended:
		default:
			s.Left++
		}
	}
	return s
}

// Drain waits until every operation has ended, its drop included, or ctx ends.
// Call Refuse before.
func (r *Runner) Drain(ctx context.Context) error { return over(ctx, &r.idle) }

// Close waits until what became of pending holds is written, as far as it is known,
// or ctx ends. It comes after the end of what drops them.
func (r *Runner) Close(ctx context.Context) error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	return over(ctx, &r.late)
}

// over waits for all of them, or for ctx.
func over(ctx context.Context, all *sync.WaitGroup) error {
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Running is how many operations are being carried.
func (r *Runner) Running() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.running)
}
