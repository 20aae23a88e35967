package signin_test

import (
	"context"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/identity"
	"onbehalf.internal/broker/signin"
)

// with is m with members changed; nil takes one out.
func with(m, changes map[string]any) map[string]any {
	m = maps.Clone(m)
	maps.Copy(m, changes)
	maps.DeleteFunc(m, func(_ string, v any) bool { return v == nil })
	return m
}

func says(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		io.WriteString(w, body)
	}
}

// endless is JSON that goes on for longer than anybody should read.
func endless(t *testing.T) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"keys":[`)
		for range 64 { // megabytes, more than lie in between
			if _, err := io.WriteString(w, strings.Repeat(" ", 1<<20)); err != nil {
				return
			}
		}
		t.Error("it was read to its end")
	}
}

func cuts(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// TestHostileDocument: what a provider may say about itself.
func TestHostileDocument(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it went elsewhere") }))
	defer elsewhere.Close()
	changed := func(changes map[string]any) func(*hostile) {
		return func(h *hostile) { h.document = with(h.document, changes) }
	}
	served := func(f http.HandlerFunc) func(*hostile) {
		return func(h *hostile) { h.serve[discovery] = f }
	}
	for _, tc := range []struct {
		name   string
		broken func(*hostile)
		want   fault.Reason
	}{
		{"as it is", func(*hostile) {}, fault.None},
		{"PKCE, said", changed(map[string]any{"code_challenge_methods_supported": []string{"plain", "S256"}}), fault.None},
		{"PKCE without S256", changed(map[string]any{"code_challenge_methods_supported": []string{"plain"}}), fault.ProviderConfig},
		{"another issuer", changed(map[string]any{"issuer": "https://other.example.org"}), fault.ProviderConfig},
		{"the issuer with a slash", func(h *hostile) { h.document["issuer"] = h.URL + "/" }, fault.ProviderConfig},
		{"no issuer", changed(map[string]any{"issuer": nil}), fault.ProviderConfig},
		{"an issuer in another case", func(h *hostile) {
			h.document["Issuer"] = h.URL
			delete(h.document, "issuer")
		}, fault.ProviderConfig},
		{"a token endpoint without TLS", changed(map[string]any{"token_endpoint": "http://login.example.org/token"}), fault.ProviderConfig},
		{"keys without TLS", changed(map[string]any{"jwks_uri": "http://10.0.0.1/keys"}), fault.ProviderConfig},
		{"a page without TLS", changed(map[string]any{"authorization_endpoint": "http://login.example.org/authorize"}), fault.ProviderConfig},
		{"a page that is a script", changed(map[string]any{"authorization_endpoint": "javascript:alert(1)"}), fault.ProviderConfig},
		{"a page that is a path", changed(map[string]any{"authorization_endpoint": "/authorize"}), fault.ProviderConfig},
		{"a page with a user", changed(map[string]any{"authorization_endpoint": "https://broker@login.example.org/authorize"}), fault.ProviderConfig},
		{"a page that answers already", changed(map[string]any{"authorization_endpoint": "https://login.example.org/authorize?redirect_uri=x"}), fault.ProviderConfig},
		{"no token endpoint", changed(map[string]any{"token_endpoint": nil}), fault.ProviderConfig},
		{"no keys", changed(map[string]any{"jwks_uri": nil}), fault.ProviderConfig},
		{"keys that are a list", changed(map[string]any{"jwks_uri": []string{"https://login.example.org/keys"}}), fault.ProviderConfig},
		{"one member twice", served(says(200, `{"issuer":"x","issuer":"y"}`)), fault.ProviderError},
		{"no JSON", served(says(200, planted)), fault.ProviderError},
		{"no object", served(says(200, `[]`)), fault.ProviderError},
		{"64 MB", served(endless(t)), fault.ProviderError},
		{"404", served(says(404, planted)), fault.ProviderError},
		{"500", served(says(500, planted)), fault.ProviderError},
		{"503", served(says(503, planted)), fault.ProviderUnreachable},
		{"429", served(says(429, planted)), fault.ProviderRateLimited},
		{"a redirect", served(http.RedirectHandler(elsewhere.URL, http.StatusFound).ServeHTTP), fault.ProviderRedirect},
		{"no answer", served(cuts), fault.ProviderUnreachable},
		{"nobody there", func(h *hostile) { h.Close() }, fault.ProviderUnreachable},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHostile(t)
			tc.broken(h)
			_, _, err := provider(directory(t, h.URL, "page", nil), clientSecret).Begin(t.Context())
			if reason(err) != tc.want {
				t.Errorf("%v, want %q", err, tc.want)
			}
			if err != nil && (strings.Contains(err.Error(), planted) || strings.Contains(err.Error(), "example.org")) {
				t.Errorf("foreign text in %v", err)
			}
		})
	}
	h := newHostile(t)
	private := directory(t, h.URL, "page", func(in *identity.SignIn) { in.AllowCIDRs = nil })
	if _, _, err := provider(private, clientSecret).Begin(t.Context()); reason(err) != fault.HostRefused || h.times(discovery) != 0 {
		t.Errorf("an address that is not allowed: %v", err)
	}
}

// TestHostileAnswer: what the token endpoint and the keys may be.
func TestHostileAnswer(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it went elsewhere") }))
	defer elsewhere.Close()
	claims := func(name string, value any) func(*hostile) {
		return func(h *hostile) { h.claims[name] = value }
	}
	served := func(path string, f http.HandlerFunc) func(*hostile) {
		return func(h *hostile) { h.serve[path] = f }
	}
	redirects := http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect).ServeHTTP
	foreign := newKey(t)
	for _, tc := range []struct {
		name   string
		broken func(*hostile)
		want   fault.Reason
	}{
		{"as it is", func(*hostile) {}, fault.None},

		{"a code that it does not take", served("/token", says(400, `{"error":"invalid_grant","error_description":"`+planted+`"}`)), fault.SignInFailed},
		{"a client that it does not take", served("/token", says(401, `{"error":"invalid_client"}`)), fault.ProviderConfig},
		{"an error of its own", served("/token", says(400, `{"error":"`+planted+`"}`)), fault.ProviderError},
		{"two errors", served("/token", says(400, `{"error":"invalid_grant","error":"invalid_client"}`)), fault.ProviderError},
		{"400 in HTML", served("/token", says(400, planted)), fault.ProviderError},
		{"429", served("/token", says(429, `{"error":"invalid_grant"}`)), fault.ProviderRateLimited},
		{"502", served("/token", says(502, planted)), fault.ProviderUnreachable},
		{"a redirect", served("/token", redirects), fault.ProviderRedirect},
		{"no answer", served("/token", cuts), fault.ProviderUnreachable},
		{"64 MB", served("/token", endless(t)), fault.ProviderError},
		{"no ID token", served("/token", says(200, `{"access_token":"`+planted+`"}`)), fault.ProviderError},
		{"an ID token that is none", served("/token", says(200, `{"id_token":{"sub":"8"}}`)), fault.ProviderError},
		{"its member in another case", served("/token", says(200, `{"ID_Token":"a.b.c"}`)), fault.ProviderError},
		{"two ID tokens", served("/token", says(200, `{"id_token":"a.b.c","id_token":"d.e.f"}`)), fault.ProviderError},
		{"an ID token in HTML's place", served("/token", says(200, planted)), fault.ProviderError},
		{"an ID token with 201", func(h *hostile) {
			h.serve["/token"] = func(w http.ResponseWriter, _ *http.Request) {
				answer(w, 201, map[string]string{"id_token": h.idToken()})
			}
		}, fault.ProviderError},
		{"garbage", served("/token", says(200, `{"id_token":"`+planted+`"}`)), fault.SignInFailed},

		{"for another client", claims("aud", "other"), fault.SignInFailed},
		{"for another client, too", claims("aud", []string{"page", "other"}), fault.SignInFailed},
		{"issued to another client", claims("azp", "other"), fault.SignInFailed},
		{"of another issuer", claims("iss", "https://other.example.org"), fault.SignInFailed},
		{"no nonce", claims("nonce", nil), fault.SignInFailed},
		{"another nonce", claims("nonce", planted), fault.SignInFailed},
		{"expired", claims("exp", time.Now().Add(-time.Second).Unix()), fault.SignInFailed},
		{"from the future", claims("iat", time.Now().Add(time.Hour).Unix()), fault.SignInFailed},
		{"without groups", claims("groups", nil), fault.SignInDenied},
		{"a name that is none", claims("sub", planted+"|8"), fault.SignInDenied},
		{"not signed", func(h *hostile) {
			h.serve["/token"] = func(w http.ResponseWriter, _ *http.Request) {
				parts := strings.Split(h.idToken(), ".")
				answer(w, 200, map[string]string{"id_token": parts[0] + "." + parts[1] + "."})
			}
		}, fault.SignInFailed},
		{"signed with the client's secret", func(h *hostile) {
			h.serve["/token"] = func(w http.ResponseWriter, _ *http.Request) {
				token := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{"iss": h.URL, "sub": "8", "aud": "page", "nonce": h.nonce, "groups": "auditors", "iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix()})
				token.Header["kid"] = h.kid
				signed, _ := token.SignedString([]byte(clientSecret))
				answer(w, 200, map[string]string{"id_token": signed})
			}
		}, fault.SignInFailed},
		{"signed with a key that is not published", func(h *hostile) {
			h.serve["/token"] = func(w http.ResponseWriter, _ *http.Request) {
				own := h.key
				h.key = foreign
				token := h.idToken()
				h.key = own
				answer(w, 200, map[string]string{"id_token": token})
			}
		}, fault.SignInFailed},

		{"keys of 64 MB", served("/keys", endless(t)), fault.ProviderError},
		{"keys elsewhere", served("/keys", redirects), fault.ProviderRedirect},
		{"no keys", served("/keys", says(200, `{"keys":[]}`)), fault.KeysUnavailable},
		{"keys that are none", served("/keys", says(200, planted)), fault.KeysUnavailable},
		{"a secret for a key", served("/keys", says(200, `{"keys":[{"kty":"oct","kid":"k1","k":"c2VjcmV0"}]}`)), fault.KeysUnavailable},
		{"keys with 500", served("/keys", says(500, planted)), fault.ProviderError},
		{"no answer about keys", served("/keys", cuts), fault.ProviderUnreachable},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHostile(t)
			tc.broken(h)
			p := provider(directory(t, h.URL, "page", nil), clientSecret)
			a, err := h.begin(t, p)
			if err != nil {
				t.Fatal(err)
			}
			who, err := p.End(t.Context(), a, back(a))
			if reason(err) != tc.want || (err == nil) != (who.String() == "user:8") {
				t.Errorf("%q, %v, want %q", who, err, tc.want)
			}
			if err != nil && (strings.Contains(err.Error(), planted) || strings.Contains(err.Error(), "example.org")) {
				t.Errorf("foreign text in %v", err)
			}
			if n := h.times("/token"); n != 1 {
				t.Errorf("the code was sent %d times", n)
			}
		})
	}
}

// TestHangs: nobody waits longer than they may, and who goes away leaves nothing behind.
func TestHangs(t *testing.T) {
	for _, path := range []string{discovery, "/token", "/keys"} {
		for name, end := range map[string]struct {
			ctx  func(context.Context) (context.Context, context.CancelFunc)
			want fault.Reason
		}{
			"late": {func(ctx context.Context) (context.Context, context.CancelFunc) {
				return context.WithTimeout(ctx, 50*time.Millisecond)
			}, fault.ProviderUnreachable},
			"gone": {context.WithCancel, fault.CallerCancelled},
		} {
			t.Run(path+" "+name, func(t *testing.T) {
				h := newHostile(t)
				p := provider(directory(t, h.URL, "page", nil), clientSecret)
				var a signin.Attempt
				if path != discovery {
					var err error
					if a, err = h.begin(t, p); err != nil {
						t.Fatal(err)
					}
				}
				ctx, cancel := end.ctx(t.Context())
				defer cancel()
				h.serve[path] = func(_ http.ResponseWriter, r *http.Request) {
					if name == "gone" {
						cancel()
					}
					<-r.Context().Done()
				}
				err := error(nil)
				if path == discovery {
					_, _, err = p.Begin(ctx)
				} else {
					_, err = p.End(ctx, a, back(a))
				}
				if reason(err) != end.want {
					t.Errorf("%v, want %q", err, end.want)
				}
				h.mu.Lock()
				delete(h.serve, path)
				h.mu.Unlock()
				if name == "late" {
					return
				}
				if _, err = h.begin(t, p); err != nil { // at once: that a browser went away says nothing of the provider
					t.Error(err)
				}
			})
		}
	}
}
