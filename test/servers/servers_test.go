//go:build real

package servers

import (
	"testing"
	"time"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/internal/counterparts"
	"onbehalf.internal/broker/mcpclient"
	"onbehalf.internal/broker/policy"
)

var (
	succeeded = fault.Outcome{State: fault.Succeeded, Ran: fault.RanYes, Evidence: fault.EvidencePeer}
	listed    = fault.Outcome{State: fault.Succeeded, Ran: fault.RanNo, Evidence: fault.EvidencePeer}
	toolError = fault.Outcome{State: fault.ToolError, Ran: fault.RanYes, Evidence: fault.EvidencePeer, Cause: fault.ToolFailed}
	rpcError  = fault.Outcome{State: fault.RPCError, Ran: fault.RanUnknown, Evidence: fault.EvidencePeer, Cause: fault.ServerError}
)

// A server is one that we call, and what is its own about it.
type server struct {
	name         string
	start        func(testing.TB) *counterparts.MCP
	finds        policy.Era // what we find where nothing is pinned
	tools        int        // how many it lists
	unknownTool  map[policy.Era]fault.Outcome
	badArguments counterparts.ToolCall // refused by the tool's schema
	parting      []string              // the legs of a farewell after a handshake, each with its reason
}

// A tool that is not there is a failed tool to all but the Go SDK. There it is a
// JSON-RPC error, in the modern era with status 400, which does not prove that
// nothing ran: docs/decisions/0009.
var (
	aToolError = map[policy.Era]fault.Outcome{policy.EraModern: toolError, policy.EraLegacy: toolError}
	anRPCError = map[policy.Era]fault.Outcome{policy.EraModern: fault.Doubt(fault.StatusUnclear), policy.EraLegacy: rpcError}
)

var (
	notAText   = map[string]any{"message": 7, "prompt": 7}
	notANumber = map[string]any{"a": "x", "b": 3}
)

var servers = []server{
	{"Go SDK, stateless", stateless, policy.EraModern, 28, anRPCError, counterparts.ToolCall{Tool: "test_sampling", Arguments: notAText}, nil},
	{"Go SDK, with sessions", stateful, policy.EraLegacy, 28, anRPCError, counterparts.ToolCall{Tool: "test_sampling", Arguments: notAText}, []string{"delete"}},
	{"TypeScript SDK", counterparts.ServerEverything, policy.EraLegacy, 13, aToolError, counterparts.ToolCall{Tool: "echo", Arguments: notAText}, []string{"delete"}},
	{"Python SDK", counterparts.PythonMCP, policy.EraModern, 3, aToolError, counterparts.ToolCall{Tool: "add", Arguments: notANumber}, []string{"delete"}},
	{"FastMCP", counterparts.FastMCP, policy.EraModern, 3, aToolError, counterparts.ToolCall{Tool: "add", Arguments: notANumber}, []string{"delete"}},
}

func stateless(t testing.TB) *counterparts.MCP { return counterparts.Everything(t, true) }
func stateful(t testing.TB) *counterparts.MCP  { return counterparts.Everything(t, false) }

// A pin is what an operator may declare about the protocol, and what is spoken
// then.
type pin struct {
	name     string
	era      policy.Era
	versions []string

	speaks   policy.Era
	version  string
	greeting []string // the legs before the first one about tools
}

var (
	handshake    = []string{"initialize", "notifications/initialized"}
	pinnedModern = pin{"modern", policy.EraModern, nil, policy.EraModern, "2026-07-28", nil}
	pinnedLegacy = []pin{
		{"legacy", policy.EraLegacy, nil, policy.EraLegacy, "2025-11-25", handshake},
		{"2025-06-18", policy.EraAuto, []string{"2025-06-18"}, policy.EraLegacy, "2025-06-18", handshake},
		{"2025-03-26", policy.EraAuto, []string{"2025-03-26"}, policy.EraLegacy, "2025-03-26", handshake},
	}
)

// pins are those that s understands: every one of the Go, Python and TypeScript
// SDKs still speaks by handshake.
func (s server) pins() []pin {
	found := pinnedLegacy[0]
	if s.finds == policy.EraModern {
		found = pinnedModern
	}
	auto := found
	auto.name, auto.era = "auto", policy.EraAuto
	auto.greeting = append([]string{"server/discover"}, found.greeting...)
	all := append([]pin{auto}, pinnedLegacy...)
	if s.finds == policy.EraModern {
		all = append(all, pinnedModern)
	}
	return all
}

// expect is what an operation looks like under p that ends like o.
func (p pin) expect(o fault.Outcome, leg string) seen {
	return seen{o, p.speaks, p.version, append(p.greeting[:len(p.greeting):len(p.greeting)], leg)}
}

func TestServers(t *testing.T) {
	for _, s := range servers {
		t.Run(s.name, func(t *testing.T) {
			m := s.start(t)
			for _, p := range s.pins() {
				t.Run(p.name, func(t *testing.T) {
					leavesNothing(t)
					declared := declare(t, m.URL, p.era, p.versions)
					for _, r := range []struct {
						name string
						call counterparts.ToolCall
						want fault.Outcome
					}{
						{"a good call", m.Echo, succeeded},
						{"a tool that fails", m.Fail, toolError},
						{"an unknown tool", counterparts.ToolCall{Tool: "no_such_tool"}, s.unknownTool[p.speaks]},
						{"bad arguments", s.badArguments, toolError},
					} {
						compare(t, r.name, callOnce(t, declared, r.call), p.expect(r.want, "tools/call"))
					}
					checkList(t, declared, s.tools, p)
					checkSlow(t, declared, m.Slow, p)
				})
			}
		})
	}
}

// checkList lists twice: the second operation of a client knows the era.
func checkList(t *testing.T, declared *policy.Server, count int, p pin) {
	t.Helper()
	client := mcpclient.New(mcpclient.Config{})
	for _, name := range []string{"a list", "the next list"} {
		talk := client.Open(declared)
		tools, got := list(t, talk)
		talk.Close()
		compare(t, name, got, p.expect(listed, "tools/list"))
		if tools != count {
			t.Errorf("%s: %d tools, want %d", name, tools, count)
		}
		if p.name == "auto" {
			p.greeting = p.greeting[1:]
		}
		p.name = "remembered"
	}
}

// checkSlow calls a tool that takes longer than there is. The greeting is over by
// then, so that the whole budget is the call's.
func checkSlow(t *testing.T, declared *policy.Server, slow counterparts.ToolCall, p pin) {
	t.Helper()
	if slow.Tool == "" {
		return
	}
	talk := mcpclient.New(mcpclient.Config{}).Open(declared)
	defer talk.Close()
	list(t, talk)
	began := time.Now()
	got := call(t, talk, slow, 500*time.Millisecond)
	if took := time.Since(began); took > patience/2 {
		t.Errorf("a slow tool: given up after %s", took)
	}
	p.greeting = nil
	compare(t, "a slow tool", got, p.expect(fault.Doubt(fault.WallClock), "tools/call"))
}

// TestPinnedToTheWrongEra: an operator who pins the modern era of a server that
// does not speak it gets no result, and nothing else is tried. Whether the
// call counts as refused is up to the server's words: -32000 has no meaning that
// could be relied on.
func TestPinnedToTheWrongEra(t *testing.T) {
	for _, r := range []struct {
		name  string
		start func(testing.TB) *counterparts.MCP
		call  fault.Outcome
	}{
		{"Go SDK, with sessions", stateful, fault.RefusedBecause(fault.VersionUnsupported)},
		{"TypeScript SDK", counterparts.ServerEverything, fault.Doubt(fault.StatusUnclear)},
	} {
		t.Run(r.name, func(t *testing.T) {
			m := r.start(t)
			leavesNothing(t)
			declared := declare(t, m.URL, policy.EraModern, nil)
			compare(t, "a good call", callOnce(t, declared, m.Echo), pinnedModern.expect(r.call, "tools/call"))

			talk := mcpclient.New(mcpclient.Config{}).Open(declared)
			defer talk.Close()
			_, got := list(t, talk)
			compare(t, "a list", got, pinnedModern.expect(fault.NotSentBecause(r.call.Cause), "tools/list"))
		})
	}
}
