package vault_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/internal/devvault"
	"onbehalf.internal/broker/secret"
	"onbehalf.internal/broker/secret/canary"
	"onbehalf.internal/broker/vault"
)

const refresh7 = "vault:kv/broker/refresh/7#refresh"

// newKinds are the calls for what is not a plain stored token, each as it works on a
// Vault that was set up for it.
var newKinds = map[string]struct {
	method, path string
	call         func(context.Context, *vault.Client) error
}{
	"ReadVersioned": {"GET", "kv/data/", func(ctx context.Context, c *vault.Client) error {
		v, err := c.ReadVersioned(ctx, must(secret.ParseRef(refresh7)))
		return noneWith(err, v.Value.IsZero())
	}},
	"WriteCAS": {"PATCH", "kv/data/", func(ctx context.Context, c *vault.Client) error {
		v, err := c.WriteCAS(ctx, must(secret.ParseRef(refresh7)), vault.Version{Value: secret.New("the-next-refresh-token"), Number: 1})
		return noneWith(err, v.Value.IsZero())
	}},
	"IssueOIDC": {"GET", "identity/", func(ctx context.Context, c *vault.Client) error {
		token, err := c.IssueOIDC(ctx, "identity", "user-7")
		return noneWith(err, token.IsZero())
	}},
	"Sign": {"PUT", "transit/sign/", func(ctx context.Context, c *vault.Client) error {
		signature, err := c.Sign(ctx, must(secret.ParseTransitRef("vault-transit:transit/client")), "ES256", []byte("header.payload"))
		return noneWith(err, signature == nil)
	}},
	"DataKey": {"PUT", "transit/datakey/", func(ctx context.Context, c *vault.Client) error {
		plain, wrapped, err := c.DataKey(ctx, resultsKey)
		return noneWith(err, plain.IsZero() && wrapped == "")
	}},
	"Unwrap": {"PUT", "transit/decrypt/", func(ctx context.Context, c *vault.Client) error {
		_, wrapped, err := c.DataKey(ctx, resultsKey)
		if err != nil {
			return err
		}
		plain, err := c.Unwrap(ctx, resultsKey, wrapped)
		return noneWith(err, plain.IsZero())
	}},
}

var resultsKey = must(secret.ParseTransitRef("vault-transit:transit/results"))

