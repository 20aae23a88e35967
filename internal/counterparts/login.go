package counterparts

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/oauth2"
)

// A LoginServer is where people sign in and let a client act for them. The people are 7 and 8 at
// least, and their passwords are alike.
type LoginServer struct {
	Issuer   string
	ClientID string // a public client that is known there
	Document string // the address of a client that is a document
	KeySet   []byte // that verifies the tokens
}

// Login runs one on the engine oidc-provider until the test ends: test/oidcprovider/login.mjs. It
// issues tokens with the scope "mcp" for addresses that begin with servers, each for one of them
// (RFC 8707), and lets clients register themselves.
func Login(t testing.TB, servers string) *LoginServer {
	t.Helper()
	node := node22(t)
	folder := cached(t, "oidc-provider-9.13.3", "test/oidcprovider/install.sh")
	script := source(t, "test/oidcprovider/login.mjs")
	documents := httptest.NewTLSServer(http.HandlerFunc(document))
	t.Cleanup(documents.Close)
	port := start(t, func(home string, port int) program {
		trusted := filepath.Join(home, "documents.pem")
		certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: documents.Certificate().Raw})
		if err := os.WriteFile(trusted, certificate, 0o600); err != nil {
			t.Fatal(err)
		}
		return program{path: node, args: []string{script, folder, fmt.Sprint(port), servers}, env: []string{"NODE_EXTRA_CA_CERTS=" + trusted},
			ready: fmt.Sprintf("http://127.0.0.1:%d/jwks", port)}
	})
	issuer := fmt.Sprintf("http://127.0.0.1:%d", port)
	return &LoginServer{Issuer: issuer, ClientID: "desk", Document: documents.URL + "/desk.json", KeySet: keySet(t, issuer+"/jwks")}
}

// Login is where people sign in at Keycloak. It knows no document and lets nobody register, and
// looks at no resource: what the scope "mcp" is for is https://broker.example.org/mcp.
func (r *Realm) Login(t testing.TB) *LoginServer {
	t.Helper()
	return &LoginServer{Issuer: r.Issuer, ClientID: "desk", KeySet: keySet(t, r.Keys)}
}

func keySet(t testing.TB, address string) []byte {
	t.Helper()
	_, keys, err := open(t.Context(), browser(nil), address, nil)
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// document is a client that nobody has registered (draft-ietf-oauth-client-id-metadata-document).
func document(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(map[string]any{"client_id": "https://" + r.Host + r.URL.Path, "client_name": "Desk", "application_type": "native",
		"redirect_uris": []string{"http://127.0.0.1/callback"}, "grant_types": []string{"authorization_code", "refresh_token"}, "token_endpoint_auth_method": "none"})
}

// Token signs a person in for a resource, by hand. Where the page is "kept", not "callback", the
// access token is as if it had been kept for an hour.
func (l *LoginServer) Token(t testing.TB, page, person, resource string, scopes ...string) *oauth2.Token {
	t.Helper()
	conf := oauth2.Config{ClientID: l.ClientID, RedirectURL: "http://127.0.0.1:1/" + page, Scopes: append(scopes, "offline_access"),
		Endpoint: oauth2.Endpoint{AuthURL: l.Issuer + "/auth", TokenURL: l.Issuer + "/token", AuthStyle: oauth2.AuthStyleInParams}}
	verifier, target := oauth2.GenerateVerifier(), oauth2.SetAuthURLParam("resource", resource)
	back, err := l.SignIn(t.Context(), person, conf.AuthCodeURL("state", oauth2.S256ChallengeOption(verifier), oauth2.SetAuthURLParam("prompt", "consent"), target))
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.WithValue(t.Context(), oauth2.HTTPClient, browser(nil))
	token, err := conf.Exchange(ctx, back.Query().Get("code"), oauth2.VerifierOption(verifier), target)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

var (
	formAction = regexp.MustCompile(`action="([^"]+)" method="post"`)
	formPrompt = regexp.MustCompile(`name="prompt" value="([a-z]+)"`)
)

// SignIn is a browser, new each time, in which a person goes where a client sends it, signs in and
// agrees. It returns where the browser is sent back to, without going there.
func (l *LoginServer) SignIn(ctx context.Context, person, to string) (*url.URL, error) {
	jar, err := cookiejar.New(nil)
	if err != nil {
		return nil, err
	}
	b, form := browser(jar), url.Values(nil)
	for range 10 {
		res, page, err := open(ctx, b, to, form)
		if err != nil {
			return nil, err
		}
		next, err := res.Location()
		action, prompt := formAction.FindSubmatch(page), formPrompt.FindSubmatch(page)
		switch {
		case err == nil && !strings.HasPrefix(next.String(), l.Issuer+"/"):
			return next, nil
		case err == nil:
			to, form = next.String(), nil
		case action != nil:
			to, form = html.UnescapeString(string(action[1])), url.Values{"login": {person}, "username": {person}, "password": {"password"}}
			if prompt != nil { // which of its forms it is, at oidc-provider
				form.Set("prompt", string(prompt[1]))
			}
		default:
			return nil, fmt.Errorf("status %d, and neither a form nor somewhere to go:\n%s", res.StatusCode, page)
		}
	}
	return nil, errors.New("the sign-in does not end")
}

// browser follows nothing by itself. With a form, open posts it.
func browser(jar http.CookieJar) *http.Client {
	return &http.Client{Jar: jar, Timeout: 10 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

func open(ctx context.Context, b *http.Client, to string, form url.Values) (*http.Response, []byte, error) {
	method := http.MethodGet
	if form != nil {
		method = http.MethodPost
	}
	req, err := http.NewRequestWithContext(ctx, method, to, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, nil, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	res, err := b.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer res.Body.Close()
	page, err := io.ReadAll(res.Body)
	return res, page, err
}
