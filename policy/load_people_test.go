package policy_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/golang-jwt/jwt/v5"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/identity"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/secret"
)

const (
	callersKey = "callers:\n"
	people     = `callers:
  people:
    roles: [audit, approve]
    sign_in:
      issuer: https://login.example.org/
      client_id: broker-ui
      client_secret: "vault:kv/broker/ui#secret"
      person: email
      subjects: ["user:8", "user:9"]
      audit: {claim: "cognito:groups", value: auditors}
      approve: {claim: "https://broker.example.org/groups", value: approvers}
      admin: {claim: roles, value: admin}
      scopes: [email, profile]
      allow_cidrs: [10.1.0.0/16]
`
)

// peopled is the configuration with people who sign in, and parts of them replaced.
func peopled(t testing.TB, oldnew ...string) string {
	t.Helper()
	return replaced(t, config(t, callersKey, "ui: {}\n"+people), oldnew...)
}

func replaced(t testing.TB, s string, oldnew ...string) string {
	t.Helper()
	for i := 0; i < len(oldnew); i += 2 {
		if strings.Count(s, oldnew[i]) != 1 {
			t.Fatalf("%q is %d times in the configuration", oldnew[i], strings.Count(s, oldnew[i]))
		}
		s = strings.Replace(s, oldnew[i], oldnew[i+1], 1)
	}
	return s
}

func TestPeopleLoad(t *testing.T) {
	s := load(t, peopled(t))
	got, there := s.Directory.SignIn()
	client, err := secret.ParseRef("vault:kv/broker/ui#secret")
	if err != nil {
		t.Fatal(err)
	}
	want := identity.SignIn{Issuer: "https://login.example.org/", ClientID: "broker-ui", Person: "email", Subjects: []string{"user:8", "user:9"},
		Audit: identity.Claim{Name: "cognito:groups", Value: "auditors"}, Approve: identity.Claim{Name: "https://broker.example.org/groups", Value: "approvers"},
		Admin: identity.Claim{Name: "roles", Value: "admin"}, Scopes: []string{"email", "profile"},
		Secret: client, AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(secret.Ref{}, netip.Prefix{})); diff != "" || !there {
		t.Errorf("SignIn (-want +got):\n%s", diff)
	}
	if !s.Directory.Approves("people", "https://login.example.org/", "user:8") || s.Directory.Approves("people", "https://login.example.org/", "user:7") {
		t.Error("user:8 alone of the two approves")
	}
	if _, err := s.Directory.Caller(http.Header{"Authorization": {"Bearer "}}); err == nil {
		t.Error("people have a bearer")
	}
	least := load(t, peopled(t, "roles: [audit, approve]", "roles: [audit]", "      client_secret: \"vault:kv/broker/ui#secret\"\n", "",
		"      person: email\n", "", `["user:8", "user:9"]`, `["user:"]`, "      approve: {claim: \"https://broker.example.org/groups\", value: approvers}\n", "",
		"      admin: {claim: roles, value: admin}\n", "", "      scopes: [email, profile]\n", "", "      allow_cidrs: [10.1.0.0/16]\n", ""))
	if got, there := least.Directory.SignIn(); !there || got.Person != "sub" || !got.Secret.IsZero() || got.Approve != (identity.Claim{}) {
		t.Errorf("the least: %+v", got)
	}
	if _, there := load(t, config(t)).Directory.SignIn(); there {
		t.Error("people sign in where nothing says so")
	}
}

