// Program driver is what the protocol's conformance suite starts as "the
// client", once for each scenario:
//
//	driver <server URL>
//
// It lists the server's tools and calls each of them with package mcpclient,
// the client of the product, in one conversation. If the suite names the calls
// itself (MCP_CONFORMANCE_CONTEXT), it makes those. It speaks
// MCP_CONFORMANCE_PROTOCOL_VERSION, or by handshake if that is unset.
//
// It comes without a credential, but where the scenario is one of operator.go:
// there it writes a configuration as an operator would, and package exchange
// gets the token by a decision of package policy.
//
// What always holds:
//
//   - It decides what to call, never how: it knows tools and profiles, not headers
//     or bodies.
//   - It prints "as it should" and ends with status 0 only if the list and every
//     call ended in the way that tools.go says. The suite does not look at the
//     status when it runs many scenarios; ../tally looks for the words.
//
// It does not judge what was sent. That is what the suite is for.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/mcpclient"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/secret"
	"onbehalf.internal/broker/strictjson"
)

const (
	budget = 25 * time.Second // the suite kills us after 30
	idle   = 3 * time.Second  // one tool of the suite stays silent until somebody gives up
)

// loopback is where the suite's servers listen.
var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), budget)
	defer cancel()
	if err := run(ctx, os.Args[1:], os.Getenv, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "driver:", err)
		os.Exit(1)
	}
}

// run is the whole program; main only binds it to this process.
func run(ctx context.Context, args []string, getenv func(string) string, out io.Writer) error {
	if len(args) != 1 {
		return errors.New("usage: driver <server URL>")
	}
	s, err := declare(args[0], getenv("MCP_CONFORMANCE_PROTOCOL_VERSION"))
	if err != nil {
		return err
	}
	scenario, asked := getenv("MCP_CONFORMANCE_SCENARIO"), getenv("MCP_CONFORMANCE_CONTEXT")
	p, profile := play{gate: gate(mcpclient.Credential{}), out: out}, profiles[scenario]
	if profile != "" {
		var token secret.Text
		if s, token, err = authorize(ctx, s, profile, asked); err != nil {
			return err
		}
		p.gate = gate(mcpclient.Credential{Header: "Authorization", Value: token})
	}
	p.talk = mcpclient.New(mcpclient.Config{Name: "broker-conformance", Version: "1"}).Open(s)
	defer p.talk.Close()

	if strings.HasPrefix(scenario, "auth/") && profile == "" {
		_, err = p.list(ctx, fault.Unauthorized) // we come without a credential
	} else {
		err = p.listAndCall(ctx, asked)
	}
	p.leave(ctx)
	if err == nil {
		_, err = fmt.Fprintln(out, "as it should")
	}
	return err
}

// declare is the server as an operator would declare it.
func declare(address, version string) (*policy.Server, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, errors.New("the server URL is not a URL")
	}
	s := &policy.Server{ID: "suite", URL: u, Era: policy.EraLegacy, AllowCIDRs: loopback}
	if version != "" {
		s.Era, s.Versions = policy.EraAuto, []string{version}
	}
	return s, nil
}

// A play is one conversation and what is told of it.
type play struct {
	talk *mcpclient.Conversation
	gate mcpclient.Gate
	out  io.Writer
}

func (p play) listAndCall(ctx context.Context, asked string) error {
	listing, err := p.list(ctx, fault.None)
	if err != nil {
		return err
	}
	calls, err := choose(listing.Tools, asked)
	if err != nil {
		return err
	}
	for _, call := range calls {
		if err := p.call(ctx, call, endings[call.Tool]); err != nil {
			return err
		}
	}
	return nil
}

// list lists, which must end with cause.
func (p play) list(ctx context.Context, cause fault.Reason) (mcpclient.Listing, error) {
	listing, rep := p.talk.ListTools(ctx, p.gate, nil)
	return listing, p.judge("tools/list", rep, cause)
}

// call calls a tool, which must end with cause. It asks for progress, so that
// the suite sees how we do that.
func (p play) call(ctx context.Context, call mcpclient.Call, cause fault.Reason) error {
	call.Idle, call.Progress = idle, func(mcpclient.Progress) {}
	rep := p.talk.CallTool(ctx, call, p.gate)
	return p.judge(fmt.Sprintf("tools/call %q", call.Tool), rep, cause)
}

// leave tells a server of the handshake that we go. It may not want to hear it
// (405, say), so nothing is judged.
func (p play) leave(ctx context.Context) {
	for _, leg := range p.talk.Farewell(ctx, p.gate)() {
		fmt.Fprintf(p.out, "%s: %s\n", leg.Name, leg.Reason)
	}
}

func (p play) judge(what string, rep mcpclient.Report, cause fault.Reason) error {
	fmt.Fprintf(p.out, "%s: %s %s\n", what, rep.Outcome.State, rep.Outcome.Cause)
	if rep.Outcome.Cause != cause {
		return fmt.Errorf("%s ended %s with cause %q, want %q", what, rep.Outcome.State, rep.Outcome.Cause, cause)
	}
	return nil
}

// gate lets everything pass, with that credential; the zero one is anonymous.
func gate(c mcpclient.Credential) mcpclient.Gate {
	return mcpclient.Gate{
		Credential: func(context.Context, string) (mcpclient.Credential, error) {
			c.ReadAt = time.Now()
			return c, nil
		},
		Sending: func(context.Context) error { return nil },
	}
}

// choose returns the calls that the suite asks for or, if it asks for none, one
// of each tool. It has no opinion of a tool: one that must not be called is one
// that the client must not have listed.
func choose(tools []strictjson.Raw, asked string) (calls []mcpclient.Call, _ error) {
	if calls, err := askedCalls(asked); calls != nil || err != nil {
		return calls, err
	}
	schemas := map[string]strictjson.Raw{}
	for _, t := range tools {
		name, schema, err := describe(t)
		if err != nil {
			return nil, err
		}
		schemas[name] = schema
		calls = append(calls, mcpclient.Call{Tool: name})
	}
	for i := range calls {
		calls[i].Arguments = argumentsFor(calls[i].Tool, schemas)
	}
	return calls, nil
}
