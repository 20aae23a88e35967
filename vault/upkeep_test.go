package vault_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/internal/devvault"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/secret"
	"onbehalf.internal/broker/vault"
	"onbehalf.internal/broker/vault/vaulttest"
)

// bubble runs f with time held still, on a Vault without a network, and stops
// the Clients that f made.
func bubble(t *testing.T, f func(t *testing.T, b *box)) {
	synctest.Test(t, func(t *testing.T) {
		f(t, &box{Server: devvault.New(devvault.Options{})})
	})
}

type box struct{ *devvault.Server }

func (b *box) config() vault.Config {
	return vault.Config{Address: "http://vault.test:8200", Role: "broker-op", Transport: b.Server,
		Auth: policy.VaultAuth{Method: "token"}, Token: secret.New(b.RootToken())}
}

// loggedIn is a config with AppRole; its tokens live an hour, and two at most.
func (b *box) loggedIn(t *testing.T) vault.Config {
	t.Helper()
	ask := func(path, body, field string) string {
		return b.ask(t, path, body, field)
	}
	ask("sys/auth/approle", `{"type":"approle"}`, "")
	ask("auth/approle/role/broker", `{"token_policies":"broker","token_ttl":"1h","token_max_ttl":"2h"}`, "")
	conf := b.config()
	conf.Token = secret.Text{}
	conf.Auth = policy.VaultAuth{Method: "approle", RoleID: ask("auth/approle/role/broker/role-id", "", "role_id")}
	conf.Auth.SecretIDFile = file(t, ask("auth/approle/role/broker/secret-id", "{}", "secret_id"))
	return conf
}

// run starts a Client that stops with the test.
func run(t *testing.T, conf vault.Config) (*vault.Client, func()) {
	t.Helper()
	c, err := vault.New(conf)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		if err := c.Run(ctx); err != nil {
			t.Errorf("Run = %v", err)
		}
		close(ended)
	}()
	stop := func() { cancel(); <-ended }
	t.Cleanup(stop)
	return c, stop
}

func ready(t *testing.T, c *vault.Client) *vault.Client {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := c.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	return c
}

func mustHold(t *testing.T, c *vault.Client) *vault.Hold {
	t.Helper()
	h, err := vaulttest.Hold(context.Background(), c, secret.New("token-of-an-operation"))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestEpochsTurnEvery30s(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		c, _ := run(t, b.config())
		ready(t, c)
		time.Sleep(time.Second) // stand between two turns
		for minute := range 20 {
			time.Sleep(time.Minute)
			if got, want := b.Count("PUT", "auth/token/create/"), 1+2*(minute+1); got != want {
				t.Fatalf("after %d min %d epochs were minted, want %d", minute+1, got, want)
			}
			if n := b.Live("broker-op"); n != 1 {
				t.Fatalf("%d epochs live, want 1", n)
			}
			if err := c.Ready(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestARetiredEpochStaysForItsHolds(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		c, _ := run(t, b.config())
		ready(t, c)
		old := mustHold(t, c)
		time.Sleep(40 * time.Second)
		young := mustHold(t, c)
		if old.Epoch() == young.Epoch() || b.Live("broker-op") != 2 {
			t.Fatalf("%d epochs live, want the old one and the new", b.Live("broker-op"))
		}
		if _, err := old.Read(t.Context()); err != nil {
			t.Errorf("Read in a retired epoch = %v", err)
		}
		if err := old.Drop(t.Context()); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if n := b.Live("broker-op"); n != 1 {
			t.Errorf("%d epochs live, want the idle one revoked", n)
		}
		if _, err := young.Read(t.Context()); err != nil {
			t.Errorf("Read in the new epoch = %v", err)
		}
	})
}

func TestAHoldEndsWithItsEpoch(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		c, _ := run(t, b.config())
		ready(t, c)
		h := mustHold(t, c)
		time.Sleep(74 * time.Second)
		if _, err := h.Read(t.Context()); err != nil {
			t.Errorf("Read a second before the end = %v", err)
		}
		time.Sleep(time.Second)
		if _, err := h.Read(t.Context()); fault.ReasonOf(err) != fault.HoldGone {
			t.Errorf("Read after the end = %v", err)
		}
		if n := b.Residue(); n != 0 {
			t.Errorf("%d entries are left", n)
		}
		if err := c.Ready(); err != nil {
			t.Errorf("the newest epoch is not ready: %v", err)
		}
	})
}

