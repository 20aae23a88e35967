package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	"onbehalf.internal/broker/fault"
)

// NewClient returns a client that reaches h and nothing else. idle is how many
// idle connections it may keep; 0 gives every request a connection of its own.
// At most 4*idle connections are open at a time; without idle ones there is no
// bound. It has no time limit of its own: every request brings a context.
//
// A redirect is an answer like any other, but without its Location: nobody may
// follow it, and http.Client would put one that it cannot parse into an error.
//
// Its errors hold a *fault.Error: internal_error for a request that may not
// leave like this, the reasons of [Line.Ready] where the connection did not
// come about, connection_lost, wall_clock and caller_cancelled otherwise, and
// without idle connections those of [Line.Do]. They do not say whether bytes
// have left; a [Line] does.
func NewClient(h Host, idle int) *http.Client {
	return &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport:     transport(h, idle),
	}
}

// transport keeps connections, or uses a [Line] for each request: what is sent
// once on a connection of its own needs no pool.
func transport(h Host, idle int) http.RoundTripper {
	if idle == 0 {
		return single{h}
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		_, conn, err := h.dial(ctx)
		return conn, err
	}
	var http1 http.Protocols
	http1.SetHTTP1(true)
	return &client{host: h, transport: &http.Transport{
		Proxy:                  nil, // the environment's proxy would see every request, and hide its address from the gate
		DialContext:            dial,
		DialTLSContext:         dial,
		Protocols:              &http1,
		DisableCompression:     true,
		MaxResponseHeaderBytes: int64(h.headLimit()),
		MaxIdleConnsPerHost:    idle,
		MaxConnsPerHost:        4 * idle,
	}}
}

// A single gives every request a Line, which ends with the answer's body.
type single struct{ host Host }

func (s single) RoundTrip(req *http.Request) (*http.Response, error) {
	l := NewLine(s.host)
	res, err := l.Do(req.Context(), req, func() error { return nil })
	if err != nil {
		l.Close()
		return nil, err
	}
	if res.StatusCode/100 == 3 {
		res.Header.Del("Location")
	}
	res.Body = lineBody{res.Body, l}
	return res, nil
}

type lineBody struct {
	io.ReadCloser
	line *Line
}

func (b lineBody) Close() error {
	b.ReadCloser.Close()
	return b.line.Close()
}

const opClient = "egress.Client"

// A client keeps an http.Transport to one host, and from repeating requests.
type client struct {
	host      Host
	transport *http.Transport
}

func (c *client) RoundTrip(req *http.Request) (*http.Response, error) {
	out, err := c.host.outgoing(req.Context(), opClient, req)
	if err == nil {
		err = once(out)
	}
	if err != nil {
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, err
	}
	res, err := c.transport.RoundTrip(out)
	if err != nil {
		return nil, failed(req.Context(), err)
	}
	if res.StatusCode/100 == 3 {
		res.Header.Del("Location")
	}
	res.Body = &answer{res.Body, req.Context()}
	return res, nil
}

// CloseIdleConnections lets http.Client.CloseIdleConnections through.
func (c *client) CloseIdleConnections() { c.transport.CloseIdleConnections() }

// once makes req one that a Transport does not repeat when a kept connection
// turns out to be closed. Without a body it repeats what it takes for harmless,
// and reading a credential from Vault can issue one: an empty body that cannot
// be rewound prevents that.
func once(req *http.Request) error {
	if req.Body != nil && req.Body != http.NoBody {
		return nil
	}
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions:
		req.Body = io.NopCloser(strings.NewReader(""))
		return nil
	}
	for _, name := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
		if _, ok := req.Header[name]; ok {
			return fault.New(opClient, fault.InternalError, fmt.Sprintf("header %q on a request without a body", name))
		}
	}
	return nil
}

func failed(ctx context.Context, err error) error {
	if e, ok := errors.AsType[*fault.Error](err); ok {
		return e
	}
	if reason := sent(ctx); reason != fault.None {
		return fault.New(opClient, reason, "")
	}
	return fault.New(opClient, fault.ConnectionLost, "")
}

// An answer is a body whose errors are ours.
type answer struct {
	io.ReadCloser
	ctx context.Context
}

func (a *answer) Read(p []byte) (int, error) {
	n, err := a.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = failed(a.ctx, err)
	}
	return n, err
}
