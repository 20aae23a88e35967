package identity_test

import (
	"crypto"
	"crypto/sha256"
	"net/http"
	"strings"
	"testing"
	"time"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/identity"
	"onbehalf.internal/broker/secret/canary"
)

func TestCaller(t *testing.T) {
	r := newRig(t)
	type row struct {
		name   string
		header http.Header
		id     string // "": refused
	}
	accepted := func(name, value, id string) row { return row{name, http.Header{"Authorization": {value}}, id} }
	refused := func(name string, values ...string) row { return row{name, http.Header{"Authorization": values}, ""} }
	const good = "Bearer " + gatewayBearer

	for _, row := range []row{
		accepted("the gateway", good, "gateway"),
		accepted("its bearer before rotation", "Bearer gateway-bearer-before-rotation", "gateway"),
		accepted("the auditor", "Bearer "+auditorBearer, "auditor"),

		refused("no header"),
		refused("an empty one", ""),
		refused("unknown", "Bearer nobody-knows-this"),
		refused("one character more", good+"x"),
		refused("one character less", good[:len(good)-1]),
		refused("two headers, the good one first", good, "Bearer other"),
		refused("two headers, the good one last", "Bearer other", good),
		refused("the good one twice", good, good),
		refused("lower-case scheme", "bearer "+gatewayBearer),
		refused("upper-case scheme", "BEARER "+gatewayBearer),
		refused("two spaces", "Bearer  "+gatewayBearer),
		refused("tab", "Bearer\t"+gatewayBearer),
		refused("space before", " "+good),
		refused("space after", good+" "),
		refused("newline after", good+"\n"),
		refused("Basic", "Basic "+gatewayBearer),
		refused("no scheme", gatewayBearer),
		refused("scheme only", "Bearer"),
		refused("empty token", "Bearer "),
		refused("not a token68, though it has a digest", "Bearer no token68"),
		refused("comma-joined", good+", "+good),
		refused("parameters", "Bearer token="+gatewayBearer),
		refused("upper-case token", "Bearer "+strings.ToUpper(gatewayBearer)),
		{"another header", http.Header{"Proxy-Authorization": {good}, "X-Authorization": {good}}, ""},
	} {
		c, err := r.Caller(row.header)
		if c.ID() != row.id || c.IsZero() != (row.id == "") {
			t.Errorf("%s: Caller = %q, %v, want %q", row.name, c.ID(), err, row.id)
		}
		if row.id == "" && reason(err) != fault.CallerUnknown {
			t.Errorf("%s: %v, want %s", row.name, err, fault.CallerUnknown)
		}
	}
}

// Unknown, wrong and malformed are one answer, byte for byte.
func TestCallerAnswersAlike(t *testing.T) {
	r := newRig(t)
	_, want := r.Caller(http.Header{})
	for _, value := range []string{"Bearer nobody", "Bearer " + gatewayBearer + "x", "Basic x", ""} {
		if _, err := r.Caller(http.Header{"Authorization": {value}}); err.Error() != want.Error() {
			t.Errorf("Authorization %q: %q, without it %q", value, err, want)
		}
	}
}

func TestRoles(t *testing.T) {
	r := newRig(t)
	gateway := r.caller(t, gatewayBearer)
	if !gateway.Has(identity.Operate) || gateway.Has(identity.Audit) || gateway.Has(identity.Admin) || gateway.Has("") {
		t.Error("the gateway has another role than operate")
	}
	if nobody := (identity.Caller{}); nobody.Has(identity.Operate) || nobody.Has("") || nobody.ID() != "" || !nobody.IsZero() {
		t.Error("the zero caller is somebody")
	}
}