// The login lives an hour and two at most: it is renewed after 40 minutes, and
// replaced when a renewal does not help any more.
func TestLoginIsRenewedThenReplaced(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		c, _ := run(t, b.loggedIn(t))
		ready(t, c)
		type counts struct{ logins, renewals int }
		at := func(after time.Duration, want counts) {
			t.Helper()
			time.Sleep(after)
			got := counts{b.Count("PUT", "auth/approle/login"), b.Count("PUT", "auth/token/renew-self")}
			if got != want {
				t.Errorf("at %v: %+v, want %+v", after, got, want)
			}
			if err := c.Ready(); err != nil {
				t.Errorf("at %v: %v", after, err)
			}
		}
		at(39*time.Minute, counts{1, 0})
		at(2*time.Minute, counts{1, 1})  // at 40: until 100
		at(40*time.Minute, counts{1, 2}) // at 80: until 120, the maximum
		at(30*time.Minute, counts{2, 3}) // at 106⅔: nothing gained, so another login
		for range 20 {
			at2 := b.Count("PUT", "auth/approle/login")
			time.Sleep(time.Hour)
			if n := b.Count("PUT", "auth/approle/login") - at2; n > 1 || c.Ready() != nil {
				t.Fatalf("%d logins in an hour, %v", n, c.Ready())
			}
		}
	})
}

func TestATokenThatCannotBeRenewedIsNotReadyInTime(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		token, _ := b.Mint(devvault.NewToken{Policies: []string{"broker"}, TTL: 5 * time.Minute})
		conf := b.config()
		conf.Token = secret.New(token)
		c, _ := run(t, conf)
		ready(t, c)
		time.Sleep(4 * time.Minute)
		const want = "vault.Ready: vault_not_ready: the login token lives 60s, 75s are needed: let it be renewed, or raise its ttl"
		if err := c.Ready(); err == nil || err.Error() != want {
			t.Errorf("Ready = %v, want %s", err, want)
		}
		time.Sleep(2 * time.Minute)
		if err := c.Ready(); err == nil || !strings.Contains(err.Error(), "no login: vault.login: vault_denied") {
			t.Errorf("Ready = %v", err)
		}
		if n := len(b.Requests()); n > 200 {
			t.Errorf("%d requests in six minutes", n)
		}
	})
}

