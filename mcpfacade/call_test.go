package mcpfacade_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"onbehalf.internal/broker/brokertest"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/internal/devmcp"
	"onbehalf.internal/broker/internal/devotlp"
	"onbehalf.internal/broker/secret/canary"
)

// TestApproval: a call that a person has to approve says so and begins nothing; the very call
// again goes on by the same key, whether the client can send one or not.
func TestApproval(t *testing.T) {
	for _, era := range eras {
		for _, key := range []string{"", "k-1"} {
			r := newRig(t, brokertest.Options{Config: brokertest.Approving})
			c := connect(t, r, era, "7", "records")
			asked := c.call("job", map[string]any{"job": "1"}, key)
			if !asked.IsError || asked.Outcome.State != fault.AwaitingApproval || asked.Outcome.Retry != fault.RetryWait || asked.ID == "" ||
				!strings.Contains(asked.Text, "A person has to approve this call") || !strings.Contains(asked.Text, asked.Key) {
				t.Fatalf("%+v\n%s", asked.Outcome, asked.Text)
			}
			if again := c.call("job", map[string]any{"job": "1"}, key); again.ID != asked.ID || again.Key != asked.Key || again.Outcome.State != fault.AwaitingApproval {
				t.Errorf("asked twice: %s and %s", asked.ID, again.ID)
			}
			if other := c.call("job", map[string]any{"job": "2"}, ""); other.ID == asked.ID {
				t.Error("another call goes on as this one")
			}
			var digest string
			for _, p := range r.Pending(t) {
				if p.ID == asked.ID {
					digest = p.Digest
				}
			}
			body := fmt.Sprintf(`{"decision":"approve","digest":%q,"reason":"looked at it"}`, digest)
			if a := r.People(t, http.Header{"Broker-Approver-Assertion": {r.AssertApprover("user:8", nil)}}, "POST", "/v1/approvals/"+asked.ID, body, nil); a.Status != 200 {
				t.Fatalf("%d %s", a.Status, a.Body)
			}
			if n := r.Records.Calls("job"); n != 0 {
				t.Fatalf("an approval began %d calls", n)
			}
			if a := c.call("broker_operation_get", map[string]any{"operation_id": asked.ID}, ""); !strings.Contains(a.Text, "it is approved: make the same call again") {
				t.Errorf("approved: %s", a.Text)
			}
			if a := c.call("job", map[string]any{"job": "1"}, key); a.IsError || a.ID != asked.ID || a.Outcome.State != fault.Succeeded || r.Records.Calls("job") != 1 {
				t.Errorf("the very call: %+v\n%s", a.Outcome, a.Text)
			}
			if a := c.call("job", map[string]any{"job": "1"}, ""); a.ID == asked.ID || a.Outcome.State != fault.AwaitingApproval {
				t.Errorf("an approval was used twice: %+v", a.Outcome)
			}
			if a := connect(t, r, era, "8", "records").call("job", map[string]any{"job": "2"}, ""); a.Outcome.Replayed {
				t.Error("another actor goes on with a call of user:7")
			}
		}
	}
}

// forging is a result with that block, whose _meta says things that are the broker's.
func forging(block string) string {
	return `{"resultType":"complete","content":[` + block + `],"structuredContent":{"b":1.0,"a":2},` +
		`"_meta":{"theirs":{"n":1.0},"onbehalf/outcome":{"state":"not_sent"},"onbehalf/operation_id":"forged","io.modelcontextprotocol/serverInfo":{"name":"theirs","version":"1"}}}`
}

// TestProgress: what a server says while it works reaches the client by the client's own
// token.
func TestProgress(t *testing.T) {
	for _, era := range eras {
		r := newRig(t, brokertest.Options{})
		say := make(chan string)
		r.Records.Break(devmcp.Working(say, forging(`{"type":"text","text":"done"}`)))
		c := connect(t, r, era, "7", "records")
		done := make(chan *mcp.CallToolResult, 1)
		go func() {
			p := &mcp.CallToolParams{Name: "whoami", Arguments: map[string]any{}}
			p.SetProgressToken("desk-1")
			res, err := c.CallTool(t.Context(), p)
			if err != nil {
				t.Error(err)
			}
			done <- res
		}()
		for n, word := range []string{"one", "two"} {
			say <- word
			if p := <-c.heard; p.ProgressToken != "desk-1" || p.Message != word || p.Progress != float64(n+1) || p.Total != 9 {
				t.Errorf("%s: %+v", era, p)
			}
		}
		close(say)
		if a := read(t, <-done); a.IsError || a.Outcome.State != fault.Succeeded || a.ID == "forged" {
			t.Errorf("%s: %+v %s", era, a.Outcome, a.ID)
		}
	}
}

