package devidp_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/go-cmp/cmp"

	"onbehalf.internal/broker/internal/devidp"
)

const (
	files, mail = "mcp-files", "https://mail.example.org/mcp"
	secret      = "b/r+o k%er"
	exchange    = "urn:ietf:params:oauth:grant-type:token-exchange"
	accessToken = "urn:ietf:params:oauth:token-type:access_token"
)

var clientKey, _ = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)

func start(t *testing.T) *devidp.Provider {
	allow := map[string][]string{files: {"files.read", "files.write"}, mail: {"mail.read"}}
	p, err := devidp.Start(devidp.Config{Clients: []devidp.Client{
		{ID: "broker", Auth: "basic", Secret: secret, Allow: allow},
		{ID: "poster", Auth: "post", Secret: secret, Allow: allow},
		{ID: "signer", Auth: "private_key_jwt", Key: clientKey.Public(), Allow: allow},
		{ID: "public", Auth: "none", Allow: allow},
		{ID: "bystander", Auth: "basic", Secret: secret},
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

type answer struct {
	Error       string `json:"error"`
	AccessToken string `json:"access_token"`
	IssuedType  string `json:"issued_token_type"`
	TokenType   string `json:"token_type"`
	ExpiresIn   int    `json:"expires_in"`
	Scope       string `json:"scope"`
	Refresh     string `json:"refresh_token"`
}

func form(p *devidp.Provider, changes ...string) url.Values {
	f := url.Values{
		"grant_type": {exchange}, "subject_token_type": {accessToken}, "requested_token_type": {accessToken},
		"subject_token": {p.Mint("user:7", time.Minute)}, "audience": {files}, "scope": {"files.read"},
	}
	for i := 0; i < len(changes); i += 2 {
		f[changes[i]] = strings.Fields(changes[i+1])
	}
	return f
}

// ask posts f as the client broker, or as f says itself.
func ask(t *testing.T, endpoint string, f url.Values) (int, answer, error) {
	t.Helper()
	req, err := http.NewRequest("POST", endpoint, strings.NewReader(f.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if !f.Has("client_id") && !f.Has("client_assertion") {
		req.SetBasicAuth("broker", url.QueryEscape(secret))
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	res, err := client.Do(req)
	if err != nil {
		return 0, answer{}, err
	}
	defer res.Body.Close()
	var a answer
	json.NewDecoder(res.Body).Decode(&a)
	return res.StatusCode, a, nil
}

func TestExchange(t *testing.T) {
	p := start(t)
	status, a, err := ask(t, p.TokenEndpoint(), form(p))
	if err != nil || status != 200 {
		t.Fatalf("status %d, %+v, %v", status, a, err)
	}
	if a.IssuedType != accessToken || a.TokenType != "Bearer" || a.ExpiresIn < 295 || a.ExpiresIn > 300 || a.Scope != "files.read" || a.Refresh != "" {
		t.Errorf("answer %+v", a)
	}
	sub, act, scopes, err := p.Verify(a.AccessToken, files)
	if err != nil || sub != "user:7" || act != "broker" || !cmp.Equal(scopes, []string{"files.read"}) {
		t.Errorf("Verify = %q, %q, %q, %v", sub, act, scopes, err)
	}
	if _, _, _, err := p.Verify(a.AccessToken, mail); err == nil {
		t.Error("good for another audience too")
	}
	if !cmp.Equal(p.Issued(), []string{a.AccessToken}) || p.Exchanges() != 1 {
		t.Errorf("%d exchanges", p.Exchanges())
	}
	want := []devidp.Request{{Method: "POST", Path: "/oauth/token", GrantType: exchange, Audience: []string{files},
		Scope: "files.read", SubjectTokenType: accessToken, Status: 200}}
	if diff := cmp.Diff(want, p.Requests()); diff != "" {
		t.Errorf("Requests (-want +got):\n%s", diff)
	}
}

func TestClients(t *testing.T) {
	p := start(t)
	assertion := func(aud string) string {
		now := time.Now()
		s, err := jwt.NewWithClaims(jwt.SigningMethodES256, jwt.MapClaims{"iss": "signer", "sub": "signer", "aud": aud,
			"iat": now.Unix(), "exp": now.Add(time.Minute).Unix(), "jti": rand.Text()}).SignedString(clientKey)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	const kind = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
	for _, tc := range []struct {
		name    string
		changes []string
		code    string
	}{
		{"basic", nil, ""},
		{"none", []string{"client_id", "public"}, ""},
		{"private_key_jwt", []string{"client_assertion_type", kind, "client_assertion", assertion(p.Issuer())}, ""},
		{"private_key_jwt for the endpoint", []string{"client_assertion_type", kind, "client_assertion", assertion(p.TokenEndpoint())}, "invalid_grant"},
		{"wrong secret", []string{"client_id", "poster", "client_secret", "wrong"}, "invalid_client"},
		{"no secret", []string{"client_id", "poster"}, "invalid_client"},
		{"unknown client", []string{"client_id", "nobody", "client_secret", "x"}, "invalid_client"},
		{"client without a table", []string{"client_id", "bystander", "client_secret", "?"}, "unauthorized_client"},
		{"post", []string{"client_id", "poster", "client_secret", "?"}, ""},
	} {
		f := form(p, tc.changes...)
		if f.Get("client_secret") == "?" {
			f.Set("client_secret", secret)
		}
		_, a, err := ask(t, p.TokenEndpoint(), f)
		if err != nil || a.Error != tc.code || (a.AccessToken == "") != (tc.code != "") {
			t.Errorf("%s: error %q, %v, want %q", tc.name, a.Error, err, tc.code)
		}
	}
}

// TestPolicy is the table of the client, and what a subject token must be.
func TestPolicy(t *testing.T) {
	p := start(t)
	_, issued, _ := ask(t, p.TokenEndpoint(), form(p))
	revoked := p.Mint("user:7", time.Minute)
	if status, _, err := ask(t, p.RevocationEndpoint(), url.Values{"token": {revoked}}); status != 200 || err != nil {
		t.Fatalf("revocation: status %d, %v", status, err)
	}
	for _, tc := range []struct {
		name    string
		changes []string
		code    string
	}{
		{"as the table says", []string{"scope", "files.write"}, ""},
		{"other audience", []string{"audience", mail, "scope", "mail.read"}, ""},
		{"scope of the other audience", []string{"scope", "mail.read"}, "invalid_scope"},
		{"both audiences", []string{"audience", files + " " + mail}, "invalid_scope"},
		{"unknown audience", []string{"audience", "mcp-other"}, "invalid_target"},
		{"no audience", []string{"audience", ""}, "invalid_target"},
		{"a refresh token", []string{"requested_token_type", "urn:ietf:params:oauth:token-type:refresh_token"}, "invalid_request"},
		{"expired subject", []string{"subject_token", p.Mint("user:7", -time.Minute)}, "invalid_request"},
		{"revoked subject", []string{"subject_token", revoked}, "invalid_request"},
		{"what was issued as subject", []string{"subject_token", issued.AccessToken}, "invalid_request"},
		{"garbage as subject", []string{"subject_token", "garbage"}, "invalid_request"},
		{"other grant", []string{"grant_type", "client_credentials"}, "unsupported_grant_type"},
	} {
		_, a, err := ask(t, p.TokenEndpoint(), form(p, tc.changes...))
		if err != nil || a.Error != tc.code || (a.AccessToken == "") != (tc.code != "") {
			t.Errorf("%s: error %q, %v, want %q", tc.name, a.Error, err, tc.code)
		}
	}
}

func TestRevoke(t *testing.T) {
	p := start(t)
	_, a, _ := ask(t, p.TokenEndpoint(), form(p))
	if _, _, _, err := p.Verify(a.AccessToken, files); err != nil {
		t.Fatal(err)
	}
	if status, _, err := ask(t, p.RevocationEndpoint(), url.Values{"token": {a.AccessToken}}); status != 200 || err != nil {
		t.Fatalf("revocation: status %d, %v", status, err)
	}
	if _, _, _, err := p.Verify(a.AccessToken, files); err == nil {
		t.Error("good after its revocation")
	}
	if last := p.Requests()[1]; last.Path != "/revoke" || last.Status != 200 {
		t.Errorf("request %+v", last)
	}
}

func TestAlter(t *testing.T) {
	p := start(t)
	p.Alter(func(g *devidp.Grant) {
		g.Subject, g.Actor, g.Audience, g.Scopes = "user:8", "other", []string{mail, files}, append(g.Scopes, "admin")
	})
	_, a, _ := ask(t, p.TokenEndpoint(), form(p))
	sub, act, scopes, err := p.Verify(a.AccessToken, mail)
	if err != nil || sub != "user:8" || act != "other" || !cmp.Equal(scopes, []string{"files.read", "admin"}) || a.Scope != "files.read admin" {
		t.Errorf("Verify = %q, %q, %q, %v; scope %q", sub, act, scopes, err, a.Scope)
	}
	p.Alter(nil)
	_, a, _ = ask(t, p.TokenEndpoint(), form(p))
	if sub, _, _, err := p.Verify(a.AccessToken, files); err != nil || sub != "user:7" {
		t.Errorf("not mended: %q, %v", sub, err)
	}
}

func TestBreak(t *testing.T) {
	for _, tc := range []struct {
		name      string
		brk       func(http.Handler) http.Handler
		status    int // 0: no answer
		exchanges int
	}{
		{"mended", nil, 200, 1},
		{"fails", devidp.Fail(1, 503, "server_error"), 503, 0},
		{"has failed", devidp.Fail(0, 503, "server_error"), 200, 1},
		{"redirects", devidp.Redirect("http://127.0.0.1:1/"), 307, 0},
		{"cut before", devidp.CutBefore, 0, 0},
		{"cut after", devidp.CutAfter, 0, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := start(t)
			p.Break(tc.brk)
			status, _, err := ask(t, p.TokenEndpoint(), form(p))
			if status != tc.status || (err != nil) != (tc.status == 0) {
				t.Errorf("status %d, %v, want %d", status, err, tc.status)
			}
			if p.Exchanges() != tc.exchanges {
				t.Errorf("%d exchanges, want %d", p.Exchanges(), tc.exchanges)
			}
			if r := p.Requests(); len(r) != 1 || r[0].Status != tc.status {
				t.Errorf("requests %+v", r)
			}
		})
	}
}

func TestHang(t *testing.T) {
	p := start(t)
	arrived := make(chan struct{})
	p.Break(func(next http.Handler) http.Handler {
		close(arrived)
		return devidp.Hang(next)
	})
	done := make(chan error)
	go func() {
		_, _, err := ask(t, p.TokenEndpoint(), form(p))
		done <- err
	}()
	<-arrived
	p.Close()
	if err := <-done; err == nil {
		t.Error("an answer from a provider that hangs")
	}
}

func TestLoopbackOnly(t *testing.T) {
	if p, err := devidp.Start(devidp.Config{Addr: "0.0.0.0:0"}); err == nil {
		p.Close()
		t.Error("listens beyond the loopback interface")
	}
}

// TestRequestsHoldNoToken looks for everything secret in what Requests tells.
func TestRequestsHoldNoToken(t *testing.T) {
	p := start(t)
	f := form(p)
	_, a, err := ask(t, p.TokenEndpoint(), f)
	told, err2 := json.Marshal(p.Requests())
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	for _, hidden := range []string{f.Get("subject_token"), a.AccessToken, secret} {
		if hidden == "" || strings.Contains(string(told), hidden) {
			t.Errorf("a secret is in %s", told)
		}
	}
}
