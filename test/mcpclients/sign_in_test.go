//go:build real || interop

package mcpclients

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/golang-jwt/jwt/v5"
	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/modelcontextprotocol/go-sdk/oauthex"
	"golang.org/x/oauth2"

	"onbehalf.internal/broker/brokertest"
	"onbehalf.internal/broker/internal/counterparts"
	"onbehalf.internal/broker/internal/devmcp"
)

// A house is a broker that MCP clients come to, and where people sign in for it.
type house struct {
	*brokertest.Rig
	login *counterparts.LoginServer
}

// newHouse is one where tokens are for the address of one server.
func newHouse(t *testing.T) house {
	t.Helper()
	address := freeAddress(t)
	return houseOf(t, address, counterparts.Login(t, "http://"+address+"/mcp/"), "")
}

// houseOf is one at an address; more is added to what the broker believes of tokens.
func houseOf(t *testing.T, address string, login *counterparts.LoginServer, more string) house {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "login.jwks"), login.KeySet, 0o600); err != nil {
		t.Fatal(err)
	}
	return house{login: login, Rig: imported(t, brokertest.Options{API: address, Dir: dir, Config: func(yaml string) string {
		return strings.Replace(brokertest.FrontedAt("http://"+address)(yaml), `issuer: "https://login.example", jwks: portal.jwks`,
			`issuer: "`+login.Issuer+`", jwks: login.jwks, scopes: [mcp]`+more, 1)
	}})}
}

// visit has a person at a client that signs in: known as the client is, and with what it has kept.
// It counts how often a browser was opened, and looks at what was asked for there.
func (h house) visit(person string, known counterparts.SignIn) (counterparts.Visit, *atomic.Int32) {
	var opened atomic.Int32
	server, as := h.URL+"/mcp/records", cmp.Or(known.ClientID, known.Document)
	known.Browser = func(ctx context.Context, to string) (*url.URL, error) {
		asked, err := url.Parse(to)
		if err != nil || opened.Add(1) > 3 {
			return nil, fmt.Errorf("asked again and again, or for nothing: %q", to)
		}
		q := asked.Query()
		if as != "" && q.Get("client_id") != as || q.Get("resource") != server || q.Get("code_challenge_method") != "S256" || !slices.Contains(strings.Fields(q.Get("scope")), "mcp") {
			return nil, fmt.Errorf("asked for %q", q)
		}
		return h.login.SignIn(ctx, person, to)
	}
	return counterparts.Visit{URL: server, Key: "k-" + person, SignIn: &known}, &opened
}

// served checks that a call has reached the server as the person's own, and that no token that was
// issued where people sign in has.
func (h house) served(t *testing.T, seen counterparts.Seen, person string) {
	t.Helper()
	var who devmcp.Identity
	if err := json.Unmarshal([]byte(seen.Text), &who); err != nil || seen.IsError || who.Subject != "user:"+person {
		t.Errorf("%q, %v", seen.Text, err)
	}
	for _, token := range h.Records.Tokens() {
		var claims jwt.RegisteredClaims
		if _, _, err := jwt.NewParser().ParseUnverified(token, &claims); err == nil && claims.Issuer != h.Provider.Issuer() {
			t.Errorf("the server was shown a token of %s", claims.Issuer)
		}
	}
}

// A program is a client that signs in by itself.
type program struct {
	name, mode string
	visit      func(testing.TB, counterparts.Visit) counterparts.Seen
}

func programs() []program {
	return []program{
		{"TypeScript sdk", "legacy", typescript("sdk")},
		{"TypeScript client", "auto", typescript("client")},
		{"Python", "auto", counterparts.PythonClient},
		{"Go", "auto", goClient},
		{"Inspector", "auto", inspector},
	}
}

// goClient is a client on the official library in Go.
func goClient(t testing.TB, v counterparts.Visit) counterparts.Seen {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	handler, err := auth.NewAuthorizationCodeHandler(authorization(t, *v.SignIn, client))
	if err != nil {
		t.Fatal(err)
	}
	session, err := mcp.NewClient(&mcp.Implementation{Name: "desk", Version: "1"}, nil).Connect(t.Context(),
		&mcp.StreamableClientTransport{Endpoint: v.URL, HTTPClient: client, OAuthHandler: handler, MaxRetries: -1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	answer, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "whoami"})
	if err != nil {
		t.Fatal(err)
	}
	return counterparts.Seen{Text: answer.Content[0].(*mcp.TextContent).Text, IsError: answer.IsError}
}

