package mcpclient_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/internal/testhttp"
	"onbehalf.internal/broker/mcpclient"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/secret/canary"
)

func list(t testing.TB, s *script, era policy.Era) (mcpclient.Listing, mcpclient.Report) {
	t.Helper()
	talk := mcpclient.New(mcpclient.Config{}).Open(s.server(t, era))
	defer talk.Close()
	return talk.ListTools(within(t, 5*time.Second), open(), nil)
}

// page is a page with n tools and, unless it is "-", a cursor to the next. No
// two tools have one name.
func page(n int, cursor string) answer {
	var tools []string
	for range n {
		tools = append(tools, fmt.Sprintf(`{"name":"tool-%d"}`, named.Add(1)))
	}
	next := ""
	if cursor != "-" {
		next = `,"nextCursor":"` + cursor + `"`
	}
	return result(`{"tools":[` + strings.Join(tools, ",") + `]` + next + `}`)
}

var named atomic.Int64

func pages(n int) (all []answer) {
	for i := range n - 1 {
		all = append(all, page(1, fmt.Sprint(i)))
	}
	return append(all, page(1, "-"))
}

func TestListTools(t *testing.T) {
	for _, r := range []struct {
		name  string
		pages []answer
		tools int
		cause fault.Reason
		asked int
	}{
		{"no tools", []answer{page(0, "-")}, 0, "", 1},
		{"one page", []answer{page(3, "-")}, 3, "", 1},
		{"two pages", []answer{page(3, "x"), page(2, "-")}, 5, "", 2},
		{"an empty cursor is one", []answer{page(1, ""), page(1, "-")}, 2, "", 2},
		{"500 tools", []answer{page(300, "x"), page(200, "-")}, 500, "", 2},
		{"501 that are none", []answer{result(`{"tools":[` + strings.Repeat("null,", 500) + `null]}`)}, 0, fault.ReplyTooLarge, 1},
		{"501 tools", []answer{page(300, "x"), page(201, "y")}, 0, fault.ReplyTooLarge, 2},
		{"50 pages", pages(50), 50, "", 50},
		{"51 pages", pages(51), 0, fault.ReplyTooLarge, 50},
		{"a cursor again", []answer{page(1, "x"), page(1, "y"), page(1, "x")}, 0, fault.ReplyMalformed, 3},
		{"the empty cursor again", []answer{page(1, ""), page(1, "")}, 0, fault.ReplyMalformed, 2},
		{"cursor null", []answer{result(`{"tools":[],"nextCursor":null}`)}, 0, fault.ReplyMalformed, 1},
		{"cursor a number", []answer{result(`{"tools":[],"nextCursor":8}`)}, 0, fault.ReplyMalformed, 1},
		{"no list", []answer{result(`{}`)}, 0, fault.ReplyMalformed, 1},
		{"list null", []answer{result(`{"tools":null}`)}, 0, fault.ReplyMalformed, 1},
		{"list an object", []answer{result(`{"tools":{}}`)}, 0, fault.ReplyMalformed, 1},
		{"tool null", []answer{result(`{"tools":[null]}`)}, 1, "", 1}, // what is no tool is for who imports to skip,
		{"tool a string", []answer{result(`{"tools":[{},"a"]}`)}, 2, "", 1},
		{"a name twice", []answer{result(`{"tools":[{"name":"a"},{"name":"b"},{"name":"a"}]}`)}, 3, "", 1},
		{"a name twice, on two pages", []answer{result(`{"tools":[{"name":"a"}],"nextCursor":"x"}`), result(`{"tools":[{"name":"\u0061"}]}`)}, 2, "", 2},
		{"a name of another case", []answer{result(`{"tools":[{"name":"a"},{"name":"A"}]}`)}, 2, "", 1},
		{"no name", []answer{result(`{"tools":[{"Name":"a"}]}`)}, 1, "", 1},
		{"an empty name", []answer{result(`{"tools":[{"name":""}]}`)}, 1, "", 1},
		{"a name that is none", []answer{result(`{"tools":[{"name":7}]}`)}, 1, "", 1},
		{"unknown resultType", []answer{result(`{"tools":[],"resultType":"zzz"}`)}, 0, fault.ReplyMalformed, 1},
		{"second page fails", []answer{page(1, "x"), rpcError(`{"code":-32602,"message":""}`)}, 0, fault.ServerError, 2},
		{"401", []answer{status(401, "")}, 0, fault.Unauthorized, 1},
		{"version, then well", []answer{status(400, supported(`"2026-07-28"`)), page(1, "-")}, 1, "", 2},
		{"our token", []answer{result(`{"tools":[{"name":"` + token + `"}]}`)}, 0, fault.SecretEchoed, 1},
	} {
		t.Run(r.name, func(t *testing.T) {
			canary.Run(t, func(c *canary.Cage) {
				s := modern()
				s.lines[toolsList] = r.pages
				tools, rep := list(t, s, policy.EraModern)
				want := fault.NotSentBecause(r.cause)
				if r.cause == fault.None {
					want = fault.Outcome{State: fault.Succeeded, Ran: fault.RanNo, Evidence: fault.EvidencePeer}
				}
				if len(tools.Tools) != r.tools || rep.Outcome != want {
					t.Errorf("%d tools, %+v, want %d, %+v", len(tools.Tools), rep.Outcome, r.tools, want)
				}
				if n := s.count(toolsList); n != r.asked {
					t.Errorf("%d pages were asked for, want %d", n, r.asked)
				}
				c.Value("tools", tools)
				c.Value("report", rep)
			}, token)
		})
	}
}

