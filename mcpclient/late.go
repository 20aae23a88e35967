package mcpclient

import (
	"context"
	"time"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/fault"
)

// legDrain is the entry of a late answer among the legs.
const legDrain = "drain"

// A late is the reading of an answer that did not come in time.
type late struct {
	done   <-chan ending
	giveUp context.CancelCauseFunc
	began  time.Time
	until  time.Time
	timer  *time.Timer
}

// await reads the answer in the background, and waits for it while ctx lasts.
// Where time alone has ended the wait, the reading goes on for as long as
// Call.Drain says: to hang up would be to cancel (2026-07-28, Cancellation).
func (c *Conversation) await(ctx context.Context, r reading) ending {
	life, giveUp := context.WithCancelCause(context.WithoutCancel(ctx))
	r.out.sent = r.out.sent.Under(life)
	done := make(chan ending, 1)
	go func() {
		e := ending{sent: true, failure: fault.InternalError}
		defer func() {
			recover() // what is left of it is the doubt
			done <- e
		}()
		e = r.answer(giveUp)
	}()
	select {
	case e := <-done:
		giveUp(nil)
		return e
	case <-ctx.Done():
	}
	switch why := fault.Ended(ctx, fault.WallClock); why {
	case fault.WallClock, fault.Idle:
		now := time.Now()
		c.late = &late{done, giveUp, now, now.Add(c.call.Drain), time.AfterFunc(c.call.Drain, func() { giveUp(errDrained) })}
		return ending{sent: r.line.Written() > 0, failure: why}
	}
	giveUp(context.Cause(ctx))
	return <-done
}

var errDrained = fault.New("mcpclient.Late", fault.WallClock, "no answer came within the drain window")

// Late waits for the answer of a call whose report says Draining, until its drain
// window or ctx ends. It is false if none came that says what became of the call:
// then all is as it was reported. The report's one leg is the drain.
func (c *Conversation) Late(ctx context.Context) (rep Report, answered bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.late
	if l == nil {
		return Report{}, false
	}
	c.late = nil
	stop := context.AfterFunc(ctx, func() { l.giveUp(context.Cause(ctx)) })
	e := <-l.done
	stop()
	l.timer.Stop()
	l.giveUp(nil)
	e.readToolResult()
	rep = c.report(e)
	rep.Legs = []audit.Leg{{Name: legDrain, Began: l.began, Budget: l.until.Sub(l.began), Took: time.Since(l.began), Reason: rep.Outcome.Cause}}
	return rep, rep.Outcome.Evidence == fault.EvidencePeer && rep.Outcome.Ran != fault.RanNo
}
