package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/go-cmp/cmp"

	"onbehalf.internal/broker/secret/canary"
)

const (
	idToken      = "an-identity-token-Kq81"
	workloadJWT  = "a-token-of-a-workload-Tz64"
	clientSecret = "the-secret-of-the-client-Wd29"
	issuedToken  = "the-token-for-the-server-Pm53"

	bearerGrant = "urn:ietf:params:oauth:grant-type:jwt-bearer"
)

// signer is the client's key where it signs, and clientKey that in PEM.
var signer, clientKey = newKey()

func newKey() (*ecdsa.PrivateKey, string) {
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		panic(err)
	}
	return key, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

// A guarded server is an MCP server, the authorization server before it and the
// enterprise's provider, on one address. It writes down the forms it gets.
type guarded struct {
	server
	url string

	metadata      map[string]string // members of the well-known documents that are otherwise; "" leaves one out
	status        int               // of the well-known documents; 0: 200
	first, second string            // what the token endpoints answer; empty: a token

	forms     []url.Values
	basic     []string
	assertion string // the ID-JAG that the provider has issued
}

func (g *guarded) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch r.URL.Path {
	case "/.well-known/oauth-protected-resource/mcp":
		g.document(w, map[string]string{"resource": quoted(g.url + "/mcp"), "authorization_servers": "[" + quoted(g.url+"/as") + "]"})
	case "/.well-known/oauth-authorization-server/as":
		g.document(w, map[string]string{"issuer": quoted(g.url + "/as"), "token_endpoint": quoted(g.url + "/as/token")})
	case "/idp/token":
		g.assertion = idJAGFor(g.url)
		g.answer(w, r, g.first, `{"access_token":"`+g.assertion+`","issued_token_type":"urn:ietf:params:oauth:token-type:id-jag","token_type":"N_A"}`)
	case "/as/token":
		g.answer(w, r, g.second, `{"access_token":"`+issuedToken+`","token_type":"Bearer","expires_in":3600,"scope":"tools"}`)
	default:
		g.server.ServeHTTP(w, r)
	}
}

func (g *guarded) document(w http.ResponseWriter, members map[string]string) {
	if g.status != 0 {
		w.WriteHeader(g.status)
	}
	all := map[string]json.RawMessage{}
	for name, value := range members {
		if other, ok := g.metadata[name]; ok {
			value = other
		}
		if value != "" {
			all[name] = json.RawMessage(value)
		}
	}
	json.NewEncoder(w).Encode(all)
}

func (g *guarded) answer(w http.ResponseWriter, r *http.Request, refusal, answer string) {
	r.ParseForm()
	g.forms = append(g.forms, r.PostForm)
	if id, password, ok := r.BasicAuth(); ok {
		g.basic = append(g.basic, r.URL.Path+" "+id+" "+password)
	}
	if refusal != "" {
		w.WriteHeader(http.StatusBadRequest)
		answer = `{"error":"` + refusal + `"}`
	}
	fmt.Fprint(w, answer)
}

// idJAGFor is an assertion of the provider for the authorization server.
func idJAGFor(address string) string {
	claims := jwt.MapClaims{"iss": address + "/idp", "aud": address + "/as", "sub": "u", "exp": time.Now().Add(time.Minute).Unix()}
	signed, _ := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString([]byte("a-key-of-the-provider"))
	return signed
}

func quoted(s string) string { return fmt.Sprintf("%q", s) }

// context is what the suite hands out.
func (g *guarded) context(scenario string) string {
	switch scenario {
	case "auth/wif-jwt-bearer":
		return `{"client_id":"workload","valid_jwt":"` + workloadJWT + `","expired_jwt":"x"}`
	case "auth/client-credentials-basic":
		return `{"client_id":"client","client_secret":"` + clientSecret + `"}`
	case "auth/client-credentials-jwt":
		return `{"client_id":"client","private_key_pem":` + quoted(clientKey) + `,"signing_algorithm":"ES256"}`
	}
	return `{"client_id":"client","client_secret":"` + clientSecret + `","idp_client_id":"idp-client","idp_id_token":"` + idToken +
		`","idp_issuer":"` + g.url + `/idp","idp_token_endpoint":"` + g.url + `/idp/token"}`
}

