package egress_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"onbehalf.internal/broker/egress"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/secret/canary"
)

// TestGateHoldsEveryByte: where the gate fails not one request of two thousand
// arrives, on fresh connections and on kept ones, and where it opens all do.
func TestGateHoldsEveryByte(t *testing.T) {
	const times = 2000
	var arrived atomic.Int64
	p := listen(t, func(_ int64, c net.Conn, r *bufio.Reader) {
		for {
			if _, err := r.Peek(1); err != nil {
				return
			}
			arrived.Add(1)
			if !take(r) {
				return
			}
			io.WriteString(c, ok)
		}
	})
	shut := errors.New("not on disk")
	refuse := func(l *egress.Line) {
		_, err := l.Do(t.Context(), post(p.host, "{}"), func() error { return shut })
		if err != shut || l.Written() != 0 {
			t.Fatalf("Do = %v with %d bytes written, want the gate's own error and none", err, l.Written())
		}
	}
	allow := func(l *egress.Line) {
		if _, _, err := exchange(t.Context(), l, post(p.host, "{}")); err != nil {
			t.Fatal(err)
		}
	}
	dials := countDials(&p.host)
	kept := lineTo(t, p.host)
	allow(kept)
	for range times {
		refuse(kept)
		l := egress.NewLine(p.host)
		refuse(l)
		l.Close()
	}
	if *dials != 1+times {
		t.Errorf("%d connections, want %d: a shut gate costs no connection", *dials, 1+times)
	}
	last := lineTo(t, p.host)
	for range times / 2 {
		allow(kept)
		allow(last) // accepted after all others, which are in the count now
	}
	kept.Close()
	last.Close()
	p.stop()
	if n := arrived.Load(); n != 1+times {
		t.Errorf("%d requests arrived, want the %d that the gate let through", n, 1+times)
	}
}

