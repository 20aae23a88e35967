// Package client is how a Go program calls tools through a running broker.
//
//	c, err := client.New(client.Config{Address: "http://127.0.0.1:8471", Bearer: bearer})
//	res, err := c.Run(ctx, client.Call{Actor: "user:7", Server: "records", Tool: "search", Arguments: args})
//
// An error of [Client.Run] is an [*Error]: its Operation, where there is one, says how
// the call stands in the words of docs/outcomes.md, which package fault has as constants.
//
// What always holds:
//
//   - A call has its request key before the first byte leaves, and keeps it for every
//     try: whatever is repeated here, or by something between, runs once.
//   - Run sends a key again where the broker's answer proves that nothing ran or was
//     begun, or where no connection came about. Where nobody knows whether the key was
//     taken up it asks by the key first. Everything else it tells, and does not repeat.
//   - err == nil means that the tool answered and the answer is in Result.
//   - An answer is believed if it reads as the broker's own, about the key or id that was
//     asked for. What something between answers says nothing.
//   - No request goes anywhere but to the configured address; no redirect is followed, and
//     each one has an end. A body has a limit. No secret is in an error.
//
// The package does not cancel what it gives up: an operation goes on without its caller,
// and [Client.ByKey] finds it.
package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"onbehalf.internal/broker/egress"
)

// Config says where the broker is and who is calling. Address and Bearer are needed;
// the zero value of everything else works.
type Config struct {
	Address string // "http://127.0.0.1:8471" or "unix:/run/broker/api.sock"

	// Bearer returns this caller's bearer, for each request anew: it may be rotated.
	Bearer func(context.Context) (string, error)

	// Assertion signs that this caller acts for actor, for each request anew. nil: the
	// actor is asserted by name.
	Assertion func(ctx context.Context, actor string) (string, error)

	Tries     int   // how often one thing is tried; 0: 8 times, which takes some 12 s
	MaxAnswer int64 // bytes of an answer; 0: 8 MiB

	// Dial reaches what is no network, such as a test's broker. nil: Address.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// A Client is safe for concurrent use, and has nothing to close: every request has a
// connection of its own, which no other actor's request was on.
type Client struct {
	conf Config
	base string
	http *http.Client
}

// New returns a Client. It asks nothing of the broker.
func New(conf Config) (*Client, error) {
	conf.Tries, conf.MaxAnswer = cmp.Or(conf.Tries, 8), cmp.Or(conf.MaxAnswer, 8<<20)
	if conf.Bearer == nil {
		return nil, errors.New("client: Config.Bearer is missing")
	}
	if path, ok := strings.CutPrefix(conf.Address, "unix:"); ok {
		conf.Address = "http://localhost"
		conf.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}
	}
	u, err := url.Parse(conf.Address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || strings.TrimSuffix(u.Path, "/") != "" {
		return nil, fmt.Errorf(`client: address %q: write it as "http://127.0.0.1:8471" or "unix:/path"`, conf.Address)
	}
	host := egress.Host{URL: u, AnyAddress: true, Dial: conf.Dial}
	return &Client{conf: conf, base: strings.TrimSuffix(conf.Address, "/"), http: egress.NewClient(host, 0)}, nil
}

// pause waits before try n+1, at least as long as the broker asked for. It is false
// when ctx ends first.
func pause(ctx context.Context, n int, atLeast time.Duration) bool {
	t := time.NewTimer(max(min(firstPause<<min(n, 8), longestPause), min(atLeast, longestPause)))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

const (
	firstPause   = 100 * time.Millisecond
	longestPause = 5 * time.Second
)