func TestActor(t *testing.T) {
	r := newRig(t)
	signed := r.sign(t, goodHeader, goodClaims)
	const assertion, name = "Broker-Actor-Assertion", "Broker-Actor"

	for _, row := range []struct {
		what   string
		bearer string
		header http.Header
		actor  string
		reason fault.Reason
	}{
		{"signed", gatewayBearer, http.Header{assertion: {signed}}, "user:7", fault.None},
		{"asserted", gatewayBearer, http.Header{name: {"service:nightly"}}, "service:nightly", fault.None},

		{"neither", gatewayBearer, http.Header{}, "", fault.ActorMissing},
		{"headers of others", gatewayBearer, http.Header{"X-Actor": {"user:7"}, "Broker_actor": {"service:nightly"}, "X-Remote-User": {"user:7"}}, "", fault.ActorMissing},
		{"both", gatewayBearer, http.Header{assertion: {signed}, name: {"service:nightly"}}, "", fault.ActorInvalid},
		{"both, agreeing", gatewayBearer, http.Header{assertion: {signed}, name: {"user:7"}}, "", fault.ActorInvalid},
		{"signed twice", gatewayBearer, http.Header{assertion: {signed, signed}}, "", fault.ActorInvalid},
		{"asserted twice", gatewayBearer, http.Header{name: {"service:nightly", "service:nightly"}}, "", fault.ActorInvalid},
		{"both, one empty", gatewayBearer, http.Header{assertion: {""}, name: {"service:nightly"}}, "", fault.ActorInvalid},
		{"asserted, empty", gatewayBearer, http.Header{name: {""}}, "", fault.ActorInvalid},
		{"signed, empty", gatewayBearer, http.Header{assertion: {""}}, "", fault.AssertionInvalid},
		{"comma-joined", gatewayBearer, http.Header{name: {"service:nightly, service:nightly"}}, "", fault.ActorInvalid},
		{"not an id", gatewayBearer, http.Header{name: {"nightly"}}, "", fault.ActorInvalid},
		{"not in the list", gatewayBearer, http.Header{name: {"service:hourly"}}, "", fault.ActorNotAllowed},
		{"in the list of signed ones", gatewayBearer, http.Header{name: {"service:weekly"}}, "", fault.ActorNotAllowed},
		{"other case", gatewayBearer, http.Header{name: {"service:Nightly"}}, "", fault.ActorNotAllowed},
		{"a caller without actors, asserted", auditorBearer, http.Header{name: {"service:nightly"}}, "", fault.ActorNotAllowed},
		{"a caller without actors, signed", auditorBearer, http.Header{assertion: {signed}}, "", fault.ActorNotAllowed},
	} {
		a, err := r.Actor(r.caller(t, row.bearer), row.header)
		if a.String() != row.actor || reason(err) != row.reason || a.IsZero() != (row.actor == "") {
			t.Errorf("%s: Actor = %q, %v, want %q, %s", row.what, a, err, row.actor, row.reason)
		}
	}

	if _, err := r.Actor(identity.Caller{}, http.Header{name: {"service:nightly"}}); reason(err) != fault.ActorNotAllowed {
		t.Errorf("the zero caller: %v", err)
	}
}

// Names that look like another, or that some reader takes for a path, a line
// or a command.
var badNames = []string{
	"", "admin\u200btool", "ad\u202emin", "verify_\u057dser", "\uff41dmin", "tool\ntool", "tool\u2028", "tool\u0000",
	"../x", "a/b", "a b", " a", "a ", "a\n", "\U000e0061", "tool\x1b[31m", "__proto__", ".a", "-a", "@a", "a:b", "a*", "*",
	"\u212aelvin", "\xff", strings.Repeat("a", 129),
}

func TestParseActorID(t *testing.T) {
	for _, name := range []string{"7", "a", "alice", "Alice.B", "a_b-c@example.org", strings.Repeat("a", 128)} {
		for _, kind := range []string{"user:", "service:"} {
			if err := identity.ParseActorID(kind + name); err != nil {
				t.Error(err)
			}
		}
	}
	for _, name := range badNames {
		if identity.ParseActorID("user:"+name) == nil {
			t.Errorf("%q is an actor", "user:"+name)
		}
	}
	for _, id := range []string{"alice", "admin:alice", "User:alice", "user", "user:", ":alice", " user:alice", "user: alice", "user:user:alice", "\u017fervice:a"} {
		if identity.ParseActorID(id) == nil {
			t.Errorf("%q is an actor", id)
		}
	}
}

