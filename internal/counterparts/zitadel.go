package counterparts

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// zitadelCallback is where the example server's client "web" gets its codes.
// Nothing listens there: the code is read from the redirect.
const zitadelCallback = "http://localhost:9999/auth/callback"

// A ZitadelServer is the example server of zitadel's OpenID library, as it is.
// Its access tokens are opaque, and it looks at no audience.
//
// It listens on all interfaces of the machine and cannot be told otherwise. Its
// data is in memory and made up.
type ZitadelServer struct {
	Issuer        string
	TokenEndpoint string
	ClientID      string
	ClientSecret  string

	base string // its address; the issuer names localhost, which may be two addresses
}

// Zitadel runs the server until the test ends.
func Zitadel(t testing.TB) *ZitadelServer {
	t.Helper()
	path := cached(t, "bin/zitadel-op-3.52.0", "test/zitadel/build.sh")
	base := func(port int) string { return fmt.Sprintf("http://127.0.0.1:%d", port) }
	port := start(t, func(_ string, port int) program {
		return program{path: path, env: []string{fmt.Sprintf("PORT=%d", port)}, ready: base(port) + "/.well-known/openid-configuration"}
	})
	return &ZitadelServer{
		Issuer:        fmt.Sprintf("http://localhost:%d/", port),
		TokenEndpoint: base(port) + "/oauth/token",
		ClientID:      "api",
		ClientSecret:  "secret",
		base:          base(port),
	}
}

// Subject is a new access token of the user "test-user", whom the example lets
// be impersonated because she is an administrator.
func (z *ZitadelServer) Subject(t testing.TB) string {
	t.Helper()
	return z.login(t, "test-user@localhost")
}

// PlainSubject is one of "test-user2", who is no administrator.
func (z *ZitadelServer) PlainSubject(t testing.TB) string {
	t.Helper()
	return z.login(t, "test-user2")
}

// ServiceSubject is one of a service, which is no user.
func (z *ZitadelServer) ServiceSubject(t testing.TB) string {
	t.Helper()
	return askToken(t, z.TokenEndpoint, "sid1", "verysecret", "access_token", url.Values{
		"grant_type": {"client_credentials"}, "scope": {"openid"}})
}

// login goes the way of a browser through the authorization code flow
// (RFC 6749 §4.1), form and all.
func (z *ZitadelServer) login(t testing.TB, user string) string {
	t.Helper()
	asked := z.redirect(t, "/auth", url.Values{"client_id": {"web"}, "redirect_uri": {zitadelCallback},
		"response_type": {"code"}, "scope": {"openid profile"}}, nil)
	approved := z.redirect(t, "/login/username", nil, url.Values{"id": {asked.Get("authRequestID")},
		"username": {user}, "password": {"verysecure"}})
	called := z.redirect(t, "/auth/callback", approved, nil)
	return askToken(t, z.TokenEndpoint, "web", "secret", "access_token", url.Values{
		"grant_type": {"authorization_code"}, "code": {called.Get("code")}, "redirect_uri": {zitadelCallback}})
}

// redirect asks for a page, with a form where there is one, and returns the
// query of the address that the answer sends to.
func (z *ZitadelServer) redirect(t testing.TB, path string, query, form url.Values) url.Values {
	t.Helper()
	method := http.MethodGet
	if form != nil {
		method = http.MethodPost
	}
	req, err := http.NewRequestWithContext(t.Context(), method, z.base+path+"?"+query.Encode(), strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp := send(t, req)
	resp.Body.Close()
	to, err := resp.Location()
	if err != nil {
		t.Fatalf("%s: status %d, %v", path, resp.StatusCode, err)
	}
	return to.Query()
}
