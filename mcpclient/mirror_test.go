package mcpclient_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/mcpclient"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/strictjson"
)

// routed is a schema with a mirrored argument of each kind, one of them inside
// another object.
const routed = `{"type":"object","properties":{
	"region":{"type":"string","x-mcp-header":"Region"},
	"dry":{"type":"boolean","x-mcp-header":"Dry-Run"},
	"at":{"type":"object","properties":{"line":{"type":"integer","x-mcp-header":"Line"}}},
	"q":{"type":"string"},
	"x-mcp-header":{"type":"string"}}}`

func toolsOf(schemas ...string) string {
	var tools []string
	for i, s := range schemas {
		name := "search"
		if i > 0 {
			name = fmt.Sprint("other-", i)
		}
		tools = append(tools, `{"name":"`+name+`","inputSchema":`+s+`}`)
	}
	return strings.Join(tools, ",")
}

func listing(extra string, schemas ...string) answer {
	return result(`{"resultType":"complete","tools":[` + toolsOf(schemas...) + `]` + extra + `}`)
}

// TestMirroredArguments: what a modern server declares in a tool's schema is in
// the headers of its call, and only that.
func TestMirroredArguments(t *testing.T) {
	for _, r := range []struct {
		name, arguments string
		want            map[string]string
	}{
		{"all", `{"region":"eu-west 1","dry":true,"at":{"line":42},"q":"a","x-mcp-header":"b"}`,
			map[string]string{"Mcp-Param-Region": "eu-west 1", "Mcp-Param-Dry-Run": "true", "Mcp-Param-Line": "42"}},
		{"null and absent", `{"region":null,"at":{}}`, map[string]string{}},
		{"an empty text", `{"region":""}`, map[string]string{"Mcp-Param-Region": ""}},
		{"not ASCII", `{"region":"Zürich"}`, map[string]string{"Mcp-Param-Region": "=?base64?WsO8cmljaA==?="}},
		{"a line break", `{"region":"a\r\nX-Evil: 1"}`, map[string]string{"Mcp-Param-Region": "=?base64?YQ0KWC1FdmlsOiAx?="}},
		{"like the encoded form", `{"region":"=?base64?YQ==?="}`, map[string]string{"Mcp-Param-Region": "=?base64?PT9iYXNlNjQ/WVE9PT89?="}},
		{"space at the end", `{"region":"a "}`, map[string]string{"Mcp-Param-Region": "=?base64?YSA=?="}},
		{"an integer in other words", `{"at":{"line":4.20e1}}`, map[string]string{"Mcp-Param-Line": "42"}},
		{"the largest integer", `{"at":{"line":-9007199254740991}}`, map[string]string{"Mcp-Param-Line": "-9007199254740991"}},
		{"false", `{"dry":false}`, map[string]string{"Mcp-Param-Dry-Run": "false"}},
		{"no object where one is declared", `{"at":7}`, map[string]string{}},
	} {
		t.Run(r.name, func(t *testing.T) {
			s := modern(result(good))
			s.lines[toolsList] = []answer{listing("", routed)}
			talk := mcpclient.New(mcpclient.Config{}).Open(s.server(t, policy.EraModern))
			defer talk.Close()
			talk.ListTools(within(t, 5*time.Second), open(), nil)
			rep := talk.CallTool(within(t, 5*time.Second), mcpclient.Call{Tool: "search", Arguments: strictjson.Raw(r.arguments)}, open())
			if rep.Outcome.State != fault.Succeeded {
				t.Fatalf("%+v", rep.Outcome)
			}
			if diff := cmp.Diff(r.want, mirroredIn(s.asked[1])); diff != "" {
				t.Errorf("headers (-want +got):\n%s", diff)
			}
		})
	}
}

func mirroredIn(q question) map[string]string {
	found := map[string]string{}
	for name, values := range q.header {
		if strings.HasPrefix(name, "Mcp-Param-") {
			found[name] = strings.Join(values, "|")
		}
	}
	return found
}

