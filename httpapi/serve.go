package httpapi

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"golang.org/x/net/netutil"
)

// maxConnections bounds what a listener accepts at once.
const maxConnections = 4096

// Listen opens "host:port" or "unix:/path". A socket file is for its owner
// alone; one that a dead process left is replaced, a live one is an error.
func Listen(address string) (net.Listener, error) {
	path, unix := strings.CutPrefix(address, "unix:")
	if !unix {
		l, err := net.Listen("tcp", address)
		if err != nil {
			return nil, fmt.Errorf("listening on %q: the address is taken or not ours", address)
		}
		return netutil.LimitListener(l, maxConnections), nil
	}
	if c, err := net.DialTimeout("unix", path, time.Second); err == nil {
		c.Close()
		return nil, fmt.Errorf("listening on %q: another process serves this socket", path)
	}
	if st, err := os.Lstat(path); err == nil && st.Mode()&os.ModeSocket != 0 {
		os.Remove(path)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listening on %q: the folder must exist and be ours", path)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		return nil, fmt.Errorf("listening on %q: the socket's mode cannot be set", path)
	}
	return netutil.LimitListener(l, maxConnections), nil
}

// NewServer returns the HTTP server: HTTP/1.1 alone, every read bounded, and
// writes bounded by the longest operation that can be asked for.
func NewServer(h http.Handler) *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	return &http.Server{
		Handler:           h,
		Protocols:         &protocols,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       15 * time.Second,
		WriteTimeout:      maxTimeout + answerSlack,
		IdleTimeout:       60 * time.Second,
		MaxHeaderBytes:    16 << 10,
		// What net/http says of a bad request quotes the request.
		ErrorLog: log.New(io.Discard, "", 0),
	}
}
