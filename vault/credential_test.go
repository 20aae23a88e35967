package vault_test

import (
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/internal/devvault"
	"onbehalf.internal/broker/secret"
	"onbehalf.internal/broker/secret/canary"
	"onbehalf.internal/broker/vault"
	"onbehalf.internal/broker/vault/vaulttest"
)

func ref(t *testing.T, s string) secret.Ref {
	t.Helper()
	r, err := secret.ParseRef(s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

const subject7 = "vault:kv/broker/subjects/7#token"

func (b *box) subject7() {
	b.PutSecret("kv", "broker/subjects/7", map[string]string{"token": "credential-of-7"})
}

// 64 operations meet a dead login: one of them logs in, all go on.
func TestADeadLoginIsReplacedOnce(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		b.subject7()
		c, _ := run(t, b.loggedIn(t))
		ready(t, c)
		b.RevokeAll("approle:broker")
		var wg sync.WaitGroup
		for range 64 {
			wg.Go(func() {
				if got, err := c.Credential(t.Context(), ref(t, subject7)); err != nil || got.Reveal() != "credential-of-7" {
					t.Errorf("Credential = %v", err)
				}
			})
		}
		wg.Wait()
		if n := b.Count("PUT", "auth/approle/login"); n != 2 {
			t.Errorf("%d logins, want 2", n)
		}
	})
}

// What policy refuses is not asked for with a new login each time.
func TestARefusalOfPolicyCausesNoLogin(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		b.PutSecret("kv", "elsewhere", map[string]string{"token": "x"})
		c, _ := run(t, b.loggedIn(t))
		ready(t, c)
		for range 10 {
			if _, err := c.Credential(t.Context(), ref(t, "vault:kv/elsewhere#token")); fault.ReasonOf(err) != fault.VaultDenied {
				t.Errorf("Credential = %v", err)
			}
		}
		if n := b.Count("PUT", "auth/approle/login"); n != 1 {
			t.Errorf("%d logins, want 1", n)
		}
	})
}

func TestCredentialFails(t *testing.T) {
	for _, row := range []struct {
		name    string
		failure devvault.Failure
		want    fault.Reason
	}{
		{"cut", devvault.Failure{Cut: true}, fault.VaultUnreachable},
		{"silent", devvault.Failure{Hang: true}, fault.VaultUnreachable},
		{"503", vaultSays(503), fault.VaultSealed},
		{"429", vaultSays(429), fault.VaultRateLimited},
		{"400", vaultSays(400), fault.VaultUnexpected},
		{"500", devvault.Failure{}, fault.VaultUnexpected},
		{"307", devvault.Failure{Status: 307, Location: "http://elsewhere.test/"}, fault.VaultUnexpected},
		{"204", devvault.Failure{Status: 204}, fault.VaultUnexpected},
		{"HTML 404", devvault.Failure{Status: 404, Type: "text/html", Body: "<html>"}, fault.VaultUnexpected},
		{"JSON that is not said to be JSON", devvault.Failure{Status: 200, Type: "text/plain", Body: `{"data":{"data":{"token":"x"}}}`}, fault.VaultUnexpected},
		{"200 empty", devvault.Failure{Status: 200}, fault.VaultUnexpected},
		{"data null", devvault.Failure{Status: 200, Body: `{"data":null}`}, fault.CredentialMissing},
		{"version deleted, with 200", devvault.Failure{Status: 200, Body: `{"data":{"data":null}}`}, fault.CredentialMissing},
		{"as in version 1", devvault.Failure{Status: 200, Body: `{"data":{"token":"x"}}`}, fault.CredentialMissing},
		{"another case", devvault.Failure{Status: 200, Body: `{"data":{"data":{"TOKEN":"x"}}}`}, fault.CredentialMissing},
		{"404", vaultSays(404), fault.CredentialMissing},
	} {
		t.Run(row.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *box) {
				b.subject7()
				c, _ := run(t, b.config())
				ready(t, c)
				b.Fail("GET", "kv/", 1, row.failure)
				if got, err := c.Credential(t.Context(), ref(t, subject7)); fault.ReasonOf(err) != row.want || !got.IsZero() {
					t.Errorf("Credential = %v, want %s", err, row.want)
				}
				if got, err := c.Credential(t.Context(), ref(t, subject7)); err != nil || got.Reveal() != "credential-of-7" {
					t.Errorf("the next one = %v", err)
				}
			})
		})
	}
}

