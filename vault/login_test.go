package vault_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/internal/devvault"
	"onbehalf.internal/broker/internal/testlog"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/secret"
	"onbehalf.internal/broker/secret/canary"
	"onbehalf.internal/broker/vault"
	"onbehalf.internal/broker/vault/vaulttest"
)

// sunk is a config whose token is in a file, as a Vault Agent writes it.
func (b *box) sunk(t *testing.T, ttl time.Duration) (conf vault.Config, sink string) {
	t.Helper()
	token, _ := b.Mint(devvault.NewToken{Policies: []string{"broker"}, TTL: ttl})
	conf = b.config()
	conf.Token = secret.Text{}
	sink = file(t, token)
	conf.Auth = policy.VaultAuth{Method: "token_file", TokenFile: sink}
	return conf, sink
}

func TestANewTokenInTheFileIsTakenUp(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		conf, sink := b.sunk(t, time.Hour)
		c, stop := run(t, conf)
		ready(t, c)
		before := mustHold(t, c)
		next, _ := b.Mint(devvault.NewToken{Policies: []string{"broker"}, TTL: 10 * time.Hour})
		put(t, sink, next+"\n")
		time.Sleep(12 * time.Second)
		after := mustHold(t, c)
		if before.Epoch() == after.Epoch() {
			t.Error("12 s later there is no epoch of the new login")
		}
		if _, err := before.Read(t.Context()); err != nil {
			t.Errorf("what was held before: %v", err)
		}
		if n := b.Count("GET", "auth/token/lookup-self"); n != 2 {
			t.Errorf("%d look-ups, want 2", n)
		}
		stop()
		if b.Live("minted") != 2 {
			t.Error("a token that is not ours was revoked")
		}
	})
}

// A refusal is a reason to look, also while the old token lives.
func TestARefusalLooksAtTheFile(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		b.PutSecret("kv", "elsewhere", map[string]string{"token": "of-elsewhere"})
		b.ask(t, "sys/policies/acl/more", `{"policy":"path \"kv/data/elsewhere\" { capabilities = [\"read\"] }"}`, "")
		conf, sink := b.sunk(t, time.Hour)
		c, _ := run(t, conf)
		ready(t, c)
		elsewhere := ref(t, "vault:kv/elsewhere#token")
		if _, err := c.Credential(t.Context(), elsewhere); fault.ReasonOf(err) != fault.VaultDenied {
			t.Errorf("Credential = %v", err)
		}
		next, _ := b.Mint(devvault.NewToken{Policies: []string{"broker", "more"}, TTL: time.Hour})
		put(t, sink, next)
		if got, err := c.Credential(t.Context(), elsewhere); err != nil || got.Reveal() != "of-elsewhere" {
			t.Errorf("with another token in the file: %v", err)
		}
	})
}

// A file that tells nothing says nothing against the login that stands.
func TestABadTokenFileKeepsTheLogin(t *testing.T) {
	for name, row := range map[string]struct {
		brk  func(t *testing.T, path string)
		says string
	}{
		"emptied":    {func(t *testing.T, path string) { put(t, path, "\n") }, "is empty"},
		"gone":       {func(t *testing.T, path string) { os.Remove(path) }, "does not exist"},
		"everybodys": {func(t *testing.T, path string) { os.Chmod(path, 0o604) }, "chmod o-r"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *box) {
				var log testlog.Buffer
				conf, sink := b.sunk(t, 10*time.Minute)
				conf.Log = slog.New(slog.NewTextHandler(&log, nil))
				c, _ := run(t, conf)
				ready(t, c)
				row.brk(t, sink)
				time.Sleep(5 * time.Minute)
				if err := c.Ready(); err != nil {
					t.Error(err)
				}
				mustHold(t, c)
				if n := strings.Count(log.String(), `msg="vault token file"`); n != 1 || !strings.Contains(log.String(), row.says) {
					t.Errorf("it is said %d times in 5 min:\n%s", n, log.String())
				}
				if strings.Contains(log.String(), "vault upkeep") {
					t.Errorf("it is taken for a failure:\n%s", log.String())
				}
				time.Sleep(6 * time.Minute) // it cannot be renewed, and has run out
				if err := c.Ready(); err == nil || !strings.Contains(err.Error(), "no login: vault.login: vault_not_ready: ") || !strings.Contains(err.Error(), row.says) {
					t.Errorf("after its end: Ready = %v", err)
				}
				next, _ := b.Mint(devvault.NewToken{Policies: []string{"broker"}, TTL: time.Hour})
				put(t, sink, next)
				time.Sleep(15 * time.Second)
				if err := c.Ready(); err != nil {
					t.Errorf("when it is mended: %v", err)
				}
			})
		})
	}
}