// Whatever goes wrong, Run comes back by itself, and meanwhile asks at most
// once a second.
func TestRunRecovers(t *testing.T) {
	for _, row := range []struct {
		name   string
		brk    func(b *box)
		mend   func(b *box)
		reason fault.Reason // in Ready meanwhile
	}{
		{"sealed", func(b *box) { b.Seal(true) }, func(b *box) { b.Seal(false) }, fault.VaultSealed},
		{"away", failAll(devvault.Failure{Cut: true}), mend, fault.VaultUnreachable},
		{"silent", failAll(devvault.Failure{Hang: true}), mend, fault.VaultUnreachable},
		{"internal error", failAll(devvault.Failure{}), mend, fault.VaultUnexpected},
		{"internal error after the effect", failAll(devvault.Failure{After: true}), mend, fault.VaultUnexpected},
		{"answer lost", failAll(devvault.Failure{After: true, Cut: true}), mend, fault.VaultUnreachable},
		{"rate limited", failAll(devvault.Failure{Status: 429, Body: `{"errors":["slow down"]}`}), mend, fault.VaultRateLimited},
		{"redirected", failAll(devvault.Failure{Status: 307, Location: "http://elsewhere.test/v1/"}), mend, fault.VaultUnexpected},
		{"not JSON", failAll(devvault.Failure{Status: 200, Type: "text/html", Body: "<html>"}), mend, fault.VaultUnexpected},
		{"empty", failAll(devvault.Failure{Status: 200}), mend, fault.VaultUnexpected},
		{"no data", failAll(devvault.Failure{Status: 200, Body: `{"data":null,"auth":null}`}), mend, fault.VaultUnexpected},
		{"nothing but a 204", failAll(devvault.Failure{Status: 204}), mend, fault.VaultUnexpected},
	} {
		for _, when := range []string{"at the start", "later"} {
			t.Run(row.name+" "+when, func(t *testing.T) {
				bubble(t, func(t *testing.T, b *box) {
					conf := b.loggedIn(t)
					if when == "at the start" {
						row.brk(b)
					}
					c, _ := run(t, conf)
					if when == "later" {
						ready(t, c)
						row.brk(b)
						time.Sleep(2 * time.Minute) // the epochs run out, the login does not
					}
					before := len(b.Requests())
					time.Sleep(5 * time.Minute)
					err := c.Ready()
					if fault.ReasonOf(err) != fault.VaultNotReady || !strings.Contains(err.Error(), string(row.reason)) {
						t.Errorf("Ready = %v, want %s in it", err, row.reason)
					}
					if _, err := vaulttest.Hold(t.Context(), c, secret.New("token-of-an-operation")); fault.ReasonOf(err) != fault.VaultNotReady {
						t.Errorf("Hold = %v", err)
					}
					if n := len(b.Requests()) - before; n < 10 || n > 300 {
						t.Errorf("%d requests in five minutes", n)
					}
					row.mend(b)
					time.Sleep(15 * time.Second)
					if err := c.Ready(); err != nil {
						t.Errorf("15 s after it is mended: %v", err)
					}
				})
			})
		}
	}
}

func failAll(f devvault.Failure) func(*box) {
	return func(b *box) {
		b.Fail("PUT", "auth/", -1, f)
		b.Fail("GET", "auth/", -1, f)
	}
}

func mend(b *box) { b.Mend() }

// A dead login takes its epochs with it. Run finds out at the next epoch, or
// as soon as an operation meets it.
func TestALostLoginIsReplaced(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		c, _ := run(t, b.loggedIn(t))
		ready(t, c)
		h := mustHold(t, c)
		b.RevokeAll("approle:broker")
		if _, err := h.Read(t.Context()); fault.ReasonOf(err) != fault.HoldGone {
			t.Errorf("Read = %v", err)
		}
		time.Sleep(2 * time.Second)
		if err := c.Ready(); err != nil {
			t.Error(err)
		}
		if err := mustHold(t, c).Drop(t.Context()); err != nil {
			t.Error(err)
		}
		if n := b.Count("PUT", "auth/approle/login"); n != 2 {
			t.Errorf("%d logins, want 2", n)
		}
	})
}

// With a new login comes a new epoch, before any operation meets the dead one.
func TestANewLoginMintsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		b.subject7()
		c, _ := run(t, b.loggedIn(t))
		ready(t, c)
		b.RevokeAll("approle:broker")
		if _, err := c.Credential(t.Context(), ref(t, subject7)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		mustHold(t, c)
		time.Sleep(20 * time.Second)
		if n := b.Count("POST", "auth/token/revoke-self"); n != 1 {
			t.Errorf("the dead epoch was revoked %d times, want once", n)
		}
	})
}

// Vault answers 74 s where a second ended while it minted an epoch of 75 s.
func TestAnEpochMintedAcrossTwoSeconds(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		b.role(t, "broker-op", "74s")
		c, _ := run(t, b.config())
		ready(t, c)
	})
}

// Where a role has no cap, we ask for one.
func TestARoleWithoutACap(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		b.role(t, "uncapped", "0")
		conf := b.config()
		conf.Role = "uncapped"
		c, _ := run(t, conf)
		ready(t, c)
	})
}

