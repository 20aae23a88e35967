package egress

import (
	"context"
	"io"

	"onbehalf.internal/broker/fault"
)

// A reply is the body of an answer on a [Line]. Read to its end it gives the
// connection back; closed before, it closes it; see also [Line.Leave].
type reply struct {
	ctx  context.Context // of the exchange
	line *Line
	wire *wire
	stop func() bool // ends ctx's hold on the connection
	body io.Reader
	keep bool  // both sides agree to another exchange
	err  error // what Read returns from now on
}

func (b *reply) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	n, err := b.body.Read(p)
	if err != nil {
		b.end(err)
	}
	return n, b.err
}

var errClosedBody = fault.New("egress.Line.Do", fault.InternalError, "the body was closed before it was read")

// Close gives the rest of the body up, and the connection with it: that is how
// a peer sees that nobody waits any more. It never waits.
func (b *reply) Close() error {
	if b.err == nil {
		b.end(errClosedBody)
	}
	return nil
}

// Leave is for an answer whose last word is in hand, while its body has not
// come to its end: a server that streams ends the body a moment later. Unlike
// Close it keeps the connection, if the rest has arrived by the next exchange.
// body is that of an answer of l's.
func (l *Line) Leave(body io.ReadCloser) {
	b, ok := body.(*reply)
	if !ok || b.err != nil || !b.keep || !b.stop() {
		body.Close()
		return
	}
	b.wire.rest, b.err = b.body, errClosedBody
}

// end settles the exchange once.
func (b *reply) end(err error) {
	const op = "egress.Line.Do"
	released := b.stop() // false: ctx is over and the connection has expired
	if err == io.EOF && b.keep && released {
		b.wire.idle = true
	} else {
		b.line.drop(b.wire)
	}
	_, own := err.(*fault.Error)
	switch {
	case err == io.EOF || own:
		b.err = err
	case b.wire.lost:
		b.err = b.line.cut(b.ctx, op, fault.ConnectionLost)
	default:
		b.err = b.line.cut(b.ctx, op, fault.ReplyMalformed)
	}
}