func TestTheMountIsAskedForOnce(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		b.subject7()
		c, _ := run(t, b.config())
		ready(t, c)
		for range 10 {
			if _, err := c.Credential(t.Context(), ref(t, subject7)); err != nil {
				t.Error(err)
			}
		}
		if n := b.Count("GET", "sys/internal/ui/mounts/"); n != 1 {
			t.Errorf("it was asked for %d times", n)
		}
	})
}

// A mount can become another one.
func TestTheMountIsAskedForAgainWhenNothingIsThere(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		b.subject7()
		c, _ := run(t, b.config())
		ready(t, c)
		b.Fail("GET", "sys/internal/ui/mounts/kv", 1, devvault.Failure{Status: 200,
			Body: `{"data":{"type":"kv","path":"kv/","options":{"version":"1"}}}`})
		if _, err := c.Credential(t.Context(), ref(t, subject7)); fault.ReasonOf(err) != fault.CredentialMissing {
			t.Errorf("in a mount of version 1: %v", err)
		}
		if _, err := c.Credential(t.Context(), ref(t, subject7)); err != nil {
			t.Errorf("in one of version 2: %v", err)
		}
	})
}

// What Vault says of a mount counts if it can be the mount of the reference.
func TestAnotherMountIsNone(t *testing.T) {
	for _, said := range []string{
		`{"type":"kv","path":"other/","options":{"version":"2"}}`, `{"type":"kv","path":"kv/broker/subjects/7/","options":{"version":"2"}}`,
		`{"type":"kv","path":"k/","options":{"version":"2"}}`, `{"type":"kv","path":"kv","options":{"version":"2"}}`, `{"type":"kv","path":"/"}`,
		`{"type":"kv","path":""}`, `{"type":"kv"}`, `{"type":"transit","path":"kv/"}`, `null`,
	} {
		bubble(t, func(t *testing.T, b *box) {
			b.subject7()
			c, _ := run(t, b.config())
			ready(t, c)
			b.Fail("GET", "sys/internal/ui/mounts/kv", 1, devvault.Failure{Status: 200, Body: `{"data":` + said + `}`})
			if _, err := c.Credential(t.Context(), ref(t, subject7)); fault.ReasonOf(err) != fault.VaultUnexpected {
				t.Errorf("%s: %v", said, err)
			}
			if n := b.Count("GET", "kv/") + b.Count("GET", "other/"); n != 0 {
				t.Errorf("%s: %d reads", said, n)
			}
		})
	}
}

func TestNotReadyBeforeTheLogin(t *testing.T) {
	c, err := vault.New((&box{devvault.New(devvault.Options{})}).config())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Credential(t.Context(), ref(t, subject7)); fault.ReasonOf(err) != fault.VaultNotReady {
		t.Errorf("Credential = %v", err)
	}
	if _, err := vaulttest.Hold(t.Context(), c, secret.New("token")); fault.ReasonOf(err) != fault.VaultNotReady {
		t.Errorf("Hold = %v", err)
	}
}

// oddEnvironment sets what the library and net/http would read.
func oddEnvironment(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("a request went to an address of the environment")
	}))
	t.Cleanup(elsewhere.Close)
	for name, value := range map[string]string{
		"VAULT_ADDR": elsewhere.URL, "VAULT_AGENT_ADDR": elsewhere.URL, "VAULT_PROXY_ADDR": elsewhere.URL,
		"HTTP_PROXY": elsewhere.URL, "HTTPS_PROXY": elsewhere.URL, "VAULT_HTTP_PROXY": elsewhere.URL,
		"VAULT_TOKEN": "token-of-the-environment", "VAULT_NAMESPACE": "somewhere", "VAULT_WRAP_TTL": "60",
		"VAULT_HEADERS": `{"Extra":"x"}`, "VAULT_SKIP_VERIFY": "true", "VAULT_MAX_RETRIES": "9", "VAULT_TLS_SERVER_NAME": "elsewhere",
		"VAULT_SRV_LOOKUP": "true", "VAULT_RATE_LIMIT": "1", "VAULT_CLIENT_TIMEOUT": "1", "VAULT_DISABLE_REDIRECTS": "false",
		"BAO_ADDR": elsewhere.URL, "BAO_TOKEN": "token-of-the-environment",
	} {
		t.Setenv(name, value)
	}
}