func TestListToolsKeepsItsBytes(t *testing.T) {
	tools := `{"name":"b", "x":1.0},{"name":"a","inputSchema":{"type":"object"}}`
	for _, era := range []policy.Era{policy.EraModern, policy.EraLegacy} {
		s := legacy()
		s.lines[toolsList] = []answer{result(`{"tools":[` + tools + `]}`)}
		listed, rep := list(t, s, era)
		got := listed.Tools
		if len(got) != 2 || string(got[0])+","+string(got[1]) != tools {
			t.Errorf("%s: %s, %+v, want %s", era, got, rep.Outcome, tools)
		}
	}
}

// TestOneGreeting: a conversation finds the era and shakes hands once.
func TestOneGreeting(t *testing.T) {
	s := legacy(result(good))
	talk := mcpclient.New(mcpclient.Config{}).Open(s.server(t, policy.EraAuto))
	defer talk.Close()
	_, listed := talk.ListTools(within(t, 5*time.Second), open(), nil)
	called := talk.CallTool(within(t, 5*time.Second), search, open())
	want := []string{probe, initialize, initialized, toolsList, toolsCall}
	if diff := cmp.Diff(want, s.methods()); diff != "" {
		t.Errorf("path (-want +got):\n%s", diff)
	}
	if len(listed.Legs) != 4 || len(called.Legs) != 1 {
		t.Errorf("%d and %d legs, want 4 and 1", len(listed.Legs), len(called.Legs))
	}
}

func TestPanicWhileListing(t *testing.T) {
	s := modern()
	talk := mcpclient.New(mcpclient.Config{}).Open(s.server(t, policy.EraModern))
	defer talk.Close()
	tools, rep := talk.ListTools(within(t, 5*time.Second), mcpclient.Gate{}, nil)
	if tools.Tools != nil || rep.Outcome != fault.NotSentBecause(fault.InternalError) {
		t.Errorf("%d tools, %+v, want none, internal_error", len(tools.Tools), rep.Outcome)
	}
	if tools, _ = talk.ListTools(within(t, 5*time.Second), open(), nil); len(tools.Tools) != 1 {
		t.Errorf("%d tools after it, want 1", len(tools.Tools))
	}
}

// TestPagesShareTheBudget: 1, 0, 5 and 3 seconds a page.
func TestPagesShareTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := modern()
		s.lines[toolsList] = []answer{
			after(time.Second, page(1, "a")), page(1, "b"), after(5*time.Second, page(1, "c")), after(3*time.Second, page(1, "-")),
		}
		talk := mcpclient.New(mcpclient.Config{Dial: testhttp.OnPipes(t, s).Dial}).Open(declare(t, "http://mcp.test/mcp", policy.EraModern))
		defer talk.Close()
		_, rep := talk.ListTools(within(t, 20*time.Second), open(), nil)
		var granted []time.Duration
		for _, leg := range rep.Legs {
			granted = append(granted, leg.Budget/time.Second)
		}
		if diff := cmp.Diff([]time.Duration{20, 19, 19, 14}, granted); diff != "" {
			t.Errorf("granted (-want +got):\n%s", diff)
		}
	})
}