func TestUI(t *testing.T) {
	const listen = `listen: {api: "127.0.0.1:8471"}`
	for _, r := range []struct {
		line string
		want *policy.UI
	}{
		{listen, nil},
		{listen + "\nui: {}", &policy.UI{}},
		{listen + "\nui: {origin: \"https://broker.example.org\"}", &policy.UI{Origin: "https://broker.example.org"}},
		{listen + "\nui: {origin: \"https://broker.example.org:8443\"}", &policy.UI{Origin: "https://broker.example.org:8443"}},
		{listen + "\nui: {origin: \"http://[::1]:8471\"}", &policy.UI{Origin: "http://[::1]:8471"}},
		{listen + "\nui: {origin: \"http://localhost:8471\"}", &policy.UI{Origin: "http://localhost:8471"}},
		{"listen: {api: \"unix:/run/broker/api.sock\"}\nui: {origin: \"https://broker.example.org\"}", &policy.UI{Origin: "https://broker.example.org"}},
	} {
		if diff := cmp.Diff(r.want, load(t, config(t, listen, r.line)).UI); diff != "" {
			t.Errorf("%s (-want +got):\n%s", r.line, diff)
		}
	}
	for line, want := range map[string]string{
		"ui: {origin: \"http://broker.example.org\"}":      "ui.origin must be https",
		"ui: {origin: \"https://broker.example.org/\"}":    "ui.origin must not have a path",
		"ui: {origin: \"https://broker.example.org/ui\"}":  "ui.origin must not have a path",
		"ui: {origin: \"https://broker.example.org:443\"}": "ui.origin must leave the port out",
		"ui: {origin: \"http://127.0.0.1:80\"}":            "ui.origin must leave the port out",
		"ui: {origin: \"https://Broker.example.org\"}":     "ui.origin must have a host in lower case",
		"ui: {origin: \"https://a@broker.example.org\"}":   "ui.origin must not hold a user",
		"ui: {origin: \"*\"}":                              "ui.origin must be a URL",
		"ui: {origins: \"https://broker.example.org\"}":    "ui.origins is not a known key; known here: origin",
		"ui: true": "ui is true or false; write a mapping",
		"ui: ~":    "ui no value",
		"ui: []":   "ui is a list; write a mapping",
	} {
		refuses(t, config(t, listen, listen+"\n"+line), 3, want)
	}
	refuses(t, config(t, listen, "listen: {api: \"unix:/run/broker/api.sock\"}\nui: {}"), 3, "ui needs origin")
}

// refuses looks for one problem, on a line, whose key and text hold the words of want
// in their order.
func refuses(t *testing.T, text string, line int, want string) {
	t.Helper()
	refusesIn(t, map[string]string{"profiles.yaml": text}, line, want)
}

// refusesIn is refuses with other files beside the configuration.
func refusesIn(t *testing.T, files map[string]string, line int, want string) {
	t.Helper()
	key, words, _ := strings.Cut(want, " ")
	ps := problems(t, write(t, files))
	if len(ps) != 1 || ps[0].Key != key || ps[0].Line != line || !strings.Contains(ps[0].Text, words) {
		t.Errorf("%v, want line %d: %s", ps, line, want)
	}
}

