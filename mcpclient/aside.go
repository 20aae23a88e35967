package mcpclient

import (
	"context"
	"math"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/egress"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/secret"
	"onbehalf.internal/broker/strictjson"
)

// A Progress is what a server says about a call while it works on it. Message
// is the server's own text, 1,024 bytes at most.
type Progress struct {
	Done, Total float64 // Total is 0 where it is not said
	Message     string
}

const (
	maxMessage = 1024
	maxPings   = 8 // that wait for their answer; a server that asks faster gets fewer answers
)

// An aside is what comes on a stream besides the answer: progress is passed on,
// a ping of a legacy server is answered, while the stream is read on.
type aside struct {
	note func(m map[string]strictjson.Raw)
	ping func(id strictjson.Raw)
	stop func()
}

func (c *Conversation) listen(ctx context.Context, out outgoing) aside {
	a := aside{stop: func() {}}
	if c.call.Progress != nil {
		a.note = progressTo(c.call.Progress, out)
	}
	if c.speaks.era == policy.EraLegacy {
		p := &pinger{c: c, ctx: ctx}
		a.ping, a.stop = p.ask, p.stop
	}
	return a
}

// progressTo passes on the progress of the request out, as long as it
// increases. Its token is the request's id.
func progressTo(to func(Progress), out outgoing) func(map[string]strictjson.Raw) {
	last := math.Inf(-1)
	return func(m map[string]strictjson.Raw) {
		p := strictjson.Parts(m["params"])
		if string(m["method"]) != `"notifications/progress"` || string(p["progressToken"]) != string(out.id) {
			return
		}
		done, ok := number(p["progress"])
		if !ok || done <= last {
			return
		}
		last = done
		total, _ := number(p["total"])
		to(Progress{done, total, relayed(p["message"], out.cred.Value)})
	}
}

// relayed returns the text that raw is, cut to size; none that holds token.
func relayed(raw strictjson.Raw, token secret.Text) string {
	s, _ := text(raw)
	if echoes(raw, token) {
		return ""
	}
	for len(s) > maxMessage || !utf8.ValidString(s) {
		s = s[:min(len(s)-1, maxMessage)]
	}
	return s
}

func number(raw strictjson.Raw) (f float64, ok bool) {
	f, err := strconv.ParseFloat(string(raw), 64)
	return f, err == nil && !math.IsInf(f, 0) && raw.Kind() == '0'
}

// A pinger answers pings on a connection of its own, one after the other. Each
// answer is a leg like any other, behind the gate.
type pinger struct {
	c    *Conversation
	ctx  context.Context
	quit context.CancelFunc
	legs []audit.Leg // the worker's until done

	mu      sync.Mutex // whoever reads asks, and may go on after stop
	stopped bool
	ids     chan strictjson.Raw
	done    chan struct{}
}

func (p *pinger) ask(id strictjson.Raw) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return
	}
	if p.ids == nil {
		p.ctx, p.quit = context.WithCancel(p.ctx)
		p.ids, p.done = make(chan strictjson.Raw, maxPings), make(chan struct{})
		go p.work()
	}
	select {
	case p.ids <- id:
	default:
	}
}

func (p *pinger) work() {
	defer close(p.done)
	line := p.c.client.newLine(p.c.server)
	defer line.Close()
	for {
		select {
		case id := <-p.ids:
			p.legs = append(p.legs, p.answer(line, id))
		case <-p.ctx.Done():
			return
		}
	}
}

func (p *pinger) answer(line *egress.Line, id strictjson.Raw) (leg audit.Leg) {
	m := message{method: methodPing, answers: id, notification: true}
	e, began := ending{failure: fault.InternalError}, time.Now()
	defer func() {
		recover() // what is left of it is the leg
		leg = legOf(p.ctx, m.method, began, e)
	}()
	out, err := p.c.send(p.ctx, line, m)
	p.legs = append(p.legs, out.legs...)
	if err != nil {
		e = ending{failure: fault.ReasonOf(err)}
		return
	}
	e = p.c.acknowledged(line, m, out)
	return
}

// stop ends the worker and takes its legs.
func (p *pinger) stop() {
	p.mu.Lock()
	works := p.ids != nil && !p.stopped
	p.stopped = true
	p.mu.Unlock()
	if works {
		p.quit()
		<-p.done
		p.c.legs = append(p.c.legs, p.legs...)
	}
}