func TestATokenThatVaultRefusesKeepsTheLogin(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		conf, sink := b.sunk(t, time.Hour)
		c, _ := run(t, conf)
		ready(t, c)
		put(t, sink, "not-a-token-of-this-vault")
		time.Sleep(5 * time.Minute)
		if err := c.Ready(); err != nil {
			t.Error(err)
		}
		mustHold(t, c)
		if n := b.Count("GET", "auth/token/lookup-self"); n > 40 {
			t.Errorf("%d look-ups in five minutes", n)
		}
	})
}

// wrapped is a config with AppRole whose file holds a wrapping token.
func (b *box) wrapped(t *testing.T) vault.Config {
	t.Helper()
	conf := b.loggedIn(t)
	conf.Auth.Wrapping = "auth/approle/role/broker/secret-id"
	put(t, conf.Auth.SecretIDFile, b.wrap(t))
	return conf
}

func (b *box) wrap(t *testing.T) string {
	t.Helper()
	req, err := http.NewRequest("POST", "http://vault.test:8200/v1/auth/approle/role/broker/secret-id", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Vault-Token", b.RootToken())
	req.Header.Set("X-Vault-Wrap-TTL", "60s")
	resp, err := b.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	var said struct {
		Wrap struct{ Token string } `json:"wrap_info"`
	}
	if json.NewDecoder(resp.Body).Decode(&said) != nil || said.Wrap.Token == "" {
		t.Fatal("nothing was wrapped")
	}
	return said.Wrap.Token
}

// A wrapping token is good for one use, a secret id for many.
func TestAWrappedSecretIDIsKept(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		conf := b.wrapped(t)
		c, _ := run(t, conf)
		ready(t, c)
		time.Sleep(5 * time.Hour) // logins last two hours at most
		os.Remove(conf.Auth.SecretIDFile)
		time.Sleep(5 * time.Hour)
		if err := c.Ready(); err != nil {
			t.Error(err)
		}
		if logins, unwraps := b.Count("PUT", "auth/approle/login"), b.Count("PUT", "sys/wrapping/unwrap"); logins < 5 || unwraps != 1 {
			t.Errorf("%d logins, %d times unwrapped", logins, unwraps)
		}
		put(t, conf.Auth.SecretIDFile, b.wrap(t))
		b.RevokeAll("approle:broker")
		time.Sleep(time.Minute)
		if n := b.Count("PUT", "sys/wrapping/unwrap"); n != 2 || c.Ready() != nil {
			t.Errorf("a new wrapping token: %d times unwrapped, %v", n, c.Ready())
		}
	})
}