// TestArgumentThatIsNoMirror: what would have to be refused is not sent.
func TestArgumentThatIsNoMirror(t *testing.T) {
	for _, arguments := range []string{
		`{"region":7}`, `{"region":{}}`, `{"dry":"true"}`, `{"dry":1}`, `{"at":{"line":"42"}}`, `{"at":{"line":1.5}}`,
		`{"at":{"line":9007199254740992}}`, `{"at":{"line":1e400}}`, `{"at":{"line":true}}`,
	} {
		s := modern(result(good))
		s.lines[toolsList] = []answer{listing("", routed)}
		talk := mcpclient.New(mcpclient.Config{}).Open(s.server(t, policy.EraModern))
		talk.ListTools(within(t, 5*time.Second), open(), nil)
		rep := talk.CallTool(within(t, 5*time.Second), mcpclient.Call{Tool: "search", Arguments: strictjson.Raw(arguments)}, open())
		talk.Close()
		if rep.Outcome != fault.NotSentBecause(fault.MalformedRequest) || s.count(toolsCall) != 0 {
			t.Errorf("%s: %+v after %d calls", arguments, rep.Outcome, s.count(toolsCall))
		}
	}
}

// TestInvalidAnnotations: a tool with an annotation that the specification does
// not allow is left out of the list; the others stay.
func TestInvalidAnnotations(t *testing.T) {
	property := func(schema string) string { return `{"type":"object","properties":{"a":` + schema + `}}` }
	for name, schema := range map[string]string{
		"empty":               property(`{"type":"string","x-mcp-header":""}`),
		"an object":           property(`{"type":"string","x-mcp-header":{}}`),
		"null":                property(`{"type":"string","x-mcp-header":null}`),
		"a space":             property(`{"type":"string","x-mcp-header":"a b"}`),
		"a colon":             property(`{"type":"string","x-mcp-header":"a:b"}`),
		"a line break":        property(`{"type":"string","x-mcp-header":"a\nb"}`),
		"not ASCII":           property(`{"type":"string","x-mcp-header":"é"}`),
		"a number":            property(`{"type":"number","x-mcp-header":"A"}`),
		"an array":            property(`{"type":"array","x-mcp-header":"A"}`),
		"two types":           property(`{"type":["string","null"],"x-mcp-header":"A"}`),
		"no type":             property(`{"x-mcp-header":"A"}`),
		"a reference":         property(`{"$ref":"#/$defs/a","x-mcp-header":"A"}`),
		"the same name twice": `{"type":"object","properties":{"a":{"type":"string","x-mcp-header":"A"},"b":{"type":"string","x-mcp-header":"a"}}}`,
		"the whole":           `{"type":"object","x-mcp-header":"A"}`,
		"in items":            property(`{"type":"array","items":{"type":"string","x-mcp-header":"A"}}`),
		"in a choice":         property(`{"anyOf":[{"type":"string","x-mcp-header":"A"}]}`),
		"in a definition":     `{"type":"object","$defs":{"a":{"type":"string","x-mcp-header":"A"}}}`,
		"under a pattern":     `{"type":"object","patternProperties":{"a":{"type":"string","x-mcp-header":"A"}}}`,
		"under a condition":   `{"type":"object","then":{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}}`,
		"escaped":             property(`{"type":"string","x-mcp\u002dheader":""}`),
	} {
		t.Run(name, func(t *testing.T) {
			for era, want := range map[policy.Era]int{policy.EraModern: 1, policy.EraLegacy: 2} {
				s := legacy()
				s.lines[toolsList] = []answer{listing("", schema, `{"type":"object"}`)}
				l, rep := list(t, s, era)
				if len(l.Tools) != want || len(l.Invalid) != 2-want || rep.Outcome.State != fault.Succeeded {
					t.Errorf("%s: %d tools, %d invalid, %+v", era, len(l.Tools), len(l.Invalid), rep.Outcome)
				}
			}
		})
	}
}

