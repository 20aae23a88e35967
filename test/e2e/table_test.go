//go:build real

package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"onbehalf.internal/broker/brokertest"
	"onbehalf.internal/broker/internal/counterparts"
	"onbehalf.internal/broker/internal/devmcp"
	"onbehalf.internal/broker/internal/realvault"
)

// TestProvidersServersEngines is provider × server × Vault engine, each with a
// granted call, a refused audience, a tool that fails and a slow tool against a
// short budget. It prints how many cells passed.
func TestProvidersServersEngines(t *testing.T) {
	passed, cells := 0, 0
	servers := everyServer(t)
	providers := []provider{dev(), dex(t), zitadel(t)}
	for _, engine := range []string{"vault", "openbao"} {
		rig := startTable(t, engine, providers, servers)
		for _, p := range providers {
			for _, s := range servers {
				cells++
				if t.Run(engine+"/"+p.name+"/"+s.name, func(t *testing.T) { cell(t, rig, p, s) }) {
					passed++
				}
			}
		}
		if err := rig.Stop(); err != nil {
			t.Errorf("%s: stopping: %v", engine, err)
		}
	}
	fmt.Printf("table: %d of %d cells passed, 4 calls in each\n", passed, cells)
}

// cell is one combination.
func cell(t *testing.T, rig *brokertest.Rig, p provider, s server) {
	if p.subject != nil { // those of a real provider live for seconds
		store(t, rig, "subjects/"+p.name, p.subject(t))
	}
	for _, tc := range []struct {
		name, server string
		call         counterparts.ToolCall
		timeout      string
		want         string
	}{
		{"granted", p.name + "_" + s.name, s.Echo, "", "200 succeeded"},
		{"refused audience", p.name + "_elsewhere_" + s.name, s.Echo, "", p.refusal},
		{"tool fails", p.name + "_" + s.name, s.Fail, "", "200 tool_error tool_failed"},
		{"slow", p.name + "_" + s.name, s.Slow, "1s", "200 unknown wall_clock"},
	} {
		call := brokertest.Call{Server: tc.server, Tool: tc.call.Tool, Timeout: tc.timeout}
		if tc.call.Arguments != nil {
			call.Arguments = tc.call.Arguments
		}
		a := rig.Call(t, call)
		got := strings.Join(strings.Fields(fmt.Sprint(a.Status, " ", a.State, " ", a.Cause, " ", a.Reason)), " ")
		if got != tc.want {
			t.Errorf("%s: %s, want %s\n%s", tc.name, got, tc.want, a.Body)
		}
		if hold := settled(t, rig, a, call); hold == "pending" {
			t.Errorf("%s: the hold was not seen to be gone", tc.name)
		}
	}
}

// A provider is an identity provider, as it has to be written.
type provider struct {
	name      string
	profile   string // YAML below profiles:; empty: brokertest's own
	auth      string // auth: of its servers
	elsewhere string // the same for an audience that is refused
	refusal   string // how: status, state, reason
	secret    string // the broker's, at the provider
	subject   func(testing.TB) string
}

// dev is the dev provider, which knows no such audience.
func dev() provider {
	return provider{
		name:      "company",
		auth:      `{mode: delegated, profile: company, audience: mcp-records, scopes: [records.read]}`,
		elsewhere: `{mode: delegated, profile: company, audience: mcp-elsewhere, scopes: [records.read]}`,
		refusal:   "200 not_sent target_rejected",
	}
}

// dex ignores the audience parameter. Which client a token is for is asked for
// by a scope, and refused with 500 where that client does not trust ours.
func dex(t *testing.T) provider {
	d := counterparts.Dex(t)
	return provider{
		name: "dex", secret: d.ClientSecret, subject: d.Subject,
		profile: `
  dex:
    token_endpoint: "` + d.TokenEndpoint + `"
    allow_cidrs: ["127.0.0.0/8"]
    client: {id: ` + d.ClientID + `, auth: basic, key: "vault:kv/broker/clients/dex#value"}
    subject_token_type: "urn:ietf:params:oauth:token-type:id_token"
    extra_params: {connector_id: corp}
    allowed_audiences: [mcp-records, mcp-mail]
    allowed_scopes: [openid, "audience:server:client_id:mcp-records", "audience:server:client_id:mcp-mail"]
    response: {token_format: jwt, expect_issuer: "` + d.Issuer + `", expect_audience: [broker, mcp-records, mcp-mail]}
    grants:
      "user:7": {enabled: true, credential: "vault:kv/broker/subjects/dex#value", allowed_audiences: [mcp-records, mcp-mail],
                 allowed_scopes: [openid, "audience:server:client_id:mcp-records", "audience:server:client_id:mcp-mail"]}
`,
		auth:      `{mode: delegated, profile: dex, audience: mcp-records, scopes: [openid, "audience:server:client_id:mcp-records"]}`,
		elsewhere: `{mode: delegated, profile: dex, audience: mcp-mail, scopes: [openid, "audience:server:client_id:mcp-mail"]}`,
		refusal:   "200 not_sent provider_error",
	}
}

