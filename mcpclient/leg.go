package mcpclient

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"time"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/egress"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/strictjson"
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
	e = c.interrupted()
	began := time.Now()
	m.place = c.placeOf(m)
	defer func() {
		entry := legOf(ctx, m.method, began, e)
		entry.Span = m.place.Span
		c.legs = append(c.legs, entry)
	}()
	if _, bounded := ctx.Deadline(); !bounded {
		return ending{failure: fault.BudgetSpent}
	}
	return c.exchange(ctx, m)
}

// legOf is the entry of a leg that is over.
func legOf(ctx context.Context, name string, began time.Time, e ending) audit.Leg {
	deadline, _ := ctx.Deadline()
	return audit.Leg{Name: name, Began: began, Budget: max(0, deadline.Sub(began)), Took: time.Since(began), Reason: classify(e).Cause}
}

// exchange sends m and reads the answer. From the line that asks for it to the
// return, the credential is in this frame and in one request; where the answer may
// come late, it is in the reading, up to its end.
func (c *Conversation) exchange(ctx context.Context, m message) ending {
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	out, err := c.send(ctx, c.line, m)
	c.legs = append(c.legs, out.legs...)
	if err != nil {
		return ending{failure: fault.ReasonOf(err)}
	}
	aside := c.listen(ctx, out)
	defer aside.stop()
	r := reading{m: m, out: out, line: c.line, limits: c.limits, session: c.session != "", aside: aside, watch: startWatch(c.call.Idle, giveUp)}
	var e ending
	if m.method == methodCall && c.call.Drain > 0 {
		e = c.await(ctx, r)
	} else {
		e = r.answer(giveUp)
	}
	aside.stop() // from here on c is ours alone again
	return c.noteCutOff(m, out.id, e)
}

// A reading is what it takes to read the answer to a request that has left. It
// uses nothing of its conversation, which may be over before the answer comes.
type reading struct {
	m       message
	out     outgoing
	line    *egress.Line
	limits  policy.Limits
	session bool // the request carried a session id
	aside   aside
	watch   watch
}

// answer reads the answer. giveUp ends the exchange.
func (r reading) answer(giveUp context.CancelCauseFunc) ending {
	defer r.watch.stop()
	resp, err := r.out.sent.Answer()
	if err != nil {
		return ending{sent: r.line.Written() > 0, failure: fault.ReasonOf(err)}
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		defer time.AfterFunc(errorBodyWait, func() { giveUp(nil) }).Stop()
	}
	e := r.read(resp, question{id: r.out.id, limits: r.limits, ping: r.aside.ping, note: r.aside.note})
	e.echoed = echoes(e.result, r.out.cred.Value) || e.rpc != nil && echoes(e.rpc.raw, r.out.cred.Value)
	if echoes(strictjson.Raw(e.challenge.Scope), r.out.cred.Value) {
		e.challenge.Scope = ""
	}
	if e.failure == fault.None {
		r.line.Leave(resp.Body)
	}
	return e
}

// An outgoing is a request that has left.
type outgoing struct {
	sent egress.Sent
	id   strictjson.Raw
	cred Credential
	legs []audit.Leg // what its credential took; also of a request that has not left
}

// send puts m on line. With an error nothing has left. The certificate is asked for
// first, so that the connection stands when the credential is read.
func (c *Conversation) send(ctx context.Context, line *egress.Line, m message) (outgoing, error) {
	line.Show(c.gate.certificate())
	if err := line.Ready(ctx); err != nil {
		return outgoing{}, err
	}
	cred, err := c.gate.Credential(ctx, m.method)
	out := outgoing{cred: cred, legs: cred.Legs}
	if err != nil {
		return out, err
	}
	line.Show(cred.Certificate)
	req, id, err := c.newRequest(m, cred)
	if err != nil {
		return out, err
	}
	out.id = id
	out.sent, err = line.Send(ctx, req, func() error { return c.open(ctx, m, cred.ReadAt) })
	return out, err
}

func (g Gate) certificate() *tls.Certificate {
	if g.Certificate == nil {
		return nil
	}
	return g.Certificate()
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
	if m.method == methodCall {
		c.calling = true
	}
	return nil
}

// read takes from an answer what can be known.
func (r reading) read(resp *http.Response, q question) ending {
	e := ending{sent: true, status: resp.StatusCode, session: r.session}
	switch {
	case r.m.notification && e.status/100 == 2:
		e.accepted = true // some servers send a body along; it means nothing
	case e.status == http.StatusOK:
		answer, err := readReply(resp.Header, r.watch.over(resp.Body), q)
		if err != nil {
			e.failure = fault.ReasonOf(err)
		}
		e.reply, e.header = answer, resp.Header
	case e.status == http.StatusUnauthorized, e.status == http.StatusForbidden:
		e.challenge = parseChallenge(resp.Header.Values("WWW-Authenticate"))
	default:
		e.rpc = readErrorBody(resp.Header, resp.Body, r.limits)
	}
	return e
}

// noteCutOff remembers a request that a legacy server may still be working on:
// it left, and no answer came that we take. Nobody may cancel initialize.
func (c *Conversation) noteCutOff(m message, id strictjson.Raw, e ending) ending {
	working := e.sent && e.failure != fault.None && (e.status == 0 || e.status == http.StatusOK)
	if working && c.speaks.era == policy.EraLegacy && !m.notification && m.method != methodInitialize {
		c.cutOff = id
	}
	if e.status == http.StatusNotFound && e.session {
		c.session = "" // the server has no such session any more
	}
	return e
}

var errIdle = fault.New("mcpclient.leg", fault.Idle, "")

// A watch gives a leg up on which nothing comes in for as long as its window.
// The zero watch never does.
type watch struct {
	timer  *time.Timer
	window time.Duration
}

func startWatch(window time.Duration, giveUp context.CancelCauseFunc) watch {
	if window <= 0 {
		return watch{}
	}
	return watch{time.AfterFunc(window, func() { giveUp(errIdle) }), window}
}

func (w watch) stop() {
	if w.timer != nil {
		w.timer.Stop()
	}
}

// over returns r so that every byte of it begins the window anew.
func (w watch) over(r io.Reader) io.Reader {
	if w.timer == nil {
		return r
	}
	w.timer.Reset(w.window) // the head came in
	return heard{r, w}
}

type heard struct {
	io.Reader
	watch watch
}

func (h heard) Read(p []byte) (int, error) {
	n, err := h.Reader.Read(p)
	if n > 0 {
		h.watch.timer.Reset(h.watch.window)
	}
	return n, err
}
