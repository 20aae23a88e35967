package mcpfacade_test

import (
	"encoding/json"
	"strings"
	"testing"

	"onbehalf.internal/broker/brokertest"
	"onbehalf.internal/broker/fault"
)

// TestTokens: which tokens open the address of a server. What is wrong with one is not told
// to a server, and no operation is begun.
func TestTokens(t *testing.T) {
	r := newRig(t, brokertest.Options{Config: func(y string) string {
		return strings.Replace(y, `subjects: ["user:7", "user:8"]}`, `subjects: ["user:7", "user:8"], scopes: [mcp]}`, 1)
	}})
	scoped := map[string]any{"scope": "mcp"}
	with := func(name string, value any) map[string]any { return map[string]any{"scope": "mcp", name: value} }
	for _, row := range []struct {
		name, token string
		status      int
		reason      fault.Reason
		challenge   string // what WWW-Authenticate holds besides where the metadata is
	}{
		{"good", r.Token("7", resource("records"), scoped), 200, "", ""},
		{"none", "", 401, fault.CallerUnknown, ""},
		{"for another server", r.Token("7", resource("archive"), scoped), 401, fault.AssertionInvalid, `error="invalid_token"`},
		{"for the origin", r.Token("7", brokertest.Origin, scoped), 401, fault.AssertionInvalid, `error="invalid_token"`},
		{"for two", r.Token("7", "", with("aud", []string{resource("records"), resource("archive")})), 401, fault.AssertionInvalid, `error="invalid_token"`},
		{"expired", r.Token("7", resource("records"), with("exp", 1)), 401, fault.AssertionInvalid, `error="invalid_token"`},
		{"of another issuer", r.Token("7", resource("records"), with("iss", "https://portal.example")), 401, fault.AssertionInvalid, `error="invalid_token"`},
		{"an assertion", r.Assert("user:7"), 401, fault.AssertionInvalid, `error="invalid_token"`},
		{"the gateway's bearer", r.Bearer, 401, fault.AssertionInvalid, `error="invalid_token"`},
		{"what a server was sent", r.Provider.Mint("user:7", 1e12), 401, fault.AssertionInvalid, `error="invalid_token"`},
		{"without a scope", r.Token("7", resource("records"), nil), 403, fault.InsufficientScope, `error="insufficient_scope"`},
		{"of another person", r.Token("6", resource("records"), scoped), 403, fault.ActorNotAllowed, ""},
	} {
		a := send(t, r, "POST", resource("records"), row.token, initialize, nil)
		if a.Status != row.status || a.Reason != row.reason {
			t.Errorf("%s: %d %s %s", row.name, a.Status, a.Reason, a.Body)
		}
		challenge := a.Header.Get("WWW-Authenticate")
		where := `Bearer resource_metadata="` + brokertest.Origin + `/.well-known/oauth-protected-resource/mcp/records", scope="mcp"`
		if told := row.status == 401 || row.reason == fault.InsufficientScope; told != strings.HasPrefix(challenge, where) || !strings.Contains(challenge, row.challenge) ||
			row.challenge == "" && strings.Contains(challenge, "error=") {
			t.Errorf("%s: WWW-Authenticate: %s", row.name, challenge)
		}
		if row.status != 200 && a.Header.Get("Mcp-Session-Id") != "" {
			t.Errorf("%s: has a session", row.name)
		}
		if row.token != "" && strings.Contains(a.Body, row.token) {
			t.Errorf("%s: the answer holds the token", row.name)
		}
	}
	if a := send(t, r, "GET", r.URL+"/v1/tools", r.Token("7", resource("records"), scoped), "", map[string]string{"Host": strings.TrimPrefix(r.URL, "http://")}); a.Status != 401 {
		t.Errorf("an access token at the API: %d", a.Status)
	}
}

// TestMetadata: who issues tokens for an address is public, the same for each, and says
// nothing of which servers there are (RFC 9728).
func TestMetadata(t *testing.T) {
	r := newRig(t, brokertest.Options{})
	for _, server := range []string{"records", "nowhere"} {
		a := send(t, r, "GET", brokertest.Origin+"/.well-known/oauth-protected-resource/mcp/"+server, "", "", nil)
		var got struct {
			Resource string
			Servers  []string `json:"authorization_servers"`
			Methods  []string `json:"bearer_methods_supported"`
		}
		if err := json.Unmarshal([]byte(a.Body), &got); err != nil || a.Status != 200 || a.Header.Get("Content-Type") != "application/json" ||
			got.Resource != resource(server) || len(got.Servers) != 1 || got.Servers[0] != "https://login.example" || len(got.Methods) != 1 {
			t.Errorf("%s: %d %s", server, a.Status, a.Body)
		}
	}
	for path, want := range map[string]int{"/mcp/": 404, "/mcp/Records": 404, "/mcp/a/b": 404, "/mcp/records?x=1": 404} {
		if a := send(t, r, "GET", brokertest.Origin+"/.well-known/oauth-protected-resource"+path, "", "", nil); a.Status != want {
			t.Errorf("%s: %d", path, a.Status)
		}
	}
	if a := send(t, r, "POST", brokertest.Origin+"/.well-known/oauth-protected-resource/mcp/records", "", "{}", nil); a.Status != 405 {
		t.Errorf("POST: %d", a.Status)
	}
}