func TestMisconfigured(t *testing.T) {
	for _, row := range []struct {
		name string
		conf func(b *box, c *vault.Config)
		want string
	}{
		{"an unknown role", func(_ *box, c *vault.Config) { c.Role = "absent" },
			"no live epoch: vault.mint: vault_unexpected: Vault answered 400: is there a token role absent?"},
		{"a short role", func(b *box, c *vault.Config) { b.role(t, "short", "30s"); c.Role = "short" },
			"the minted epoch lives 30s, 75s are needed: set token_explicit_max_ttl on role short"},
		{"a role that is short by more than a second of Vault's", func(b *box, c *vault.Config) { b.role(t, "short", "73s"); c.Role = "short" },
			"the minted epoch lives 73s, 75s are needed: set token_explicit_max_ttl on role short"},
		{"an epoch without an end", func(b *box, _ *vault.Config) {
			b.Fail("PUT", "auth/token/create/", -1, devvault.Failure{Status: 200,
				Body: `{"auth":{"client_token":"x","accessor":"y","lease_duration":2764800}}`})
		}, "no live epoch: vault.mint: vault_unexpected: an epoch without a token, an accessor or an end within 75s"},
		{"a wrong token", func(_ *box, c *vault.Config) { c.Token = secret.New("wrong-token") },
			"no login: vault.login: vault_denied: Vault answered 403"},
		{"a token without the right", func(b *box, c *vault.Config) {
			token, _ := b.Mint(devvault.NewToken{Policies: []string{"broker"}})
			c.Role, c.Token = "somebody", secret.New(token)
		}, "no live epoch: vault.mint: vault_denied: Vault answered 403"},
	} {
		t.Run(row.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *box) {
				conf := b.config()
				row.conf(b, &conf)
				c, _ := run(t, conf)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				if err := c.WaitReady(ctx); err == nil || err.Error() != "vault.Ready: vault_not_ready: "+row.want {
					t.Errorf("WaitReady = %v\nwant … %s", err, row.want)
				}
			})
		})
	}
}

func TestRunGivesBackWhatIsOurs(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		c, stop := run(t, b.loggedIn(t))
		ready(t, c)
		mustHold(t, c)
		time.Sleep(40 * time.Second)
		mustHold(t, c)
		stop()
		if b.Live("broker-op") != 0 || b.Live("approle:broker") != 0 || b.Residue() != 0 {
			t.Errorf("%d epochs, %d logins and %d entries are left", b.Live("broker-op"), b.Live("approle:broker"), b.Residue())
		}
		if err := c.Ready(); fault.ReasonOf(err) != fault.VaultNotReady {
			t.Errorf("Ready after the end = %v", err)
		}
	})
}

func TestRunEndsInTimeWhileVaultIsSilent(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		c, stop := run(t, b.loggedIn(t))
		ready(t, c)
		mustHold(t, c)
		b.Fail("", "", -1, devvault.Failure{Hang: true})
		began := time.Now()
		stop()
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

func TestAGivenTokenIsNotRevoked(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		token, _ := b.Mint(devvault.NewToken{Policies: []string{"broker"}, TTL: time.Hour})
		conf := b.config()
		conf.Token = secret.New(token)
		c, stop := run(t, conf)
		ready(t, c)
		stop()
		if b.Live("minted") != 1 {
			t.Error("the operator's token was revoked")
		}
	})
}

