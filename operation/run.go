// Package operation runs one delegated operation. [Runner.Run] is the path:
//
//	1  ledger     known request key? → the job that exists
//	2  policy     Decide: grant, server, tool, reason; the arguments fit the tool's schema
//	   ledger     Ask: where a person has to approve the call and has not (approval.go)
//	3  ledger     Begin: operation and decision, one commit
//	4  session    Open: subject credential → exchange → hold
//	5  mcpclient  the legs, each after its checks; tools/call after Sending, one commit
//	6  ledger     Finish: outcome, one commit      ┐ side by side
//	7  session    Close: drop the hold             ┘
//
// A call that time has cut off is listened to for its drain window after that
// (drain.go), by which time its caller has been answered.
//
// Each step may stop the operation; none may be skipped.
//
// What always holds:
//
//   - No leg leaves before step 3 is on disk, and no byte of tools/call before
//     "sending" is. tools/call leaves at most once per attempt.
//   - Steps 4 to 7 run in the operation's own goroutine on a context of their
//     own: a caller that hangs up ends its wait. It ends the operation where the
//     operator says so, and every other request for it has gone, too.
//   - The deadline counts from the receipt of the request and covers steps 2
//     to 5. Finish and Close have small budgets of their own.
//   - Where the newest snapshot asks for an approval, the commit of "sending" uses
//     one up that was given for this very call, or fails.
//   - Once begun, an operation ends in the ledger, also after a panic and when
//     it is cut because the broker stops.
//   - A result is handed out only while the actor's grant stands, the caller may
//     speak for the actor, and nothing of it is suspended.
//   - Row and audit say how a hold ended, also one that was pending at the answer.
//
// TestEveryStepBroken breaks the path at every step, before and after it took
// effect, and looks at what is left.
package operation

import (
	"context"
	"time"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/identity"
	"onbehalf.internal/broker/mcpclient"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/strictjson"
	"onbehalf.internal/broker/trace"
)

// A Request asks for one tool call. Only identity makes its Caller and Actor.
type Request struct {
	Caller     identity.Caller
	Actor      identity.Actor
	Server     string
	Tool       string         // the server's own name for it
	Arguments  strictjson.Raw // an object
	RequestKey string
	FirstSent  time.Time // when the caller first sent this key, as it says; zero: not known
	Supersedes string    // the operation that this is to be the second run of; empty: none
	RunID      string
	Zone       policy.Zone   // a stricter one than the caller's; 0: the caller's
	Timeout    time.Duration // may only shorten; 0: what policy says
	Progress   bool          // ask the server to say how far it is, see [Runner.Watch]
	Wait       time.Duration // how long this request waits for the end; 0: not at all
	Received   time.Time     // the deadline counts from here
	Trace      trace.Context // where in a trace the caller stands; zero: it does not say
}

// Run does req once and waits for its end, for req.Wait or for ctx. An error means that
// this request began nothing; what has begun is always an Answer.
func (r *Runner) Run(ctx context.Context, req Request) (Answer, error) {
	ask, err := seal(req)
	if err != nil {
		return Answer{}, err
	}
	job, known, err := r.ledger.Find(ctx, req.Caller.ID(), req.Actor.String(), req.RequestKey) // 1
	if err != nil {
		return Answer{}, err
	}
	if known && !ask.mayRepeat(job, r.now()) {
		return r.replay(ctx, ask, job)
	}
	decision, err := r.policy.Current().Decide(ask.question(), r.now()) // 2
	if err != nil {
		return r.deny(ctx, ask, job, err)
	}
	if err := r.fits(ctx, ask, decision); err != nil {
		return r.deny(ctx, ask, job, err)
	}
	if decision.NeedsApproval() && !r.approved(ask, job) {
		return r.await(ctx, ask, decision, job)
	}
	w, err := r.admit(ctx, ask, decision, job.ID)
	if err != nil {
		return r.notBegun(ctx, ask, job, err)
	}
	w.op.Approval = job.Approval
	job, begun, err := r.ledger.Begin(ctx, w.op, w.record(audit.Decision, r.now())) // 3
	if err != nil || !begun {
		r.abandon(w)
		return r.notBegun(ctx, ask, job, err)
	}
	w.op = job
	go r.carry(w)
	answer, err := r.wait(ctx, w, job, req.Wait)
	return r.show(ask.question(), answer), err
}

// carry takes a begun operation to its end.
func (r *Runner) carry(w *work) {
	outcome, result := w.protect(func() (fault.Outcome, strictjson.Raw) {
		var err error
		if w.session, err = r.sessions.Open(w.ctx, w.decision); err != nil { // 4
			return fault.NotSentBecause(fault.ReasonOf(err)), nil
		}
		report := w.conversation.CallTool(w.ctx, w.call, mcpclient.Gate{ // 5
			Certificate: w.session.Certificate,
			Credential:  w.session.Token,
			Sending:     func(ctx context.Context) error { return r.sending(ctx, w) },
		})
		w.legs, w.draining = report.Legs, report.Draining
		return report.Outcome, report.Result
	})
	closing := w.close()                         // 7, beside 6
	answer := r.finish(w, outcome, result)       // 6
	r.end(w, answer, closing.within(r.dropWait)) // the answer waits for both
	r.recordEnd(w, closing.whole())
	r.traceCall(w)
	r.drain(w) // its answer may come late
	r.revoke(w)
	r.release(w)
}
