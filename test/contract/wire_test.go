package contract

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"onbehalf.internal/broker/brokertest"
	"onbehalf.internal/broker/fault"
)

// C1. On first contact ours also asks once which era it is, and at the end it gives
// a session back: the contract's client does neither.
func opensTheSession(t *testing.T, r *rig) {
	var want []string
	if !r.modern {
		want = append(want, "initialize", "notifications/initialized")
	}
	want = append(want, "tools/list")
	if r.session != "" {
		want = append(want, http.MethodDelete)
	}
	for _, first := range []bool{true, false} {
		since := len(r.server.questions())
		r.imports(t)
		expected := want
		if first {
			expected = append([]string{"server/discover"}, want...)
		}
		if got := r.server.methods(since); !slices.Equal(got, expected) {
			t.Errorf("the server was asked %q, want %q", got, expected)
		}
	}
}

// C2
func carriesTheSession(t *testing.T, r *rig) {
	r.imports(t)
	if a := r.call(t, brokertest.Call{}); a.State != fault.Succeeded {
		t.Fatalf("%s", a.Body)
	}
	r.must(t, r.Stop())
	for _, q := range r.server.questions() {
		want := r.session
		if q.method == "server/discover" || q.method == "initialize" {
			want = ""
		}
		got, sent := q.header["Mcp-Session-Id"]
		if sent != (want != "") || sent && !slices.Equal(got, []string{want}) {
			t.Errorf("%s with the session %q, want %q", q.method, got, want)
		}
		// Each leg has its credential: the exchanged one for a call, and no other.
		token := strings.TrimPrefix(q.header.Get("Authorization"), "Bearer ")
		switch issued := slices.Contains(r.Provider.Issued(), token); {
		case !r.delegated && token != "", r.delegated && !issued && token != discovery, q.method == "tools/call" && issued != r.delegated, q.method == "tools/list" && issued:
			t.Errorf("%s with the wrong credential", q.method)
		}
	}
}

// C3
func offersNoCapabilities(t *testing.T, r *rig) {
	got := r.probes(t)
	method, nothing := "initialize", `"capabilities":{}`
	if r.modern {
		method, nothing = "server/discover", `"io.modelcontextprotocol/clientCapabilities":{}`
	}
	if asked := r.server.of(method); len(asked) != 1 || !strings.Contains(asked[0].body, nothing) {
		t.Errorf("%s: %+v", method, asked)
	}
	want := fmt.Sprintf("up %s conformance 1.2.3", r.version())
	if told := strings.Join([]string{got.Is, got.Version, got.Software, got.Release}, " "); told != want {
		t.Errorf("the probe says %q, want %q", told, want)
	}
	h := r.seen(t).Health
	if told := strings.Join([]string{h.Is, h.Version, h.Software, h.Release}, " "); told != want {
		t.Errorf("GET /v1/servers says %q, want %q", told, want)
	}
}

// C4
func discoversAcrossPages(t *testing.T, r *rig) {
	r.server.walks(func(cursor *string) string {
		if cursor == nil {
			return page("second/page", tool("b", anything), tool("d", anything))
		}
		return page("", tool("a", anything), tool("c", anything))
	})
	if got := r.imports(t); got.Imported != 4 || got.Refused != "" || len(got.Skipped) != 0 {
		t.Errorf("%+v", got)
	}
	if got := names(r.kept(t)); got != "a b c d" { // ours are by name
		t.Errorf("the catalogue has %q", got)
	}
	asked := r.server.of("tools/list")
	if len(asked) != 2 || asked[0].params.Cursor != nil || asked[1].params.Cursor == nil || *asked[1].params.Cursor != "second/page" {
		t.Errorf("%+v", asked)
	}
}

// C5. Our word for "50 pages" is reply_too_large; the legs tell the pages.
func stopsWalking(t *testing.T, r *rig) {
	n := 0
	r.server.walks(func(*string) string {
		n++
		return page(fmt.Sprint("cursor-", n), tool(fmt.Sprint("t", n), anything))
	})
	got := r.imports(t)
	if got.Refused != fault.ReplyTooLarge || len(r.server.of("tools/list")) != 50 {
		t.Errorf("%d pages were asked for: %+v", len(r.server.of("tools/list")), got)
	}
	if len(r.kept(t)) != 0 {
		t.Error("some of it was taken")
	}
}

// C9
func executesATool(t *testing.T, r *rig) {
	r.imports(t)
	if o := r.offered(t)["search"]; o.Name != "mcp_peer_search" || o.Tool != "search" {
		t.Errorf("offered as %+v", o)
	}
	a := r.call(t, brokertest.Call{Arguments: map[string]string{"q": "é/"}})
	if a.State != fault.Succeeded || a.Text != "found" || a.Result == nil {
		t.Errorf("%s", a.Body)
	}
	asked := r.server.of("tools/call")
	if len(asked) != 1 || asked[0].params.Name != "search" || string(asked[0].params.Arguments) != `{"q":"é/"}` {
		t.Errorf("%+v", asked)
	}
}

// C10
func readsAnEventStream(t *testing.T, r *rig) {
	plainImport, plain := r.imports(t), r.call(t, brokertest.Call{})
	r.server.frames()
	framedImport, framed := r.imports(t), r.call(t, brokertest.Call{})
	if plainImport.Imported != 1 || framedImport.Imported != 1 || len(framedImport.Changed) != 0 {
		t.Errorf("plain %+v, framed %+v", plainImport, framedImport)
	}
	if plain.Text != "found" || told(plain) != told(framed) || plain.Text != framed.Text || string(plain.Result) != string(framed.Result) {
		t.Errorf("plain %s, framed %s", plain.Body, framed.Body)
	}
}

// C20. Nothing of the body is told; the contract's message has at most 1,000 bytes.
func overTheCap(t *testing.T, r *rig) {
	r.server.on("tools/call", r.server.answers(`{"content":[{"type":"text","text":"`+strings.Repeat("x", 3<<20)+`"}]}`))
	var a brokertest.Answer
	if r.contacted(t, func() { a = r.call(t, brokertest.Call{}) }) {
		t.Error("it was a contact")
	}
	if told(a) != "200 unknown reply_too_large never_without_looking" || a.Result != nil || strings.Contains(string(a.Body), "xxx") {
		t.Errorf("%s: %d bytes", told(a), len(a.Body))
	}
	r.server.lists(tool("a", `{"type":"object","description":"`+strings.Repeat("x", 3<<20)+`"}`))
	if got := r.imports(t); got.Refused != fault.ReplyTooLarge {
		t.Errorf("an import: %+v", got)
	}
}