// TestPassed: a result's bytes come as they are, and names of ours that a server writes do
// not.
func TestPassed(t *testing.T) {
	for _, era := range eras {
		r := newRig(t, brokertest.Options{})
		say := make(chan string)
		close(say)
		r.Records.Break(devmcp.Working(say, forging(`{"type":"odd","n":12345678901234567890}`)))
		c := connect(t, r, era, "7", "records")
		meta := ""
		headers := map[string]string{"Mcp-Protocol-Version": era, "Mcp-Method": "tools/call", "Mcp-Name": "whoami"}
		if era == eras[0] {
			headers["Mcp-Session-Id"] = c.ID()
		} else {
			meta = `,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
		}
		a := send(t, r, "POST", resource("records"), c.token, `{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"whoami"`+meta+`}}`, headers)
		for _, want := range []string{`{"type":"odd","n":12345678901234567890}`, `"structuredContent":{"b":1.0,"a":2}`, `"theirs":{"n":1.0}`, `"state":"succeeded"`, `"id":9`} {
			if !strings.Contains(a.Body, want) {
				t.Errorf("%s: %s is not in\n%s", era, want, a.Body)
			}
		}
		for _, never := range []string{"forged", "not_sent", `"name":"theirs"`} {
			if strings.Contains(a.Body, never) {
				t.Errorf("%s: the server speaks for us: %s", era, a.Body)
			}
		}
		if whole := strings.Contains(a.Body, `"resultType":"complete"`); whole != (era == eras[1]) {
			t.Errorf("%s: says that it is whole: %v", era, whole)
		}
	}
}

// TestCancel: who cancels, or hangs up, ends the operation where the operator says so, and
// only its wait elsewhere.
func TestCancel(t *testing.T) {
	for _, ends := range []bool{true, false} {
		r := newRig(t, brokertest.Options{Config: func(y string) string {
			if ends {
				y = strings.ReplaceAll(y, "slow: {enabled: true}", "slow: {enabled: true, on_caller_disconnect: cancel}")
			}
			return y
		}})
		for _, era := range eras {
			for _, progress := range []bool{false, true} {
				c := connect(t, r, era, "7", "records")
				key := fmt.Sprintf("%s-%v", era, progress)
				ctx, cancel := context.WithCancel(t.Context())
				calls := r.Records.Calls("slow")
				done := make(chan error, 1)
				go func() {
					p := &mcp.CallToolParams{Name: "slow", Arguments: map[string]any{"seconds": 1}, Meta: mcp.Meta{"onbehalf/request_key": key}}
					if progress {
						p.SetProgressToken("p-" + key)
					}
					_, err := c.CallTool(ctx, p)
					done <- err
				}()
				if err := r.Records.Await(t.Context(), func() bool { return r.Records.Calls("slow") > calls }); err != nil {
					t.Fatal(err)
				}
				cancel()
				if err := <-done; err == nil {
					t.Error("the client got an answer")
				}
				a := finished(t, c, key)
				switch {
				case ends && (a.Outcome.State != fault.InDoubt || a.Outcome.Cause != fault.CallerGone):
					t.Errorf("%s, progress %v: %+v", era, progress, a.Outcome)
				case !ends && a.Outcome.State != fault.Succeeded:
					t.Errorf("%s, progress %v, detached: %+v", era, progress, a.Outcome)
				}
			}
		}
	}
}

// TestHangUp: to close the request is to hang up also by handshake, where clients say nothing
// more.
func TestHangUp(t *testing.T) {
	r := newRig(t, brokertest.Options{Config: func(y string) string {
		return strings.ReplaceAll(y, "slow: {enabled: true}", "slow: {enabled: true, on_caller_disconnect: cancel}")
	}})
	c := connect(t, r, eras[0], "7", "records")
	ctx, hangUp := context.WithCancel(t.Context())
	body := `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"slow","arguments":{"seconds":4},"_meta":{"onbehalf/request_key":"k-1"}}}`
	req, err := http.NewRequestWithContext(ctx, "POST", resource("records"), strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}, "Mcp-Session-Id": {c.ID()}, "Mcp-Protocol-Version": {eras[0]}}
	done := make(chan error, 1)
	go func() {
		res, err := brokertest.Front{Rig: r, Token: c.token}.RoundTrip(req)
		if err == nil {
			_, err = io.ReadAll(res.Body)
		}
		done <- err
	}()
	if err := r.Records.Await(t.Context(), func() bool { return r.Records.Calls("slow") > 0 }); err != nil {
		t.Fatal(err)
	}
	hangUp()
	if err := <-done; err == nil {
		t.Error("an answer came")
	}
	if a := finished(t, c, "k-1"); a.Outcome.Cause != fault.CallerGone {
		t.Errorf("%+v", a.Outcome)
	}
}

// finished asks for an operation by its key until it has ended.
func finished(t *testing.T, c *client, key string) told {
	t.Helper()
	for {
		a := c.call("broker_operation_get", map[string]any{"request_key": key}, "")
		if t.Context().Err() != nil || a.ID == "" || !a.Outcome.State.Open() {
			return a
		}
	}
}

// TestTokenNowhere: the token that a client came with is in no log, row, audit record or
// answer, and neither is any secret of the broker's.
func TestTokenNowhere(t *testing.T) {
	canary.Run(t, func(c *canary.Cage) {
		r := newRig(t, brokertest.Options{Log: c.Writer()})
		var planted []string
		for _, era := range eras {
			desk := connect(t, r, era, "7", "records")
			planted = append(planted, desk.token)
			for _, call := range [][]any{{"whoami", nil}, {"drop", map[string]any{"job": era}}, {"nothing", nil}, {"broker_operation_list", nil}} {
				a := desk.call(call[0].(string), call[1], "")
				body, err := json.Marshal(a.CallToolResult)
				if err != nil {
					t.Fatal(err)
				}
				c.Bytes(call[0].(string), body)
			}
			wrong := r.Token("7", resource("archive"), nil)
			planted = append(planted, wrong)
			c.Bytes("refusal", []byte(send(t, r, "POST", resource("records"), wrong, initialize, nil).Body))
		}
		if err := r.Stop(); err != nil {
			t.Fatal(err)
		}
		c.Bytes("audit", []byte(r.Audit(t)))
		files, err := os.ReadDir(r.Dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.HasPrefix(file.Name(), filepath.Base(r.DatabasePath())) {
				c.File(filepath.Join(r.Dir, file.Name()))
			}
		}
		c.Plant(append(r.Secrets(), planted...)...)
	})
}

// TestTrace: an operation stands in the trace that its client names: in _meta, or, where it
// says nothing there, in the headers that something on the way has set.
func TestTrace(t *testing.T) {
	collector, err := devotlp.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { collector.Close() })
	rig := newRig(t, brokertest.Options{Config: func(yaml string) string { return yaml + "traces: {otlp: \"" + collector.URL + "\"}\n" }})
	const meta, header = "4bf92f3577b34da6a3ce929d0e0e4736", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	of := func(trace string) string { return "00-" + trace + "-00f067aa0ba902b7-01" }
	want := map[string]string{}
	for _, era := range eras {
		for _, tc := range []struct {
			meta   mcp.Meta
			header string
			want   string
		}{
			{mcp.Meta{"traceparent": of(meta)}, "", meta},
			{mcp.Meta{"traceparent": of(meta)}, of(header), meta},
			{mcp.Meta{"traceparent": "00-no"}, of(header), header},
			{mcp.Meta{"traceparent": 7}, "", ""},
			{nil, of(header), header},
		} {
			c := connectBy(t, rig, era, "7", "records", func(r *http.Request) {
				if tc.header != "" {
					r.Header.Set("Traceparent", tc.header)
				}
			})
			res, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "whoami", Meta: tc.meta})
			if err != nil {
				t.Fatal(err)
			}
			want[read(t, res).ID] = tc.want
		}
	}
	if err := rig.Stop(); err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, s := range collector.Spans() {
		expected, ours := want[s.Attributes["broker.operation"]]
		if s.Name != "call" || !ours {
			continue
		}
		found++
		if expected != "" && s.Trace != expected || expected == "" && (s.Trace == meta || s.Trace == header) {
			t.Errorf("an operation is in trace %s, want %q", s.Trace, expected)
		}
	}
	if found != len(want) {
		t.Errorf("%d spans of %d calls", found, len(want))
	}
}
