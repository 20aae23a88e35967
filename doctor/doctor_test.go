package doctor_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"onbehalf.internal/broker/brokertest"
	"onbehalf.internal/broker/doctor"
	"onbehalf.internal/broker/httpapi"
	"onbehalf.internal/broker/internal/devidp"
	"onbehalf.internal/broker/internal/devvault"
)

// examine has the rig's broker examined.
func examine(t testing.TB, rig *brokertest.Rig) []doctor.Finding {
	t.Helper()
	var got httpapi.Examination
	if a := rig.Admin(t, "POST", "/v1/doctor", "", &got); a.Status != http.StatusOK || got.Longest != 5000 {
		t.Fatalf("status %d, longest %d", a.Status, got.Longest)
	}
	raw, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range rig.Secrets() {
		if bytes.Contains(raw, []byte(secret)) {
			t.Error("a secret is in an examination")
		}
	}
	return got.Findings
}

// write asks the rig's Vault as root.
func write(t testing.TB, rig *brokertest.Rig, path string, body map[string]any) {
	t.Helper()
	b, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	req := httptest.NewRequest("PUT", "/v1/"+path, bytes.NewReader(b))
	req.Header.Set("X-Vault-Token", rig.Vault.RootToken())
	res := httptest.NewRecorder()
	if rig.Vault.ServeHTTP(res, req); res.Code >= 300 {
		t.Fatalf("%s is answered %d", path, res.Code)
	}
}

// hcl gives the broker's login other rules than setup.sh does: without those under
// these paths, and with more.
func hcl(t testing.TB, rig *brokertest.Rig, more string, without ...string) {
	t.Helper()
	raw, err := os.ReadFile("../deploy/vault/broker.hcl")
	if err != nil {
		t.Fatal(err)
	}
	lines := slices.DeleteFunc(strings.Split(string(raw), "\n"), func(line string) bool {
		return slices.ContainsFunc(without, func(path string) bool { return strings.Contains(line, `"`+path) })
	})
	write(t, rig, "sys/policies/acl/broker", map[string]any{"policy": strings.Join(lines, "\n") + more})
}

// role sets up the token role otherwise.
func role(t testing.TB, rig *brokertest.Rig, change map[string]any) {
	t.Helper()
	body := map[string]any{"allowed_policies": "broker-op", "orphan": false, "renewable": false, "token_no_default_policy": true, "token_explicit_max_ttl": "75s"}
	for k, v := range change {
		body[k] = v
	}
	write(t, rig, "auth/token/roles/broker-op", body)
}