// authorization is how the library in Go signs in.
func authorization(t testing.TB, known counterparts.SignIn, client *http.Client) *auth.AuthorizationCodeHandlerConfig {
	t.Helper()
	const page = "http://127.0.0.1:1/callback" // nobody goes there: the browser is in this process
	conf := &auth.AuthorizationCodeHandlerConfig{RedirectURL: page, RequestRefreshToken: true, Client: client,
		AuthorizationCodeFetcher: func(ctx context.Context, a *auth.AuthorizationArgs) (*auth.AuthorizationResult, error) {
			back, err := known.Browser(ctx, a.URL)
			if err != nil {
				return nil, err
			}
			q := back.Query()
			return &auth.AuthorizationResult{Code: q.Get("code"), State: q.Get("state"), Iss: q.Get("iss")}, nil
		}}
	switch {
	case known.ClientID != "":
		conf.PreregisteredClient = &oauthex.ClientCredentials{ClientID: known.ClientID}
	case known.Document != "":
		conf.ClientIDMetadataDocumentConfig = &auth.ClientIDMetadataDocumentConfig{URL: known.Document}
	default:
		conf.DynamicClientRegistrationConfig = &auth.DynamicClientRegistrationConfig{Metadata: &oauthex.ClientRegistrationMetadata{ClientName: "Desk",
			RedirectURIs: []string{page}, GrantTypes: []string{"authorization_code", "refresh_token"}, TokenEndpointAuthMethod: "none"}}
	}
	if known.Tokens != nil {
		var kept oauth2.Token
		if err := json.Unmarshal(known.Tokens, &kept); err != nil {
			t.Fatal(err)
		}
		conf.InitialTokenSource = oauth2.StaticTokenSource(&kept)
	}
	return conf
}

// inspector is the Inspector's command line.
func inspector(t testing.TB, v counterparts.Visit) (seen counterparts.Seen) {
	var answer struct {
		IsError bool
		Content []struct{ Text string }
	}
	out := counterparts.Inspector(t, v, "--method", "tools/call", "--tool-name", "whoami")
	if err := json.Unmarshal(out, &answer); err != nil || len(answer.Content) == 0 {
		t.Fatalf("%v in %s", err, out)
	}
	return counterparts.Seen{Text: answer.Content[0].Text, IsError: answer.IsError}
}

// TestSignIn: from nothing but the address of a server, each client finds out where people sign
// in, opens a browser there, once, and calls: in each way in which it can be known, as two people.
func TestSignIn(t *testing.T) {
	h := newHouse(t)
	for _, p := range programs() {
		for known, as := range map[string]counterparts.SignIn{
			"registered": {ClientID: h.login.ClientID}, "a document": {Document: h.login.Document}, "registers itself": {},
		} {
			t.Run(p.name+", "+known, func(t *testing.T) { h.signIn(t, p, as) })
		}
	}
}

// signIn has two people at a client that nobody has signed in at before.
func (h house) signIn(t *testing.T, p program, as counterparts.SignIn) {
	for _, person := range []string{"7", "8"} {
		v, opened := h.visit(person, as)
		v.Mode = p.mode
		h.served(t, p.visit(t, v), person)
		if n := opened.Load(); n != 1 {
			t.Errorf("%d browsers were opened", n)
		}
	}
}

// TestSignInAgain: a token that is of no use, whatever the reason, is told so that a client gets
// another: by its refresh token where it has one and uses it, else by its person, who is asked once.
func TestSignInAgain(t *testing.T) {
	h := newHouse(t)
	records, archive := h.URL+"/mcp/records", h.URL+"/mcp/archive"
	for _, row := range []struct {
		name, page, resource string
		scopes               []string
		keeps                bool     // the refresh token
		asks                 []string // the programs that ask their person; nil: all
	}{
		{"for another server", "callback", archive, []string{"mcp"}, false, nil},
		{"without the scope", "callback", records, nil, false, nil},
		{"expired, nothing else kept", "kept", records, []string{"mcp"}, false, nil},
		{"expired", "kept", records, []string{"mcp"}, true, []string{"Python", "Go"}},
	} {
		for _, p := range programs()[:4] { // the Inspector keeps nothing that a test can give it
			t.Run(p.name+", "+row.name, func(t *testing.T) {
				kept := h.login.Token(t, row.page, "7", row.resource, row.scopes...)
				if !row.keeps {
					kept.RefreshToken = ""
				}
				raw, err := json.Marshal(kept)
				if err != nil {
					t.Fatal(err)
				}
				v, opened := h.visit("7", counterparts.SignIn{ClientID: h.login.ClientID, Tokens: raw})
				v.Mode = p.mode
				h.served(t, p.visit(t, v), "7")
				want := int32(1)
				if row.asks != nil && !slices.Contains(row.asks, p.name) {
					want = 0
				}
				if n := opened.Load(); n != want {
					t.Errorf("%d browsers were opened, want %d", n, want)
				}
			})
		}
	}
}