func TestWaitReadyWakes(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		b.Seal(true)
		c, _ := run(t, b.config())
		ended := make(chan error, 1)
		go func() { ended <- c.WaitReady(context.Background()) }()
		time.Sleep(time.Minute)
		select {
		case err := <-ended:
			t.Fatalf("it returned %v while Vault is sealed", err)
		default:
		}
		b.Seal(false)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestConfig(t *testing.T) {
	for _, row := range []struct {
		change func(*vault.Config)
		want   string // empty: accepted
	}{
		{func(c *vault.Config) {}, ""},
		{func(c *vault.Config) { c.Address = "https://vault.example.org:8200/" }, ""},
		{func(c *vault.Config) { c.Address = "" }, "the address must be http or https, a host and a port"},
		{func(c *vault.Config) { c.Address = "vault:8200" }, "the address must be http or https, a host and a port"},
		{func(c *vault.Config) { c.Address = "unix:///run/vault.sock" }, `the address of a socket is "unix:" and an absolute path`},
		{func(c *vault.Config) { c.Address = "https://user:password@vault" }, "the address must be http or https, a host and a port"},
		{func(c *vault.Config) { c.Address = "https://vault/prefix" }, "the address must not have a path or a query"},
		{func(c *vault.Config) { c.Address = "https://vault?x=y" }, "the address must not have a path or a query"},
		{func(c *vault.Config) { c.Role = "../sys/seal" }, `"../sys/seal" is no name of a token role`},
		{func(c *vault.Config) { c.Role = "" }, `"" is no name of a token role`},
		{func(c *vault.Config) { c.Address = "unix:run/vault.sock" }, `the address of a socket is "unix:" and an absolute path`},
		{func(c *vault.Config) { c.Address = "unix:/run/../vault.sock" }, `the address of a socket is "unix:" and an absolute path`},
		{func(c *vault.Config) { c.Address = "unix:/run/vault.sock" }, ""},
		{func(c *vault.Config) { c.Namespace = "team/a" }, ""},
		{func(c *vault.Config) { c.Namespace = "team/a\r\nX: y" }, `"team/a\r\nX: y" is no path of a namespace`},
		{func(c *vault.Config) { c.Namespace = "../team" }, `"../team" is no path of a namespace`},
		{func(c *vault.Config) { c.Auth.Mount = "a/b" }, ""},
		{func(c *vault.Config) { c.Auth.Mount = "/a" }, `"/a" is no name of an auth mount`},
		{func(c *vault.Config) { c.Auth = policy.VaultAuth{Method: "token_file"} }, "the auth method is token_file, and the file is not named"},
		{func(c *vault.Config) { c.Auth = policy.VaultAuth{Method: "kubernetes", Role: "x"} }, "the auth method is kubernetes, and role or jwt_file is missing"},
		{func(c *vault.Config) { c.Auth = policy.VaultAuth{Method: "jwt", JWTFile: "x"} }, "the auth method is jwt, and role or jwt_file is missing"},
		{func(c *vault.Config) { c.Auth = policy.VaultAuth{Method: "cert", CertFile: "x", KeyFile: "y"} }, "the auth method is cert, and a certificate is shown over https alone"},
		{func(c *vault.Config) {
			c.Address, c.Auth = "unix:/run/vault.sock", policy.VaultAuth{Method: "cert", CertFile: "x", KeyFile: "y"}
		}, "the auth method is cert, and a certificate is shown over https alone"},
		{func(c *vault.Config) {
			c.Address, c.Transport = "https://vault", http.DefaultTransport // which would not show the certificate
			c.Auth = policy.VaultAuth{Method: "cert", CertFile: "x", KeyFile: "y"}
		}, "the auth method is cert, and a certificate is shown over https alone"},
		{func(c *vault.Config) {
			c.Address, c.Auth = "https://vault", policy.VaultAuth{Method: "cert", CertFile: "x"}
		},
			"the auth method is cert, and cert_file or key_file is missing"},
		{func(c *vault.Config) { c.Auth = policy.VaultAuth{Method: "proxy"} }, "the auth method is proxy, and the address is no Unix socket"},
		{func(c *vault.Config) { c.Auth.Mount = "a/../b" }, `"a/../b" is no name of an auth mount`},
		{func(c *vault.Config) { c.Auth.Method = "ldap" }, `"ldap" is no auth method that is supported: approle, kubernetes, jwt, cert, token_file, proxy, token`},
		{func(c *vault.Config) { c.Token = secret.Text{} }, "the auth method is token, and VAULT_TOKEN is empty"},
		{func(c *vault.Config) { c.Auth.Method = "approle" }, "the auth method is approle, and role_id or secret_id_file is missing"},
	} {
		conf := vault.Config{Address: "http://127.0.0.1:8200", Role: "broker-op", Auth: policy.VaultAuth{Method: "token"}, Token: secret.New("token")}
		row.change(&conf)
		_, err := vault.New(conf)
		if got := fmt.Sprint(err); got != "<nil>" && got != "vault.New: vault_not_ready: "+row.want || (err == nil) != (row.want == "") {
			t.Errorf("New = %v, want %q", err, row.want)
		}
	}
}