// TestHeaderMismatch: after a refusal that says that headers are missing, the
// tools are read once, and the call is sent once more if that changes it.
func TestHeaderMismatch(t *testing.T) {
	mismatch := statusCode(http.StatusBadRequest, -32020)
	for _, r := range []struct {
		name  string
		calls []answer
		list  answer
		want  fault.Outcome
		path  string
	}{
		{"mended", []answer{mismatch, result(good)}, listing("", routed), succeeded, "tools/call tools/list tools/call"},
		{"refused for ever", []answer{mismatch}, listing("", routed), fault.RefusedBecause(fault.HeaderMismatch), "tools/call tools/list tools/call"},
		{"nothing to mend", []answer{mismatch}, listing("", `{"type":"object"}`), fault.RefusedBecause(fault.HeaderMismatch), "tools/call tools/list"},
		{"the tool is gone", []answer{mismatch}, listing(""), fault.RefusedBecause(fault.HeaderMismatch), "tools/call tools/list"},
		{"the list fails", []answer{mismatch}, status(500, ""), fault.RefusedBecause(fault.HeaderMismatch), "tools/call tools/list"},
		{"mended, and cut off", []answer{mismatch, cut("")}, listing("", routed), fault.Doubt(fault.ConnectionLost), "tools/call tools/list tools/call"},
	} {
		t.Run(r.name, func(t *testing.T) {
			s := modern(r.calls...)
			s.lines[toolsList] = []answer{r.list}
			talk := mcpclient.New(mcpclient.Config{}).Open(s.server(t, policy.EraModern))
			defer talk.Close()
			rep := talk.CallTool(within(t, 5*time.Second), eu, open())
			if path := strings.Join(s.methods(), " "); rep.Outcome != r.want || path != r.path {
				t.Errorf("%+v by %q, want %+v by %q", rep.Outcome, path, r.want, r.path)
			}
		})
	}
}

var (
	eu        = mcpclient.Call{Tool: "search", Arguments: strictjson.Raw(`{"region":"eu"}`), Context: "user:7"}
	succeeded = fault.Outcome{State: fault.Succeeded, Ran: fault.RanYes, Evidence: fault.EvidencePeer}
)

// TestMirrorsAreRemembered: as long as the server says, and of a list that is not
// public for the same Context alone.
func TestMirrorsAreRemembered(t *testing.T) {
	for _, r := range []struct {
		name, extra string
		first       string // who reads the list
		later       time.Duration
		context     string
		mirrored    bool
	}{
		{"the same", `,"ttlMs":60000`, "user:7", 0, "user:7", true},
		{"just in time", `,"ttlMs":60000`, "user:7", time.Minute - 1, "user:7", true},
		{"too late", `,"ttlMs":60000`, "user:7", time.Minute, "user:7", false},
		{"an hour at most", `,"ttlMs":1e12`, "user:7", time.Hour, "user:7", false},
		{"no time said", ``, "user:7", 0, "user:7", false},
		{"somebody else", `,"ttlMs":60000`, "user:7", 0, "user:8", false},
		{"nobody", `,"ttlMs":60000`, "user:7", 0, "", false},
		{"private, somebody else", `,"ttlMs":60000,"cacheScope":"private"`, "user:7", 0, "user:8", false},
		{"an unknown scope", `,"ttlMs":60000,"cacheScope":"shared"`, "user:7", 0, "user:8", false},
		{"public, somebody else", `,"ttlMs":60000,"cacheScope":"public"`, "user:7", 0, "user:8", true},
		{"nobody's", `,"ttlMs":60000`, "", 0, "user:8", false},
		{"nobody's, and nobody", `,"ttlMs":60000`, "", 0, "", false},
	} {
		t.Run(r.name, func(t *testing.T) {
			now := time.Now()
			gate := open()
			gate.Credential = func(context.Context, string) (mcpclient.Credential, error) {
				return mcpclient.Credential{ReadAt: now}, nil
			}
			client := mcpclient.New(mcpclient.Config{Now: func() time.Time { return now }})
			s := modern(statusCode(400, -32020), result(good))
			s.lines[toolsList] = []answer{listing(r.extra, routed)}
			server := s.server(t, policy.EraModern)
			one := func(context string) {
				talk := client.Open(server)
				defer talk.Close()
				call := eu
				call.Context = context
				talk.CallTool(within(t, 5*time.Second), call, gate)
			}
			one(r.first)
			now = now.Add(r.later)
			one(r.context)
			last := mirroredIn(s.asked[len(s.asked)-1])
			if (last["Mcp-Param-Region"] == "eu") != r.mirrored {
				t.Errorf("headers %v, want them: %v", last, r.mirrored)
			}
		})
	}
}
