package mcpfacade_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"onbehalf.internal/broker/brokertest"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/internal/devmcp"
)

// TestTwoPeople: in both eras two people list and call, at servers of both eras, and each
// reaches the server with a token of its own, which is not the one that it came with.
func TestTwoPeople(t *testing.T) {
	for _, era := range eras {
		t.Run(era, func(t *testing.T) {
			r := newRig(t, brokertest.Options{})
			var brought []string
			for _, server := range []string{"records", "archive"} {
				for _, person := range []string{"7", "8"} {
					c := connect(t, r, era, person, server)
					brought = append(brought, c.token)
					list, err := c.ListTools(t.Context(), nil)
					if err != nil {
						t.Fatal(err)
					}
					var names []string
					for _, tool := range list.Tools {
						names = append(names, tool.Name)
					}
					if got := strings.Join(names, " "); got != "broker_operation_get broker_operation_list drop fail job slow whoami" {
						t.Errorf("%s at %s is offered %s", person, server, got)
					}
					a := c.call("whoami", nil, "")
					structured, _ := a.StructuredContent.(map[string]any)
					if a.IsError || structured["subject"] != "user:"+person || a.Outcome.State != fault.Succeeded || len(a.ID) != 26 || a.Key == "" {
						t.Errorf("%s at %s: %s %+v %s %q", person, server, a.Text, a.Outcome, a.ID, a.Key)
					}
				}
			}
			out := append(r.Records.Tokens(), r.Archive.Tokens()...)
			for _, token := range brought {
				if slices.Contains(out, token) {
					t.Error("a server was shown the token that a client came with")
				}
			}
			for _, person := range []string{"user:7", "user:8"} {
				if !slices.ContainsFunc(r.Records.Requests(), func(q devmcp.Request) bool { return q.Subject == person }) {
					t.Errorf("nothing arrived from %s", person)
				}
			}
		})
	}
}

// TestOffered: what a tool is, is the operator's word; what is offered is what a call would
// be allowed.
func TestOffered(t *testing.T) {
	r := newRig(t, brokertest.Options{Config: func(y string) string {
		return strings.Replace(y, `subjects: ["user:7", "user:8"]`, `subjects: ["user:7", "user:8", "user:9"]`, 1)
	}})
	list, err := connect(t, r, eras[1], "7", "records").ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range list.Tools {
		reads := slices.Contains([]string{"whoami", "job", "broker_operation_get", "broker_operation_list"}, tool.Name)
		if tool.Annotations == nil || tool.Annotations.ReadOnlyHint != reads || tool.InputSchema == nil {
			t.Errorf("%s: %+v %v", tool.Name, tool.Annotations, tool.InputSchema)
		}
	}
	for _, era := range eras {
		c := connect(t, r, era, "7", "records")
		_, err1 := c.ListResources(t.Context(), nil)
		_, err2 := c.ListPrompts(t.Context(), nil)
		if caps := c.InitializeResult().Capabilities; err1 == nil || err2 == nil || caps.Tools == nil || caps.Resources != nil || caps.Prompts != nil {
			t.Errorf("%s: offers %+v, and answers for more: %v, %v", era, caps, err1, err2)
		}
	}
	for person, server := range map[string]string{"9": "records", "7": "nowhere"} {
		c := connect(t, r, eras[0], person, server)
		list, err := c.ListTools(t.Context(), nil)
		if err != nil || len(list.Tools) != 2 {
			t.Errorf("%s at %s is offered %d tools, %v", person, server, len(list.Tools), err)
		}
		_, err = c.ListTools(t.Context(), &mcp.ListToolsParams{Cursor: "x"})
		if err == nil || !strings.Contains(err.Error(), "no further page") {
			t.Errorf("a page that is not there: %v", err)
		}
	}
}

