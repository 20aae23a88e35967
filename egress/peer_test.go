package egress_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"onbehalf.internal/broker/egress"
	"onbehalf.internal/broker/fault"
)

const ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

// A peer is a server that a test scripts connection by connection.
type peer struct {
	host  egress.Host
	conns atomic.Int64
	stop  func() // waits for every connection to end
}

// listen starts a peer. serve gets every connection with its number, from 1,
// and the connection is closed when it returns.
func listen(t testing.TB, serve func(n int64, c net.Conn, r *bufio.Reader)) *peer {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{host: hostAt(t, "http://"+ln.Addr().String())}
	var open sync.WaitGroup
	over := make(chan bool)
	open.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			n := p.conns.Add(1)
			go func() { <-over; c.Close() }()
			open.Go(func() {
				defer c.Close()
				serve(n, c, bufio.NewReader(c))
			})
		}
	})
	p.stop = func() { ln.Close(); open.Wait() }
	t.Cleanup(func() { close(over); p.stop() })
	return p
}

// answering is a serve that reads one request and sends text.
func answering(text string) func(int64, net.Conn, *bufio.Reader) {
	return func(_ int64, c net.Conn, r *bufio.Reader) {
		if take(r) {
			io.WriteString(c, text)
		}
	}
}

// take reads one request with its body.
func take(r *bufio.Reader) bool {
	req, err := http.ReadRequest(r)
	if err != nil {
		return false
	}
	_, err = io.Copy(io.Discard, req.Body)
	return err == nil
}

// hostAt allows loopback, where every test server listens.
func hostAt(t testing.TB, address string) egress.Host {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return egress.Host{URL: u, AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
}

func lineTo(t testing.TB, h egress.Host) *egress.Line {
	l := egress.NewLine(h)
	t.Cleanup(func() { l.Close() })
	return l
}

func post(h egress.Host, body string) *http.Request {
	req, err := http.NewRequest("POST", h.URL.String()+"/mcp", strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	return req
}

func open() error { return nil }

// exchange does req on l and reads the answer to its end.
func exchange(ctx context.Context, l *egress.Line, req *http.Request) (status int, body string, err error) {
	res, err := l.Do(ctx, req, open)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return res.StatusCode, string(b), err
}

func wantReason(t *testing.T, err error, want fault.Reason) {
	t.Helper()
	if err == nil || fault.ReasonOf(err) != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

// resolver answers every question for an IPv4 address with what next returns,
// and has no IPv6 addresses.
func resolver(next func() netip.Addr) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go func() {
			defer server.Close()
			for {
				var size [2]byte // a pipe is a stream: RFC 1035 §4.2.2
				if _, err := io.ReadFull(server, size[:]); err != nil {
					return
				}
				query := make([]byte, binary.BigEndian.Uint16(size[:]))
				if _, err := io.ReadFull(server, query); err != nil {
					return
				}
				reply := dnsReply(query, next)
				server.Write(binary.BigEndian.AppendUint16(nil, uint16(len(reply))))
				server.Write(reply)
			}
		}()
		return client, nil
	}}
}

// dnsReply answers query (RFC 1035 §4.1). It counts on one question.
func dnsReply(query []byte, next func() netip.Addr) []byte {
	end := 12
	for query[end] != 0 {
		end += int(query[end]) + 1
	}
	question := query[12 : end+5]
	isA := question[len(question)-3] == 1 // QTYPE A
	answers := byte(0)
	if isA {
		answers = 1
	}
	reply := append([]byte{query[0], query[1], 0x81, 0x80, 0, 1, 0, answers, 0, 0, 0, 0}, question...)
	if isA {
		addr := next().As4()
		reply = append(reply, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4)
		reply = append(reply, addr[:]...)
	}
	return reply
}

func chunk(s string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(s), s) }

// countDials makes h count its connections.
func countDials(h *egress.Host) *int {
	n := new(int)
	h.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		*n++
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	return n
}