func edit(t testing.TB, rig *brokertest.Rig, old, fresh string) {
	t.Helper()
	err := rig.Edit(func(yaml string) string {
		if !strings.Contains(yaml, old) {
			t.Fatalf("%q is not in the configuration", old)
		}
		return strings.Replace(yaml, old, fresh, 1)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestExaminations: one thing at a time is not as it should be. What is said of it is
// wanted, and nothing else may be wrong but what stands in also.
func TestExaminations(t *testing.T) {
	const other = "other-key-of-the-provider"
	answers := func(status int, body string) func(http.Handler) http.Handler {
		return func(http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(status)
				w.Write([]byte(body))
			})
		}
	}
	for _, tc := range []struct {
		name   string
		change func(*testing.T, *brokertest.Rig)
		about  string
		state  doctor.State
		says   string // a part of it
		do     string
		also   []string // what is wrong besides, as a consequence
	}{
		{"as it is", func(*testing.T, *brokertest.Rig) {}, "vault policy", doctor.OK, "and nothing beside", "", nil},

		// configuration
		{"a file with problems", func(t *testing.T, r *brokertest.Rig) {
			if r.Edit(func(yaml string) string { return strings.Replace(yaml, "timeout: 5s", "timeout: soon", 1) }) == nil {
				t.Fatal("it was read")
			}
		}, "configuration", doctor.Wrong, "the file has problems now; what was read before is in force", "broker check --config ", nil},
		{"a file that is gone", func(t *testing.T, r *brokertest.Rig) {
			if err := os.Remove(r.ConfigPath); err != nil {
				t.Fatal(err)
			}
		}, "configuration", doctor.Wrong, "the file has problems now", "broker check", nil},
		{"another file", func(t *testing.T, r *brokertest.Rig) {
			f, err := os.OpenFile(r.ConfigPath, os.O_APPEND|os.O_WRONLY, 0)
			if err == nil {
				_, err = f.WriteString("# another\n")
				f.Close()
			}
			if err != nil {
				t.Fatal(err)
			}
		}, "configuration", doctor.Wrong, "not the one that is in force", "kill -HUP", nil},
		{"a server that is not enabled", func(t *testing.T, r *brokertest.Rig) {
			edit(t, r, "    enabled: true\n    data_class", "    enabled: false\n    data_class")
		},
			"server records", doctor.Note, "it is not enabled", "servers.records.enabled: true", nil},
		{"a server without a data class", func(t *testing.T, r *brokertest.Rig) { edit(t, r, "    data_class: internalConfiguration\n", "") },
			"server records", doctor.Note, "its data class is not declared", "servers.records.data_class", nil},
		{"a server that nobody may use", func(t *testing.T, r *brokertest.Rig) {
			edit(t, r, "servers: [records, archive]", "servers: [records]")
			edit(t, r, "servers: [records, archive]", "servers: [records]")
		}, "server archive", doctor.Note, "no caller may use it", "servers: [archive]", []string{"server archive"}},
		{"no grant for an audience", func(t *testing.T, r *brokertest.Rig) {
			edit(t, r, "        allowed_audiences: [mcp-records, mcp-archive]", "        allowed_audiences: [mcp-records]")
		}, "server archive", doctor.Note, "no grant of profile company is enabled for its audience", "profiles.company.grants", nil},
		{"not in the admin's list", func(t *testing.T, r *brokertest.Rig) {
			edit(t, r, "roles: [admin]\n    bearer_sha256: [\"", "roles: [admin]\n    bearer_sha256: [\"")
			edit(t, r, "\"]\n    servers: [records, archive]\n  people", "\"]\n    servers: [archive]\n  people")
		}, "server records", doctor.Wrong, "records is not in this caller's list", "callers.admin.servers", nil},

		// Vault
		{"sealed", func(_ *testing.T, r *brokertest.Rig) { r.Vault.Seal(true) }, "vault", doctor.Wrong, "sealed", "vault operator unseal",
			[]string{"vault epoch", "vault login", "vault policy", "provider company", "server archive", "server records"}},
		{"no answer", func(_ *testing.T, r *brokertest.Rig) { r.Vault.Fail("", "sys/health", -1, devvault.Failure{Cut: true}) }, "vault", doctor.Wrong, "vault_unreachable", "vault.address", nil},
		{"another service", func(_ *testing.T, r *brokertest.Rig) {
			r.Vault.Fail("", "sys/health", -1, devvault.Failure{Status: 200, Type: "text/html", Body: "<html>"})
		}, "vault", doctor.Wrong, "not an answer of Vault", "", nil},
		{"a version that moves a cursor", func(_ *testing.T, r *brokertest.Rig) {
			r.Vault.Fail("", "sys/health", -1, devvault.Failure{Status: 200, Body: `{"initialized":true,"sealed":false,"standby":true,"version":"\u001b[2J","server_time_utc":1}`})
		}, "vault", doctor.Note, `version "\x1b[2J", a standby`, "the active node", []string{"clock beside vault"}},
		{"a clock of long ago", func(_ *testing.T, r *brokertest.Rig) {
			r.Vault.Fail("", "sys/health", -1, devvault.Failure{Status: 200, Body: `{"initialized":true,"sealed":false,"version":"1","server_time_utc":1000000000}`})
		}, "clock beside vault", doctor.Wrong, "ahead of it", "set-ntp", nil},
		{"the default policy", func(t *testing.T, r *brokertest.Rig) {
			r.Vault.Fail("GET", "auth/token/lookup-self", 1, devvault.Failure{Status: 200, Body: `{"data":{"ttl":3600,"creation_ttl":3600,"renewable":true,"policies":["broker","default"]}}`})
		}, "vault login", doctor.Wrong, "default policy", "token_no_default_policy=true", nil},
		{"a login that is root", func(t *testing.T, r *brokertest.Rig) {
			r.Vault.Fail("GET", "auth/token/lookup-self", 1, devvault.Failure{Status: 200, Body: `{"data":{"ttl":0,"creation_ttl":0,"policies":["root"]}}`})
		}, "vault login", doctor.Wrong, "it is root", "setup.sh", nil},
		{"a login without an end", func(t *testing.T, r *brokertest.Rig) {
			r.Vault.Fail("GET", "auth/token/lookup-self", 1, devvault.Failure{Status: 200, Body: `{"data":{"ttl":0,"creation_ttl":0,"policies":["broker"]}}`})
		}, "vault login", doctor.Wrong, "never ends", "token_ttl=1h", nil},
		{"a short login", func(t *testing.T, r *brokertest.Rig) {
			r.Vault.Fail("GET", "auth/token/lookup-self", 1, devvault.Failure{Status: 200, Body: `{"data":{"ttl":100,"creation_ttl":120,"policies":["broker"]}}`})
		}, "vault login", doctor.Wrong, "2m0s at its birth", "token_ttl=1h", nil},
		{"a login for some uses", func(t *testing.T, r *brokertest.Rig) {
			r.Vault.Fail("GET", "auth/token/lookup-self", 1, devvault.Failure{Status: 200, Body: `{"data":{"ttl":100,"creation_ttl":3600,"num_uses":40,"policies":["broker"]}}`})
		}, "vault login", doctor.Wrong, "40 more uses", "token_num_uses=0", nil},
		{"a role without a cap", func(t *testing.T, r *brokertest.Rig) { role(t, r, map[string]any{"token_explicit_max_ttl": ""}) },
			"vault epoch", doctor.Wrong, "lets a token live for 2m30s or more", "vault write auth/token/roles/broker-op token_explicit_max_ttl=75s", nil},
		{"a role for orphans", func(t *testing.T, r *brokertest.Rig) { role(t, r, map[string]any{"orphan": true}) },
			"vault epoch", doctor.Wrong, "does not end with the login", "orphan=false", nil},
		{"a role that renews", func(t *testing.T, r *brokertest.Rig) { role(t, r, map[string]any{"renewable": true}) },
			"vault epoch", doctor.Wrong, "can be renewed", "renewable=false", nil},
		{"a role with the default policy", func(t *testing.T, r *brokertest.Rig) { role(t, r, map[string]any{"token_no_default_policy": false}) },
			"vault epoch", doctor.Wrong, `"broker-op", "default"`, "token_no_default_policy=true", nil},
		{"an epoch that may replace", func(t *testing.T, r *brokertest.Rig) {
			write(t, r, "sys/policies/acl/broker-op", map[string]any{"policy": `path "cubbyhole/op/+" { capabilities = ["create", "read", "update", "delete"] }
				path "auth/token/revoke-self" { capabilities = ["update"] }`})
		}, "vault epoch", doctor.Wrong, "put again was answered 204, so what is held can be replaced", "broker-op.hcl", nil},
		{"an epoch that may not drop", func(t *testing.T, r *brokertest.Rig) {
			write(t, r, "sys/policies/acl/broker-op", map[string]any{"policy": `path "cubbyhole/op/+" { capabilities = ["create", "read"] }
				path "auth/token/revoke-self" { capabilities = ["update"] }`})
		}, "vault epoch", doctor.Wrong, "drop was answered 403, so a hold stays", "broker-op.hcl", nil},
		{"a policy that lacks a credential", func(t *testing.T, r *brokertest.Rig) { hcl(t, r, "", "kv/data/broker/+/+") },
			"vault policy", doctor.Wrong, `the login lacks read of "kv/data/broker/discovery/archive" (servers.archive.auth.discovery_credential)`,
			`path "kv/data/broker/subjects/7" { capabilities = ["read"] }`, []string{"server archive", "server records"}},
		{"a policy that allows more", func(t *testing.T, r *brokertest.Rig) { hcl(t, r, `path "kv/*" { capabilities = ["read", "list"] }`) },
			"vault policy", doctor.Wrong, `list, read of "kv/data/ANY/discovery/archive"; list, read of "kv/metadata/broker/discovery/archive"`, "take it out", nil},
		{"a policy that cannot be seen", func(t *testing.T, r *brokertest.Rig) { hcl(t, r, "", "sys/capabilities-self") },
			"vault policy", doctor.Wrong, "may not ask what it may do", `path "sys/capabilities-self" { capabilities = ["update"] }`, nil},

		// identity providers
		{"another client secret", func(t *testing.T, r *brokertest.Rig) {
			if err := r.SetCredential(t.Context(), "broker/client", other); err != nil {
				t.Fatal(err)
			}
		}, "provider company", doctor.Wrong, "provider_config", "profiles.company.client", nil},
		{"no client secret", func(t *testing.T, r *brokertest.Rig) { edit(t, r, "broker/client#value", "broker/absent#value") },
			"provider company", doctor.Wrong, "credential_missing", "vault kv put what profiles.company.client names", nil},
		{"an audience that it does not know", func(_ *testing.T, r *brokertest.Rig) { r.Provider.Break(devidp.Fail(99, 400, "invalid_target")) },
			"provider company", doctor.Wrong, "target_rejected", `let the provider issue for "mcp-archive"`, nil},
		{"scopes that it does not give", func(_ *testing.T, r *brokertest.Rig) { r.Provider.Break(devidp.Fail(99, 400, "invalid_scope")) },
			"provider company", doctor.Wrong, "scope_rejected", `let the provider grant "records.read"`, nil},
		{"a provider that is away", func(_ *testing.T, r *brokertest.Rig) { r.Provider.Break(devidp.CutBefore) },
			"provider company", doctor.Wrong, "provider_unreachable", "curl -v http://127.0.0.1:", nil},
		{"a provider that redirects", func(_ *testing.T, r *brokertest.Rig) { r.Provider.Break(devidp.Redirect("https://elsewhere.example")) },
			"provider company", doctor.Wrong, "provider_redirect", "token_endpoint", nil},
		{"a provider that gives to anybody", func(t *testing.T, r *brokertest.Rig) {
			r.Provider.Break(answers(200, `{"access_token":"for-anybody","token_type":"Bearer","expires_in":60,"issued_token_type":"urn:ietf:params:oauth:token-type:access_token"}`))
			edit(t, r, `{token_format: jwt, expect_issuer: "`+r.Provider.Issuer()+`", require_act: broker}`, "{token_format: opaque, audience_unverified: true}")
		}, "provider company", doctor.Wrong, "wrong_subject", "do not use this provider", nil},
		{"a provider that is suspended", func(t *testing.T, r *brokertest.Rig) {
			r.Admin(t, "POST", "/v1/suspensions", `{"profile":"company","reason":"SEC-1"}`, nil)
		}, "provider company", doctor.Wrong, "suspended", "broker suspensions", []string{"server archive", "server records"}},

		// servers
		{"a server that is away", func(_ *testing.T, r *brokertest.Rig) { r.Records.Close() }, "server records", doctor.Wrong, "down: connect_failed", "curl -v http://127.0.0.1:", nil},
		{"a server that refuses us", func(t *testing.T, r *brokertest.Rig) {
			if err := r.SetCredential(t.Context(), "broker/discovery/records", other); err != nil {
				t.Fatal(err)
			}
		}, "server records", doctor.Wrong, "it refuses the discovery credential", "vault kv put", nil},
		{"a server that is none", func(_ *testing.T, r *brokertest.Rig) { r.Records.Break(answers(200, `{"hello":"\u001b[2J"}`)) },
			"server records", doctor.Wrong, "it does not speak MCP with us", "servers.records.url", nil},
		{"a server that cannot be asked", func(t *testing.T, r *brokertest.Rig) {
			edit(t, r, `, discovery_credential: "vault:kv/broker/discovery/records#value"`, "")
		}, "server records", doctor.Note, "no discovery credential", "discovery_credential: vault:", nil},
		{"something on the way", func(t *testing.T, r *brokertest.Rig) {
			target, err := url.Parse(r.Records.URL)
			if err != nil {
				t.Fatal(err)
			}
			proxy := httptest.NewServer(&httputil.ReverseProxy{
				Rewrite: func(p *httputil.ProxyRequest) {
					p.Out.URL.Host, p.Out.Host = target.Host, target.Host
					p.Out.URL.Scheme = "http"
				},
				ModifyResponse: func(res *http.Response) error { res.Header.Set("Server", "istio-envoy"); return nil },
			})
			t.Cleanup(proxy.Close)
			edit(t, r, r.Records.URL, proxy.URL+target.Path)
		}, "way to 127.0.0.1", doctor.Note, "Istio's Envoy stands on this way", "retries: {attempts: 0}, timeout: 10s", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			rig := brokertest.New(t, nil)
			tc.change(t, rig)
			findings := examine(t, rig)
			wanted := slices.IndexFunc(findings, func(f doctor.Finding) bool {
				return strings.HasPrefix(f.About, tc.about) && f.State == tc.state && strings.Contains(f.Says, tc.says) && strings.Contains(f.Do, tc.do)
			})
			if wanted < 0 {
				t.Errorf("nothing says %s %q %q, do %q", tc.state, tc.about, tc.says, tc.do)
			}
			for i, f := range findings {
				if (f.State == doctor.Wrong && i != wanted && !slices.Contains(tc.also, f.About)) || wanted < 0 || (f.State == doctor.OK) != (f.Do == "") {
					t.Errorf("%s %s: %s\n\t%s", f.State, f.About, f.Says, f.Do)
				}
				if strings.ContainsAny(f.Says+f.Do, "\x1b") {
					t.Errorf("%q", f)
				}
			}
		})
	}
}