// noneWith fails a call that says both yes and no, or neither.
func noneWith(err error, none bool) error {
	if (err != nil) != none {
		return errors.New("a value and an error, or neither")
	}
	return err
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// prepared is a Vault with what the calls need, and a Client that is logged in by AppRole.
func (b *box) prepared(t *testing.T) *vault.Client {
	t.Helper()
	b.PutSecret("kv", "broker/refresh/7", map[string]string{"refresh": "the-refresh-token-of-7"})
	b.ask(t, "sys/policies/acl/broker", `{"policy":"`+strings.NewReplacer("\n", " ", "\t", " ", `"`, `\"`).Replace(`
		path "auth/token/create/broker-op" { capabilities = ["update"] }
		path "auth/token/lookup-self" { capabilities = ["read"] }
		path "kv/data/broker/refresh/+" { capabilities = ["read", "patch"] }
		path "identity/oidc/token/user-7" { capabilities = ["read"] }
		path "transit/sign/client" { capabilities = ["update"] }
		path "transit/datakey/plaintext/results" { capabilities = ["update"] }
		path "transit/decrypt/results" { capabilities = ["update"] }`)+`"}`, "")
	b.ask(t, "identity/oidc/key/broker", `{"algorithm":"ES256"}`, "")
	b.ask(t, "identity/oidc/role/user-7", `{"key":"broker","ttl":"5m"}`, "")
	b.ask(t, "sys/mounts/transit", `{"type":"transit"}`, "")
	b.ask(t, "transit/keys/client", `{"type":"ecdsa-p256"}`, "")
	b.ask(t, "transit/keys/results", `{"type":"aes256-gcm96"}`, "")
	c, _ := run(t, b.loggedIn(t))
	return ready(t, c)
}

// What each way in which Vault's answer can go wrong is called, and that nothing is
// sent twice.
func TestNewKindsFail(t *testing.T) {
	for _, row := range []struct {
		name    string
		failure devvault.Failure
		want    fault.Reason
	}{
		{"cut", devvault.Failure{Cut: true}, fault.VaultUnreachable},
		{"cut after", devvault.Failure{Cut: true, After: true}, fault.VaultUnreachable},
		{"silent", devvault.Failure{Hang: true}, fault.VaultUnreachable},
		{"500", devvault.Failure{}, fault.VaultUnexpected},
		{"503", vaultSays(503), fault.VaultSealed},
		{"429", vaultSays(429), fault.VaultRateLimited},
		{"412", vaultSays(412), fault.VaultUnexpected},
		{"403", vaultSays(403), fault.VaultDenied},
		{"204", devvault.Failure{Status: 204}, fault.VaultUnexpected},
		{"202", vaultSays(202), fault.VaultUnexpected},
		{"307", devvault.Failure{Status: 307, Location: "http://elsewhere.test/"}, fault.VaultUnexpected},
		{"HTML", devvault.Failure{Status: 200, Type: "text/html", Body: "<html>"}, fault.VaultUnexpected},
		{"404 of somebody else", devvault.Failure{Status: 404, Body: `{"message":"no route"}`}, fault.VaultUnexpected},
		{"200 empty", devvault.Failure{Status: 200}, fault.VaultUnexpected},
		{"200 cut short", devvault.Failure{Status: 200, Body: `{"data":{"token":"`}, fault.VaultUnexpected},
	} {
		for name, kind := range newKinds {
			t.Run(name+" "+row.name, func(t *testing.T) {
				bubble(t, func(t *testing.T, b *box) {
					c := b.prepared(t)
					sent := b.Count(kind.method, kind.path)
					b.Fail(kind.method, kind.path, 1, row.failure)
					if err := kind.call(t.Context(), c); fault.ReasonOf(err) != row.want {
						t.Errorf("%v, want %s", err, row.want)
					}
					if n := b.Count(kind.method, kind.path) - sent; n != 1 {
						t.Errorf("%d requests were sent", n)
					}
				})
			})
		}
	}
}

// key32 is 32 bytes in base64.
var key32 = strings.Repeat("A", 43) + "="

// Answers of Vault that are of no use for one of the calls.
func TestNewKindsAreReadStrictly(t *testing.T) {
	for _, row := range []struct {
		kind, body string
		want       fault.Reason
	}{
		{"ReadVersioned", `{"data":{"data":{"refresh":"x"}}}`, fault.VaultUnexpected},
		{"ReadVersioned", `{"data":{"data":{"refresh":"x"},"metadata":{"version":0}}}`, fault.VaultUnexpected},
		{"ReadVersioned", `{"data":{"data":{"refresh":"x"},"metadata":{"version":"1"}}}`, fault.VaultUnexpected},
		{"ReadVersioned", `{"data":{"data":{"refresh":"x"},"metadata":{"version":1.5}}}`, fault.VaultUnexpected},
		{"ReadVersioned", `{"data":{"data":{"Refresh":"x"},"metadata":{"version":1}}}`, fault.CredentialMissing},
		{"ReadVersioned", `{"data":{"data":null,"metadata":{"version":1}}}`, fault.CredentialMissing},
		{"WriteCAS", `{"data":{}}`, fault.VaultUnexpected},
		{"WriteCAS", `{"data":{"version":1}}`, fault.VaultUnexpected},
		{"WriteCAS", `{"data":{"version":3}}`, fault.VaultUnexpected},
		{"IssueOIDC", `{"data":{}}`, fault.VaultUnexpected},
		{"IssueOIDC", `{"data":{"token":""}}`, fault.VaultUnexpected},
		{"IssueOIDC", `{"data":{"token":["x"]}}`, fault.VaultUnexpected},
		{"Sign", `{"data":{}}`, fault.VaultUnexpected},
		{"Sign", `{"data":{"signature":"x"}}`, fault.VaultUnexpected},
		{"Sign", `{"data":{"signature":"vault:v0:AAAA"}}`, fault.VaultUnexpected},
		{"Sign", `{"data":{"signature":"vault:v1:AA=="}}`, fault.VaultUnexpected},
		{"Sign", `{"data":{"signature":"vault:v1:A"}}`, fault.VaultUnexpected},
		{"Sign", `{"data":{"signature":"other:v1:` + strings.Repeat("A", 86) + `"}}`, fault.VaultUnexpected},
		{"Sign", `{"data":{"signature":"vault:v1:AAAA"}}`, fault.CredentialRejected},
		{"Sign", `{"data":{"signature":"vault:v1:` + strings.Repeat("A", 87) + `"}}`, fault.CredentialRejected},
		{"Sign", `{"data":{"signature":"vault:v1:` + strings.Repeat("A", 86) + `"}}`, ""},
		{"DataKey", `{"data":{}}`, fault.VaultUnexpected},
		{"DataKey", `{"data":{"plaintext":"` + key32 + `"}}`, fault.VaultUnexpected},
		{"DataKey", `{"data":{"ciphertext":"vault:v1:AAAA"}}`, fault.VaultUnexpected},
		{"DataKey", `{"data":{"plaintext":"` + key32 + `","ciphertext":"vault:v0:AAAA"}}`, fault.VaultUnexpected},
		{"DataKey", `{"data":{"plaintext":"` + key32 + `","ciphertext":"vault:v1:"}}`, fault.VaultUnexpected},
		{"DataKey", `{"data":{"plaintext":"` + key32 + `","ciphertext":"vault:v1:` + strings.Repeat("A", 701) + `"}}`, fault.VaultUnexpected},
		{"DataKey", `{"data":{"plaintext":"` + key32 + `","ciphertext":"` + key32 + `"}}`, fault.VaultUnexpected},
		{"DataKey", `{"data":{"plaintext":"AAAAAAAAAAAAAAAAAAAAAA==","ciphertext":"vault:v1:AAAA"}}`, fault.VaultUnexpected},
		{"DataKey", `{"data":{"plaintext":"` + key32 + `","ciphertext":"vault:v1:AAAA"}}`, ""},
		{"Unwrap", `{"data":{}}`, fault.VaultUnexpected},
		{"Unwrap", `{"data":{"plaintext":""}}`, fault.VaultUnexpected},
		{"Unwrap", `{"data":{"plaintext":"AAAAAAAAAAAAAAAAAAAAAA=="}}`, fault.VaultUnexpected}, // 16 bytes
		{"Unwrap", `{"data":{"plaintext":"A` + key32 + `"}}`, fault.VaultUnexpected},
		{"Unwrap", `{"data":{"plaintext":"\n` + key32 + `"}}`, fault.VaultUnexpected},
		{"Unwrap", `{"data":{"plaintext":"` + strings.Repeat("A", 42) + `B="}}`, fault.VaultUnexpected},
		{"Unwrap", `{"data":{"plaintext":["` + key32 + `"]}}`, fault.VaultUnexpected},
		{"Unwrap", `{"data":{"plaintext":"` + key32 + `"}}`, ""},
	} {
		t.Run(row.kind+" "+row.body, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *box) {
				c, kind := b.prepared(t), newKinds[row.kind]
				b.Fail(kind.method, kind.path, 1, devvault.Failure{Status: 200, Body: row.body})
				if err := kind.call(t.Context(), c); (err == nil) != (row.want == "") || err != nil && fault.ReasonOf(err) != row.want {
					t.Errorf("%v, want %q", err, row.want)
				}
			})
		})
	}
}