func FuzzParseActorID(f *testing.F) {
	for _, s := range []string{"user:7", "service:a.b@c", "user:", "user:a\n"} {
		f.Add(s)
	}
	r := newRig(f)
	gateway := r.caller(f, gatewayBearer)
	f.Fuzz(func(t *testing.T, s string) {
		accepted := identity.ParseActorID(s) == nil
		if accepted && strings.ContainsFunc(s, func(c rune) bool { return c <= ' ' || c > '~' || strings.ContainsRune(`/\%*?#"'`, c) }) {
			t.Errorf("%q was accepted", s)
		}
		a, err := r.Actor(gateway, http.Header{"Broker-Actor": {s}})
		if err == nil && a.String() != s {
			t.Errorf("%q became %q", s, a)
		}
		if (reason(err) == fault.ActorInvalid) == accepted {
			t.Errorf("%q: accepted %v, but as an actor %v", s, accepted, err)
		}
	})
}

func TestNewDirectory(t *testing.T) {
	keys := keySet(t, map[string]crypto.PublicKey{"k": newRSA(t, 2048).Public()})
	digest := func(s string) [32]byte { return sha256.Sum256([]byte(s)) }
	good := func() identity.CallerConfig {
		return identity.CallerConfig{
			ID: "gateway", Roles: []identity.Role{identity.Operate}, BearerSHA256: [][32]byte{digest("one")},
			Signed: &identity.SignedActors{Issuer: "i", Audience: "a", Keys: keys, Subjects: []string{"user:", "service:", "user:7"}},
		}
	}
	type config = identity.CallerConfig
	type row struct {
		name   string
		change func(*config)
		want   []string // texts in the error; nil: accepted
	}
	accepted := func(name string, change func(*config)) row { return row{name, change, nil} }
	refused := func(name string, change func(*config), want ...string) row { return row{name, change, want} }

	for _, r := range []row{
		accepted("as it is", func(*config) {}),
		accepted("two bearers", func(c *config) { c.BearerSHA256 = append(c.BearerSHA256, digest("two")) }),
		accepted("no actors", func(c *config) { c.Signed = nil }),
		accepted("every role", func(c *config) {
			c.Roles = []identity.Role{identity.Operate, identity.Approve, identity.Audit, identity.Admin}
		}),

		refused("no id", func(c *config) { c.ID = "" }, `caller "": an id is`),
		refused("no role", func(c *config) { c.Roles = nil }, `caller "gateway": no role`),
		refused("unknown role", func(c *config) { c.Roles = []identity.Role{"Operate"} }, `caller "gateway": role "Operate"`),
		refused("no bearer", func(c *config) { c.BearerSHA256 = nil }, `0 entries in bearer_sha256`),
		refused("three bearers", func(c *config) { c.BearerSHA256 = [][32]byte{digest("1"), digest("2"), digest("3")} }, `3 entries`),
		refused("zero digest", func(c *config) { c.BearerSHA256 = [][32]byte{{}} }, `digest of nothing`),
		refused("digest of nothing", func(c *config) { c.BearerSHA256 = [][32]byte{digest("")} }, `digest of nothing`),
		refused("digest of an empty line", func(c *config) { c.BearerSHA256 = [][32]byte{digest("\n")} }, `digest of nothing`),
		refused("digest of a placeholder", func(c *config) { c.BearerSHA256 = [][32]byte{digest("changeme")} }, `anybody guesses`),
		refused("the same twice", func(c *config) { c.BearerSHA256 = [][32]byte{digest("1"), digest("1")} }, `also one of caller "gateway"`),
		refused("a bad actor", func(c *config) { c.Asserted = []string{"service:a", "nightly"} }, `asserted: actor "nightly"`),
		refused("a prefix among the asserted", func(c *config) { c.Asserted = []string{"service:"} }, `asserted: actor "service:"`),
		refused("no issuer", func(c *config) { c.Signed.Issuer = "" }, `signed: no issuer`),
		refused("no audience", func(c *config) { c.Signed.Audience = "" }, `signed: no audience`),
		refused("no keys", func(c *config) { c.Signed.Keys = identity.KeySet{} }, `signed: no key`),
		refused("no subjects", func(c *config) { c.Signed.Subjects = nil }, `signed: no subjects`),
		refused("empty subject", func(c *config) { c.Signed.Subjects = []string{""} }, `signed: subject ""`),
		refused("wildcard", func(c *config) { c.Signed.Subjects = []string{"user:*"} }, `signed: subject "user:*"`),
		refused("prefix of nobody", func(c *config) { c.Signed.Subjects = []string{"admin:"} }, `signed: subject "admin:"`),
		refused("prefix inside a name", func(c *config) { c.Signed.Subjects = []string{"user:team:"} }, `signed: subject "user:team:"`),
		refused("everything at once", func(c *config) { c.Roles, c.BearerSHA256, c.Signed.Issuer = nil, nil, "" },
			`no role`, `0 entries in bearer_sha256`, `signed: no issuer`),
	} {
		c := good()
		r.change(&c)
		checkProblems(t, r.name, []config{c}, r.want)
	}

	other := good()
	other.ID = "other"
	checkProblems(t, "two callers, one bearer", []config{good(), other}, []string{`caller "other": bearer_sha256 is also one of caller "gateway"`})
	twin := good()
	twin.BearerSHA256 = [][32]byte{digest("twin")}
	checkProblems(t, "two callers, one id", []config{good(), twin}, []string{`caller "gateway": listed twice`})
	for _, name := range badNames {
		c := good()
		c.ID = name
		checkProblems(t, "id", []config{c}, []string{`an id is`})
	}
}