// TestNobodysCredential: an examination shows no actor's credential to anybody, calls no
// tool, leaves nothing in Vault, and is in the audit.
func TestNobodysCredential(t *testing.T) {
	rig := brokertest.New(t, nil)
	examine(t, rig)
	if rig.Vault.Count("GET", "kv/data/broker/subjects/") != 0 || rig.Records.Arrived("tools/call")+rig.Archive.Arrived("tools/call") != 0 || rig.Provider.Exchanges() != 0 {
		t.Error("an actor's credential was read, a tool was called, or a token was issued")
	}
	if rig.Vault.Residue() != 0 || rig.Vault.Live("broker-op") != 1 {
		t.Errorf("%d entries and %d epochs are in Vault", rig.Vault.Residue(), rig.Vault.Live("broker-op"))
	}
	if err := rig.Stop(); err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for line := range strings.Lines(rig.Audit(t)) {
		var rec struct{ Kind, Caller, Actor, Server, Profile, Reason string }
		if err := json.Unmarshal([]byte(line), &rec); err != nil {
			t.Fatal(err)
		}
		if rec.Kind == "decision" || rec.Kind == "dry_exchange" || rec.Kind == "probe" {
			kinds = append(kinds, strings.Join([]string{rec.Kind, rec.Caller, rec.Actor, rec.Server, rec.Profile, rec.Reason}, ","))
		}
	}
	slices.Sort(kinds)
	want := []string{"decision,admin,,archive,company,", "decision,admin,,archive,company,", "decision,admin,,records,company,",
		"dry_exchange,admin,,archive,company,", "probe,admin,,archive,company,", "probe,admin,,records,company,"}
	if !slices.Equal(kinds, want) {
		t.Errorf("the audit has\n%s\nwant\n%s", strings.Join(kinds, "\n"), strings.Join(want, "\n"))
	}
}

