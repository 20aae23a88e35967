package httpapi

import (
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"slices"
	"strings"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/process"
)

// maxOperationBody is what a tool's arguments may weigh, envelope included.
const maxOperationBody = 256 << 10

// guard stands before the router: hosts, browsers, panics. A panic leaves its
// type and our own frame in the log, never its value.
func (a *API) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if p := recover(); p != nil {
				process.LogPanic(a.Log, p)
				a.problem(fault.New("httpapi.guard", fault.InternalError, "")).write(r.Context(), w)
			}
		}()
		switch {
		case len(a.Hosts) > 0 && !slices.Contains(a.Hosts, r.Host):
			a.problem(fault.New("httpapi.guard", fault.HostNotAllowed, "the Host header must be the address this broker listens on")).write(r.Context(), w)
		case r.Header.Get("Origin") != "":
			a.problem(fault.New("httpapi.guard", fault.HostNotAllowed, "browsers may not call this API")).write(r.Context(), w)
		case r.Method == http.MethodOptions: // echo would answer it for anybody
			a.unrouted(w, r, fault.MethodNotAllowed)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// readBody reads at most limit bytes of exactly one JSON document's media type.
func readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	const op = "httpapi.readBody"
	if limit == 0 {
		if r.ContentLength != 0 {
			return nil, fault.New(op, fault.MalformedRequest, "this address takes no body")
		}
		return nil, nil
	}
	media := r.Header.Values("Content-Type")
	kind, params, err := mime.ParseMediaType(strings.Join(media, ","))
	charset, hasCharset := params["charset"]
	switch {
	case r.URL.RawQuery != "":
		return nil, fault.New(op, fault.MalformedRequest, "this address takes no query")
	case len(media) != 1 || err != nil || kind != "application/json" || hasCharset && !strings.EqualFold(charset, "utf-8"):
		return nil, fault.New(op, fault.UnsupportedMedia, "Content-Type must be application/json")
	case r.Header.Get("Content-Encoding") != "":
		return nil, fault.New(op, fault.UnsupportedMedia, "a body with a Content-Encoding is not read")
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if tooLarge(err) {
		return nil, fault.New(op, fault.RequestTooLarge, fmt.Sprintf("a request to this address is at most %d KiB", limit>>10))
	}
	if err != nil {
		return nil, fault.New(op, fault.MalformedRequest, "the body did not arrive whole")
	}
	return body, nil
}

// LoopbackHosts are the Host headers of a listener on a loopback address.
func LoopbackHosts(addr net.Addr) []string {
	_, port, err := net.SplitHostPort(addr.String())
	if err != nil {
		return nil
	}
	return []string{"127.0.0.1:" + port, "localhost:" + port, "[::1]:" + port}
}
