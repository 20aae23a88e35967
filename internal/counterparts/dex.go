package counterparts

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// DexSubjectLife is how long a subject token of [Dex] lives: short, so that a
// test can see one expire.
const DexSubjectLife = 8 * time.Second

// The password is "password"; dex takes its bcrypt hash alone.
const dexPasswordHash = "$2a$10$2b2cU8CPhOTaGrs1HRQuAueS7JTT5ZHsHSzYiFPm1leZck7Mc8T4W"

// corporate is the company's own provider: it knows the person.
const corporate = `
issuer: http://127.0.0.1:PORT/dex
storage: {type: memory}
web: {http: "127.0.0.1:PORT"}
expiry: {idTokens: LIFE}
oauth2: {passwordConnector: local, skipApprovalScreen: true}
enablePasswordDB: true
staticPasswords:
  - {email: admin@example.com, username: admin, userID: corporate-7, hash: "HASH"}
staticClients:
  - {id: corporate-app, name: corporate-app, secret: corporate-app-secret, redirectURIs: ["http://127.0.0.1/callback"]}
`

// exchanger is where the broker exchanges what the corporate one has issued.
const exchanger = `
issuer: http://127.0.0.1:PORT/dex
storage: {type: memory}
web: {http: "127.0.0.1:PORT"}
expiry: {idTokens: 2m}
connectors:
  - type: oidc
    id: corp
    name: corp
    config:
      issuer: CORPORATE
      clientID: corporate-app
      clientSecret: corporate-app-secret
      redirectURI: http://127.0.0.1:PORT/dex/callback
      insecureSkipEmailVerified: true
staticClients:
  - {id: broker, name: broker, secret: "b/r+o k%er", redirectURIs: ["http://127.0.0.1/callback"]}
  - {id: mcp-records, name: mcp-records, secret: records-secret, redirectURIs: ["http://127.0.0.1/callback"], trustedPeers: [broker]}
  - {id: mcp-mail, name: mcp-mail, secret: mail-secret, redirectURIs: ["http://127.0.0.1/callback"]}
`

// A DexPair is two dex servers. The corporate one knows a person by password;
// the other exchanges the corporate one's ID tokens over its connector "corp".
//
// The client "mcp-records" trusts the broker's client to ask for tokens in its
// name, "mcp-mail" does not.
type DexPair struct {
	Issuer        string // of the exchanger
	TokenEndpoint string
	ClientID      string
	ClientSecret  string // with characters that Basic has to encode

	corporate string // the corporate one's issuer
}

// Dex runs both until the test ends.
func Dex(t testing.TB) *DexPair {
	t.Helper()
	d := &DexPair{ClientID: "broker", ClientSecret: "b/r+o k%er"}
	// The order matters: a connector reads its issuer's metadata when it starts.
	d.corporate = startDex(t, strings.NewReplacer("LIFE", DexSubjectLife.String(), "HASH", dexPasswordHash).Replace(corporate))
	d.Issuer = startDex(t, strings.ReplaceAll(exchanger, "CORPORATE", d.corporate))
	d.TokenEndpoint = d.Issuer + "/token"
	return d
}

// startDex runs one dex and returns its issuer.
func startDex(t testing.TB, config string) string {
	t.Helper()
	path := cached(t, "bin/dex-20240807", "test/dex/build.sh")
	issuer := func(port int) string { return fmt.Sprintf("http://127.0.0.1:%d/dex", port) }
	return issuer(start(t, func(home string, port int) program {
		file := filepath.Join(home, "config.yaml")
		text := strings.ReplaceAll(config, "PORT", fmt.Sprint(port))
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return program{path: path, args: []string{"serve", file}, ready: issuer(port) + "/.well-known/openid-configuration"}
	}))
}

// A DexPage is where people sign in at the corporate dex, for a client that knows a
// redirect URI.
type DexPage struct{ Issuer, ClientID, ClientSecret, Redirect string }

// Page returns it.
func (d *DexPair) Page() DexPage {
	return DexPage{d.corporate, "corporate-app", "corporate-app-secret", "http://127.0.0.1/callback"}
}

// SignIn goes to where the client sent a browser, gives the corporate user's password
// there, and returns where it is sent then, without going there.
func (d *DexPair) SignIn(t testing.TB, browser *http.Client, to string) (back *url.URL) {
	t.Helper()
	page, err := browser.Get(to)
	if err != nil {
		t.Fatal(err)
	}
	page.Body.Close()
	stays := *browser
	stays.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	res, err := stays.PostForm(page.Request.URL.String(), url.Values{"login": {"admin@example.com"}, "password": {"password"}})
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if back, err = res.Location(); err != nil {
		t.Fatalf("status %d after the password, sent nowhere", res.StatusCode)
	}
	return back
}

// Subject is a new ID token of the corporate user.
func (d *DexPair) Subject(t testing.TB) string {
	t.Helper()
	return askToken(t, d.corporate+"/token", "corporate-app", "corporate-app-secret", "id_token", url.Values{
		"grant_type": {"password"}, "username": {"admin@example.com"}, "password": {"password"}, "scope": {"openid email profile"}})
}