// TestPeopleRefuses: one change each to a file that loads.
func TestPeopleRefuses(t *testing.T) {
	const sign = "callers.people.sign_in"
	for _, r := range []struct {
		old, new string
		line     int
		want     string
	}{
		{"issuer: https://login.example.org/\n", "issuer: http://login.example.org/\n", 14, sign + ".issuer must be https"},
		{"issuer: https://login.example.org/\n", "issuer: http://127.0.0.1:5556\n", 14, sign + ".issuer must be https"},
		{"issuer: https://login.example.org/\n", "issuer: https://login.example.org/?tenant=1\n", 14, sign + ".issuer must not hold"},
		{"      issuer: https://login.example.org/\n", "", 13, sign + ".issuer is missing"},
		{"      client_id: broker-ui\n", "", 13, sign + ".client_id is missing"},
		{"client_id: broker-ui", "client_id: 12", 15, sign + ".client_id put it in quotes"},
		{`client_secret: "vault:kv/broker/ui#secret"`, `client_secret: hunter2`, 16, sign + ".client_secret must name a field in Vault"},
		{"person: email", "person: aud", 17, sign + ".person has a meaning of its own"},
		{"person: email", "person: email_verified", 17, sign + ".person has a meaning of its own"},
		{"person: email", `person: "e mail"`, 17, sign + ".person must be the name of a claim"},
		{`["user:8", "user:9"]`, `["8"]`, 18, sign + ".subjects[0] must be a person"},
		{`["user:8", "user:9"]`, `["service:"]`, 18, sign + ".subjects[0] must be a person"},
		{`["user:8", "user:9"]`, `["service:nightly"]`, 18, sign + ".subjects[0] must be a person"},
		{`["user:8", "user:9"]`, `["*"]`, 18, sign + ".subjects[0] wildcard"},
		{`["user:8", "user:9"]`, `[]`, 18, sign + ".subjects empty list"},
		{`      subjects: ["user:8", "user:9"]` + "\n", "", 13, sign + ".subjects is missing"},
		{`{claim: "cognito:groups", value: auditors}`, `{claim: sub, value: auditors}`, 19, sign + ".audit.claim has a meaning of its own"},
		{`{claim: "cognito:groups", value: auditors}`, `{claim: nonce, value: auditors}`, 19, sign + ".audit.claim has a meaning of its own"},
		{`{claim: "cognito:groups", value: auditors}`, `{claim: groups}`, 19, sign + ".audit.value is missing"},
		{`{claim: "cognito:groups", value: auditors}`, `auditors`, 19, sign + ".audit write a mapping"},
		{`      audit: {claim: "cognito:groups", value: auditors}` + "\n", "", 13, sign + ".audit is missing"},
		{"roles: [audit, approve]", "roles: [approve]", 19, sign + ".audit without the role audit"},
		{"roles: [audit, approve]", "roles: [audit, approve, operate]", 12, "callers.people.roles at most 2"},
		{"roles: [audit, approve]", "roles: [admin]", 12, "callers.people.roles[0] must be one of approve, audit"},
		{"    roles: [audit, approve]\n", "", 11, "callers.people.roles is missing"},
		{"scopes: [email, profile]", "scopes: [openid]", 22, sign + ".scopes[0] in any case"},
		{"scopes: [email, profile]", "scopes: [offline_access]", 22, sign + ".scopes[0] throw away"},
		{"scopes: [email, profile]", `scopes: ["a b"]`, 22, sign + ".scopes[0] RFC 6749"},
		{"scopes: [email, profile]", "jwks: x", 22, sign + ".jwks is not a known key; known here: admin, allow_cidrs, approve, audit, ca_file"},
		{"allow_cidrs: [10.1.0.0/16]", "allow_cidrs: [0.0.0.0/0]", 23, sign + ".allow_cidrs[0] not all addresses"},
		{"    sign_in:\n", "    zone: local\n    sign_in:\n", 13, "callers.people.zone for people who sign in"},
		{"    sign_in:\n", "    servers: [records]\n    sign_in:\n", 13, "callers.people.servers for people who sign in"},
		{"    sign_in:\n", "    bearer_sha256: [\"x\"]\n    sign_in:\n", 13, "callers.people.bearer_sha256 for people who sign in"},
		{"    sign_in:\n", "    actors: {asserted: [\"user:8\"]}\n    sign_in:\n", 13, "callers.people.actors for people who sign in"},
		{"    sign_in:\n", "    approvers: {issuer: x}\n    sign_in:\n", 13, "callers.people.approvers for people who sign in"},
		{"    sign_in:\n", "    client_cert: {}\n    sign_in:\n", 13, "callers.people.client_cert not available yet"},
		{"  lonely:\n", "  others:\n    sign_in: {issuer: x}\n  lonely:\n", 31, `callers.others.sign_in is at caller "people" already`},
		{"ui: {}\n", "", 9, "callers needs ui"},
	} {
		refuses(t, peopled(t, r.old, r.new), r.line, r.want)
	}
}

// TestPersonApproves: who has signed in passes the gate as whoever an assertion names,
// and never decides about what is done on its own behalf.
func TestPersonApproves(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	s := load(t, peopled(t, "person: email", "person: sub", `["user:8", "user:9"]`, `["user:"]`))
	signIn := func(sub string, groups ...string) identity.Person {
		t.Helper()
		token, err := jwt.NewWithClaims(jwt.SigningMethodES256, jwt.MapClaims{"iss": "https://login.example.org/", "aud": "broker-ui", "sub": sub, "nonce": "n-1",
			"iat": time.Now().Unix(), "exp": time.Now().Add(time.Minute).Unix(), "https://broker.example.org/groups": groups, "cognito:groups": "auditors"}).SignedString(key)
		if err != nil {
			t.Fatal(err)
		}
		p, err := s.Directory.Person(t.Context(), secret.New(token), "n-1", &oidc.StaticKeySet{PublicKeys: []crypto.PublicKey{key.Public()}})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	for sub, want := range map[string]fault.Reason{"7": fault.ApproverIsActor, "8": fault.None} {
		p := signIn(sub, "approvers")
		a, may := p.Approver()
		if !may {
			t.Fatalf("%s may not decide", p)
		}
		err := s.MayApprove("gateway", "user:7", "asking", "search", policy.ConsentOf(p.Caller(), a), now)
		if got := reason(err); got != want {
			t.Errorf("%s about a call of user:7: %v, want %q", p, err, want)
		}
	}
	if _, may := signIn("8").Approver(); may {
		t.Error("who is not among the approvers decides")
	}
	gone := load(t, peopled(t))
	p := signIn("7", "approvers")
	a, _ := p.Approver()
	if err := gone.MayApprove("gateway", "user:8", "asking", "search", policy.ConsentOf(p.Caller(), a), now); reason(err) != fault.ApproverNotAllowed {
		t.Errorf("after a reload that believes others: %v", err)
	}
}
