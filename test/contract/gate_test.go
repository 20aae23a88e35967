package contract

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"onbehalf.internal/broker/brokertest"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/internal/testhttp"
)

// C22
func dataClass(t *testing.T, r *rig) {
	other := "secretAdjacent"
	if r.class != "publicContent" {
		other = "publicContent"
	}
	claims := fmt.Sprintf(`"data_class":%q,"dataClass":%q,"requires_approval":%t,"requiresApproval":%t,"requires_admin":true,"enabled":true`, other, other, !r.approval, !r.approval)
	r.server.lists(`{"name":"search","inputSchema":{"type":"object","x-data-class":"`+other+`"},"annotations":{`+claims+`},"_meta":{`+claims+`},`+claims+`}`,
		`{"name":"off","inputSchema":{"type":"object"},"annotations":{`+claims+`}}`)
	r.imports(t)
	r.probes(t)
	if s := r.seen(t); s.DataClass != r.class || s.RequiresApproval != r.approval {
		t.Errorf("%+v", s)
	}
	// externalGlobal takes public and edited content, and nothing above.
	a := r.call(t, brokertest.Call{Zone: "externalGlobal"})
	if above := r.class != "publicContent"; above != (a.Reason == fault.ZoneExceeded) {
		t.Errorf("%s", a.Body)
	}
	if a := r.call(t, brokertest.Call{Tool: "off"}); a.Reason != fault.ToolDisabled {
		t.Errorf("%s", a.Body)
	}
	r.notSent(t)
}

// C23. The contract's remote tool is off until it is switched on, for administrators
// alone; ours is off until the operator names it, who also says who may.
func presentsItself(t *testing.T, r *rig) {
	r.server.lists(search, tool("find", anything), tool("off", anything), tool("new", anything))
	r.imports(t)
	for name, k := range r.kept(t) {
		declared, enabled := name != "new", name == "search" || name == "find"
		if k.Local != "mcp_peer_"+name || k.Declared != declared || k.Enabled != enabled {
			t.Errorf("%+v", k)
		}
	}
	offered := r.offered(t)
	if !r.approval && names(offered) != "find search" {
		t.Errorf("offered: %s", names(offered))
	}
	for name, o := range offered {
		if o.Name != "mcp_peer_"+name || !strings.HasPrefix(o.Description, `[via the external MCP server "peer"] `) || o.RequiresApproval != r.approval {
			t.Errorf("%+v", o)
		}
	}
	for tool, reason := range map[string]fault.Reason{"new": fault.ToolUnknown, "off": fault.ToolDisabled} {
		if a := r.call(t, brokertest.Call{Tool: tool}); a.Reason != reason {
			t.Errorf("%s: %s", tool, a.Body)
		}
	}
	r.edit(t, "search: {enabled: true}", "search: {enabled: true, requires_admin: true}")
	if a := r.call(t, brokertest.Call{}); a.Reason != fault.AdminRequired {
		t.Errorf("%s", a.Body)
	}
	if _, there := r.offered(t)["search"]; there {
		t.Error("it is offered to one who is no administrator")
	}
	r.edit(t, "enabled: true", "enabled: false")
	if len(r.offered(t)) != 0 || len(r.kept(t)) != 4 {
		t.Errorf("of a server that is off %d tools are offered and %d kept", len(r.offered(t)), len(r.kept(t)))
	}
	r.notSent(t)
}

// C24
func oneContact(t *testing.T, r *rig) {
	var between time.Time
	r.server.walks(func(cursor *string) string {
		if cursor == nil {
			return page("2", search)
		}
		between = r.seen(t).Health.Contact // the first page has been answered
		return page("", tool("find", anything))
	})
	if !r.contacted(t, func() { r.imports(t) }) || !between.IsZero() {
		t.Errorf("a walk of two pages is not one contact; between them it was %v", between)
	}
	if h := r.seen(t).Health; h.Latency <= 0 {
		t.Errorf("%+v", h)
	}
	for what, f := range map[string]func(){"a call": func() { r.call(t, brokertest.Call{}) }, "a probe": func() { r.probes(t) }} {
		if !r.contacted(t, f) {
			t.Errorf("%s is no contact", what)
		}
	}
	for what, list := range map[string]string{"no list": `{}`, "a list that is none": `{"tools":{"search":{}}}`, "a cursor that is none": `{"tools":[],"nextCursor":7}`} {
		r.server.walks(func(*string) string { return list })
		if r.contacted(t, func() { r.imports(t) }) {
			t.Errorf("%s is a contact", what)
		}
	}
}

// sends makes a request as the gateway and returns its status; word, if any, is also
// a header.
func (r *rig) sends(t *testing.T, method, path, body, word string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, r.URL+path, strings.NewReader(body))
	r.must(t, err)
	req.Header.Set("Authorization", "Bearer "+r.Bearer)
	req.Header.Set("Broker-Actor", "user:7")
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if word != "" {
		req.Header.Set(word, "true")
		req.Header.Set("Broker-"+word, "true")
		req.Header.Set("Prefer", word)
	}
	res, err := testhttp.Client.Do(req)
	r.must(t, err)
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	r.must(t, err)
	return res.StatusCode
}