// A dead login is replaced, and the call made by the next one.
func TestNewKindsLogInAgain(t *testing.T) {
	for name, kind := range newKinds {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *box) {
				c := b.prepared(t)
				if err := kind.call(t.Context(), c); err != nil {
					t.Fatal(err)
				}
				b.RevokeAll("approle:broker")
				err := kind.call(t.Context(), c)
				if err != nil && fault.ReasonOf(err) != fault.CredentialChanged { // WriteCAS has written before
					t.Error(err)
				}
				if n := b.Count("PUT", "auth/approle/login"); n != 2 {
					t.Errorf("%d logins, want 2", n)
				}
			})
		})
	}
}

// 400 is a lost race only if the version has moved on.
func TestA400WithoutAnotherVersionIsNoLostRace(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		c := b.prepared(t)
		b.Fail("PATCH", "kv/", 1, vaultSays(400))
		if err := newKinds["WriteCAS"].call(t.Context(), c); fault.ReasonOf(err) != fault.VaultUnexpected {
			t.Errorf("at the same version: %v", err)
		}
		b.PutSecret("kv", "broker/refresh/7", map[string]string{"refresh": "another"})
		if err := newKinds["WriteCAS"].call(t.Context(), c); fault.ReasonOf(err) != fault.CredentialChanged {
			t.Errorf("at the next: %v", err)
		}
	})
}

func TestWhatIsStoredMustComeBack(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		c := b.prepared(t)
		for _, bad := range []string{"", "\xff", strings.Repeat("x", 64<<10+1)} {
			_, err := c.WriteCAS(t.Context(), ref(t, refresh7), vault.Version{Value: secret.New(bad), Number: 1})
			if fault.ReasonOf(err) != fault.CredentialRejected {
				t.Errorf("WriteCAS of %d bytes = %v", len(bad), err)
			}
		}
		if n := b.Count("PATCH", ""); n != 0 {
			t.Errorf("%d patches were sent", n)
		}
	})
}

func TestNoKeyDoesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		c := b.prepared(t)
		if _, err := c.Sign(t.Context(), secret.TransitRef{}, "ES256", []byte("x")); fault.ReasonOf(err) != fault.CredentialRejected {
			t.Errorf("Sign = %v", err)
		}
		if _, _, err := c.DataKey(t.Context(), secret.TransitRef{}); fault.ReasonOf(err) != fault.CredentialRejected {
			t.Errorf("DataKey = %v", err)
		}
		if _, err := c.Unwrap(t.Context(), secret.TransitRef{}, "vault:v1:AAAA"); fault.ReasonOf(err) != fault.CredentialRejected {
			t.Errorf("Unwrap = %v", err)
		}
	})
}

func TestNewKindsWaitNoLongerThanTheirContext(t *testing.T) {
	for name, kind := range newKinds {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *box) {
				c := b.prepared(t)
				b.Fail(kind.method, kind.path, -1, devvault.Failure{Hang: true})
				for _, limit := range []time.Duration{250 * time.Millisecond, time.Minute} {
					ctx, cancel := context.WithTimeout(t.Context(), limit)
					began := time.Now()
					if err := kind.call(ctx, c); fault.ReasonOf(err) != fault.VaultUnreachable || time.Since(began) != min(limit, 5*time.Second) {
						t.Errorf("%v after %v", err, time.Since(began))
					}
					cancel()
				}
			})
		})
	}
}

func TestNewKindsBeforeTheLogin(t *testing.T) {
	c := must(vault.New((&box{devvault.New(devvault.Options{})}).config()))
	for name, kind := range newKinds {
		if err := kind.call(t.Context(), c); fault.ReasonOf(err) != fault.VaultNotReady {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// No secret of Vault's, of the request's or of an answer's is in an error or a log line.
func TestNewKindsKeepSecrets(t *testing.T) {
	const echoed, sent = "the-refresh-token-of-7", "the-next-refresh-token"
	canary.Run(t, func(cage *canary.Cage) {
		synctest.Test(t, func(t *testing.T) {
			b := &box{devvault.New(devvault.Options{})}
			c := b.prepared(t)
			cage.Plant(b.Secrets()...)
			for _, failure := range []devvault.Failure{{}, {Cut: true}, {Status: 400, Body: `{"errors":["` + echoed + sent + `"]}`},
				{Status: 200, Body: `{"data":{"token":"` + echoed}, {Status: 502, Type: "text/html", Body: echoed + sent}} {
				for name, kind := range newKinds {
					b.Fail(kind.method, kind.path, 1, failure)
					cage.Value(name, kind.call(t.Context(), c))
				}
			}
			v, err := c.ReadVersioned(t.Context(), ref(t, refresh7))
			cage.Value("version", v)
			cage.Value("error", err)
		})
	}, echoed, sent)
}

// Vault's answer is whatever it is: a version has a number, and a signature fits.
func FuzzNewKinds(f *testing.F) {
	f.Add([]byte(`{"data":{"data":{"refresh":"x"},"metadata":{"version":1}}}`), 200)
	f.Add([]byte(`{"data":{"signature":"vault:v1:`+strings.Repeat("A", 86)+`"}}`), 200)
	f.Add([]byte(`{"data":{"token":"x","version":2}}`), 200)
	f.Add([]byte(`{"data":{"plaintext":"`+key32+`","ciphertext":"vault:v1:AAAA"}}`), 200)
	f.Add([]byte(`{"errors":[]}`), 404)
	f.Fuzz(func(t *testing.T, body []byte, status int) {
		if status < 200 || status > 599 {
			return
		}
		synctest.Test(t, func(t *testing.T) {
			b := &box{devvault.New(devvault.Options{})}
			c := b.prepared(t)
			for name, kind := range newKinds {
				b.Fail(kind.method, kind.path, 1, devvault.Failure{Status: status, Body: string(body)})
				err := kind.call(t.Context(), c)
				if err == nil && status != 200 {
					t.Errorf("%s accepts status %d", name, status)
				}
				if e := (*fault.Error)(nil); err != nil && (!errors.As(err, &e) || !e.Reason.Known()) {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	})
}