// What became of a wrapping token is said as far as it is known.
func TestAWrappingTokenThatIsGone(t *testing.T) {
	for name, row := range map[string]struct {
		brk  func(t *testing.T, b *box, conf vault.Config)
		says string
	}{
		"run out":   {func(*testing.T, *box, vault.Config) { time.Sleep(2 * time.Minute) }, "somebody has unwrapped it before us"},
		"never one": {func(t *testing.T, _ *box, conf vault.Config) { put(t, conf.Auth.SecretIDFile, "s.no-wrapping-token") }, "somebody has unwrapped it before us"},
		"the answer lost": {func(_ *testing.T, b *box, _ vault.Config) {
			b.Fail("PUT", "sys/wrapping/unwrap", 1, devvault.Failure{After: true, Cut: true})
		}, "the answer was lost"},
		"a 500 after the effect": {func(_ *testing.T, b *box, _ vault.Config) {
			b.Fail("PUT", "sys/wrapping/unwrap", 1, devvault.Failure{After: true})
		}, "the answer was lost"},
		"taken in between": {func(_ *testing.T, b *box, _ vault.Config) {
			b.Fail("PUT", "sys/wrapping/unwrap", 1, devvault.Failure{After: true, Status: 400, Body: `{"errors":["x"]}`})
		}, "somebody has unwrapped it before us"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *box) {
				conf := b.wrapped(t)
				row.brk(t, b, conf)
				c, _ := run(t, conf)
				time.Sleep(time.Minute)
				if err := c.Ready(); err == nil || !strings.Contains(err.Error(), row.says) || !strings.Contains(err.Error(), "put a new one there") {
					t.Errorf("Ready = %v, want …%s…", err, row.says)
				}
				if n := b.Count("PUT", "auth/approle/login"); n != 0 {
					t.Errorf("%d logins", n)
				}
				put(t, conf.Auth.SecretIDFile, b.wrap(t))
				time.Sleep(15 * time.Second)
				if err := c.Ready(); err != nil {
					t.Errorf("with a new one: %v", err)
				}
			})
		})
	}
}

// A look at a wrapping token that fails does not use it up.
func TestAWrappingTokenOutlivesFailures(t *testing.T) {
	for _, f := range []devvault.Failure{{}, {Cut: true}, {Status: 503, Body: `{"errors":["sealed"]}`}, {Status: 200, Body: `{"data":{}}`}} {
		bubble(t, func(t *testing.T, b *box) {
			conf := b.wrapped(t)
			b.Fail("PUT", "sys/wrapping/lookup", 3, f)
			c, _ := run(t, conf)
			ready(t, c)
		})
	}
}

// A secret id that Vault refuses is shown twice, then not before Vault has
// forgotten about it, whoever asks; another one is shown at once.
func TestARefusedSecretIDIsNotShownAgain(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		conf := b.loggedIn(t)
		right, _ := os.ReadFile(conf.Auth.SecretIDFile)
		c, _ := run(t, conf)
		ready(t, c)
		put(t, conf.Auth.SecretIDFile, "wrong-one")
		b.RevokeAll("approle:broker")
		ask := func(d time.Duration) {
			for range int(d / time.Second) {
				c.Credential(t.Context(), ref(t, subject7))
				time.Sleep(time.Second)
			}
		}
		before := b.Count("PUT", "auth/approle/login")
		ask(15 * time.Minute)
		if n := b.Count("PUT", "auth/approle/login") - before; n != 2 {
			t.Errorf("it was shown %d times in 15 min, want 2", n)
		}
		ask(time.Hour)
		if n := b.Count("PUT", "auth/approle/login") - before; n < 3 || n > 6 {
			t.Errorf("it was shown %d times in 75 min", n)
		}
		put(t, conf.Auth.SecretIDFile, string(right))
		ask(15 * time.Second)
		if err := c.Ready(); err != nil {
			t.Errorf("with the right one: %v", err)
		}
	})
}

// While nobody can log in, those who ask do not make it worse.
func TestManyMeetADeadLoginThatCannotBeReplaced(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		b.subject7()
		c, _ := run(t, b.loggedIn(t))
		ready(t, c)
		b.RevokeAll("approle:broker")
		b.Fail("PUT", "auth/approle/login", -1, devvault.Failure{})
		var wg sync.WaitGroup
		for range 64 {
			wg.Go(func() {
				for range 100 { // for ten seconds
					if _, err := c.Credential(t.Context(), ref(t, subject7)); fault.ReasonOf(err) != fault.VaultDenied {
						t.Errorf("Credential = %v", err)
					}
					time.Sleep(100 * time.Millisecond)
				}
			})
		}
		wg.Wait()
		if n := b.Count("PUT", "auth/approle/login"); n < 5 || n > 12 {
			t.Errorf("%d logins in ten seconds", n)
		}
		b.Mend()
		time.Sleep(15 * time.Second)
		if _, err := c.Credential(t.Context(), ref(t, subject7)); err != nil || c.Ready() != nil {
			t.Errorf("when it is mended: %v, %v", err, c.Ready())
		}
	})
}