// A connection that the peer has closed, or has written to unasked, is replaced
// before the gate opens.
func TestRedialsBeforeTheGate(t *testing.T) {
	for name, farewell := range map[string]string{"closed": "", "unasked answer": "HTTP/1.1 408 Request Timeout\r\n\r\n"} {
		t.Run(name, func(t *testing.T) {
			left := make(chan bool)
			p := listen(t, func(n int64, c net.Conn, r *bufio.Reader) {
				for take(r) {
					io.WriteString(c, ok)
					if n == 1 {
						<-left // the answer has been read
						io.WriteString(c, farewell)
						c.Close()
						left <- true
						return
					}
				}
			})
			dials := countDials(&p.host)
			l := lineTo(t, p.host)
			if _, _, err := exchange(t.Context(), l, post(p.host, "1")); err != nil {
				t.Fatal(err)
			}
			left <- true
			<-left
			res, err := l.Do(t.Context(), post(p.host, "2"), func() error {
				if *dials != 2 {
					t.Errorf("the gate opened on connection %d, want 2", *dials)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if res.StatusCode != 200 {
				t.Errorf("status %d", res.StatusCode)
			}
		})
	}
}

// The second request on a connection is read and never answered. Whatever it
// says of itself, it is not sent again.
func TestNeverTwice(t *testing.T) {
	for _, close := range []string{"closes", "resets"} {
		t.Run(close, func(t *testing.T) {
			var requests atomic.Int64
			p := listen(t, func(_ int64, c net.Conn, r *bufio.Reader) {
				for take(r) {
					if requests.Add(1) == 2 {
						if close == "resets" {
							c.(*net.TCPConn).SetLinger(0)
						}
						return
					}
					io.WriteString(c, ok)
				}
			})
			do := map[string]func(*http.Request) error{
				"line": func() func(*http.Request) error {
					l := lineTo(t, p.host)
					return func(r *http.Request) error { _, _, err := exchange(t.Context(), l, r); return err }
				}(),
				"client": func() func(*http.Request) error {
					c := egress.NewClient(p.host, 1)
					return func(r *http.Request) error {
						res, err := c.Do(r)
						if err == nil {
							io.Copy(io.Discard, res.Body)
							res.Body.Close()
						}
						return err
					}
				}(),
			}
			for who, do := range do {
				for _, method := range []string{"POST", "GET"} {
					requests.Store(0)
					for n := range 2 {
						req := post(p.host, "{}")
						if method == "GET" {
							req, _ = http.NewRequest("GET", p.host.URL.String(), nil)
						}
						req.Header.Set("Idempotency-Key", "1")
						err := do(req)
						if n == 0 && err != nil {
							t.Fatalf("%s %s: %v", who, method, err)
						}
						if n == 1 && fault.ReasonOf(err) != fault.ConnectionLost {
							t.Errorf("%s %s: %v, want connection_lost", who, method, err)
						}
					}
					if n := requests.Load(); n != 2 {
						t.Errorf("%s %s: %d requests arrived, want 2", who, method, n)
					}
				}
			}
		})
	}
}

// TestAnswers reads what a peer may answer.
func TestAnswers(t *testing.T) {
	head := func(size int) string { // a head of exactly size bytes
		const frame = "HTTP/1.1 204 No Content\r\nX: \r\n\r\n"
		return strings.Replace(frame, "X: ", "X: "+strings.Repeat("x", size-len(frame)), 1)
	}
	const interim = "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
	for _, tc := range []struct {
		name, answer string
		status       int // 0: no answer
		body         string
		reason       fault.Reason // of Do, or of reading the body
	}{
		{"length", ok, 200, "ok", fault.None},
		{"chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk("a") + chunk("b") + chunk(""), 200, "ab", fault.None},
		{"to the end of the connection", "HTTP/1.1 200 OK\r\n\r\nall", 200, "all", fault.None},
		{"HTTP/1.0", "HTTP/1.0 200 OK\r\n\r\nall", 200, "all", fault.None},
		{"no body", "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n", 202, "", fault.None},
		{"redirect", "HTTP/1.1 307 Temporary Redirect\r\nLocation: http://192.0.2.1/\r\nContent-Length: 0\r\n\r\n", 307, "", fault.None},
		{"gzip is left alone", "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\n\x1f\x8b\x08", 200, "\x1f\x8b\x08", fault.None},

		{"five interim answers", strings.Repeat(interim, 5) + ok, 200, "ok", fault.None},
		{"six interim answers", strings.Repeat(interim, 6) + ok, 0, "", fault.ReplyMalformed},
		{"switching protocols", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", 0, "", fault.ReplyMalformed},
		{"not HTTP", "SSH-2.0-OpenSSH_9.9\r\n", 0, "", fault.ReplyMalformed},
		{"HTTP/2", "HTTP/2.0 200 OK\r\n\r\n", 0, "", fault.ReplyMalformed},
		{"no status", "HTTP/1.1 ok\r\n\r\n", 0, "", fault.ReplyMalformed},
		{"two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nok", 0, "", fault.ReplyMalformed},

		{"a head of 64 KiB", head(64 << 10), 204, "", fault.None},
		{"a byte more", head(64<<10 + 1), 0, "", fault.ReplyTooLarge},
		{"interim heads count", strings.Replace(head(40<<10), "204", "103", 1) + head(40<<10), 0, "", fault.ReplyTooLarge},

		{"nothing", "", 0, "", fault.ConnectionLost},
		{"half a head", "HTTP/1.1 200 OK\r\nConte", 0, "", fault.ConnectionLost},
		{"half a body", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", 200, "half", fault.ConnectionLost},
		{"half the chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk("half"), 200, "half", fault.ConnectionLost},
		{"no chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 200, "", fault.ReplyMalformed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := listen(t, answering(tc.answer))
			status, body, err := exchange(t.Context(), lineTo(t, p.host), post(p.host, "{}"))
			if status != tc.status || body != tc.body {
				t.Errorf("answer %d %q, want %d %q", status, body, tc.status, tc.body)
			}
			if tc.reason == fault.None && err != nil {
				t.Error(err)
			}
			if tc.reason != fault.None {
				wantReason(t, err, tc.reason)
			}
		})
	}
}

// A connection is kept where the answer was read to its end and nobody asked to
// close it.
func TestKeepsTheConnection(t *testing.T) {
	const closing = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
	for _, tc := range []struct {
		name, answer string
		prepare      func(*http.Request)
		readAll      bool
		conns        int64
	}{
		{"kept", ok, nil, true, 1},
		{"no body", "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n", nil, false, 1},
		{"body not read", ok, nil, false, 2},
		{"the peer closes", closing, nil, true, 2},
		{"we close", ok, func(r *http.Request) { r.Close = true }, true, 2},
		{"HTTP/1.0", strings.Replace(ok, "1.1", "1.0", 1), nil, true, 2},
		{"more than the answer", ok + "x", nil, true, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := listen(t, func(_ int64, c net.Conn, r *bufio.Reader) {
				for take(r) {
					io.WriteString(c, tc.answer)
				}
			})
			l := lineTo(t, p.host)
			for range 2 {
				req := post(p.host, "{}")
				if tc.prepare != nil {
					tc.prepare(req)
				}
				res, err := l.Do(t.Context(), req, open)
				if err != nil {
					t.Fatal(err)
				}
				if tc.readAll {
					io.Copy(io.Discard, res.Body)
				}
				res.Body.Close()
			}
			if n := p.conns.Load(); n != tc.conns {
				t.Errorf("%d connections, want %d", n, tc.conns)
			}
		})
	}
}

// An answer that was left before its body's end keeps the connection if the end
// has arrived by the next exchange, and never waits for it.
func TestLeave(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
	for _, tc := range []struct {
		name, answer string
		conns        int64
	}{
		{"its end is there", head + "5\r\nhello\r\n0\r\n\r\n", 1},
		{"its end is not there", head + "5\r\nhello\r\n", 2},
		{"more than a rest", head + "5\r\nhello\r\n20000\r\n" + strings.Repeat("x", 0x20000) + "\r\n0\r\n\r\n", 2},
		{"more than the answer", head + "5\r\nhello\r\n0\r\n\r\nx", 2},
		{"a malformed end", head + "5\r\nhello\r\nzz\r\n", 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := listen(t, func(_ int64, c net.Conn, r *bufio.Reader) {
				for take(r) {
					io.WriteString(c, tc.answer)
				}
			})
			l := lineTo(t, p.host)
			for range 2 {
				res, err := l.Do(t.Context(), post(p.host, "{}"), open)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := io.ReadFull(res.Body, make([]byte, 5)); err != nil {
					t.Fatal(err)
				}
				l.Leave(res.Body)
				if n, err := res.Body.Read(make([]byte, 1)); n != 0 || err == nil {
					t.Errorf("after Leave: read %d bytes, %v", n, err)
				}
			}
			if n := p.conns.Load(); n != tc.conns {
				t.Errorf("%d connections, want %d", n, tc.conns)
			}
		})
	}
}

// A body that is given up closes the connection at once: to a server of the
// stateless era that is what cancels the call.
func TestGivingUpIsSeen(t *testing.T) {
	seen := make(chan bool)
	p := listen(t, func(_ int64, c net.Conn, r *bufio.Reader) {
		take(r)
		io.WriteString(c, ok[:len(ok)-1])
		io.Copy(io.Discard, r)
		close(seen)
	})
	res, err := lineTo(t, p.host).Do(t.Context(), post(p.host, "{}"), open)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	select {
	case <-seen:
	case <-time.After(5 * time.Second):
		t.Fatal("the peer still waits")
	}
	_, err = res.Body.Read(make([]byte, 1))
	wantReason(t, err, fault.InternalError)
}

// A peer that refuses a long request before it has read it is heard.
func TestEarlyAnswer(t *testing.T) {
	const tooLarge = "HTTP/1.1 413 Content Too Large\r\nContent-Length: 4\r\n\r\nlong"
	for _, tc := range []struct {
		name, answer string
		status       int
		reason       fault.Reason
	}{
		{"413", tooLarge, 413, fault.None},
		{"silence", "", 0, fault.WriteFailed},
		{"not HTTP", "go away\r\n", 0, fault.WriteFailed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := listen(t, func(_ int64, c net.Conn, r *bufio.Reader) {
				r.Peek(1)
				io.WriteString(c, tc.answer)
			})
			const size = 32 << 20
			l := lineTo(t, p.host)
			status, body, err := exchange(t.Context(), l, post(p.host, strings.Repeat("x", size)))
			if status != tc.status || tc.status != 0 && body != "long" {
				t.Errorf("answer %d %q, %v", status, body, err)
			}
			if tc.reason != fault.None {
				wantReason(t, err, tc.reason)
			}
			if n := l.Written(); n == 0 || n >= size {
				t.Errorf("%d bytes written of %d", n, size)
			}
		})
	}
}

// What a peer says to half a request must come soon.
func TestLastWordsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		defer server.Close()
		h := hostAt(t, "http://records.example")
		h.Dial = func(context.Context, string, string) (net.Conn, error) { return deaf{client}, nil }
		start := time.Now()
		_, err := egress.NewLine(h).Do(t.Context(), post(h, "{}"), open)
		wantReason(t, err, fault.WriteFailed)
		if took := time.Since(start); took != 250*time.Millisecond {
			t.Errorf("took %v", took)
		}
	})
}