// zitadel's example looks at no audience and issues opaque tokens, so the grant's
// bounds are the only ones that hold.
func zitadel(t *testing.T) provider {
	z := counterparts.Zitadel(t)
	return provider{
		name: "zitadel", secret: z.ClientSecret, subject: z.Subject,
		profile: `
  zitadel:
    token_endpoint: "` + z.TokenEndpoint + `"
    allow_cidrs: ["127.0.0.0/8"]
    client: {id: ` + z.ClientID + `, auth: basic, key: "vault:kv/broker/clients/zitadel#value"}
    allowed_audiences: [mcp-records, mcp-mail]
    allowed_scopes: [openid]
    response: {token_format: opaque, audience_unverified: true}
    grants:
      "user:7": {enabled: true, credential: "vault:kv/broker/subjects/zitadel#value", allowed_audiences: [mcp-records], allowed_scopes: [openid]}
`,
		auth:      `{mode: delegated, profile: zitadel, audience: mcp-records, scopes: [openid]}`,
		elsewhere: `{mode: delegated, profile: zitadel, audience: mcp-mail, scopes: [openid]}`,
		refusal:   "403 audience_not_allowed",
	}
}

// A server is an MCP server of the table. Its name is a part of server ids.
type server struct {
	name string
	*counterparts.MCP
}

func everyServer(t *testing.T) []server {
	return []server{
		{"modern", devServer(t, false)},
		{"legacy", devServer(t, true)},
		{"gosdk", slowed(t, counterparts.Everything(t, true))},
		{"gosdk_sessions", slowed(t, counterparts.Everything(t, false))},
		{"everything", counterparts.ServerEverything(t)},
		{"python", counterparts.PythonMCP(t)},
		{"fastmcp", counterparts.FastMCP(t)},
	}
}

// devServer is our own, for any token: the table has three issuers.
func devServer(t *testing.T, legacy bool) *counterparts.MCP {
	s, err := devmcp.Start(devmcp.Options{Legacy: legacy, Verify: func(token string) (devmcp.Identity, error) {
		if token == "" {
			return devmcp.Identity{}, errors.New("no token")
		}
		return devmcp.Identity{Subject: "somebody"}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return &counterparts.MCP{URL: s.URL, Echo: counterparts.ToolCall{Tool: "whoami"}, Fail: counterparts.ToolCall{Tool: "fail"},
		Slow: counterparts.ToolCall{Tool: "slow", Arguments: map[string]any{"seconds": 30}}}
}

// slowed stands before a server that has no slow tool: what calls one of its tools
// reaches nobody until the caller has gone.
func slowed(t *testing.T, m *counterparts.MCP) *counterparts.MCP {
	const tool = "test_tool_with_progress"
	target, err := url.Parse(m.URL)
	if err != nil {
		t.Fatal(err)
	}
	target.Path = ""
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || bytes.Contains(body, []byte(tool)) {
			<-r.Context().Done()
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return &counterparts.MCP{URL: s.URL + "/mcp", Echo: m.Echo, Fail: m.Fail, Slow: counterparts.ToolCall{Tool: tool}}
}

// startTable runs one broker process with every provider and every server in
// its configuration.
func startTable(t *testing.T, engine string, providers []provider, servers []server) *brokertest.Rig {
	t.Helper()
	o := brokertest.Options{Binary: binary, Config: func(yaml string) string { return configuration(yaml, providers, servers) }}
	if engine == "vault" {
		v := realvault.Start(t)
		o.Vault, o.VaultToken = v.Addr, v.Token
	} else {
		v := counterparts.OpenBao(t)
		o.Vault, o.VaultToken = v.Addr, v.Token
	}
	rig := brokertest.New(t, &o)
	for _, p := range providers {
		if p.secret != "" {
			store(t, rig, "clients/"+p.name, p.secret)
		}
	}
	return rig
}

func store(t *testing.T, rig *brokertest.Rig, path, value string) {
	t.Helper()
	if err := rig.SetCredential(t.Context(), "broker/"+path, value); err != nil {
		t.Fatal(err)
	}
}

// configuration adds the table's profiles and servers to brokertest's.
func configuration(yaml string, providers []provider, servers []server) string {
	var profiles, entries strings.Builder
	var ids []string
	for _, p := range providers {
		profiles.WriteString(p.profile)
		for _, s := range servers {
			for id, auth := range map[string]string{p.name + "_" + s.name: p.auth, p.name + "_elsewhere_" + s.name: p.elsewhere} {
				ids = append(ids, id)
				fmt.Fprintf(&entries, "  %s:\n    url: %s\n    allow_cidrs: [\"127.0.0.0/8\"]\n    enabled: true\n    data_class: internalConfiguration\n"+
					"    requires_approval: false\n    auth: %s\n    tools: {%s: {enabled: true}, %s: {enabled: true}, %s: {enabled: true}}\n",
					id, s.URL, auth, s.Echo.Tool, s.Fail.Tool, s.Slow.Tool)
			}
		}
	}
	return strings.NewReplacer(
		"servers: [records, archive]", "servers: ["+strings.Join(ids, ", ")+"]",
		"[mcp-records, mcp-archive]", "[mcp-records, mcp-archive, mcp-elsewhere]", // in bounds, and unknown to the provider
		"\nservers:\n", profiles.String()+"\nservers:\n",
	).Replace(yaml) + entries.String()
}
