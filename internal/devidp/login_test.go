package devidp_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/oauth2"

	"onbehalf.internal/broker/internal/devidp"
)

const home = "http://127.0.0.1:8471/ui/callback"

func startWithPeople(t *testing.T) *devidp.Provider {
	p, err := devidp.Start(devidp.Config{
		Clients: []devidp.Client{{ID: "page", Auth: "basic", Secret: secret, Redirects: []string{home}}, {ID: "open", Auth: "none", Redirects: []string{home}}, {ID: "broker", Auth: "basic", Secret: secret}},
		Users:   []devidp.User{{Sub: "8", Claims: map[string]any{"groups": []string{"auditors"}, "email": "eight@example.org", "email_verified": true}}, {Sub: `<b>"`}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// begin is where a client sends a browser, with parameters changed; "" takes one out.
func begin(p *devidp.Provider, verifier string, changes ...string) string {
	q := url.Values{"response_type": {"code"}, "client_id": {"page"}, "redirect_uri": {home}, "scope": {"openid groups"}, "state": {"s-1"}, "nonce": {"n-1"},
		"code_challenge": {oauth2.S256ChallengeFromVerifier(verifier)}, "code_challenge_method": {"S256"}}
	for i := 0; i < len(changes); i += 2 {
		q[changes[i]] = strings.Fields(changes[i+1])
	}
	return p.AuthorizationEndpoint() + "?" + q.Encode()
}

func browser(t *testing.T) devidp.Browser {
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return devidp.Browser{Client: &http.Client{Jar: jar}}
}

// TestSignIn goes the whole way once, and tries the code in every wrong way.
func TestSignIn(t *testing.T) {
	p := startWithPeople(t)
	verifier := oauth2.GenerateVerifier()
	redeem := func(code string, changes ...string) (int, map[string]any) {
		f := url.Values{"grant_type": {"authorization_code"}, "code": {code}, "redirect_uri": {home}, "code_verifier": {verifier}, "client_id": {"page"}, "client_secret": {secret}}
		for i := 0; i < len(changes); i += 2 {
			f[changes[i]] = strings.Fields(changes[i+1])
		}
		res, err := http.PostForm(p.TokenEndpoint(), f)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		m := map[string]any{}
		json.NewDecoder(res.Body).Decode(&m)
		return res.StatusCode, m
	}
	code := func() string {
		back, err := browser(t).SignIn(begin(p, verifier), "8")
		if err != nil || !strings.HasPrefix(back.String(), home+"?") || back.Query().Get("state") != "s-1" {
			t.Fatalf("back at %v, %v", back, err)
		}
		return back.Query().Get("code")
	}
	first := code()
	status, a := redeem(first)
	if status != 200 {
		t.Fatalf("status %d, %v", status, a)
	}
	claims := jwt.MapClaims{}
	if _, _, err := jwt.NewParser().ParseUnverified(a["id_token"].(string), claims); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]any{"iss": p.Issuer(), "sub": "8", "aud": []any{"page"}, "azp": "page", "nonce": "n-1", "groups": []any{"auditors"}, "email": "eight@example.org", "email_verified": true} {
		if diff := cmp.Diff(want, claims[name]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	burnt := code()
	redeem(burnt, "code_verifier", oauth2.GenerateVerifier())
	for _, tc := range []struct {
		name    string
		code    string
		changes []string
	}{
		{"a code that was tried with another verifier", burnt, nil},
		{"the code again", first, nil},
		{"another verifier", code(), []string{"code_verifier", oauth2.GenerateVerifier()}},
		{"no verifier", code(), []string{"code_verifier", ""}},
		{"another client", code(), []string{"client_id", "open", "client_secret", ""}},
		{"another redirect URI", code(), []string{"redirect_uri", home + "2"}},
		{"a wrong secret", code(), []string{"client_secret", "wrong"}},
		{"no code", "nothing", nil},
	} {
		if status, a := redeem(tc.code, tc.changes...); status < 400 || a["id_token"] != nil {
			t.Errorf("%s: status %d, %v", tc.name, status, a)
		}
	}
}

// TestSignInBegins: what a client may ask for, and where it is told.
func TestSignInBegins(t *testing.T) {
	p := startWithPeople(t)
	for _, tc := range []struct {
		name    string
		changes []string
		code    string // of the error that the browser brings back; "-": it stays here
	}{
		{"no PKCE", []string{"code_challenge", "", "code_challenge_method", ""}, "invalid_request"},
		{"plain PKCE", []string{"code_challenge_method", "plain"}, "invalid_request"},
		{"another flow", []string{"response_type", "id_token"}, "-"},
		{"another redirect URI", []string{"redirect_uri", "http://127.0.0.1:8471/"}, "-"},
		{"a client without redirect URIs", []string{"client_id", "broker"}, "-"},
		{"an unknown client", []string{"client_id", "absent"}, "-"},
	} {
		client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		res, err := client.Get(begin(p, oauth2.GenerateVerifier(), tc.changes...))
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		back, err := res.Location()
		switch {
		case tc.code == "-" && (res.StatusCode < 400 || err == nil):
			t.Errorf("%s: status %d, to %v", tc.name, res.StatusCode, back)
		case tc.code != "-" && (err != nil || back.Query().Get("error") != tc.code || back.Query().Get("state") != "s-1"):
			t.Errorf("%s: status %d, to %v, want %s", tc.name, res.StatusCode, back, tc.code)
		}
	}
	back, err := browser(t).SignIn(begin(p, oauth2.GenerateVerifier()), "")
	if err != nil || back.Query().Get("error") != "access_denied" || back.Query().Get("state") != "s-1" {
		t.Errorf("cancelled: %v, %v", back, err)
	}
}

// TestLoginPage: a page without scripts, in which a user's name is text.
func TestLoginPage(t *testing.T) {
	p := startWithPeople(t)
	b := browser(t)
	res, err := b.Get(begin(p, oauth2.GenerateVerifier()))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	page, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != 200 {
		t.Fatalf("status %d, %v", res.StatusCode, err)
	}
	for _, want := range []string{`<button name="user" value="8">8</button>`, `&lt;b&gt;&#34;`, "Sign in to page"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("no %s in %s", want, page)
		}
	}
	if strings.Contains(string(page), "<script") || strings.Contains(string(page), "<b>") {
		t.Errorf("more than forms in %s", page)
	}
	if policy := res.Header.Get("Content-Security-Policy"); !strings.HasSuffix(policy, "form-action 'self' http://127.0.0.1:8471") || !strings.HasPrefix(policy, "default-src 'none';") {
		t.Errorf("Content-Security-Policy: %s", policy)
	}
	none, err := b.Get(p.Issuer() + "/login?id=absent")
	if err != nil {
		t.Fatal(err)
	}
	none.Body.Close()
	if none.StatusCode != 404 {
		t.Errorf("for no request: %d", none.StatusCode)
	}
}
