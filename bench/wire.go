package main

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"

	"onbehalf.internal/broker/brokertest"
)

// counts says how many requests of a kind there were.
type counts map[string]int

// A counter is a proxy before Vault that counts by method and path.
type counter struct {
	address string
	server  *http.Server

	mu   sync.Mutex
	seen counts
}

func startCounter(vaultAddress string) (*counter, error) {
	target, err := url.Parse(vaultAddress)
	if err != nil {
		return nil, err
	}
	address, err := freePort()
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	c := &counter{address: "http://" + address, seen: counts{}}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	c.server = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.count(r)
		proxy.ServeHTTP(w, r)
	})}
	go c.server.Serve(listener)
	return c, nil
}

func (c *counter) close() { c.server.Close() }

// count notes r. What is not of an operation, such as a new epoch every 30
// seconds, is not counted; it comes whether or not there are operations.
func (c *counter) count(r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, "/v1/")
	switch {
	case strings.HasPrefix(path, "cubbyhole/op/"):
		path = "cubbyhole/op/…"
	case strings.HasPrefix(path, "auth/token/"):
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen["vault "+r.Method+" "+path]++
}

// A wire is a rig whose requests can be counted.
type wire struct {
	vault *counter
	rig   *brokertest.Rig
}

// state is what was seen so far, by server.
func (w wire) state() counts {
	w.vault.mu.Lock()
	seen := maps.Clone(w.vault.seen)
	w.vault.mu.Unlock()
	for _, r := range w.rig.Provider.Requests() {
		seen["provider "+r.Method+" "+r.Path]++
	}
	for _, server := range []string{"records", "archive"} {
		requests := w.rig.Records.Requests()
		if server == "archive" {
			requests = w.rig.Archive.Requests()
		}
		for _, r := range requests {
			seen[server+" "+strings.TrimSpace(r.HTTPMethod+" "+r.Method)]++
		}
	}
	return seen
}

// of counts what n operations make.
func (w wire) of(ctx context.Context, n int, operation func(context.Context) error) (counts, error) {
	before := w.state()
	for range n {
		if err := operation(ctx); err != nil {
			return nil, err
		}
	}
	made := w.state()
	for kind := range made {
		if made[kind] -= before[kind]; made[kind] == 0 {
			delete(made, kind)
		}
	}
	return made, nil
}

// wires is what one operation of an era makes.
type wires struct {
	Era    string `json:"era"`
	First  counts `json:"broker_first"` // on first contact
	Broker counts `json:"broker"`
	Floor  counts `json:"floor"`
}

// countWires counts the requests of the first operation of an era, of one more,
// and of one of the floor. It fails where ten operations do not make ten times
// what one makes, and where broker and floor differ.
func (w wire) countWires(ctx context.Context, f *floor, era string) (got wires, err error) {
	got.Era = era
	g := newGateway(w.rig, era)
	defer g.close()
	operations := map[*counts]func(context.Context) error{&got.Broker: g.operation, &got.Floor: f.operation}
	if got.First, err = w.of(ctx, 1, g.operation); err != nil {
		return got, err
	}
	for into, operation := range operations {
		if *into, err = w.of(ctx, 1, operation); err != nil {
			return got, err
		}
		ten, err := w.of(ctx, 10, operation)
		if err != nil {
			return got, err
		}
		for kind := range ten {
			if ten[kind] != 10*(*into)[kind] {
				return got, fmt.Errorf("%s: ten operations make %d of %q, one made %d", era, ten[kind], kind, (*into)[kind])
			}
		}
	}
	if !maps.Equal(got.Broker, got.Floor) {
		return got, fmt.Errorf("%s: the broker makes %v, the floor %v", era, got.Broker, got.Floor)
	}
	return got, nil
}
