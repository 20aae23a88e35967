package session_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/exchange"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/internal/devidp"
	"onbehalf.internal/broker/internal/devvault"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/policy/policytest"
	"onbehalf.internal/broker/secret"
	"onbehalf.internal/broker/secret/canary"
	"onbehalf.internal/broker/session"
	"onbehalf.internal/broker/vault"
)

const (
	clientSecret = "client-secret-4711-of-the-broker"
	static       = "static-credential-of-the-old-server"
	discovery    = "discovery-credential-of-records"
)

// A rig is a Manager over a dev Vault and a dev provider.
type rig struct {
	*session.Manager
	t        *testing.T
	vault    *devvault.Server
	provider *devidp.Provider // nil: the rig has another
	issuer   string
	dir      string
	now      time.Time // what the Manager takes for now
	subject  string
	epoch    string              // of the session under test
	client   string              // the profile's
	response string              // the same
	more     string              // lines of the profile
	edit     func(string) string // of the whole text; nil: as it is
}

func newRig(t *testing.T, change ...func(*vault.Config)) *rig {
	t.Helper()
	provider, err := devidp.Start(devidp.Config{TTL: time.Minute, Clients: []devidp.Client{
		{ID: "broker", Auth: "basic", Secret: clientSecret, Allow: map[string][]string{"mcp": {"read"}}}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { provider.Close() })
	r := rigWith(t, provider.Issuer(), provider.Mint("user:7", time.Hour), exchange.New(nil), change...)
	r.provider = provider
	return r
}

// rigWith is a rig at whatever provider x reaches.
func rigWith(t *testing.T, issuer, subject string, x *exchange.Client, change ...func(*vault.Config)) *rig {
	t.Helper()
	r := &rig{t: t, vault: devvault.New(devvault.Options{}), dir: t.TempDir(), now: time.Now(), issuer: issuer, subject: subject,
		client: `client: {id: broker, auth: basic, key: "vault:kv/broker/client#v"}`, response: "response: {token_format: jwt}"}
	for path, value := range map[string]string{"subject": r.subject, "client": clientSecret, "static": static, "discovery": discovery} {
		r.vault.PutSecret("kv", "broker/"+path, map[string]string{"v": value})
	}
	conf := vault.Config{Address: "http://127.0.0.1:1", Transport: r.vault, Auth: policy.VaultAuth{Method: "token"},
		Token: secret.New(r.vault.RootToken()), Role: "broker-op"}
	for _, f := range change {
		f(&conf)
	}
	client, err := vault.New(conf)
	r.must(err)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { client.Run(ctx); close(done) }()
	t.Cleanup(func() { stop(); <-done })
	r.must(client.WaitReady(ctx))
	r.Manager = session.NewManager(client, x, policy.NewHolder(r.load("true")), func() time.Time { return r.now })
	return r
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// load writes and loads the configuration with the grant enabled or not.
func (r *rig) load(enabled string) *policy.Snapshot {
	r.t.Helper()
	here := strings.NewReplacer("PROVIDER", r.issuer)
	text := strings.NewReplacer("PROVIDER", r.issuer, "ENABLED", enabled, "CLIENT", r.client, "RESPONSE", here.Replace(r.response), "MORE", here.Replace(r.more)).Replace(`version: 1
listen: {api: "127.0.0.1:0"}
vault: {address: "http://127.0.0.1:1", auth: {method: token}, hold: {role: broker-op}}
store: {path: unused.db}
operation: {timeout: 20s}
callers:
  gateway: {roles: [operate, admin], bearer_sha256: ["BEARER"], actors: {asserted: ["user:7"]}, servers: [records, old, open], zone: local}
profiles:
  company:
    token_endpoint: PROVIDER/oauth/token
    allow_cidrs: ["127.0.0.0/8"]
    CLIENT
    allowed_audiences: [mcp]
    allowed_scopes: [read]
    RESPONSE
MORE    grants:
      "user:7": {enabled: ENABLED, credential: "vault:kv/broker/subject#v", allowed_audiences: [mcp], allowed_scopes: [read]}
servers:
  records:
    url: https://records.example.org/mcp
    enabled: true
    data_class: publicContent
    requires_approval: false
    auth: {mode: delegated, profile: company, audience: mcp, scopes: [read], discovery_credential: "vault:kv/broker/discovery#v"}
    tools: {search: {enabled: true}}
  old:
    url: https://old.example.org/mcp
    enabled: true
    data_class: publicContent
    requires_approval: false
    auth: {mode: legacy, credential: "vault:kv/broker/static#v", placement: header, header: X-Api-Key}
    tools: {search: {enabled: true}}
  open:
    url: https://open.example.org/mcp
    enabled: true
    data_class: publicContent
    requires_approval: false
    auth: {mode: legacy}
    tools: {search: {enabled: true}}
`)
	if r.edit != nil {
		text = r.edit(text)
	}
	s, err := policytest.Load(r.dir, text)
	r.must(err)
	return s
}

// decide asks policy, as an operation does; server "records" may be asked for
// its discovery.
func (r *rig) decide(server string, probe bool) policy.Decision {
	r.t.Helper()
	s := r.Policy.Current()
	q, err := policytest.Ask(s, "user:7", server, "search")
	r.must(err)
	var d policy.Decision
	if probe {
		d, err = s.DecideDiscovery(q.Caller, server, r.now)
	} else {
		d, err = s.Decide(q, r.now)
	}
	r.must(err)
	return d
}

// open opens a session under a deadline of 20 s.
func (r *rig) open(d policy.Decision) (context.Context, *session.Session) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 20*time.Second)
	r.t.Cleanup(cancel)
	s, err := r.Open(ctx, d)
	r.must(err)
	return ctx, s
}

// TestKinds: each kind of session hands out its own credential, in its own
// header, and no other.
func TestKinds(t *testing.T) {
	r := newRig(t)
	for _, tc := range []struct {
		name, server string
		probe        bool
		header       string
		value        func() string
		legs         string
	}{
		{"execution", "records", false, "Authorization", func() string { return r.provider.Issued()[0] }, "subject exchange hold"},
		{"discovery", "records", true, "Authorization", func() string { return discovery }, ""},
		{"static", "old", false, "X-Api-Key", func() string { return static }, ""},
		{"static, for discovery", "old", true, "X-Api-Key", func() string { return static }, ""},
		{"anonymous, for discovery", "open", true, "", func() string { return "" }, ""},
		{"anonymous", "open", false, "", func() string { return "" }, ""},
	} {
		ctx, s := r.open(r.decide(tc.server, tc.probe))
		cred, err := s.Token(ctx, "tools/list")
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		if cred.Header != tc.header || cred.Value.Reveal() != tc.value() || !cred.ReadAt.Equal(r.now) {
			t.Errorf("%s: header %q, or another value", tc.name, cred.Header)
		}
		if got := names(s.Legs()); got != tc.legs {
			t.Errorf("%s: legs %q, want %q", tc.name, got, tc.legs)
		}
		_, err = s.Token(ctx, "tools/call")
		if refused := err != nil; refused != tc.probe {
			t.Errorf("%s: a credential for tools/call: %v", tc.name, err)
		}
		hold := map[bool]string{true: "dropped", false: ""}[tc.name == "execution"]
		if got := s.Close(ctx); got != hold {
			t.Errorf("%s: Close says %q, want %q", tc.name, got, hold)
		}
		if _, err := s.Token(ctx, "tools/list"); fault.ReasonOf(err) != fault.SessionClosed {
			t.Errorf("%s: after Close: %v", tc.name, err)
		}
		if n := r.vault.Residue(); n != 0 {
			t.Errorf("%s: %d holds left", tc.name, n)
		}
	}
}

// TestChecksBeforeEveryLeg: what is asked again before a leg, and where a leg
// ends when the answer has changed.
func TestChecksBeforeEveryLeg(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*rig, context.CancelFunc)
		reason fault.Reason
	}{
		{"nothing changed", func(*rig, context.CancelFunc) {}, fault.None},
		{"the grant is gone", func(r *rig, _ context.CancelFunc) { r.Policy.Swap(r.load("false")) }, fault.GrantRevoked},
		{"the caller has gone", func(_ *rig, cancel context.CancelFunc) { cancel() }, fault.CallerCancelled},
		{"the epoch was revoked", func(r *rig, _ context.CancelFunc) { r.vault.Revoke(r.epoch) }, fault.HoldGone},
		{"Vault is sealed", func(r *rig, _ context.CancelFunc) { r.vault.Seal(true) }, fault.VaultSealed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t)
			ctx, s := r.open(r.decide("records", false))
			ctx, cancel := context.WithCancel(ctx)
			if _, err := s.Token(ctx, "initialize"); err != nil {
				t.Fatal(err)
			}
			var rec audit.Record
			s.Describe(&rec)
			r.epoch = rec.Epoch
			tc.change(r, cancel)
			cred, err := s.Token(ctx, "tools/call")
			if got := reasonOf(err); got != tc.reason {
				t.Errorf("%v, want %q", err, tc.reason)
			}
			if err != nil && !cred.Value.IsZero() {
				t.Error("a refusal came with a token")
			}
			cancel()
			r.vault.Seal(false)
			if got := s.Close(ctx); got != "dropped" { // on its own context
				t.Errorf("Close says %q", got)
			}
		})
	}
}

