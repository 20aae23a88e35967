package testhttp

import (
	"context"
	"net"
	"net/http"
	"sync"
	"testing"
)

// Pipes is where a server is whose connections are pipes within the process: no network,
// so that the clock of a synctest bubble moves only when both sides wait.
type Pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// OnPipes serves h until the test ends. In a bubble, call it there.
func OnPipes(t testing.TB, h http.Handler) *Pipes { return OnServer(t, &http.Server{Handler: h}) }

// OnServer is OnPipes for a server with limits of its own.
func OnServer(t testing.TB, s *http.Server) *Pipes {
	p := &Pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	over := make(chan struct{})
	go func() { s.Serve(p); close(over) }()
	t.Cleanup(func() { s.Close(); <-over })
	return p
}

// Dial connects to the server, whatever address is asked for.
func (p *Pipes) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.conns <- theirs:
		return ours, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept, Close and Addr make it a [net.Listener].
func (p *Pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *Pipes) Close() error { p.once.Do(func() { close(p.closed) }); return nil }

func (p *Pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }
