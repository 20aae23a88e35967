//go:build real

package servers

import (
	"slices"
	"strings"
	"testing"
	"time"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/internal/counterparts"
	"onbehalf.internal/broker/mcpclient"
	"onbehalf.internal/broker/policy"
)

// TestReach is what becomes of tools that want more of a client than ours can
// do: a file of expectations for the day it learns one of them. None of them may
// read as a success, nor as safe to repeat where the tool may have run.
func TestReach(t *testing.T) {
	continuation := fault.Doubt(fault.UnsupportedContinuation)
	for _, r := range []struct {
		tool      string
		arguments map[string]any
		modern    fault.Outcome // of the stateless server
		legacy    fault.Outcome // of the one with sessions
	}{
		// More on the stream than the answer: passed over.
		{"test_tool_with_logging", nil, succeeded, succeeded},
		{"test_tool_with_progress", nil, succeeded, succeeded},

		// An argument that a header has to repeat, but is not there; see TestMirrored.
		{"test_x_mcp_header", map[string]any{"level": 3}, succeeded, succeeded},

		// A stream that the server closes, to be taken up again with a GET.
		{"test_reconnection", nil, succeeded, fault.Doubt(fault.StreamEnded)},

		// Questions to the client. With a session they are requests on the stream; in
		// the modern era the SDK refuses to send them, and the tool fails.
		{"test_sampling", map[string]any{"prompt": "x"}, toolError, fault.Doubt(fault.ServerAsked)},
		{"test_elicitation", map[string]any{"message": "x"}, toolError, toolError},
		{"test_input_required_result_elicitation", nil, continuation, rpcError},
		{"test_input_required_result_request_state", nil, continuation, rpcError},

		// A capability that we do not declare. By handshake the error comes with
		// status 200, and the tool has begun.
		{"test_missing_capability", nil, fault.RefusedBecause(fault.CapabilityMissing), rpcError},
	} {
		t.Run(r.tool, func(t *testing.T) {
			modern := stateless(t)
			legacy := stateful(t)
			leavesNothing(t)
			c := counterparts.ToolCall{Tool: r.tool, Arguments: r.arguments}
			compare(t, "modern", callOnce(t, declare(t, modern.URL, policy.EraModern, nil), c), pinnedModern.expect(r.modern, "tools/call"))
			compare(t, "legacy", callOnce(t, declare(t, legacy.URL, policy.EraLegacy, nil), c), pinnedLegacy[0].expect(r.legacy, "tools/call"))
		})
	}
}

// TestMirrored: an argument that a header has to repeat (Mcp-Param-Region). Who has
// not seen the tool's schema is refused once, reads it and is right from then on.
func TestMirrored(t *testing.T) {
	m := stateless(t)
	leavesNothing(t)
	eu := counterparts.ToolCall{Tool: "test_x_mcp_header", Arguments: map[string]any{"region": "eu"}}
	talk := mcpclient.New(mcpclient.Config{}).Open(declare(t, m.URL, policy.EraModern, nil))
	defer talk.Close()
	learning := pinnedModern
	learning.greeting = []string{"tools/call", "tools/list"}
	compare(t, "the first call", call(t, talk, eu, patience), learning.expect(succeeded, "tools/call"))
	compare(t, "the next one", call(t, talk, eu, patience), pinnedModern.expect(succeeded, "tools/call"))
}

// TestFarewell: which servers open a session, and that each of them takes its end.
func TestFarewell(t *testing.T) {
	for _, s := range servers {
		t.Run(s.name, func(t *testing.T) {
			m := s.start(t)
			leavesNothing(t)
			for _, r := range []struct {
				name   string
				call   counterparts.ToolCall
				budget time.Duration
				want   []string
			}{
				{"a good call", m.Echo, patience, s.parting},
				{"one that is cut off", m.Slow, 500 * time.Millisecond, append([]string{"notifications/cancelled"}, s.parting...)},
			} {
				if r.call.Tool == "" {
					continue
				}
				talk := mcpclient.New(mcpclient.Config{}).Open(declare(t, m.URL, policy.EraLegacy, nil))
				call(t, talk, r.call, r.budget)
				legs := talk.Farewell(t.Context(), gate())()
				talk.Close()
				var got []string
				for _, leg := range legs {
					got = append(got, strings.TrimSuffix(leg.Name+" "+string(leg.Reason), " "))
				}
				if !slices.Equal(got, r.want) {
					t.Errorf("%s: parted with %q, want %q", r.name, got, r.want)
				}
			}
		})
	}
}
