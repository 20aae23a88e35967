package mcpclient

import (
	"context"
	"net/http"
	"time"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/fault"
)

const (
	// maxAge is how old a check may be when the first byte leaves.
	maxAge = time.Second

	// errorBodyWait is how long the body of a bad status may take. It says
	// little, and the status has said the rest.
	errorBodyWait = time.Second
)

// leg is one exchange, entered in the list of legs whatever becomes of it.
func (c *Conversation) leg(ctx context.Context, m message) (e ending) {
	began := time.Now()
	deadline, bounded := ctx.Deadline()
	e = c.interrupted()
	defer func() {
		c.legs = append(c.legs, audit.Leg{
			Name: m.method, Budget: max(0, deadline.Sub(began)), Took: time.Since(began), Reason: classify(e).Cause,
		})
	}()
	if !bounded {
		return ending{failure: fault.BudgetSpent}
	}
	return c.exchange(ctx, m)
}

// exchange sends m and reads the answer. From the line that asks for it to the
// return, the credential is in this frame and in one request.
func (c *Conversation) exchange(ctx context.Context, m message) ending {
	ctx, giveUp := context.WithCancel(ctx)
	defer giveUp()
	if err := c.line.Ready(ctx); err != nil {
		return ending{failure: fault.ReasonOf(err)}
	}
	cred, err := c.gate.Credential(ctx, m.method)
	if err != nil {
		return ending{failure: fault.ReasonOf(err)}
	}
	req, id, err := c.newRequest(m, cred)
	if err != nil {
		return ending{failure: fault.ReasonOf(err)}
	}
	resp, err := c.line.Do(ctx, req, func() error { return c.open(ctx, m, cred.ReadAt) })
	if err != nil {
		return c.unanswered(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		defer time.AfterFunc(errorBodyWait, giveUp).Stop()
	}
	e := c.read(resp, m, id)
	e.echoed = echoes(e.result, cred.Value) || e.rpc != nil && echoes(e.rpc.raw, cred.Value)
	if e.failure == fault.None {
		c.line.Leave(resp.Body)
	}
	return e
}

// open is the last word before the first byte. Recording may wait for a disk,
// so freshness is judged after it; that there is time left, the line judges
// after both.
func (c *Conversation) open(ctx context.Context, m message, readAt time.Time) error {
	if m.method == methodCall {
		if err := c.gate.Sending(ctx); err != nil {
			return err
		}
	}
	if c.client.conf.Now().Sub(readAt) > maxAge {
		return fault.New("mcpclient.open", fault.CheckStale, "")
	}
	c.calling = m.method == methodCall
	return nil
}

// unanswered is the ending of a request to which not even the head of an answer
// came. Our own byte count says whether it left.
func (c *Conversation) unanswered(err error) ending {
	return ending{sent: c.line.Written() > 0, failure: fault.ReasonOf(err)}
}

// read takes from an answer what can be known.
func (c *Conversation) read(resp *http.Response, m message, id string) ending {
	e := ending{sent: true, status: resp.StatusCode, session: c.session != ""}
	switch {
	case m.notification && e.status/100 == 2:
		e.accepted = true // some servers send a body along; it means nothing
	case e.status == http.StatusOK:
		answer, err := readReply(resp, id)
		if err != nil {
			e.failure = fault.ReasonOf(err)
		}
		e.reply, e.header = answer, resp.Header
	case e.status == http.StatusUnauthorized, e.status == http.StatusForbidden:
		e.challenge = parseChallenge(resp.Header.Values("WWW-Authenticate"))
	default:
		e.rpc = readErrorBody(resp)
	}
	return e
}
