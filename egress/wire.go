package egress

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"onbehalf.internal/broker/fault"
)

const (
	// interimLimit is how many 1xx answers may come before the answer.
	interimLimit = 5
	// lastWords is how long a peer that stopped reading may take to say why.
	lastWords = 250 * time.Millisecond
)

// A wire is one connection of a [Line].
type wire struct {
	plain *tap
	conn  net.Conn // plain, or TLS over it
	r     *bufio.Reader

	used bool      // a request was begun on it
	idle bool      // no exchange is open on it
	rest io.Reader // of an answer whose reader has gone; nil: none

	headMost int  // what a head may take
	headLeft int  // what the head being read may still take; -1 in a body
	overflow bool // a head wanted more
	lost     bool // reading failed below HTTP
}

func newWire(plain *tap, conn net.Conn, headMost int) *wire {
	c := &wire{plain: plain, conn: conn, idle: true, headMost: headMost, headLeft: -1}
	c.r = bufio.NewReader(c)
	return c
}

var errHeadTooLong = errors.New("head too long")

// Read is the source of c.r. It holds the limit of a head, and remembers whose
// fault it is when parsing fails.
func (c *wire) Read(p []byte) (int, error) {
	if c.headLeft == 0 {
		c.overflow = true
		return 0, errHeadTooLong
	}
	if c.headLeft > 0 {
		p = p[:min(len(p), c.headLeft)]
	}
	n, err := c.conn.Read(p)
	if c.headLeft > 0 {
		c.headLeft -= n
	}
	c.lost = c.lost || err != nil
	return n, err
}

// readHead reads the head of the answer to req and passes over interim answers
// (RFC 9110 §15.2).
func (c *wire) readHead(req *http.Request) (*http.Response, fault.Reason) {
	c.headLeft = c.headMost
	defer func() { c.headLeft = -1 }()
	for range interimLimit + 1 {
		res, err := http.ReadResponse(c.r, req)
		switch {
		case c.overflow:
			return nil, fault.ReplyTooLarge
		case err != nil && c.lost:
			return nil, fault.ConnectionLost
		case err != nil || res.ProtoMajor != 1 || res.StatusCode < 100 || res.StatusCode == http.StatusSwitchingProtocols:
			return nil, fault.ReplyMalformed
		case res.StatusCode >= 200:
			return res, fault.None
		}
	}
	return nil, fault.ReplyMalformed
}

// alive reports whether a request may be begun on c. A peer that closed, or
// that says something unasked, is gone. Where the connection cannot tell, it is
// taken to live until its first use.
func (c *wire) alive() bool {
	c.finish()
	if !c.idle || c.r.Buffered() > 0 {
		return false
	}
	if !probeable(c.plain.Conn) {
		return !c.used
	}
	c.plain.noWait = true
	defer func() { c.plain.noWait = false }()
	var b [1]byte
	_, err := c.conn.Read(b[:]) // through TLS, which takes its own messages (session tickets) out
	return errors.Is(err, os.ErrDeadlineExceeded)
}

// restLimit is what the rest of an answer may take to be worth its connection.
const restLimit = 64 << 10

// finish reads the rest of an answer as far as it has arrived. At its end the
// connection is idle.
func (c *wire) finish() {
	if c.rest == nil || !probeable(c.plain.Conn) {
		return
	}
	c.plain.noWait = true
	n, err := io.Copy(io.Discard, io.LimitReader(c.rest, restLimit))
	c.plain.noWait = false
	c.rest, c.idle = nil, err == nil && n < restLimit
}

// expire ends every read and write, now and later.
func (c *wire) expire() { c.conn.SetDeadline(time.Unix(1, 0)) }

// discard has close throw away what the kernel has not sent yet: it must not
// leave after the deadline.
func (c *wire) discard() {
	if t, ok := c.plain.Conn.(*net.TCPConn); ok {
		t.SetLinger(0)
	}
}

// close closes below TLS. Its farewell could block on a peer that does not
// read, and HTTP/1.1 knows by itself where a body ends.
func (c *wire) close() { c.plain.Conn.Close() }

// A tap is a connection, below TLS, that can be read without waiting.
type tap struct {
	net.Conn
	noWait bool // nothing there is os.ErrDeadlineExceeded
}

func (t *tap) Read(p []byte) (int, error) {
	if t.noWait {
		return readNow(t.Conn, p)
	}
	return t.Conn.Read(p)
}

// A counter counts what w took.
type counter struct {
	w io.Writer
	n *int64
}

func (c counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	*c.n += int64(n)
	return n, err
}