// One who had no time to log in does not keep others from it.
func TestAShortBudgetSpoilsNoLogin(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		b.subject7()
		c, _ := run(t, b.loggedIn(t))
		ready(t, c)
		b.RevokeAll("approle:broker")
		b.Fail("PUT", "auth/approle/login", 1, devvault.Failure{Hang: true})
		short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if _, err := c.Credential(short, ref(t, subject7)); fault.ReasonOf(err) != fault.VaultDenied {
			t.Errorf("Credential = %v", err)
		}
		if _, err := c.Credential(t.Context(), ref(t, subject7)); err != nil {
			t.Errorf("the next one: %v", err)
		}
	})
}

// A login that lives hardly longer than an epoch is renewed early enough.
func TestAShortLoginIsReadyAllTheTime(t *testing.T) {
	for _, ttl := range []time.Duration{95 * time.Second, 2 * time.Minute, 5 * time.Minute} {
		bubble(t, func(t *testing.T, b *box) {
			token, _ := b.Mint(devvault.NewToken{Policies: []string{"broker"}, TTL: ttl, Renewable: true})
			conf := b.config()
			conf.Token = secret.New(token)
			c, _ := run(t, conf)
			ready(t, c)
			for second := range 1200 {
				time.Sleep(time.Second)
				if err := c.Ready(); err != nil {
					t.Fatalf("ttl %v, after %d s: %v", ttl, second, err)
				}
			}
			if n := b.Count("PUT", "auth/token/renew-self"); n > 300 {
				t.Errorf("ttl %v: %d renewals in 20 min", ttl, n)
			}
		})
	}
}

// While a login can be neither renewed nor replaced it is used to its end, and why
// that is near is said in time.
func TestALoginThatCannotBeRenewedGoesOn(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		c, _ := run(t, b.loggedIn(t)) // for an hour
		ready(t, c)
		b.Fail("PUT", "auth/token/renew-self", -1, devvault.Failure{})
		b.Fail("PUT", "auth/approle/login", -1, devvault.Failure{})
		time.Sleep(58 * time.Minute)
		if err := c.Ready(); err != nil {
			t.Errorf("two minutes before its end: %v", err)
		}
		mustHold(t, c)
		time.Sleep(time.Minute)
		const want = "60s, 75s are needed: let it be renewed, or raise its ttl: vault.renew: vault_unexpected: Vault answered 500"
		if err := c.Ready(); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("a minute before its end: %v", err)
		}
		b.Mend()
		time.Sleep(15 * time.Second)
		if err := c.Ready(); err != nil {
			t.Errorf("when it is mended: %v", err)
		}
	})
}

// Why it is not ready is logged when it begins, and when it ends.
func TestReadinessIsLogged(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		var log testlog.Buffer
		conf := b.config()
		conf.Log = slog.New(slog.NewTextHandler(&log, nil))
		c, stop := run(t, conf)
		ready(t, c)
		time.Sleep(5 * time.Minute)
		b.role(t, "broker-op", "30s")
		time.Sleep(5 * time.Minute)
		b.role(t, "broker-op", "75s")
		time.Sleep(5 * time.Minute)
		stop()
		if said := log.String(); strings.Count(said, `msg="vault ready"`) != 2 || strings.Count(said, `msg="vault not ready"`) != 1 ||
			!strings.Contains(said, "the minted epoch lives 30s, 75s are needed: set token_explicit_max_ttl on role broker-op") {
			t.Errorf("it is said:\n%s", said)
		}
	})
}