// play plays a scenario against g. What the driver puts out may hold no secret.
func (g *guarded) play(t *testing.T, scenario, version, asked string) (err error) {
	t.Helper()
	h := httptest.NewServer(g)
	defer h.Close()
	g.url = strings.Replace(h.URL, "127.0.0.1", "localhost", 1) // as the suite says it
	if asked == "" {
		asked = g.context(scenario)
	}
	t.Setenv("TMPDIR", t.TempDir())
	env := map[string]string{"MCP_CONFORMANCE_SCENARIO": scenario, "MCP_CONFORMANCE_PROTOCOL_VERSION": version, "MCP_CONFORMANCE_CONTEXT": asked}
	ctx, cancel := context.WithTimeout(t.Context(), budget)
	defer cancel()
	canary.Run(t, func(c *canary.Cage) {
		var out bytes.Buffer
		err = run(ctx, []string{g.url + "/mcp"}, func(name string) string { return env[name] }, &out)
		c.Bytes("output", out.Bytes())
		c.Value("error", err)
		if said := strings.HasSuffix(out.String(), "as it should\n"); said != (err == nil) {
			t.Errorf("it said %q and ended with %v", out.String(), err)
		}
	}, idToken, workloadJWT, clientSecret, clientKey, issuedToken)
	if left, _ := os.ReadDir(os.TempDir()); len(left) != 0 {
		t.Errorf("it left %v behind", left)
	}
	return err
}