// TestTold: what is no result is said in words that a model can act on, and in _meta.
func TestTold(t *testing.T) {
	r := newRig(t, brokertest.Options{})
	for _, era := range eras {
		c := connect(t, r, era, "7", "records")
		for _, row := range []struct {
			tool      string
			arguments any
			state     fault.State
			ran       fault.Ran
			retry     fault.Retry
			cause     fault.Reason
			words     string
		}{
			{"fail", nil, fault.ToolError, fault.RanYes, fault.RetryReadTheError, fault.ToolFailed, "it failed, as it was asked to"},
			{"drop", map[string]any{"job": era + "1"}, fault.InDoubt, fault.RanUnknown, fault.RetryLookFirst, fault.ConnectionLost, "do not call again before you have looked"},
			{"drop", map[string]any{"job": era + "2", "then": "504"}, fault.InDoubt, fault.RanUnknown, fault.RetryLookFirst, fault.Intermediary, "whether it ran is not known"},
			{"drop", map[string]any{"job": era + "3", "then": "cut"}, fault.InDoubt, fault.RanUnknown, fault.RetryLookFirst, "", "do not call again before you have looked"},
			{"drop", map[string]any{"job": era + "4", "then": "invalid"}, fault.RPCError, fault.RanUnknown, fault.RetryLookFirst, fault.ServerError, "-32602"},
		} {
			a := c.call(row.tool, row.arguments, "")
			if !a.IsError || a.Outcome.State != row.state || a.Outcome.Ran != row.ran || a.Outcome.Retry != row.retry || row.cause != "" && a.Outcome.Cause != row.cause || !strings.Contains(a.Text, row.words) {
				t.Errorf("%s %v: %+v\n%s", row.tool, row.arguments, a.Outcome, a.Text)
			}
			if strings.Contains(strings.ToLower(a.Text), "timeout") || row.state != fault.ToolError && (!strings.Contains(a.Text, a.ID) || !strings.Contains(a.Text, a.Key)) {
				t.Errorf("%s %v: the words are\n%s", row.tool, row.arguments, a.Text)
			}
			again := c.call("broker_operation_get", map[string]any{"operation_id": a.ID}, "")
			if again.IsError || again.ID != a.ID || again.Outcome.State != row.state || !strings.Contains(again.Text, "ran: "+string(row.ran)) {
				t.Errorf("retrieved: %+v\n%s", again.Outcome, again.Text)
			}
			if row.tool == "drop" && r.Records.Done(row.arguments.(map[string]any)["job"].(string)) != 1 {
				t.Errorf("drop %v did not run once", row.arguments)
			}
		}
	}
}

// TestRequestKey: by one key a call is made once, whoever repeats it.
func TestRequestKey(t *testing.T) {
	r := newRig(t, brokertest.Options{})
	for _, era := range eras {
		c := connect(t, r, era, "7", "records")
		calls := r.Records.Calls("whoami")
		first, again := c.call("whoami", nil, era), c.call("whoami", map[string]any{}, era)
		if first.ID == "" || first.ID != again.ID || first.Key != era || again.Key != era || !again.Outcome.Replayed || first.Outcome.Replayed || again.IsError {
			t.Errorf("%+v, again %+v", first.Outcome, again.Outcome)
		}
		if n := r.Records.Calls("whoami") - calls; n != 1 {
			t.Errorf("the server was called %d times", n)
		}
		if a := c.call("whoami", nil, ""); a.ID == first.ID || a.Key == "" || a.Key == era {
			t.Errorf("without a key: %s by %q", a.ID, a.Key)
		}
		if a := c.call("slow", map[string]any{"seconds": 0}, era); a.Refusal.Reason != fault.RequestKeyConflict || a.ID != "" || a.Key != era {
			t.Errorf("the key of another call: %+v", a.Refusal)
		}
		// The API's gateway is another caller, and user:8 another actor: neither has this key.
		if a := connect(t, r, era, "8", "records").call("whoami", nil, era); a.ID == first.ID || a.Outcome.Replayed || a.IsError {
			t.Errorf("of another actor: %+v", a.Outcome)
		}
		if a := r.Get(t, "/v1/operations/"+first.ID, brokertest.Call{}); a.Status != 404 {
			t.Errorf("at the API: %d", a.Status)
		}
	}
	c := connect(t, r, eras[0], "7", "records")
	for _, key := range []any{"", "a b", strings.Repeat("k", 256), 7, nil} {
		res, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "whoami", Meta: mcp.Meta{"onbehalf/request_key": key}})
		if err != nil || read(t, res).Refusal.Reason != fault.MalformedRequest {
			t.Errorf("%v: %v %+v", key, err, res)
		}
	}
}