// Whatever stands in VAULT_ variables, the requests are the same.
func TestTheEnvironmentChangesNothing(t *testing.T) {
	oddEnvironment(t)
	dev, url := start(t)
	conf := (&box{dev}).loggedIn(t)
	conf.Address = url
	conf.Transport = sees(func(r *http.Request) {
		if r.Header.Get("X-Vault-Token") == "token-of-the-environment" {
			t.Errorf("%s has the token of the environment", r.URL.Path)
		}
		for _, name := range []string{"X-Vault-Namespace", "X-Vault-Wrap-Ttl", "Extra", "Cookie"} {
			if r.Header.Get(name) != "" {
				t.Errorf("%s has %s", r.URL.Path, name)
			}
		}
		if r.Header.Get("X-Vault-Request") != "true" {
			t.Errorf("%s has no X-Vault-Request", r.URL.Path)
		}
	})
	(&box{dev}).subject7()
	c, _ := run(t, conf)
	ready(t, c)
	if _, err := c.Credential(t.Context(), ref(t, subject7)); err != nil {
		t.Error(err)
	}
	if err := mustHold(t, c).Drop(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestAMalformedEnvironmentIsSaid(t *testing.T) {
	t.Setenv("VAULT_RATE_LIMIT", "not-a-number")
	synctest.Test(t, func(t *testing.T) {
		dev := &box{devvault.New(devvault.Options{})}
		c, _ := run(t, dev.config())
		synctest.Wait() // it has tried, and waits for the next time
		const want = "vault.Ready: vault_not_ready: no login: vault.New: vault_not_ready: a VAULT_ variable of the environment is malformed: unset it"
		if err := c.Ready(); err == nil || err.Error() != want {
			t.Errorf("Ready = %v", err)
		}
	})
}

// sees is a transport that looks at each request first.
type sees func(*http.Request)

func (s sees) RoundTrip(r *http.Request) (*http.Response, error) {
	s(r)
	return http.DefaultTransport.RoundTrip(r)
}

// A token is never sent where an answer points to, not even over a transport
// that does not see to it itself as egress does.
func TestNoRedirectIsFollowed(t *testing.T) {
	var reached atomic.Int64
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	defer elsewhere.Close()
	for _, status := range []int{301, 302, 303, 307, 308} {
		onNetwork(t, http.DefaultTransport, func(b *box, c *vault.Client) {
			b.subject7()
			h := mustHold(t, c)
			b.Fail("", "", -1, devvault.Failure{Status: status, Location: elsewhere.URL + "/v1/x", Body: `{"data":{"token":"x"}}`})
			if _, err := c.Credential(t.Context(), ref(t, subject7)); fault.ReasonOf(err) != fault.VaultUnexpected {
				t.Errorf("%d: Credential = %v", status, err)
			}
			if _, err := h.Read(t.Context()); fault.ReasonOf(err) != fault.VaultUnexpected {
				t.Errorf("%d: Read = %v", status, err)
			}
			if _, err := vaulttest.Hold(t.Context(), c, secret.New("token")); fault.ReasonOf(err) != fault.VaultUnexpected {
				t.Errorf("%d: Hold = %v", status, err)
			}
			if err := h.Drop(t.Context()); fault.ReasonOf(err) != fault.VaultUnexpected {
				t.Errorf("%d: Drop = %v", status, err)
			}
			b.Mend()
		})
	}
	if n := reached.Load(); n != 0 {
		t.Errorf("%d requests were redirected", n)
	}
}

// A call that fails costs its own connection, not all that are idle.
func TestAFailureClosesNoOtherConnection(t *testing.T) {
	const parallel = 8
	b := &box{devvault.New(devvault.Options{})}
	b.subject7()
	var dialled atomic.Int64
	arrived := make(chan struct{}, parallel)
	leave := make(chan struct{})
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Vault-Token") == b.RootToken() && r.URL.Path == "/v1/kv/data/broker/subjects/7" {
			arrived <- struct{}{} // hold it until all are here, so that each has a connection
			<-leave
		}
		b.ServeHTTP(w, r)
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			dialled.Add(1)
		}
	}
	server.Start()
	defer server.Close()
	conf := b.config()
	conf.Address, conf.Transport = server.URL, nil
	c, stop := run(t, conf)
	defer stop()
	ready(t, c)
	together := func() {
		var wg sync.WaitGroup
		for range parallel {
			wg.Go(func() { c.Credential(t.Context(), ref(t, subject7)) })
		}
		for range parallel {
			<-arrived
		}
		for range parallel {
			leave <- struct{}{}
		}
		wg.Wait()
	}
	together()
	before := dialled.Load()
	b.Fail("GET", "sys/internal/ui/mounts/kv1", 1, devvault.Failure{Cut: true})
	if _, err := c.Credential(t.Context(), ref(t, "vault:kv1/broker/x#token")); fault.ReasonOf(err) != fault.VaultUnreachable {
		t.Errorf("Credential = %v", err)
	}
	together()
	if n := dialled.Load() - before; n > 1 {
		t.Errorf("%d connections were dialled anew", n)
	}
}