// TestClientKeyIsReadOnce, and again after the provider did not accept it.
func TestClientKeyIsReadOnce(t *testing.T) {
	r := newRig(t)
	reads := func() int { return r.vault.Count("GET", "kv/data/broker/client") }
	for range 3 {
		ctx, s := r.open(r.decide("records", false))
		s.Close(ctx)
	}
	if reads() != 1 {
		t.Errorf("%d reads for three sessions", reads())
	}
	r.provider.Break(devidp.Fail(1, 401, "invalid_client"))
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := r.Open(ctx, r.decide("records", false)); fault.ReasonOf(err) != fault.ProviderConfig {
		t.Fatal(err)
	}
	r.open(r.decide("records", false))
	if reads() != 2 {
		t.Errorf("%d reads after the provider refused the key", reads())
	}
	r.now = r.now.Add(2 * time.Minute)
	r.open(r.decide("records", false))
	if reads() != 3 {
		t.Errorf("%d reads after two minutes", reads())
	}
}

// TestNoSecret: the canary over every way a session can end.
func TestNoSecret(t *testing.T) {
	canary.Run(t, func(c *canary.Cage) {
		r := newRig(t)
		c.Plant(clientSecret, static, discovery, r.subject, policytest.Bearer)
		ctx, s := r.open(r.decide("records", false))
		cred, err := s.Token(ctx, "tools/call")
		c.Value("credential", cred)
		c.Value("error", err)
		c.Value("session", s)
		s.Close(ctx)
		for name, failure := range map[string]devvault.Failure{"500": {}, "cut": {Cut: true}, "page": {Status: 200, Body: clientSecret + r.subject, Type: "text/html"}} {
			r.vault.Fail("", "", 1, failure)
			_, err := r.Open(ctx, r.decide("records", false))
			c.Value(name, err)
		}
		r.vault.Mend()
		r.provider.Alter(func(g *devidp.Grant) { g.Subject = "user:8" })
		_, err = r.Open(ctx, r.decide("records", false))
		c.Value("exchange", err)
		c.Plant(r.provider.Issued()...)
	})
}

func names(legs []audit.Leg) string {
	var all []string
	for _, l := range legs {
		all = append(all, l.Name)
	}
	return strings.Join(all, " ")
}

func reasonOf(err error) fault.Reason {
	if err == nil {
		return fault.None
	}
	return fault.ReasonOf(err)
}

// TestPanicInALeg: what breaks off is a leg that failed, also behind the end of the
// operation, where nobody else would see to it.
func TestPanicInALeg(t *testing.T) {
	r := newRig(t)
	r.with("response: {token_format: jwt}", revokes)
	ctx, s := r.open(r.decide("records", false))
	if got := s.Close(ctx); got != "dropped" {
		t.Errorf("Close says %q", got)
	}
	r.Exchange = nil
	if got := s.Revoke(ctx); got != "failed" {
		t.Errorf("Revoke says %q", got)
	}
	d := r.decide("records", false)
	r.Policy = nil
	broken, err := r.Open(ctx, d)
	if fault.ReasonOf(err) != fault.InternalError {
		t.Errorf("Open says %v", err)
	}
	for _, s := range []*session.Session{s, broken} {
		if last := s.Legs()[len(s.Legs())-1]; last.Reason != fault.InternalError {
			t.Errorf("the last leg is %+v", last)
		}
	}
}