func checkProblems(t *testing.T, name string, callers []identity.CallerConfig, want []string) {
	t.Helper()
	d, err := identity.NewDirectory(callers, nil)
	if (err == nil) != (want == nil) || (d == nil) != (err != nil) {
		t.Errorf("%s: NewDirectory = %v, %v, want %q", name, d, err, want)
		return
	}
	for _, text := range want {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %q does not hold %q", name, err, text)
		}
	}
}

// A directory is one snapshot: who changes the configuration afterwards changes nothing.
func TestDirectoryIsACopy(t *testing.T) {
	roles, asserted := []identity.Role{identity.Audit}, []string{"service:a"}
	d, err := identity.NewDirectory([]identity.CallerConfig{{
		ID: "c", Roles: roles, Asserted: asserted, BearerSHA256: [][32]byte{sha256.Sum256([]byte("bearer-of-c"))},
	}}, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	roles[0], asserted[0] = identity.Admin, "service:b"

	h := http.Header{"Authorization": {"Bearer bearer-of-c"}, "Broker-Actor": {"service:b"}}
	c, err := d.Caller(h)
	if err != nil || c.Has(identity.Admin) {
		t.Errorf("Caller = %v with role admin %v", err, c.Has(identity.Admin))
	}
	if _, err := d.Actor(c, h); reason(err) != fault.ActorNotAllowed {
		t.Errorf("Actor = %v", err)
	}
}

func TestNothingIsTold(t *testing.T) {
	const bearer, wrong = "canary-bearer-5f3a9c71e0d2", "canary-wrong-8b1d64f07ac3"
	r := newRig(t)
	assertion := r.sign(t, goodHeader, goodClaims)
	forged := assertion[:len(assertion)-20] + "AAAAAAAAAAAAAAAAAAAA"
	late := r.sign(t, goodHeader, replace(t, goodClaims, "1800000120", "1700000000"))

	canary.Run(t, func(c *canary.Cage) {
		d, err := identity.NewDirectory([]identity.CallerConfig{
			{ID: "a", Roles: []identity.Role{identity.Operate}, BearerSHA256: [][32]byte{sha256.Sum256([]byte(bearer))}},
			{ID: "b", BearerSHA256: [][32]byte{sha256.Sum256([]byte(bearer))}},
		}, nil)
		c.Value("directory", d)
		c.Value("problems", err)

		for _, value := range []string{"Bearer " + wrong, "Basic " + wrong, wrong, "Bearer " + wrong + " "} {
			_, err := r.Caller(http.Header{"Authorization": {value}})
			c.Value("error of Caller", err)
		}
		gateway := r.caller(t, gatewayBearer)
		c.Value("caller", gateway)
		for _, value := range []string{assertion, forged, late, assertion + ".x", assertion + "\n"} {
			a, err := r.Actor(gateway, http.Header{"Broker-Actor-Assertion": {value}})
			c.Value("actor", a)
			c.Value("error of Actor", err)
			_, err = r.Actor(gateway, http.Header{"Broker-Actor": {value}})
			c.Value("error of a misplaced assertion", err)
		}
	}, bearer, wrong, gatewayBearer, assertion, forged, late)
}