// TestOperator: which tokens are bought with what, and that the server gets
// what was bought.
func TestOperator(t *testing.T) {
	const enterprise = "auth/enterprise-managed-authorization"
	for _, tc := range []struct {
		scenario, version string
		begins            []string // what the server is asked before the list
	}{
		{enterprise, "", []string{handshake, initialized}},
		{enterprise, modern, nil},
		{"auth/cross-app-access-complete-flow", "2025-06-18", []string{handshakeOld, initialized}},
		{"auth/wif-jwt-bearer", modern, nil},
		{"auth/client-credentials-basic", modern, nil},
		{"auth/client-credentials-basic", "", []string{handshake, initialized}},
		{"auth/client-credentials-jwt", modern, nil},
	} {
		t.Run(tc.scenario+" "+tc.version, func(t *testing.T) {
			g := &guarded{server: server{tools: tool("test-tool"), token: issuedToken}}
			if err := g.play(t, tc.scenario, tc.version, ""); err != nil {
				t.Fatal(err)
			}
			resource := []string{g.url + "/mcp"}
			var want []url.Values
			var basic []string
			switch tc.scenario {
			case "auth/wif-jwt-bearer":
				want = []url.Values{{
					"grant_type": {bearerGrant}, "assertion": {workloadJWT}, "client_id": {"workload"}, "resource": resource, "scope": {"tools"},
				}}
			case "auth/client-credentials-basic":
				want = []url.Values{{"grant_type": {"client_credentials"}, "resource": resource, "scope": {"tools"}}}
				basic = []string{"/as/token client " + clientSecret}
			case "auth/client-credentials-jwt":
				want = []url.Values{{"grant_type": {"client_credentials"}, "client_id": {"client"}, "resource": resource, "scope": {"tools"}}}
				g.assertedBy(t, "client")
			default:
				want = []url.Values{{
					"grant_type": {"urn:ietf:params:oauth:grant-type:token-exchange"}, "client_id": {"idp-client"},
					"subject_token": {idToken}, "subject_token_type": {"urn:ietf:params:oauth:token-type:id_token"},
					"requested_token_type": {"urn:ietf:params:oauth:token-type:id-jag"},
					"audience":             {g.url + "/as"}, "resource": resource, "scope": {"tools"},
				}, {
					"grant_type": {bearerGrant}, "assertion": {g.assertion}, "resource": resource, "scope": {"tools"},
				}}
				basic = []string{"/as/token client " + clientSecret}
			}
			if diff := cmp.Diff(want, g.forms); diff != "" {
				t.Errorf("forms (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(basic, g.basic); diff != "" {
				t.Errorf("authentication (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(append(tc.begins, listAlone, "tools/call test-tool {}"), g.asked); diff != "" {
				t.Errorf("the server was asked (-want +got):\n%s", diff)
			}
		})
	}
}

// assertedBy takes the client's assertion out of the one form that was sent, and
// wants it to be of that client and for the authorization server.
func (g *guarded) assertedBy(t *testing.T, client string) {
	t.Helper()
	if len(g.forms) != 1 || g.forms[0].Get("client_assertion_type") != "urn:ietf:params:oauth:client-assertion-type:jwt-bearer" {
		t.Fatalf("%d forms, or one without an assertion", len(g.forms))
	}
	_, err := jwt.Parse(g.forms[0].Get("client_assertion"), func(*jwt.Token) (any, error) { return signer.Public(), nil },
		jwt.WithIssuer(client), jwt.WithSubject(client), jwt.WithAudience(g.url+"/as"), jwt.WithValidMethods([]string{"ES256"}))
	if err != nil {
		t.Errorf("the client's assertion: %v", err)
	}
	g.forms[0].Del("client_assertion")
	g.forms[0].Del("client_assertion_type")
}

// TestOperatorStops: where a document, a provider or the server says something
// else, the driver ends and asks nobody further.
func TestOperatorStops(t *testing.T) {
	const scenario = "auth/enterprise-managed-authorization"
	with := func(name, value string) guarded { return guarded{metadata: map[string]string{name: value}} }
	for _, tc := range []struct {
		name    string
		guarded guarded
		asked   string // context
		forms   int
		ended   string
	}{
		{"no metadata", guarded{status: 404}, "", 0, "oauth-protected-resource: status 404"},
		{"metadata elsewhere", guarded{status: 307}, "", 0, "oauth-protected-resource: status 307"},
		{"metadata of another server", with("resource", `"https://records.example.org/mcp"`), "", 0, "not of this server"},
		{"no resource", with("resource", ""), "", 0, "not of this server"},
		{"no authorization server", with("authorization_servers", ""), "", 0, "does not name one authorization server"},
		{"two authorization servers", with("authorization_servers", `["http://localhost:1","http://localhost:2"]`), "", 0, "does not name one authorization server"},
		{"an authorization server off loopback", with("authorization_servers", `["https://192.0.2.1"]`), "", 0, "host_refused"},
		{"an authorization server that is no URL", with("authorization_servers", `["http://[::1"]`), "", 0, "is no URL"},
		{"metadata that is no document", with("authorization_servers", `7`), "", 0, "not the document"},
		{"metadata of another issuer", with("issuer", `"https://auth.example.org"`), "", 0, "not of this issuer"},
		{"no token endpoint", with("token_endpoint", ""), "", 0, "names no token endpoint"},
		{"a token endpoint off loopback", with("token_endpoint", `"http://192.0.2.1/token"`), "", 0, "must be https"},
		{"a context that is none", guarded{}, `{"client_id":`, 0, "MCP_CONFORMANCE_CONTEXT is not what the suite says it is"},
		{"a context without a credential", guarded{}, `{"client_id":"client","idp_client_id":"c","idp_issuer":"i","idp_token_endpoint":"http://localhost:1/"}`, 0, "credential_missing"},
		{"the first step is refused", guarded{first: "invalid_request"}, "", 1, "subject_rejected"},
		{"the second step is refused", guarded{second: "invalid_client"}, "", 2, "provider_config"},
		{"the server does not take the token", guarded{server: server{token: "another"}}, "", 2, `tools/list ended not_sent with cause "unauthorized"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := &tc.guarded
			g.tools = tool("test-tool")
			err := g.play(t, scenario, modern, tc.asked)
			if err == nil || !strings.Contains(err.Error(), tc.ended) {
				t.Errorf("run ended with %v, want %q", err, tc.ended)
			}
			if len(g.forms) != tc.forms {
				t.Errorf("%d forms were sent, want %d", len(g.forms), tc.forms)
			}
		})
	}
}
