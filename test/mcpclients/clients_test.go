//go:build real || interop

package mcpclients

import (
	"encoding/json"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"onbehalf.internal/broker/brokertest"
	"onbehalf.internal/broker/internal/counterparts"
	"onbehalf.internal/broker/internal/devmcp"
)

// newRig is a broker that MCP clients come to by the address that it has.
func newRig(t *testing.T) *brokertest.Rig {
	t.Helper()
	address := freeAddress(t)
	return imported(t, brokertest.Options{API: address, Config: brokertest.FrontedAt("http://" + address)})
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func imported(t *testing.T, o brokertest.Options) *brokertest.Rig {
	t.Helper()
	r := brokertest.New(t, &o)
	for _, server := range []string{"records", "archive"} {
		if a := r.Admin(t, "POST", "/v1/servers/"+server+"/import", "", nil); a.Status != http.StatusOK {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
	}
	return r
}

func typescript(library string) func(testing.TB, counterparts.Visit) counterparts.Seen {
	return func(t testing.TB, v counterparts.Visit) counterparts.Seen {
		return counterparts.TypeScriptClient(t, library, v)
	}
}

// TestClients: each library, in each era that it speaks, lists and calls as two people, and
// each person's call reaches the server by a token of its own.
func TestClients(t *testing.T) {
	for _, row := range []struct {
		name  string
		mode  string
		visit func(testing.TB, counterparts.Visit) counterparts.Seen
		era   string
	}{
		{"TypeScript sdk", "legacy", typescript("sdk"), "2025-11-25"},
		{"TypeScript client", "legacy", typescript("client"), "2025-11-25"},
		{"TypeScript client", "auto", typescript("client"), "2026-07-28"},
		{"TypeScript client", "2026-07-28", typescript("client"), "2026-07-28"},
		{"Python", "legacy", counterparts.PythonClient, "2025-11-25"},
		{"Python", "auto", counterparts.PythonClient, "2026-07-28"},
		{"Python", "2026-07-28", counterparts.PythonClient, "2026-07-28"},
	} {
		t.Run(row.name+", "+row.mode, func(t *testing.T) {
			r := newRig(t)
			url := r.URL + "/mcp/records"
			for _, person := range []string{"7", "8"} {
				token := r.Token(person, url, nil)
				seen := row.visit(t, counterparts.Visit{URL: url, Mode: row.mode, Token: token, Key: "k-" + person})
				slices.Sort(seen.Tools)
				if got := strings.Join(seen.Tools, " "); got != "broker_operation_get broker_operation_list drop fail job slow whoami" || seen.Version != row.era {
					t.Errorf("offered %s by %s", got, seen.Version)
				}
				var who devmcp.Identity
				if err := json.Unmarshal([]byte(seen.Text), &who); err != nil || seen.IsError || who.Subject != "user:"+person {
					t.Errorf("%q, %v", seen.Text, err)
				}
				id, _ := seen.Meta["onbehalf/operation_id"].(string)
				if len(id) != 26 || seen.Meta["onbehalf/request_key"] != "k-"+person {
					t.Errorf("_meta is %v", seen.Meta)
				}
				if slices.Contains(r.Records.Tokens(), token) {
					t.Error("the server was shown the token that the client came with")
				}
			}
			if n := r.Records.Calls("whoami"); n != 2 {
				t.Errorf("the server was called %d times", n)
			}
		})
	}
}

// TestInspector: the Inspector's command line lists and calls, in both eras.
func TestInspector(t *testing.T) {
	r := newRig(t)
	for _, mode := range []string{"legacy", "modern", "auto"} {
		url := r.URL + "/mcp/archive"
		visit := counterparts.Visit{URL: url, Mode: mode, Token: r.Token("8", url, nil)}
		var list struct{ Tools []struct{ Name string } }
		if err := json.Unmarshal(counterparts.Inspector(t, visit, "--method", "tools/list"), &list); err != nil || len(list.Tools) != 7 {
			t.Errorf("%s: %d tools, %v", mode, len(list.Tools), err)
		}
		var answer struct {
			StructuredContent devmcp.Identity
			Meta              map[string]any `json:"_meta"`
		}
		out := counterparts.Inspector(t, visit, "--method", "tools/call", "--tool-name", "whoami", "--tool-metadata", "onbehalf/request_key=k-"+mode)
		if err := json.Unmarshal(out, &answer); err != nil || answer.StructuredContent.Subject != "user:8" || answer.Meta["onbehalf/request_key"] != "k-"+mode {
			t.Errorf("%s: %v in %s", mode, err, out)
		}
	}
	if n := r.Archive.Calls("whoami"); n != 3 {
		t.Errorf("the server was called %d times", n)
	}
}