// TestRefused: what began nothing says so, and no more than the API does.
func TestRefused(t *testing.T) {
	r := newRig(t, brokertest.Options{Config: func(y string) string {
		return strings.Replace(y, `subjects: ["user:7", "user:8"]`, `subjects: ["user:7", "user:8", "user:9"]`, 1)
	}})
	imported := len(r.Records.Tokens())
	for _, row := range []struct {
		person, server, tool string
		arguments            any
		reason               fault.Reason
	}{
		{"9", "records", "whoami", nil, fault.NoGrant},
		{"7", "records", "nothing", nil, fault.ToolUnknown},
		{"7", "nowhere", "whoami", nil, fault.ServerUnknown},
		{"7", "records", "whoami", map[string]any{"more": 1}, fault.ArgumentsInvalid},
		{"7", "records", "no such name", nil, fault.MalformedRequest},
		{"7", "records", "broker_operation_get", nil, fault.MalformedRequest},
		{"7", "records", "broker_operation_get", map[string]any{"operation_id": "x"}, fault.MalformedRequest},
		{"7", "records", "broker_operation_get", map[string]any{"operation_id": strings.Repeat("a", 26), "request_key": "x"}, fault.MalformedRequest},
		{"7", "records", "broker_operation_get", map[string]any{"operation_id": strings.Repeat("a", 26)}, fault.OperationNotFound},
		{"7", "records", "broker_operation_get", map[string]any{"request_key": "never"}, fault.OperationNotFound},
		{"7", "records", "broker_operation_list", map[string]any{"all": true}, fault.MalformedRequest},
	} {
		a := connect(t, r, eras[1], row.person, row.server).call(row.tool, row.arguments, "")
		if !a.IsError || a.Refusal.Reason != row.reason || a.ID != "" || !strings.Contains(a.Text, "Nothing was begun: "+string(row.reason)) || !strings.Contains(a.Text, "What to do: ") {
			t.Errorf("%+v: %+v\n%s", row, a.Refusal, a.Text)
		}
	}
	if n := len(r.Records.Tokens()); n != imported {
		t.Errorf("%d tokens arrived", n-imported)
	}
}

// TestLookup: the broker's own tools see what this caller did for this actor at this address.
func TestLookup(t *testing.T) {
	r := newRig(t, brokertest.Options{})
	mine, other := connect(t, r, eras[0], "7", "records"), connect(t, r, eras[1], "8", "records")
	elsewhere := connect(t, r, eras[1], "7", "archive")
	a, gateway := mine.call("whoami", nil, "k-1"), r.Call(t, brokertest.Call{})
	byKey := mine.call("broker_operation_get", map[string]any{"request_key": "k-1"}, "")
	structured, _ := byKey.StructuredContent.(map[string]any)
	result, _ := structured["result"].(map[string]any)
	if byKey.ID != a.ID || byKey.IsError || structured["state"] != "succeeded" || result["structuredContent"] == nil || !strings.Contains(byKey.Text, `"subject":"user:7"`) {
		t.Errorf("by key: %v\n%s", structured, byKey.Text)
	}
	for name, c := range map[string]*client{"another actor": other, "another address": elsewhere} {
		if got := c.call("broker_operation_get", map[string]any{"operation_id": a.ID}, ""); got.Refusal.Reason != fault.OperationNotFound {
			t.Errorf("%s: %+v\n%s", name, got.Refusal, got.Text)
		}
		if got := c.call("broker_operation_list", nil, ""); got.IsError || strings.Contains(got.Text, a.ID) {
			t.Errorf("%s lists %s", name, got.Text)
		}
	}
	if got := mine.call("broker_operation_get", map[string]any{"operation_id": gateway.ID}, ""); got.Refusal.Reason != fault.OperationNotFound {
		t.Errorf("what another caller did for the actor: %s", got.Text)
	}
	list := mine.call("broker_operation_list", nil, "")
	if strings.Count(list.Text, `"operation_id"`) != 1 || !strings.Contains(list.Text, a.ID) || list.IsError {
		t.Errorf("the list: %s", list.Text)
	}
}