// deaf takes no byte, and leaves its reader waiting.
type deaf struct{ net.Conn }

func (deaf) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// Written is the length of the request, to the byte, and of the last one only.
// TestSendIsHalfOfDo: Send returns when the request is written, with the peer
// still silent; Answer then reads what Do would have.
func TestSendIsHalfOfDo(t *testing.T) {
	read, speak := make(chan struct{}), make(chan struct{})
	p := listen(t, func(_ int64, c net.Conn, r *bufio.Reader) {
		if take(r) {
			close(read)
			<-speak
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		}
	})
	h := p.host
	l := lineTo(t, h)
	sent, err := l.Send(t.Context(), post(h, "x"), open)
	if err != nil || l.Written() == 0 {
		t.Fatalf("%v after %d bytes", err, l.Written())
	}
	<-read
	close(speak)
	res, err := sent.Answer()
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(res.Body); string(b) != "ok" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := l.Send(t.Context(), post(h, "x"), func() error { return errors.New("shut") }); err == nil || l.Written() != 0 {
		t.Errorf("through a gate that was shut: %v, %d bytes", err, l.Written())
	}
}

// TestHeadLimit: a Host may set it.
func TestHeadLimit(t *testing.T) {
	const first, last = "HTTP/1.1 204 X\r\nX: ", "\r\n\r\n"
	for size, want := range map[int]fault.Reason{2000: fault.None, 2001: fault.ReplyTooLarge} {
		p := listen(t, answering(first+strings.Repeat("x", size-len(first)-len(last))+last))
		h := p.host
		h.HeadLimit = 2000
		_, _, err := exchange(t.Context(), lineTo(t, h), post(h, ""))
		if want == fault.None && err != nil || want != fault.None && fault.ReasonOf(err) != want {
			t.Errorf("%d bytes: %v, want %q", size, err, want)
		}
	}
}

