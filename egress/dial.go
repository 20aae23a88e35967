package egress

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"onbehalf.internal/broker/fault"
)

// connectLimit bounds connecting and the TLS handshake together, where the
// context allows more or has no end.
const connectLimit = 10 * time.Second

// dial connects to h: through the gate, then TLS where h asks for it. conn is
// what to speak on; plain lies under it.
func (h Host) dial(ctx context.Context) (plain *tap, conn net.Conn, err error) {
	bounded, cancel := context.WithTimeout(ctx, connectLimit)
	defer cancel()
	c, err := h.connect(bounded)
	if err != nil {
		return nil, nil, h.dialFailed(ctx, err)
	}
	plain = &tap{Conn: c}
	if h.URL.Scheme != "https" {
		return plain, plain, nil
	}
	conf := &tls.Config{
		ServerName:         cmp.Or(h.ServerName, h.URL.Hostname()),
		RootCAs:            h.CA,
		ClientSessionCache: h.Sessions,
		MinVersion:         tls.VersionTLS12,
		NextProtos:         []string{"http/1.1"},
	}
	if h.Certificate != nil {
		conf.Certificates = []tls.Certificate{*h.Certificate}
		conf.ClientSessionCache = nil // a ticket would stand for the certificate, on connections that must not show it too
	}
	secure := tls.Client(plain, conf)
	if err := secure.HandshakeContext(bounded); err != nil {
		c.Close()
		return nil, nil, h.handshakeFailed(ctx, err)
	}
	return plain, secure, nil
}

func (h Host) connect(ctx context.Context) (net.Conn, error) {
	if h.Dial != nil {
		return h.Dial(ctx, "tcp", address(h.URL))
	}
	d := net.Dialer{Resolver: h.Resolver, ControlContext: h.gate}
	return d.DialContext(ctx, "tcp", address(h.URL))
}

// gate judges one address, right before the system call that connects to it.
func (h Host) gate(_ context.Context, _, addr string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(addr)
	switch {
	case err != nil || !h.Allows(to.Addr()):
		return h.refused("%q leads to a special-purpose address that its declaration does not allow")
	case h.URL.Scheme != "https" && !to.Addr().Unmap().IsLoopback():
		return h.refused("%q is to be reached without TLS, and is not on this machine")
	}
	return nil
}

func (h Host) refused(format string) error {
	return fault.New("egress.dial", fault.HostRefused, fmt.Sprintf(format, h.URL.Host))
}

func (h Host) dialFailed(ctx context.Context, err error) error {
	const op = "egress.dial"
	if e, ok := errors.AsType[*fault.Error](err); ok {
		return e
	}
	if reason := unsent(ctx); reason != fault.None {
		return fault.New(op, reason, fmt.Sprintf("while connecting to %q", h.URL.Host))
	}
	detail := "%q cannot be reached"
	if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() {
		detail = "%q does not answer"
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		detail = "nothing listens at %q"
	}
	if e, ok := errors.AsType[*net.DNSError](err); ok && e.IsNotFound {
		detail = "the name in %q does not exist"
	}
	return fault.New(op, fault.ConnectFailed, fmt.Sprintf(detail, h.URL.Host))
}

func (h Host) handshakeFailed(ctx context.Context, err error) error {
	const op = "egress.dial"
	if reason := unsent(ctx); reason != fault.None {
		return fault.New(op, reason, fmt.Sprintf("in the TLS handshake with %q", h.URL.Host))
	}
	detail := "no TLS 1.2 or newer with %q"
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		detail = "the certificate of %q is not valid"
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		detail = "the certificate of %q is of an authority that we do not trust"
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		detail = "the certificate of %q is for another name"
	}
	return fault.New(op, fault.TLSFailed, fmt.Sprintf(detail, h.URL.Host))
}

// unsent names the end of ctx where no byte has left, or None.
func unsent(ctx context.Context) fault.Reason { return fault.Ended(ctx, fault.BudgetSpent) }

// sent names the end of ctx where bytes have left, or None.
func sent(ctx context.Context) fault.Reason { return fault.Ended(ctx, fault.WallClock) }