// TestRefusedIsADenial: a dry exchange that is not allowed is in the audit as what it is.
func TestRefusedIsADenial(t *testing.T) {
	rig := brokertest.New(t, nil)
	rig.Admin(t, "POST", "/v1/suspensions", `{"profile":"company","reason":"SEC-1"}`, nil)
	examine(t, rig)
	if err := rig.Stop(); err != nil {
		t.Fatal(err)
	}
	audit := rig.Audit(t) // the probe is refused, too: the second is counted
	if !strings.Contains(audit, `"kind":"denial","caller":"admin","server":"archive","reason":"suspended","count":1`) || strings.Contains(audit, `"kind":"dry_exchange"`) || len(rig.Provider.Requests()) > 1 {
		t.Errorf("%d requests, and the audit has\n%s", len(rig.Provider.Requests()), audit)
	}
}

// TestOneAtATime: who asks while an examination is under way is told so.
func TestOneAtATime(t *testing.T) {
	rig := brokertest.New(t, nil)
	arrived, release := make(chan struct{}), make(chan struct{})
	rig.Provider.Break(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == "POST" {
				close(arrived)
				<-release
			}
			next.ServeHTTP(w, r)
		})
	})
	done := make(chan struct{})
	go func() { defer close(done); examine(t, rig) }()
	<-arrived
	if a := rig.Admin(t, "POST", "/v1/doctor", "", nil); a.Status != http.StatusTooManyRequests {
		t.Errorf("it is answered %d", a.Status)
	}
	close(release)
	<-done
}

// Other clocks are told in whole seconds.
var aMinuteAndAHalf = regexp.MustCompile(`ours is 1m(29|30|31)s behind it`)

// TestClocksApart: where our own clock is wrong, every other one says so.
func TestClocksApart(t *testing.T) {
	rig := brokertest.New(t, &brokertest.Options{Now: func() time.Time { return time.Now().Add(-90 * time.Second) }})
	said := map[string]string{}
	for _, f := range examine(t, rig) {
		if f.State == doctor.Wrong {
			said[f.About] = f.Says
		}
	}
	for _, about := range []string{"clock beside vault", "way to " + strings.TrimPrefix(rig.Provider.Issuer(), "http://")} {
		if !aMinuteAndAHalf.MatchString(said[about]) {
			t.Errorf("%s: %q", about, said[about])
		}
	}
}