func TestWritten(t *testing.T) {
	var got atomic.Int64
	p := listen(t, func(_ int64, c net.Conn, r *bufio.Reader) {
		counted := &counting{r: r, n: &got}
		for take(bufio.NewReader(counted)) {
			io.WriteString(c, ok)
		}
	})
	l := lineTo(t, p.host)
	for _, size := range []int{0, 1, 5000, 100_000} {
		got.Store(0)
		if _, _, err := exchange(t.Context(), l, post(p.host, strings.Repeat("x", size))); err != nil {
			t.Fatal(err)
		}
		if l.Written() != got.Load() || l.Written() < int64(size) {
			t.Errorf("Written() = %d for a body of %d, the peer got %d", l.Written(), size, got.Load())
		}
	}
	l.Do(t.Context(), post(p.host, "{}"), func() error { return errors.New("shut") })
	if l.Written() != 0 {
		t.Errorf("Written() = %d behind a shut gate", l.Written())
	}
}

// Over TLS the same request counts the same.
func TestWrittenBeforeTLS(t *testing.T) {
	secured, _ := secure(t, 0, 0)
	plain := listen(t, answering(ok)).host
	var written []int64
	for _, h := range []egress.Host{plain, secured} {
		at := h.URL.Host
		h.URL = &url.URL{Scheme: h.URL.Scheme, Host: "example.com"}
		h.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, at)
		}
		l := lineTo(t, h)
		if _, _, err := exchange(t.Context(), l, post(h, strings.Repeat("x", 50_000))); err != nil {
			t.Fatal(err)
		}
		written = append(written, l.Written())
	}
	if written[0] != written[1] {
		t.Errorf("%d bytes plain, %d before TLS", written[0], written[1])
	}
}

type counting struct {
	r io.Reader
	n *atomic.Int64
}