// onNetwork runs f with a ready Client on real connections.
func onNetwork(t *testing.T, transport http.RoundTripper, f func(b *box, c *vault.Client)) {
	t.Helper()
	dev, url := start(t)
	b := &box{dev}
	conf := b.config()
	conf.Address, conf.Transport = url, transport
	c, stop := run(t, conf)
	ready(t, c)
	f(b, c)
	stop()
}

// No secret gets out, whatever goes wrong.
func TestSecretsStayInside(t *testing.T) {
	const token, credential = "canary-token-of-an-operation-1234", "canary-credential-of-subject-5678"
	dev := &box{devvault.New(devvault.Options{RootToken: "canary-root-token-90123456"})}
	dev.PutSecret("kv", "broker/subjects/7", map[string]string{"token": credential})
	conf := dev.loggedIn(t)
	planted := append(dev.Secrets(), token)
	canary.Run(t, func(cage *canary.Cage) {
		conf.Log = cage.Logger()
		for _, row := range failures {
			synctest.Test(t, func(t *testing.T) {
				c, stop := run(t, conf)
				ready(t, c)
				h, err := vaulttest.Hold(t.Context(), c, secret.New(token))
				if err != nil {
					t.Fatal(err)
				}
				echo := row.failure
				if echo.Body != "" && echo.Type != "" {
					echo.Body += token + credential
				}
				dev.Fail("", "", -1, echo)
				_, err = h.Read(t.Context())
				cage.Value("read", err)
				_, err = vaulttest.Hold(t.Context(), c, secret.New(token))
				cage.Value("hold", err)
				_, err = c.Credential(t.Context(), ref(t, subject7))
				cage.Value("credential", err)
				cage.Value("drop", h.Drop(t.Context()))
				time.Sleep(2 * time.Minute)
				cage.Value("ready", c.Ready())
				dev.Mend()
				stop()
				cage.Value("a hold", h)
			})
		}
	}, planted...)
}

// What comes out of an answer is what is in it, read by another reader.
func FuzzCredential(f *testing.F) {
	for _, seed := range []string{`{"data":{"data":{"token":"x"}}}`, `{"data":{"data":null}}`, `{"data":{"data":{"token":5}}}`,
		`{"data":{"data":{"token":"a","token":"b"}}}`, `{"data":{"data":{"token":"\ud800"}}}`, `[]`, ``} {
		f.Add(seed)
	}
	b := &box{devvault.New(devvault.Options{})}
	b.subject7()
	f.Fuzz(func(t *testing.T, body string) {
		synctest.Test(t, func(t *testing.T) {
			c, stop := run(t, b.config())
			defer stop()
			ready(t, c)
			b.Fail("GET", "kv/", 1, devvault.Failure{Status: 200, Body: body})
			defer b.Mend()
			got, err := c.Credential(t.Context(), ref(t, subject7))
			if err != nil {
				return
			}
			var any map[string]map[string]map[string]any
			json.Unmarshal([]byte(body), &any)
			if want, _ := any["data"]["data"]["token"].(string); want == "" || got.Reveal() != want {
				t.Errorf("%q reads another value", body)
			}
		})
	})
}
