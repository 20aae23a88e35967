package server

import (
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// An end is what becomes of a connection that a step took over.
type end func(x *exchange, conn net.Conn)

// closes ends the connection as it should be.
func closes(_ *exchange, conn net.Conn) { conn.Close() }

// resets ends the connection with an RST.
func resets(_ *exchange, conn net.Conn) {
	if t, ok := conn.(*tracked).Conn.(*net.TCPConn); ok {
		t.SetLinger(0)
	}
	conn.Close()
}

// stays keeps the connection, in silence, until the client has gone.
func stays(_ *exchange, conn net.Conn) {
	io.Copy(io.Discard, conn)
	conn.Close()
}

// deaf keeps the connection without reading it. It cannot hear that the client
// has gone, and so it waits no longer than a second.
func deaf(x *exchange, conn net.Conn) {
	x.pause(time.Second)
	conn.Close()
}

// raw writes a text on the connection, in place of an HTTP answer.
func raw(text string, e end) step {
	return func(x *exchange) {
		conn := x.take()
		io.WriteString(conn, x.fill(text))
		e(x, conn)
	}
}

// drip writes first and then unit at every interval, until the client has gone.
func drip(every time.Duration, first, unit string) step {
	return func(x *exchange) {
		conn := x.take()
		defer conn.Close()
		_, err := io.WriteString(conn, x.fill(first))
		for err == nil && x.pause(every) {
			_, err = io.WriteString(conn, x.fill(unit))
		}
	}
}

// flood is drip without an interval.
func flood(first, unit string) step {
	return func(x *exchange) {
		conn := x.take()
		defer conn.Close()
		_, err := io.WriteString(conn, x.fill(first))
		piece := strings.Repeat(x.fill(unit), max(1, block/len(unit)))
		for err == nil {
			_, err = io.WriteString(conn, piece)
		}
	}
}

// The first lines of a raw answer; the head goes on behind them. Who closes a
// connection says so before: else the next request may be under way already.
const (
	keptJSON = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
	okJSON   = keptJSON + "Connection: close\r\n"
	okStream = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n"
	inChunks = "Transfer-Encoding: chunked\r\n"
)

// measured sends a raw head, the right Content-Length and a text, and behind it
// whatever else it is given.
func measured(head, text, behind string, e end) step {
	return func(x *exchange) {
		conn, b := x.take(), x.fill(text)
		fmt.Fprintf(conn, "%sContent-Length: %d\r\n\r\n%s%s", x.fill(head), len(b), b, x.fill(behind))
		e(x, conn)
	}
}

// mismeasured sends a good answer with a Content-Length that is wrong by so much.
func mismeasured(by int, e end) step {
	return func(x *exchange) {
		conn, b := x.take(), x.fill(reply)
		fmt.Fprintf(conn, "%sContent-Length: %d\r\n\r\n%s", okJSON, len(b)+by, b)
		e(x, conn)
	}
}

// chunked sends a good answer in chunks of size bytes, each with an extension,
// and trailer lines behind the last.
func chunked(head string, size int, extension, trailer string) step {
	return func(x *exchange) {
		var out strings.Builder
		out.WriteString(head + inChunks + "\r\n")
		for b := x.fill(reply); b != ""; b = b[min(size, len(b)):] {
			piece := b[:min(size, len(b))]
			fmt.Fprintf(&out, "%x%s\r\n%s\r\n", len(piece), extension, piece)
		}
		out.WriteString("0\r\n" + trailer + "\r\n")
		raw(out.String(), closes)(x)
	}
}