// A JWT is read at each login: whoever keeps it fresh replaces it.
func TestAJWTIsReadAnew(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		der, _ := x509.MarshalPKIXPublicKey(&key.PublicKey)
		public, _ := json.Marshal(string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})))
		b.ask(t, "sys/auth/jwt", `{"type":"jwt"}`, "")
		b.ask(t, "auth/jwt/config", fmt.Sprintf(`{"jwt_validation_pubkeys":[%s]}`, public), "")
		b.ask(t, "auth/jwt/role/broker", `{"token_policies":"broker","token_ttl":"10m","token_max_ttl":"10m","bound_audiences":["vault"]}`, "")
		issue := func() string {
			token, err := jwt.NewWithClaims(jwt.SigningMethodES256, jwt.MapClaims{"aud": "vault", "sub": "broker", "exp": time.Now().Add(15 * time.Minute).Unix()}).SignedString(key)
			if err != nil {
				t.Fatal(err)
			}
			return token
		}
		conf := b.config()
		conf.Auth = policy.VaultAuth{Method: "jwt", Role: "broker", JWTFile: file(t, issue())}
		os.Chmod(conf.Auth.JWTFile, 0o644) // as Kubernetes projects it
		c, _ := run(t, conf)
		ready(t, c)
		for range 12 { // each lives a quarter of an hour
			time.Sleep(10 * time.Minute)
			put(t, conf.Auth.JWTFile, issue())
			if err := c.Ready(); err != nil {
				t.Fatal(err)
			}
		}
		if n := b.Count("PUT", "auth/jwt/login"); n < 12 {
			t.Errorf("%d logins in two hours", n)
		}
		if b.Count("GET", "auth/token/lookup-self") != 0 {
			t.Error("a login that is ours was looked up")
		}
	})
}

// A proxied is a Vault Proxy in front of a box: it adds the token of its login.
type proxied struct {
	*box
	mu    sync.Mutex
	token string
	force bool
	seen  map[string]int // requests without a token, by path
}

func (p *proxied) RoundTrip(r *http.Request) (*http.Response, error) {
	p.mu.Lock()
	if p.force || r.Header.Get("X-Vault-Token") == "" {
		if _, said := r.Header["X-Vault-Token"]; !said {
			p.seen[r.URL.Path]++
		}
		r = r.Clone(r.Context())
		r.Header.Set("X-Vault-Token", p.token)
	}
	p.mu.Unlock()
	return p.box.RoundTrip(r)
}

func (p *proxied) login(life time.Duration) {
	token, _ := p.Mint(devvault.NewToken{Policies: []string{"broker"}, TTL: life, Renewable: true})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.token = token
}

// Through a proxy the broker has no token of its own, and its epochs carry theirs.
func TestByProxy(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		b.subject7()
		p := &proxied{box: b, seen: map[string]int{}}
		p.login(time.Hour)
		conf := b.config()
		conf.Token, conf.Auth = secret.Text{}, policy.VaultAuth{Method: "proxy"}
		conf.Address, conf.Transport = "unix:/run/vault/proxy.sock", p
		c, stop := run(t, conf)
		ready(t, c)
		if got, err := c.Credential(t.Context(), ref(t, subject7)); err != nil || got.Reveal() != "credential-of-7" {
			t.Errorf("Credential = %v", err)
		}
		h := mustHold(t, c)
		if _, err := h.Read(t.Context()); err != nil {
			t.Error(err)
		}
		if err := h.Drop(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(30 * time.Minute)
		p.login(time.Hour) // the proxy has logged in anew
		time.Sleep(29 * time.Minute)
		if err := c.Ready(); err != nil {
			t.Errorf("a minute before its first login ends: %v", err)
		}
		time.Sleep(10 * time.Minute)
		mustHold(t, c)
		stop()
		if b.Live("minted") != 1 || b.Live("broker-op") != 0 || b.Count("PUT", "auth/token/renew-self") != 0 {
			t.Errorf("%d logins of the proxy and %d epochs live, %d renewals", b.Live("minted"), b.Live("broker-op"), b.Count("PUT", "auth/token/renew-self"))
		}
		for path := range p.seen {
			if strings.HasPrefix(path, "/v1/cubbyhole/") || strings.HasSuffix(path, "/revoke-self") {
				t.Errorf("%s had no token", path)
			}
		}
		if p.seen["/v1/kv/data/broker/subjects/7"] != 1 || p.seen["/v1/auth/token/create/broker-op"] < 100 {
			t.Errorf("without a token came %v", p.seen)
		}
	})
}

