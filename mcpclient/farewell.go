package mcpclient

import (
	"context"
	"time"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/egress"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/policy"
)

const (
	// farewellAsks is how long Farewell may ask for credentials, and so how long a
	// hold is kept for it.
	farewellAsks = 250 * time.Millisecond
	// farewellWait is how long the whole of it may take.
	farewellWait = time.Second
)

// Farewell tells a legacy server that the operation is over: that an answer
// which did not come is not waited for (notifications/cancelled), and that the
// session may go (DELETE). Both are legs behind the gate, on a clock of their
// own: ctx may be over. What is not said in time is left unsaid.
//
// Farewell returns when it asks for no more credentials: all is sent, or 250 ms
// have gone by. The function that it returns waits for the server's answers,
// within a second of the beginning, and returns the legs. It must be called.
func (c *Conversation) Farewell(ctx context.Context, g Gate) (wait func() []audit.Leg) {
	c.begin(g, Call{})
	words := c.partingWords()
	if words == nil {
		c.end()
		return func() []audit.Leg { return nil }
	}
	asked, done := make(chan struct{}), make(chan struct{})
	var legs []audit.Leg
	go func() {
		defer close(done)
		defer c.end()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewellWait)
		defer cancel()
		legs = c.part(ctx, words, func() { close(asked) })
	}()
	timer := time.NewTimer(farewellAsks)
	defer timer.Stop()
	select {
	case <-asked:
	case <-timer.C:
	}
	return func() []audit.Leg { <-done; return legs }
}

// partingWords are what is left to say to a server with which a session was
// opened or a request cut off: two at most. A server whose answer is still read is
// told nothing, since either word would end its work.
func (c *Conversation) partingWords() (words []message) {
	if c.speaks.era != policy.EraLegacy || c.late != nil {
		return nil
	}
	if c.cutOff != nil {
		words = append(words, message{method: methodCancelled, notification: true,
			params: params{RequestID: c.cutOff, Reason: "the client does not wait any longer"}})
	}
	if c.session != "" {
		words = append(words, message{method: methodDelete, notification: true})
	}
	c.cutOff = nil
	return words
}

// A parting is one word on its way.
type parting struct {
	m     message
	line  *egress.Line
	began time.Time
	out   outgoing
	err   error
}

// part says all words before it waits for an answer to the first: with each
// answer that is waited for, the hold would live longer. So two words take two
// connections.
func (c *Conversation) part(ctx context.Context, words []message, asked func()) (legs []audit.Leg) {
	other := c.client.newLine(c.server)
	defer other.Close()
	defer func() {
		if recover() != nil {
			legs = append(legs, legOf(ctx, methodDelete, time.Now(), ending{failure: fault.InternalError}))
		}
	}()
	lines := []*egress.Line{other, c.line}[2-len(words):]
	for _, p := range c.say(ctx, words, lines, asked) {
		e := ending{failure: fault.ReasonOf(p.err)}
		if p.err == nil {
			e = c.acknowledged(p.line, p.m, p.out)
		}
		legs = append(legs, legOf(ctx, p.m.method, p.began, e))
	}
	c.session = ""
	return legs
}

func (c *Conversation) say(ctx context.Context, words []message, lines []*egress.Line, asked func()) (said []parting) {
	defer asked()
	for i, m := range words {
		p := parting{m: m, line: lines[i], began: time.Now()}
		p.out, p.err = c.send(ctx, p.line, m)
		said = append(said, p)
	}
	return said
}

// acknowledged reads what a server says to something that wants no answer: a
// status.
func (c *Conversation) acknowledged(line *egress.Line, m message, out outgoing) ending {
	resp, err := out.sent.Answer()
	if err != nil {
		return ending{sent: line.Written() > 0, failure: fault.ReasonOf(err)}
	}
	defer resp.Body.Close()
	return reading{m: m, limits: c.limits, session: c.session != ""}.read(resp, question{limits: c.limits})
}
