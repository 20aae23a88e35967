package signin_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/oauth2"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/identity"
	"onbehalf.internal/broker/internal/devidp"
	"onbehalf.internal/broker/secret"
	"onbehalf.internal/broker/signin"
)

const clientSecret = "b/r+o k%er"

func devProvider(t *testing.T) *devidp.Provider {
	t.Helper()
	p, err := devidp.Start(devidp.Config{
		Clients: []devidp.Client{{ID: "page", Auth: "basic", Secret: clientSecret, Redirects: []string{home}}, {ID: "open", Auth: "none", Redirects: []string{home}}},
		Users: []devidp.User{{Sub: "8", Claims: map[string]any{"groups": []string{"auditors", "approvers"}}}, {Sub: "9", Claims: map[string]any{"groups": "auditors"}},
			{Sub: "10", Claims: map[string]any{"groups": []string{"staff"}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

func browser(t *testing.T) devidp.Browser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return devidp.Browser{Client: &http.Client{Jar: jar}}
}

// TestSignIn goes the whole way with a provider that is none of ours.
func TestSignIn(t *testing.T) {
	dev := devProvider(t)
	for _, tc := range []struct {
		client, secret, user string
		roles                []identity.Role
		want                 fault.Reason
	}{
		{"page", clientSecret, "8", []identity.Role{identity.Audit, identity.Approve}, fault.None},
		{"page", clientSecret, "9", []identity.Role{identity.Audit}, fault.None},
		{"page", clientSecret, "10", nil, fault.SignInDenied},
		{"page", clientSecret, "nobody that is listed", nil, fault.SignInDenied},
		{"page", clientSecret, "", nil, fault.SignInFailed}, // cancelled
		{"page", "another secret", "8", nil, fault.ProviderConfig},
		{"page", "", "8", nil, fault.ProviderConfig},
		{"open", "", "8", []identity.Role{identity.Audit, identity.Approve}, fault.None},
	} {
		p := provider(directory(t, dev.Issuer(), tc.client, nil), tc.secret)
		to, a, err := p.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		answered, err := browser(t).SignIn(to, tc.user)
		if err != nil {
			t.Fatal(err)
		}
		who, err := p.End(t.Context(), a, answered.Query())
		if reason(err) != tc.want || (err == nil) != (who.String() == "user:"+tc.user) {
			t.Errorf("%s as %q: %q, %v", tc.client, tc.user, who, err)
		}
		for _, role := range []identity.Role{identity.Audit, identity.Approve, identity.Operate, identity.Admin} {
			if has := strings.Contains(fmt.Sprint(tc.roles), string(role)); who.Caller().Has(role) != has {
				t.Errorf("%s as %q: %s %v", tc.client, tc.user, role, !has)
			}
		}
		if err == nil {
			if _, err := p.End(t.Context(), a, answered.Query()); reason(err) != fault.SignInFailed {
				t.Errorf("%s as %q: the code again: %v", tc.client, tc.user, err)
			}
		}
	}
}

// TestBegin: what leaves with the browser, and what does not.
func TestBegin(t *testing.T) {
	h := newHostile(t)
	p := provider(directory(t, h.URL, "page", nil), clientSecret)
	to, a, err := p.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(to)
	if err != nil || u.Scheme+"://"+u.Host+u.Path != h.URL+"/authorize" {
		t.Fatalf("to %s, %v", to, err)
	}
	want := url.Values{"response_type": {"code"}, "client_id": {"page"}, "redirect_uri": {home}, "scope": {"openid groups"}, "state": {a.State.Reveal()},
		"nonce": {a.Nonce.Reveal()}, "code_challenge": {oauth2.S256ChallengeFromVerifier(a.Verifier.Reveal())}, "code_challenge_method": {"S256"}}
	if got := u.Query(); got.Encode() != want.Encode() {
		t.Errorf("query %v, want %v", got, want)
	}
	if strings.Contains(to, a.Verifier.Reveal()) || strings.Contains(to, clientSecret) {
		t.Error("what stays here has left")
	}
	_, b, err := p.Begin(t.Context())
	if err != nil || a.State.Equal(b.State) || a.Nonce.Equal(b.Nonce) || a.Verifier.Equal(b.Verifier) || len(a.State.Reveal()) < 26 || len(a.Nonce.Reveal()) < 26 {
		t.Errorf("two attempts share something, or it is short: %v", err)
	}
	nobody, err := identity.NewDirectory(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := provider(nobody, "").Begin(t.Context()); reason(err) != fault.SignInFailed {
		t.Errorf("where nobody signs in: %v", err)
	}
}

// TestAnswers: what a browser may bring back, whoever has sent it.
func TestAnswers(t *testing.T) {
	h := newHostile(t)
	states := map[string]any{"authorization_response_iss_parameter_supported": true}
	const ok = fault.None
	for _, tc := range []struct {
		name     string
		document map[string]any
		change   func(url.Values)
		want     fault.Reason
		asked    bool // whether the code went to the token endpoint
	}{
		{"good", nil, func(q url.Values) {}, ok, true},
		{"and more", nil, func(q url.Values) { q.Set("session_state", "x"); q.Set("scope", "openid") }, ok, true},
		{"its iss", nil, func(q url.Values) { q.Set("iss", h.URL) }, ok, true},
		{"its iss, as it said", states, func(q url.Values) { q.Set("iss", h.URL) }, ok, true},
		{"no iss, which it said it sends", states, func(q url.Values) {}, fault.SignInFailed, false},
		{"the iss of another", nil, func(q url.Values) { q.Set("iss", "https://other.example.org") }, fault.SignInFailed, false},
		{"its iss with a slash", nil, func(q url.Values) { q.Set("iss", h.URL+"/") }, fault.SignInFailed, false},
		{"an empty iss", nil, func(q url.Values) { q.Set("iss", "") }, fault.SignInFailed, false},
		{"two iss", nil, func(q url.Values) { q["iss"] = []string{h.URL, h.URL} }, fault.SignInFailed, false},

		{"no state", nil, func(q url.Values) { q.Del("state") }, fault.SignInFailed, false},
		{"another state", nil, func(q url.Values) { q.Set("state", "x") }, fault.SignInFailed, false},
		{"two states", nil, func(q url.Values) { q.Add("state", "x") }, fault.SignInFailed, false},
		{"no code", nil, func(q url.Values) { q.Del("code") }, fault.SignInFailed, false},
		{"two codes", nil, func(q url.Values) { q.Add("code", "code-2") }, fault.SignInFailed, false},
		{"a code of 9 KiB", nil, func(q url.Values) { q.Set("code", strings.Repeat("x", 9<<10)) }, fault.SignInFailed, false},
		{"nothing", nil, func(q url.Values) { clear(q) }, fault.SignInFailed, false},

		{"the person said no", nil, func(q url.Values) { q.Set("error", "access_denied") }, fault.SignInFailed, false},
		{"no session there", nil, func(q url.Values) { q.Set("error", "login_required") }, fault.SignInFailed, false},
		{"a scope that it does not know", nil, func(q url.Values) { q.Set("error", "invalid_scope") }, fault.ProviderConfig, false},
		{"a client that it does not know", nil, func(q url.Values) { q.Set("error", "unauthorized_client") }, fault.ProviderConfig, false},
		{"it is busy", nil, func(q url.Values) { q.Set("error", "temporarily_unavailable") }, fault.ProviderUnreachable, false},
		{"it is broken", nil, func(q url.Values) { q.Set("error", "server_error") }, fault.ProviderError, false},
		{"an error of its own", nil, func(q url.Values) { q.Set("error", planted); q.Set("error_description", planted) }, fault.ProviderError, false},
		{"an empty error", nil, func(q url.Values) { q.Set("error", "") }, fault.ProviderError, false},
		{"the error of another", nil, func(q url.Values) { q.Set("error", "access_denied"); q.Set("iss", "https://other.example.org") }, fault.SignInFailed, false},
		{"an error for another attempt", nil, func(q url.Values) { q.Set("error", "server_error"); q.Set("state", planted) }, fault.SignInFailed, false},
	} {
		document := h.document
		h.document = with(document, tc.document)
		p := provider(directory(t, h.URL, "page", nil), clientSecret)
		a, err := h.begin(t, p)
		h.document = document
		if err != nil {
			t.Fatal(err)
		}
		query, before := back(a), h.times("/token")
		tc.change(query)
		who, err := p.End(t.Context(), a, query)
		if reason(err) != tc.want || (err == nil) != (who.String() == "user:8") {
			t.Errorf("%s: %q, %v, want %q", tc.name, who, err, tc.want)
		}
		if err != nil && strings.Contains(err.Error(), planted) {
			t.Errorf("%s: foreign text in %v", tc.name, err)
		}
		if asked := h.times("/token") > before; asked != tc.asked {
			t.Errorf("%s: the token endpoint was asked: %v", tc.name, asked)
		}
	}
}

// TestAttempts: an answer is for one attempt, for a while, at one provider.
func TestAttempts(t *testing.T) {
	h, other := newHostile(t), newHostile(t)
	d, now := directory(t, h.URL, "page", nil), time.Now()
	p := signin.New(signin.Config{Directory: func() *identity.Directory { return d }, Redirect: home, Now: func() time.Time { return now }})
	a, err := h.begin(t, p)
	if err != nil {
		t.Fatal(err)
	}
	b, err := h.begin(t, p)
	if err != nil {
		t.Fatal(err)
	}
	if who, err := p.End(t.Context(), a, back(a)); reason(err) != fault.SignInFailed { // the token's nonce is b's
		t.Errorf("the code of another attempt: %q, %v", who, err)
	}
	codes := h.times("/token")
	refused := func(name string, a signin.Attempt, query url.Values) {
		t.Helper()
		if who, err := p.End(t.Context(), a, query); reason(err) != fault.SignInFailed || h.times("/token") != codes || other.times("/token") != 0 {
			t.Errorf("%s: %q, %v, or the code was sent", name, who, err)
		}
	}
	refused("the answer to another attempt", a, back(b))
	refused("no attempt", signin.Attempt{}, url.Values{"state": {""}, "code": {"code-1"}})
	d = directory(t, h.URL, "page2", nil)
	refused("another client since", b, back(b))
	d = directory(t, other.URL, "page", nil)
	refused("another provider since", b, back(b))
	if d, err = identity.NewDirectory(nil, nil); err != nil {
		t.Fatal(err)
	}
	refused("nobody signs in since", b, back(b))
	d = directory(t, h.URL, "page", nil)
	now = b.Until
	refused("too late", b, back(b))
	now = b.Until.Add(-time.Second)
	if who, err := p.End(t.Context(), b, back(b)); err != nil || who.String() != "user:8" {
		t.Errorf("in time: %q, %v", who, err)
	}
	if h.form.Get("code_verifier") != b.Verifier.Reveal() || h.form.Get("redirect_uri") != home || h.form.Get("client_id") != "page" || h.form.Has("client_secret") || len(h.authorization) > 0 {
		t.Errorf("a public client sent %v, %v", h.form, h.authorization)
	}
}

// TestClientSecret: it goes as the provider wants it, and where it cannot be had nothing
// goes.
func TestClientSecret(t *testing.T) {
	h := newHostile(t)
	document := h.document
	for _, tc := range []struct {
		methods any
		form    bool
	}{
		{nil, false},
		{[]string{"client_secret_basic", "client_secret_post"}, false},
		{[]string{"client_secret_post", "private_key_jwt"}, true},
	} {
		h.document = with(document, map[string]any{"token_endpoint_auth_methods_supported": tc.methods})
		p := provider(directory(t, h.URL, "page", nil), clientSecret)
		a, err := h.begin(t, p)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.End(t.Context(), a, back(a)); err != nil {
			t.Fatal(err)
		}
		if inForm := h.form.Get("client_secret") == clientSecret; inForm != tc.form || (len(h.authorization) == 1) == tc.form {
			t.Errorf("%v: form %v, headers %v", tc.methods, h.form.Has("client_secret"), len(h.authorization))
		}
	}
	before := h.times("/token")
	d := directory(t, h.URL, "page", nil)
	p := signin.New(signin.Config{Directory: func() *identity.Directory { return d }, Redirect: home,
		Secret: func(context.Context) (secret.Text, error) {
			return secret.Text{}, fault.New("vault", fault.VaultSealed, "")
		}})
	a, err := h.begin(t, p)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.End(t.Context(), a, back(a)); reason(err) != fault.VaultSealed || h.times("/token") != before {
		t.Errorf("without Vault: %v", err)
	}
}

// TestManyBegin: a provider is asked once for what many want to know.
func TestManyBegin(t *testing.T) {
	h := newHostile(t)
	p := provider(directory(t, h.URL, "page", nil), clientSecret)
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if _, _, err := p.Begin(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := h.times(discovery); n != 1 {
		t.Errorf("%d requests for the document", n)
	}
}