// A cubbyhole that is the proxy's would outlive the epoch.
func TestAProxyThatReplacesTokensIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		p := &proxied{box: b, seen: map[string]int{}, force: true, token: b.RootToken()}
		conf := b.config()
		conf.Token, conf.Auth = secret.Text{}, policy.VaultAuth{Method: "proxy"}
		conf.Address, conf.Transport = "unix:/run/vault/proxy.sock", p
		c, _ := run(t, conf)
		time.Sleep(time.Minute)
		if err := c.Ready(); err == nil || !strings.Contains(err.Error(), `not to "force"`) {
			t.Errorf("Ready = %v", err)
		}
		if b.Live("broker-op") != 0 {
			t.Error("an epoch was minted")
		}
	})
}

// A header that is ignored would put everything into the root namespace.
func TestAVaultWithoutNamespacesIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		conf := b.loggedIn(t)
		conf.Namespace = "team/a"
		conf.Transport = ignoring{b}
		c, _ := run(t, conf)
		time.Sleep(time.Minute)
		if err := c.Ready(); err == nil || !strings.Contains(err.Error(), "this Vault has no namespaces") {
			t.Errorf("Ready = %v", err)
		}
		if b.Live("broker-op") != 0 {
			t.Error("an epoch was minted")
		}
	})
}

// ignoring is a Vault that does not know namespaces.
type ignoring struct{ *box }

func (i ignoring) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Del("X-Vault-Namespace")
	return i.box.RoundTrip(r)
}

// What proves who we are stays out of every error and log line.
func TestWhatProvesUsStaysInside(t *testing.T) {
	const token = "canary-jwt-of-the-service-account-4711"
	dev := &box{devvault.New(devvault.Options{RootToken: "canary-root-token-90123456"})}
	wrapped, byFile := dev.wrapped(t), dev.config()
	jwt := dev.config()
	jwt.Auth = policy.VaultAuth{Method: "jwt", Role: "broker", JWTFile: file(t, token)}
	byFile.Auth = policy.VaultAuth{Method: "token_file", TokenFile: file(t, "canary-token-of-an-agent-081500")}
	planted := append(dev.Secrets(), token, "canary-token-of-an-agent-081500")
	canary.Run(t, func(cage *canary.Cage) {
		for _, conf := range []vault.Config{wrapped, jwt, byFile} {
			conf.Log = cage.Logger()
			for _, row := range failures {
				synctest.Test(t, func(t *testing.T) {
					echo := row.failure
					if echo.Body != "" && echo.Type != "" {
						echo.Body += token + strings.Join(planted, "\n")
					}
					dev.Fail("", "", 8, echo)
					c, stop := run(t, conf)
					time.Sleep(time.Minute)
					cage.Value("ready", c.Ready())
					dev.Mend()
					stop()
				})
			}
			put(t, conf.Auth.SecretIDFile+conf.Auth.JWTFile+conf.Auth.TokenFile, token+"\n"+token)
			synctest.Test(t, func(t *testing.T) {
				c, stop := run(t, conf)
				time.Sleep(time.Second)
				cage.Value("a file of two lines", c.Ready())
				stop()
			})
		}
	}, planted...)
}

// A certificate is read at each login, and the former one's connections go.
func TestACertificateIsReadAnew(t *testing.T) {
	dev := devvault.New(devvault.Options{})
	b := &box{dev}
	b.subject7()
	doors := vaulttest.NewDoors(t)
	secure, _ := doors.Listen(t)
	shown := make(chan string, 1000)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/cert/login") && len(r.TLS.PeerCertificates) > 0 {
			shown <- r.TLS.PeerCertificates[0].Subject.CommonName
		}
		if strings.Contains(r.URL.Path, "/cubbyhole/") && len(r.TLS.PeerCertificates) > 0 {
			t.Error("an epoch shows the certificate")
		}
		dev.ServeHTTP(w, r)
	})}
	go server.Serve(secure)
	defer server.Close()
	authority, issue := vaulttest.Clients(t)
	ca, _ := json.Marshal(authority)
	b.ask(t, "sys/auth/cert", `{"type":"cert"}`, "")
	b.ask(t, "auth/cert/certs/broker", fmt.Sprintf(`{"token_policies":"broker","token_ttl":"1h","certificate":%s}`, ca), "")

	conf := vault.Config{Address: doors.TLS, CA: doors.CA, Role: "broker-op", Auth: policy.VaultAuth{Method: "cert"}}
	conf.Auth.CertFile, conf.Auth.KeyFile = issue("first")
	c, _ := run(t, conf)
	ready(t, c)
	mustHold(t, c)
	cert, key := issue("second")
	for from, to := range map[string]string{cert: conf.Auth.CertFile, key: conf.Auth.KeyFile} {
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	dev.RevokeAll("cert:broker")
	if _, err := c.Credential(t.Context(), ref(t, subject7)); err != nil {
		t.Error(err)
	}
	if first, second := <-shown, <-shown; first != "first" || second != "second" {
		t.Errorf("shown were %q and then %q", first, second)
	}
}