func (c *counting) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// TestContextEndsIt: the context ends an exchange wherever it stands.
func TestContextEndsIt(t *testing.T) {
	hang := func(c net.Conn) { io.Copy(io.Discard, c) }
	for _, tc := range []struct {
		name  string
		serve func(c net.Conn, r *bufio.Reader)
	}{
		{"nothing is read", nil},
		{"no answer", func(c net.Conn, r *bufio.Reader) { hang(c) }},
		{"half a head", func(c net.Conn, r *bufio.Reader) { take(r); io.WriteString(c, "HTTP/1.1 200"); hang(c) }},
		{"half a body", func(c net.Conn, r *bufio.Reader) { take(r); io.WriteString(c, ok[:len(ok)-1]); hang(c) }},
		{"endless body", func(c net.Conn, r *bufio.Reader) {
			take(r)
			io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
			for {
				if _, err := io.WriteString(c, chunk(": still here\n")); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		}},
		{"endless head", func(c net.Conn, r *bufio.Reader) {
			take(r)
			io.WriteString(c, "HTTP/1.1 200 OK\r\nX: ")
			for {
				if _, err := io.WriteString(c, "x"); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		}},
	} {
		for _, end := range []fault.Reason{fault.WallClock, fault.CallerCancelled} {
			if tc.serve == nil && end == fault.WallClock {
				end = fault.BudgetSpent // a pipe takes no byte before it is read
			}
			t.Run(tc.name+" "+string(end), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					const limit = 30 * time.Second
					client, server := net.Pipe()
					if tc.serve != nil {
						go tc.serve(server, bufio.NewReader(server))
					}
					h := hostAt(t, "http://records.example")
					h.Dial = func(context.Context, string, string) (net.Conn, error) { return client, nil }
					ctx, cancel := context.WithTimeout(t.Context(), limit)
					if end == fault.CallerCancelled {
						ctx, cancel = context.WithCancel(t.Context())
						time.AfterFunc(limit, cancel)
					}
					defer cancel()
					l, start := egress.NewLine(h), time.Now()
					_, _, err := exchange(ctx, l, post(h, "{}"))
					wantReason(t, err, end)
					if took := time.Since(start); took != limit {
						t.Errorf("took %v, want %v", took, limit)
					}
					l.Close()
					server.Close()
					time.Sleep(time.Second) // of the bubble: the peer notices
				})
			})
		}
	}
}

// A body that ends as the context does gives no expired connection back.
func TestNoExpiredConnectionIsKept(t *testing.T) {
	p := listen(t, func(_ int64, c net.Conn, r *bufio.Reader) {
		for take(r) {
			io.WriteString(c, ok)
		}
	})
	dials := countDials(&p.host)
	l := lineTo(t, p.host)
	ctx, cancel := context.WithCancel(t.Context())
	res, err := l.Do(ctx, post(p.host, "{}"), open)
	if err != nil {
		t.Fatal(err)
	}
	body := make([]byte, 3)
	if n, err := res.Body.Read(body[:1]); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	cancel() // the rest has been read from the network already
	if _, err := io.ReadAll(res.Body); err != nil {
		t.Fatal(err)
	}
	if _, _, err := exchange(t.Context(), l, post(p.host, "{}")); err != nil {
		t.Errorf("the next exchange: %v", err)
	}
	if *dials != 2 {
		t.Errorf("%d connections, want 2", *dials)
	}
}

