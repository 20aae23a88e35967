// Package egress is how bytes leave the process. It is the only place that
// makes an HTTP client or dials.
//
// A [Line] is one operation's own connection, for the requests that carry an
// actor's token: every byte on it is counted, and a gate stands before the
// first. [NewClient] makes a pooled client for the broker's own infrastructure
// and for identity providers.
//
// What always holds, for both:
//
//   - A request goes to the scheme, host and port of its [Host], or nowhere.
//     No redirect is followed and no proxy is used.
//   - Every address is judged when it is dialled, after the name was resolved
//     (see [Host.Allows]). There is no second look-up in between.
//   - No request is ever sent twice.
//   - HTTP/1.1, TLS 1.2 or newer. Nothing is decompressed. The head of an answer
//     is bounded by its Host. The size of a body is the reader's to limit.
//   - An error is a [fault.Error] and holds no text of a peer or a library.
//     [http.Client] puts it into a [url.Error], with method and URL.
//
// The package does not know what it carries: no status, no content type and no
// Content-Encoding is judged here.
package egress

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"onbehalf.internal/broker/fault"
)

// defaultHead is how many bytes the head of an answer may have, with all interim
// (1xx) answers before it, where a Host does not say.
const defaultHead = 64 << 10

// A Host is where bytes may go: one scheme, host and port from the operator's
// declaration.
type Host struct {
	URL         *url.URL               // https; http only where the connected address is loopback and allowed
	AllowCIDRs  []netip.Prefix         // special-purpose addresses this declaration allows
	AnyAddress  bool                   // the operator's own infrastructure (Vault): no address is refused
	CA          *x509.CertPool         // nil: the system's
	ServerName  string                 // what the handshake asks for and the certificate must name; empty: URL's host
	Certificate *tls.Certificate       // ours, shown to a peer that asks for one; nil: none
	Sessions    tls.ClientSessionCache // nil: no TLS session resumption; none either with a Certificate
	HeadLimit   int                    // bytes that the head of an answer may have, with all interim (1xx) answers before it; 0: 64 KiB

	Resolver *net.Resolver // nil: the system's

	// Dial is for what is no network, a Unix socket or a test, and takes the place of
	// the whole gate: no address is judged. nil: the network, through the gate.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// outgoing returns req as it may leave: to h, asking for no compression and
// with nothing that would let it be repeated. req itself is not changed.
func (h Host) outgoing(ctx context.Context, op string, req *http.Request) (*http.Request, error) {
	if req.URL.User != nil || req.URL.Scheme != h.URL.Scheme || address(req.URL) != address(h.URL) {
		return nil, fault.New(op, fault.InternalError, fmt.Sprintf("a request for %q on the way to %q", req.URL.Host, h.URL.Host))
	}
	if name, ok := unsendable(req.Header); ok {
		return nil, fault.New(op, fault.InternalError, fmt.Sprintf("header %q cannot be sent as it is", name))
	}
	out := req.WithContext(ctx)
	out.Header = make(http.Header, len(req.Header)+1)
	maps.Copy(out.Header, req.Header)
	out.Header.Set("Accept-Encoding", "identity")
	out.Host = "" // the Host header is URL.Host
	out.GetBody = nil
	return out, nil
}

func (h Host) headLimit() int { return cmp.Or(h.HeadLimit, defaultHead) }

// address returns host:port as it is dialled.
func address(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

// unsendable names a header that net/http would change or leave out in silence
// (RFC 9110 §5.5, §5.6.2): a token with a line break must not go out mended.
func unsendable(h http.Header) (name string, found bool) {
	control := func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }
	foreign := func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("!#$%&'*+-.^_`|~", r))
	}
	for name, values := range h {
		if name == "" || strings.ContainsFunc(name, foreign) {
			return name, true
		}
		for _, v := range values {
			if strings.ContainsFunc(v, control) || strings.TrimSpace(v) != v {
				return name, true
			}
		}
	}
	return "", false
}
