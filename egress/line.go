package egress

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"onbehalf.internal/broker/fault"
)

// A Line is one operation's own HTTP/1.1 connection to one host. Requests go
// one after the other; the connection is kept between them and redialled when
// it is gone. It never sends a request twice. A Line is not safe for
// concurrent use, except Close.
//
// It speaks HTTP by itself because an http.Transport decides for itself when a
// request leaves and whether again. Here one goroutine, the caller's, writes
// and then reads, so "not one byte has left" is a fact and not a guess. The
// price: a peer that answers early, and then neither reads nor closes, is not
// heard before the context ends.
type Line struct {
	host    Host
	written int64

	mu     sync.Mutex // guards writing wire and closed; held for no I/O but closing
	wire   *wire
	closed bool
}

// NewLine returns a Line to h. It dials at first use.
func NewLine(h Host) *Line { return &Line{host: h} }

// Show makes certificate what a connection shows to a peer that asks for one; nil
// is none. A connection that shows another one is closed, and the next is dialled.
func (l *Line) Show(certificate *tls.Certificate) {
	if !same(l.host.Certificate, certificate) {
		l.drop(l.wire)
	}
	l.host.Certificate = certificate
}

// same reports whether a peer sees the same in a and b.
func same(a, b *tls.Certificate) bool {
	if a == nil || b == nil {
		return a == b
	}
	return slices.EqualFunc(a.Certificate, b.Certificate, bytes.Equal)
}

// Ready makes sure that a live connection stands: dialled, TLS done. It
// carries no credential. An exchange whose body has not come to its end by now
// has spent its connection, and Ready dials a new one.
//
// Errors: budget_spent, caller_cancelled, host_refused, connect_failed,
// tls_failed.
func (l *Line) Ready(ctx context.Context) error {
	const op = "egress.Line.Ready"
	if reason := unsent(ctx); reason != fault.None {
		return fault.New(op, reason, "")
	}
	if l.isClosed() {
		return errClosed
	}
	if l.wire != nil && l.wire.alive() {
		return nil
	}
	l.drop(l.wire)
	plain, conn, err := l.host.dial(ctx)
	if err != nil {
		return err
	}
	return l.take(newWire(plain, conn, l.host.headLimit()))
}

var errClosed = fault.New("egress.Line.Ready", fault.ConnectFailed, "the line was closed")

func (l *Line) isClosed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}

// take makes c the connection, unless the line was closed meanwhile.
func (l *Line) take(c *wire) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		c.close()
		return errClosed
	}
	l.wire = c
	return nil
}

// drop closes c, which may be nil or gone already.
func (l *Line) drop(c *wire) {
	if c == nil {
		return
	}
	c.close()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.wire == c {
		l.wire = nil
	}
}

// Do sends req on the ready connection and reads the head of the answer. open
// is called once, with the connection ready, right before the first byte: if
// it fails nothing is written and its error is returned as it is. The context
// ends the exchange at any point, the reading of the body included.
//
// Any status is an answer, a redirect too. The body must be read to its end or
// closed. Its Read returns io.EOF at the proper end and a *fault.Error
// otherwise. Do closes the request's body.
//
// Errors, with nothing written: those of Ready; internal_error for a request
// to another host. After the first byte: write_failed, connection_lost,
// reply_too_large (the head), reply_malformed, wall_clock, caller_cancelled.
func (l *Line) Do(ctx context.Context, req *http.Request, open func() error) (*http.Response, error) {
	sent, err := l.Send(ctx, req, open)
	if err != nil {
		return nil, err
	}
	return sent.Answer()
}

// Send is the first half of Do: it returns when req is written, or as much of
// it as can be. Its errors are those of Do with nothing written. Whoever gets
// no error calls Answer, and before it nothing else on the Line but Close.
func (l *Line) Send(ctx context.Context, req *http.Request, open func() error) (Sent, error) {
	const op = "egress.Line.Do"
	l.written = 0
	if req.Body != nil {
		defer req.Body.Close()
	}
	out, err := l.host.outgoing(ctx, op, req)
	if err != nil {
		return Sent{}, err
	}
	if err := l.Ready(ctx); err != nil {
		return Sent{}, err
	}
	if err := open(); err != nil {
		return Sent{}, err
	}
	// The gate may have waited for a disk.
	if reason := unsent(ctx); reason != fault.None {
		return Sent{}, fault.New(op, reason, "")
	}
	return l.write(ctx, l.wire, out), nil
}

// A Sent is a request that was written and whose answer was not read.
type Sent struct {
	ctx       context.Context
	line      *Line
	wire      *wire
	req       *http.Request
	stop      func() bool // ends ctx's hold on the connection
	unwritten error       // not all of it was
}

func (l *Line) write(ctx context.Context, c *wire, req *http.Request) Sent {
	c.idle, c.used = false, true
	stop := context.AfterFunc(ctx, c.expire)
	err := req.Write(counter{c.conn, &l.written})
	if err != nil {
		// A peer that has read enough may have answered (413) before it closed.
		c.conn.SetReadDeadline(time.Now().Add(lastWords))
		if sent(ctx) != fault.None {
			c.expire()
			c.discard()
		}
	}
	return Sent{ctx, l, c, req, stop, err}
}

// Under has ctx end the rest of the exchange in place of the context that it was
// begun with. Where that one has ended already, it stays. Call it before Answer.
func (s Sent) Under(ctx context.Context) Sent {
	if s.stop() {
		s.ctx, s.stop = ctx, context.AfterFunc(ctx, s.wire.expire)
	}
	return s
}

// Answer is the second half of Do: it reads the head of the answer.
func (s Sent) Answer() (*http.Response, error) {
	res, reason := s.wire.readHead(s.req)
	if reason != fault.None {
		if s.unwritten != nil {
			reason = fault.WriteFailed
		}
		s.stop()
		s.line.drop(s.wire)
		return nil, s.line.cut(s.ctx, "egress.Line.Do", reason)
	}
	body := &reply{ctx: s.ctx, line: s.line, wire: s.wire, stop: s.stop, body: res.Body,
		keep: s.unwritten == nil && !s.req.Close && !res.Close}
	if res.Body == http.NoBody {
		body.end(io.EOF)
		return res, nil
	}
	res.Body = body
	return res, nil
}

// cut says why an exchange broke off: the end of ctx before all else.
func (l *Line) cut(ctx context.Context, op string, reason fault.Reason) *fault.Error {
	end := sent
	if l.written == 0 {
		end = unsent
	}
	if r := end(ctx); r != fault.None {
		reason = r
	}
	return fault.New(op, reason, "")
}

// Written is how many bytes of the last request were handed to the network,
// before TLS. 0 after an error of Do is proof that the peer got nothing: of a
// TLS record that went out in part it can read nothing (RFC 8446 §5.2).
func (l *Line) Written() int64 { return l.written }

// Close closes the connection and ends an exchange that is open on it. The
// error is always nil.
func (l *Line) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.wire != nil {
		l.wire.close()
	}
	return nil
}
