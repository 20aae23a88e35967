package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"onbehalf.internal/broker/egress"
	"onbehalf.internal/broker/secret"
)

const maxAnswer = 8 << 20

// client speaks to a running broker.
type client struct {
	address   string // "http://127.0.0.1:8471" or "unix:/path"
	bearer    secret.Text
	actor     string      // asserted
	assertion secret.Text // or signed
	approver  secret.Text // who decides
}

// clientFlags are the flags that every command of a client has.
type clientFlags struct{ address, bearerFile, actor, assertionFile, approverFile string }

func (f *clientFlags) bind(cmd *cobra.Command) {
	f.bindCaller(cmd)
	cmd.Flags().StringVar(&f.actor, "actor", "", "on whose behalf, where this caller may assert it")
	cmd.Flags().StringVar(&f.assertionFile, "assertion-file", "", "file with a signed assertion of the actor")
}

// bindCaller has the flags of a command that acts for nobody.
func (f *clientFlags) bindCaller(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.address, "api", "", `the broker, "http://127.0.0.1:8471" or "unix:/run/broker/api.sock" (default: $BROKER_API, else the first)`)
	cmd.Flags().StringVar(&f.bearerFile, "bearer-file", "", "file with this caller's bearer (default: $BROKER_BEARER_FILE)")
}

func (f *clientFlags) client(w world) (*client, error) {
	c := &client{address: first(f.address, w.getenv("BROKER_API"), "http://127.0.0.1:8471"), actor: f.actor}
	path := first(f.bearerFile, w.getenv("BROKER_BEARER_FILE"))
	if path == "" {
		return nil, errors.New("no bearer: name its file with --bearer-file or $BROKER_BEARER_FILE")
	}
	var err error
	if c.bearer, err = readLine(path); err != nil {
		return nil, err
	}
	if f.assertionFile != "" {
		c.assertion, err = readLine(f.assertionFile)
	}
	if f.approverFile != "" && err == nil {
		c.approver, err = readLine(f.approverFile)
	}
	return c, err
}

func first(words ...string) string {
	for _, word := range words {
		if word != "" {
			return word
		}
	}
	return ""
}

func readLine(path string) (secret.Text, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return secret.Text{}, fmt.Errorf("reading %q: not there or not readable", path)
	}
	line := strings.TrimSpace(string(raw))
	if line == "" || strings.ContainsFunc(line, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return secret.Text{}, fmt.Errorf("reading %q: it must hold one line without blanks, and nothing else", path)
	}
	return secret.New(line), nil
}

// send makes one request.
func (c *client) send(ctx context.Context, method, path string, body []byte, accept string) (*http.Response, error) {
	base, host, err := c.host()
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, method, base+path, strings.NewReader(string(body)))
	if err != nil {
		return nil, fmt.Errorf("the address %q cannot be used", c.address)
	}
	req.Header.Set("Accept", accept)
	if !c.bearer.IsZero() {
		req.Header.Set("Authorization", "Bearer "+c.bearer.Reveal())
	}
	if c.actor != "" {
		req.Header.Set("Broker-Actor", c.actor)
	}
	if !c.assertion.IsZero() {
		req.Header.Set("Broker-Actor-Assertion", c.assertion.Reveal())
	}
	if !c.approver.IsZero() {
		req.Header.Set("Broker-Approver-Assertion", c.approver.Reveal())
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := egress.NewClient(host, 0).Do(req)
	if err != nil {
		return nil, fmt.Errorf("no answer from the broker at %q; is it running?", c.address)
	}
	return res, nil
}

// do makes one request and returns the answer's status and body.
func (c *client) do(ctx context.Context, method, path string, body []byte) (int, []byte, error) {
	res, answer, err := c.whole(ctx, method, path, body)
	if err != nil {
		return 0, nil, err
	}
	return res.StatusCode, answer, nil
}

// whole is do for who looks at the head of the answer, too.
func (c *client) whole(ctx context.Context, method, path string, body []byte) (*http.Response, []byte, error) {
	res, err := c.send(ctx, method, path, body, "application/json")
	if err != nil {
		return nil, nil, err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return nil, nil, fmt.Errorf("the answer of the broker at %q broke off; look with `broker operations get --key`", c.address)
	}
	return res, answer, nil
}

// host says where to dial. Plain http is for loopback and sockets alone, which
// egress holds.
func (c *client) host() (base string, h egress.Host, err error) {
	if path, ok := strings.CutPrefix(c.address, "unix:"); ok {
		u := &url.URL{Scheme: "http", Host: "localhost"}
		dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}
		return u.String(), egress.Host{URL: u, Dial: dial}, nil
	}
	u, err := url.Parse(c.address)
	if err != nil || u.Host == "" {
		return "", egress.Host{}, fmt.Errorf(`--api %q: write it as "http://127.0.0.1:8471" or "unix:/path"`, c.address)
	}
	return strings.TrimSuffix(c.address, "/"), egress.Host{URL: u, AnyAddress: true}, nil
}
