//go:build real

package servers

import (
	"testing"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/internal/counterparts"
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

		// An argument that a header has to repeat (Mcp-Param-Region). The server's
		// -32020 says that nothing ran.
		{"test_x_mcp_header", map[string]any{"region": "eu"}, fault.RefusedBecause(fault.StatusRefused), succeeded},
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
		{"test_missing_capability", nil, fault.RefusedBecause(fault.StatusRefused), rpcError},
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