// A login by certificate is renewed with it: Vault would not renew it without.
func TestACertificateIsShownToRenewals(t *testing.T) {
	dev := devvault.New(devvault.Options{})
	b := &box{dev}
	doors := vaulttest.NewDoors(t)
	secure, _ := doors.Listen(t)
	dev.Serve(secure)
	defer dev.Close()
	authority, issue := vaulttest.Clients(t)
	ca, _ := json.Marshal(authority)
	b.ask(t, "sys/auth/cert", `{"type":"cert"}`, "")
	b.ask(t, "auth/cert/certs/broker", fmt.Sprintf(`{"token_policies":"broker","token_ttl":"91s","certificate":%s}`, ca), "") // so it is renewed after a second
	conf := vault.Config{Address: doors.TLS, CA: doors.CA, Role: "broker-op", Auth: policy.VaultAuth{Method: "cert"}}
	conf.Auth.CertFile, conf.Auth.KeyFile = issue("broker")
	c, _ := run(t, conf)
	ready(t, c)
	eventually(t, "it is renewed", func() bool { return b.Count("PUT", "auth/token/renew-self") > 0 })
	for _, r := range b.Requests() {
		if r.Path == "auth/token/renew-self" && r.Status != 200 {
			t.Errorf("the renewal was answered %d", r.Status)
		}
	}
}

// Each file has its guard: what may be read by whom.
func TestFilesAreGuarded(t *testing.T) {
	_, issue := vaulttest.Clients(t)
	cert, key := issue("broker")
	for name, row := range map[string]struct {
		auth policy.VaultAuth
		file func(a *policy.VaultAuth) *string
		mode os.FileMode // that is refused; one bit less is not
	}{
		"secret_id": {policy.VaultAuth{Method: "approle", RoleID: "x"}, func(a *policy.VaultAuth) *string { return &a.SecretIDFile }, 0o640},
		"token":     {policy.VaultAuth{Method: "token_file"}, func(a *policy.VaultAuth) *string { return &a.TokenFile }, 0o644},
		"jwt":       {policy.VaultAuth{Method: "jwt", Role: "x"}, func(a *policy.VaultAuth) *string { return &a.JWTFile }, 0o664},
		"cert":      {policy.VaultAuth{Method: "cert", CertFile: cert, KeyFile: key}, func(a *policy.VaultAuth) *string { return &a.CertFile }, 0o664},
		"key":       {policy.VaultAuth{Method: "cert", CertFile: cert, KeyFile: key}, func(a *policy.VaultAuth) *string { return &a.KeyFile }, 0o640},
	} {
		conf := vault.Config{Address: "https://127.0.0.1:1", Role: "broker-op", Auth: row.auth}
		path := row.file(&conf.Auth)
		if *path == "" {
			*path = file(t, "word")
		}
		mended := map[os.FileMode]os.FileMode{0o640: 0o600, 0o644: 0o640, 0o664: 0o644}[row.mode]
		for mode, want := range map[os.FileMode]string{row.mode: *path, mended: "vault_unreachable"} {
			if err := os.Chmod(*path, mode); err != nil {
				t.Fatal(err)
			}
			c, stop := run(t, conf)
			eventually(t, fmt.Sprintf("%s with mode %o says …%s…", name, mode, want), func() bool {
				err := c.Ready()
				return err != nil && strings.Contains(err.Error(), want)
			})
			stop()
		}
		os.Chmod(*path, 0o600)
	}
}

// eventually is for what happens on a real network.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for late := time.After(20 * time.Second); !ok(); {
		select {
		case <-poll.C:
		case <-late:
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}