// The gate may take long. What it lets through after the deadline is not sent.
func TestDeadlineInTheGate(t *testing.T) {
	var got atomic.Int64
	p := listen(t, func(_ int64, c net.Conn, r *bufio.Reader) {
		if _, err := r.Peek(1); err == nil {
			got.Add(1)
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	l := lineTo(t, p.host)
	_, err := l.Do(ctx, post(p.host, "{}"), func() error { cancel(); return nil })
	wantReason(t, err, fault.CallerCancelled)
	l.Close()
	if got.Load() != 0 || l.Written() != 0 {
		t.Errorf("bytes left: %d", l.Written())
	}
}

// What the kernel holds of a long request when the deadline passes is thrown
// away: the peer sees a reset, not the rest.
func TestNothingLeavesAfterTheDeadline(t *testing.T) {
	late := make(chan bool)
	rest := make(chan error)
	p := listen(t, func(_ int64, c net.Conn, r *bufio.Reader) {
		r.Peek(1)
		late <- true // the request is under way
		<-late       // and was given up
		_, err := io.Copy(io.Discard, r)
		rest <- err
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-late; cancel() }()
	l := lineTo(t, p.host)
	_, _, err := exchange(ctx, l, post(p.host, strings.Repeat("x", 64<<20)))
	wantReason(t, err, fault.CallerCancelled)
	late <- true
	if err := <-rest; err == nil {
		t.Error("the peer read the rest to a proper end")
	}
}

func TestClose(t *testing.T) {
	reading := make(chan bool)
	p := listen(t, func(_ int64, c net.Conn, r *bufio.Reader) {
		take(r)
		close(reading)
		io.Copy(io.Discard, c)
	})
	l := lineTo(t, p.host)
	go func() { <-reading; l.Close() }()
	_, _, err := exchange(t.Context(), l, post(p.host, "{}"))
	wantReason(t, err, fault.ConnectionLost)
	wantReason(t, l.Ready(t.Context()), fault.ConnectFailed)
	if n := p.conns.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}

// Both ways out send to their host only, and send what they were given.
func TestRequestIsRefused(t *testing.T) {
	p := listen(t, answering(ok))
	here := p.host.URL.Host
	for _, tc := range []struct {
		name, url, header, value string
	}{
		{"another scheme", "https://" + here, "", ""},
		{"another port", "http://127.0.0.1:1", "", ""},
		{"another host", "http://127.0.0.2:" + p.host.URL.Port(), "", ""},
		{"user in the URL", "http://me:secret@" + here, "", ""},
		{"line break in a value", "http://" + here, "Authorization", "Bearer a\r\nX: b"},
		{"NUL in a value", "http://" + here, "Authorization", "Bearer a\x00"},
		{"space at the end", "http://" + here, "Authorization", "Bearer a "},
		{"colon in a name", "http://" + here, "A: b", "c"},
		{"no name", "http://" + here, "", "c"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			req, err := http.NewRequest("POST", tc.url, strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			if tc.value != "" {
				req.Header[tc.header] = []string{tc.value}
			}
			_, _, err = exchange(t.Context(), lineTo(t, p.host), req)
			wantReason(t, err, fault.InternalError)
			_, err = egress.NewClient(p.host, 1).Do(req)
			wantReason(t, err, fault.InternalError)
		})
	}
	if p.conns.Load() != 0 {
		t.Error("it was dialled")
	}
}

func TestRequestOnTheWire(t *testing.T) {
	got := make(chan string, 1)
	p := listen(t, func(_ int64, c net.Conn, r *bufio.Reader) {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		got <- fmt.Sprintf("%s %s host=%s encoding=%q", req.Method, req.URL, req.Host, req.Header["Accept-Encoding"])
		io.WriteString(c, ok)
	})
	req := post(p.host, "{}")
	req.Host = "somebody.example"
	before := req.Header.Clone()
	if _, _, err := exchange(t.Context(), lineTo(t, p.host), req); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("POST /mcp host=%s encoding=%q", p.host.URL.Host, []string{"identity"})
	if diff := cmp.Diff(want, <-got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(before, req.Header); diff != "" {
		t.Errorf("the caller's request was changed: %s", diff)
	}
}

// Two lines to one host share nothing: what one actor's connection carries can
// not come back on another's.
func TestLinesShareNothing(t *testing.T) {
	ports := make(chan string, 2)
	p := listen(t, func(_ int64, c net.Conn, r *bufio.Reader) {
		ports <- c.RemoteAddr().String()
		for take(r) {
			io.WriteString(c, ok)
		}
	})
	for range 2 {
		if _, _, err := exchange(t.Context(), lineTo(t, p.host), post(p.host, "{}")); err != nil {
			t.Fatal(err)
		}
	}
	if a, b := <-ports, <-ports; a == b {
		t.Errorf("both came from %s", a)
	}
}

// No error shows what a request carried, or what a peer answered.
func TestErrorsShowNothing(t *testing.T) {
	const token, answer = "canary-bearer-7f3a91c2d4", "canary-of-the-peer-51b0"
	canary.Run(t, func(c *canary.Cage) {
		for _, text := range []string{
			"", answer + "\r\n", "HTTP/1.1 " + answer + "\r\n\r\n", "HTTP/1.1 200 OK\r\n" + answer + "\r\n\r\n",
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: " + answer + "\r\n\r\n",
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + answer + "\r\n",
			"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n" + token,
		} {
			p := listen(t, answering(text))
			req := post(p.host, token)
			req.Header.Set("Authorization", "Bearer "+token)
			_, _, err := exchange(t.Context(), lineTo(t, p.host), req)
			c.Value("line", err)

			req = post(p.host, token)
			req.Header.Set("Authorization", "Bearer "+token)
			res, err := egress.NewClient(p.host, 0).Do(req)
			c.Value("client", err)
			if err == nil {
				_, err = io.ReadAll(res.Body)
				c.Value("client's body", err)
				res.Body.Close()
			}
			if err == nil {
				t.Errorf("%q was taken for an answer", text)
			}
		}
		p := listen(t, answering(ok))
		req := post(p.host, "{}")
		req.Header.Set("Authorization", "Bearer "+token+"\n")
		_, _, err := exchange(t.Context(), lineTo(t, p.host), req)
		c.Value("refused", err)
	}, token, answer)
}