// TestGuard: what is refused before the library reads it.
func TestGuard(t *testing.T) {
	r := newRig(t, brokertest.Options{})
	token := r.Token("7", resource("records"), nil)
	const modern, list = "2026-07-28", `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}`
	for _, row := range []struct {
		name, method, address, body string
		headers                     map[string]string
		status                      int
		reason                      fault.Reason
	}{
		{"good", "POST", resource("records"), initialize, nil, 200, ""},
		{"another host", "POST", resource("records"), initialize, map[string]string{"Host": "evil.example"}, 403, fault.HostNotAllowed},
		{"where it listens", "POST", resource("records"), initialize, map[string]string{"Host": strings.TrimPrefix(r.URL, "http://")}, 403, fault.HostNotAllowed},
		{"a browser", "POST", resource("records"), initialize, map[string]string{"Origin": "https://evil.example"}, 403, fault.HostNotAllowed},
		{"a browser at our own page", "POST", resource("records"), initialize, map[string]string{"Origin": brokertest.Origin}, 403, fault.HostNotAllowed},
		{"a preflight", "OPTIONS", resource("records"), "", nil, 405, fault.MethodNotAllowed},
		{"a stream of its own", "GET", resource("records"), "", nil, 405, fault.MethodNotAllowed},
		{"put", "PUT", resource("records"), list, nil, 405, fault.MethodNotAllowed},
		{"a query", "POST", resource("records") + "?x=1", initialize, nil, 404, fault.UnknownRoute},
		{"no name", "POST", brokertest.Origin + "/mcp/", initialize, nil, 404, fault.UnknownRoute},
		{"two names", "POST", resource("records/archive"), initialize, nil, 404, fault.UnknownRoute},
		{"a batch", "POST", resource("records"), "[" + list + "]", nil, 400, fault.MalformedRequest},
		{"two messages", "POST", resource("records"), list + list, nil, 400, fault.MalformedRequest},
		{"one name twice", "POST", resource("records"), `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"job","name":"drop"}}`, nil, 400, fault.MalformedRequest},
		{"no UTF-8", "POST", resource("records"), "{\"a\":\"\xff\"}", nil, 400, fault.MalformedRequest},
		{"nothing", "POST", resource("records"), "", nil, 400, fault.MalformedRequest},
		{"too much", "POST", resource("records"), `{"a":"` + strings.Repeat("a", 256<<10) + `"}`, nil, 413, fault.RequestTooLarge},
		{"coded", "POST", resource("records"), initialize, map[string]string{"Content-Encoding": "gzip"}, 415, fault.UnsupportedMedia},
		{"text", "POST", resource("records"), initialize, map[string]string{"Content-Type": "text/plain"}, 415, ""},
		{"no session", "POST", resource("records"), list, map[string]string{"Mcp-Session-Id": "none"}, 404, fault.UnknownRoute},
		{"a version that nobody speaks", "POST", resource("records"), list, map[string]string{"Mcp-Protocol-Version": "2024-11-05"}, 400, ""},
		{"without the header of its era", "POST", resource("records"), `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`, nil, 400, ""},
		{"what is not offered", "POST", resource("records"), `{"jsonrpc":"2.0","id":1,"method":"prompts/list","params":{}}`, map[string]string{"Mcp-Protocol-Version": modern, "Mcp-Method": "prompts/list"}, 404, ""},
		{"without what its era asks for", "POST", resource("records"), list, map[string]string{"Mcp-Protocol-Version": modern, "Mcp-Method": "tools/list"}, 400, ""},
	} {
		a := send(t, r, row.method, row.address, token, row.body, row.headers)
		if a.Status != row.status || a.Reason != row.reason {
			t.Errorf("%s: %d %s %.200s", row.name, a.Status, a.Reason, a.Body)
		}
	}
}

// TestSessions: a session is for the actor at the address that has opened it; to all others it
// does not exist.
func TestSessions(t *testing.T) {
	r := newRig(t, brokertest.Options{})
	const ping = `{"jsonrpc":"2.0","id":2,"method":"ping"}`
	mine := r.Token("7", resource("records"), nil)
	opened := send(t, r, "POST", resource("records"), mine, initialize, nil)
	id := map[string]string{"Mcp-Session-Id": opened.Header.Get("Mcp-Session-Id")}
	if opened.Status != 200 || id["Mcp-Session-Id"] == "" {
		t.Fatalf("%d %s", opened.Status, opened.Body)
	}
	for _, row := range []struct {
		name, method, server, token, body string
		status                            int
	}{
		{"mine", "POST", "records", mine, ping, 200},
		{"mine, by another token", "POST", "records", r.Token("7", resource("records"), nil), ping, 200},
		{"another actor", "POST", "records", r.Token("8", resource("records"), nil), ping, 404},
		{"another actor ends it", "DELETE", "records", r.Token("8", resource("records"), nil), "", 404},
		{"another address", "POST", "archive", r.Token("7", resource("archive"), nil), ping, 404},
		{"nobody", "POST", "records", "", ping, 401},
		{"mine, still", "POST", "records", mine, ping, 200},
		{"ended", "DELETE", "records", mine, "", 204},
	} {
		if a := send(t, r, row.method, resource(row.server), row.token, row.body, id); a.Status != row.status {
			t.Errorf("%s: %d %s", row.name, a.Status, a.Body)
		}
	}
	// One actor cannot take the room of all.
	full := 0
	for range 66 {
		if a := send(t, r, "POST", resource("records"), mine, initialize, nil); strings.Contains(a.Body, "too many sessions") && a.Header.Get("Mcp-Session-Id") != "" {
			full++
		}
	}
	if full < 1 || full > 2 {
		t.Errorf("%d of 66 sessions were refused", full)
	}
	if a := send(t, r, "POST", resource("records"), r.Token("8", resource("records"), nil), initialize, nil); strings.Contains(a.Body, "too many") {
		t.Errorf("another actor: %s", a.Body)
	}
}
