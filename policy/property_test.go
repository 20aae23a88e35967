package policy_test

import (
	"cmp"
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"go.yaml.in/yaml/v4"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/identity"
	"onbehalf.internal/broker/policy"
)

var (
	anyCaller = []string{"gateway", "lonely", "nobody", ""}
	anyActor  = []string{"user:7", "user:8", "user:9", "service:nightly", ""}
	anyServer = []string{"records", "inert", "off", "asking", "secrets", "odd", "static", "nowhere", ""}
	anyTool   = []string{"search", "slow", "purge", "drop", ""}
	anyTime   = []time.Time{now, time.Date(2027, 3, 30, 23, 59, 59, 999999999, time.UTC), time.Date(2027, 3, 31, 0, 0, 0, 0, time.UTC), {}}
)

// verdicts is what s says to every tuple.
func verdicts(s *policy.Snapshot) map[string]string {
	all := map[string]string{}
	for _, c := range anyCaller {
		for _, a := range anyActor {
			for _, v := range anyServer {
				for _, tool := range anyTool {
					for _, at := range anyTime {
						_, all[fmt.Sprintf("%q %q %q %q %v", c, a, v, tool, at)] = s.Explain(c, a, v, tool, at)
					}
				}
			}
		}
	}
	return all
}

// The order of keys and of lists never changes a decision.
func TestOrderDecidesNothing(t *testing.T) {
	var tree yaml.Node
	if err := yaml.Load([]byte(config(t)), &tree); err != nil {
		t.Fatal(err)
	}
	want := verdicts(load(t, config(t)))
	rng := rand.New(rand.NewPCG(1, 2))
	for range 8 {
		shuffle(rng, &tree)
		text, err := yaml.Dump(&tree)
		if err != nil {
			t.Fatal(err)
		}
		if got := verdicts(load(t, string(text))); !reflect.DeepEqual(got, want) {
			t.Fatalf("other decisions from\n%s", text)
		}
	}
}

func shuffle(rng *rand.Rand, n *yaml.Node) {
	width := 1
	if n.Kind == yaml.MappingNode {
		width = 2
	}
	rng.Shuffle(len(n.Content)/width, func(i, j int) {
		for k := range width {
			n.Content[i*width+k], n.Content[j*width+k] = n.Content[j*width+k], n.Content[i*width+k]
		}
	})
	for _, child := range n.Content {
		shuffle(rng, child)
	}
}

// signing is base with what a decision can hang on besides: pins, administrators, and
// a caller that signs for whom it asks.
func signing(t *testing.T) (s *policy.Snapshot, assertion func(sub string, admin bool) string) {
	t.Helper()
	public, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	text := config(t, `asserted: ["user:7", "user:8", "user:9", "service:nightly"]`,
		`signed: {issuer: https://gateway.example.org, jwks: gateway.jwks, audience: broker, subjects: ["user:", "service:"], admin: {claim: roles, value: admin}}`,
		"search: {enabled: true, effect: read}", `search: {enabled: true, effect: read, pin: "`+looked+`"}`,
		"slow: {enabled: true, timeout: 3m}", "slow: {enabled: true, requires_admin: true}")
	jwks := `{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"k1","x":"` + base64.RawURLEncoding.EncodeToString(public) + `"}]}`
	s, err = policy.Load(write(t, map[string]string{"profiles.yaml": text, "gateway.jwks": jwks}))
	if err != nil {
		t.Fatal(err)
	}
	return s, func(sub string, admin bool) string {
		claims := jwt.MapClaims{"iss": "https://gateway.example.org", "aud": "broker", "sub": sub, "jti": "j",
			"iat": time.Now().Unix(), "exp": time.Now().Add(time.Minute).Unix()}
		if admin {
			claims["roles"] = []string{"admin"}
		}
		token := jwt.NewWithClaims(jwt.SigningMethodEdDSA, claims)
		token.Header["kid"] = "k1"
		text, err := token.SignedString(key)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
}

// actors are whom gateway has proven, administrators or not, and nobody.
func actors(t *testing.T, s *policy.Snapshot, caller identity.Caller, assertion func(string, bool) string) []identity.Actor {
	t.Helper()
	all := []identity.Actor{{}}
	for _, sub := range anyActor {
		for _, admin := range []bool{false, true} {
			if sub == "" {
				continue
			}
			a, err := s.Directory.Actor(caller, http.Header{"Broker-Actor-Assertion": {assertion(sub, admin)}})
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, a)
		}
	}
	return all
}

// Explain, Trace and Decide give one verdict, whatever servers offer, who is suspended, who
// is an administrator and which zone is asked for. Explain shows all checks up to the
// one that refuses, each with its place where there is one: of what is not suspended,
// the first check, nothing is written.
func TestExplainIsDecide(t *testing.T) {
	s, assertion := signing(t)
	h := policy.NewHolder(s)
	callers := map[string]identity.Caller{}
	for _, c := range []string{"gateway", "lonely", ""} {
		callers[c] = question(t, s, c, "", "", "").Caller
	}
	proven := actors(t, s, callers["gateway"], assertion)
	rng := rand.New(rand.NewPCG(3, 4))
	seen := map[string]int{}
	for range 10_000 {
		if rng.IntN(50) == 0 {
			h.SetOffers(anyOffers(rng))
		}
		if rng.IntN(500) == 0 {
			suspendAny(t, rng, h)
		}
		s := h.Current()
		c := policy.Case{Caller: pick(rng, anyCaller[:2]), Server: pick(rng, anyServer), Tool: pick(rng, anyTool), Zone: pick(rng, []policy.Zone{0, 0, 0, 1, 2, 3, 4})}
		actor, at := pick(rng, proven), pick(rng, anyTime)
		c.Actor, c.Admin = actor.String(), actor.Admin()
		_, err := s.Decide(policy.Question{Caller: callers[c.Caller], Actor: actor, Server: c.Server, Tool: c.Tool, Zone: c.Zone}, at)
		checks, why := s.ExplainCase(c, at)
		if string(reason(err)) != why {
			t.Fatalf("%+v at %v: Decide %v, Explain %q", c, at, err, why)
		}
		want := cmp.Or(s.Directory.Speaks(c.Caller, c.Actor), reason(err)) // a request has to pass both
		if traced, got := s.Trace(c, at); got != want || traced[0].OK != (s.Directory.Speaks(c.Caller, c.Actor) == fault.None) {
			t.Fatalf("%+v at %v: %q is wanted, Trace %q, %+v", c, at, want, got, traced)
		}
		for i, k := range checks {
			if last := i == len(checks)-1; k.OK == (last && why != "") || k.Name == "" || k.OK && (i > 0 && k.Where == "" || k.Value == "") {
				t.Fatalf("check %d of %d for %q: %+v", i, len(checks), why, k)
			}
		}
		seen[why]++
	}
	for _, want := range []fault.Reason{fault.None, fault.Suspended, fault.ToolNotOffered, fault.ToolChanged, fault.AdminRequired,
		fault.ZoneExceeded, fault.NoGrant, fault.GrantDisabled, fault.GrantExpired, fault.AudienceNotAllowed} {
		if seen[string(want)] == 0 {
			t.Errorf("no tuple was %q: %v", want, seen)
		}
	}
}

func pick[T any](rng *rand.Rand, from []T) T { return from[rng.IntN(len(from))] }

// anyOffers has some of the tools of some servers, as they are pinned or not.
func anyOffers(rng *rand.Rand) policy.Offers {
	all := policy.Offers{}
	for _, server := range anyServer {
		if rng.IntN(3) == 0 {
			continue
		}
		all[server] = map[string]policy.Offer{}
		for _, tool := range anyTool {
			if rng.IntN(4) > 0 {
				all[server][tool] = policy.Offer{Pin: pick(rng, []string{looked, looked, another}), Orphaned: rng.IntN(6) == 0, Returned: rng.IntN(6) == 0}
			}
		}
	}
	return all
}

// suspendAny suspends one of the actors, servers or the profile, or lifts that again.
func suspendAny(t *testing.T, rng *rand.Rand, h *policy.Holder) {
	t.Helper()
	if standing := h.Current().Suspensions(now); len(standing) > 0 {
		if _, _, err := h.Lift(standing[0].ID, now, func(policy.Suspension) error { return nil }); err != nil {
			t.Fatal(err)
		}
		return
	}
	s := policy.Suspension{ID: "x", Since: now, Target: pick(rng, []policy.Target{{Sort: "actor", Name: "user:8"}, {Sort: "server", Name: "odd"}, {Sort: "profile", Name: "company"}})}
	if _, _, err := h.Suspend(s, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
}

// Offline, what servers offer decides nothing, and everything else what it does.
func TestOfflineLooksAtNoOffers(t *testing.T) {
	s, _ := signing(t)
	for _, c := range anyCase() {
		checks, online := s.ExplainCase(c, now)
		c.Offline = true
		offline, why := s.ExplainCase(c, now)
		switch fault.Reason(online) {
		case fault.ToolNotOffered, fault.ToolChanged:
			if w := fault.Reason(why); w == fault.ToolNotOffered || w == fault.ToolChanged || offline[len(checks)-1].Value != "not looked at: the file does not say" {
				t.Errorf("%+v: %+v", c, offline)
			}
		default:
			if why != online {
				t.Errorf("%+v: %q, online %q", c, why, online)
			}
		}
	}
}

func anyCase() (all []policy.Case) {
	for _, caller := range anyCaller {
		for _, actor := range anyActor {
			for _, server := range anyServer {
				for _, tool := range anyTool {
					for _, admin := range []bool{false, true} {
						all = append(all, policy.Case{Caller: caller, Actor: actor, Server: server, Tool: tool, Admin: admin})
					}
				}
			}
		}
	}
	return all
}

func FuzzLoad(f *testing.F) {
	f.Add(config(f), "")
	f.Add(config(f, "response: {token_format: jwt}", "response: {token_format: jwt}\n    grants_files: [a.jsonl]"),
		`{"actor":"user:1","enabled":true,"credential":"vault:a/b#c","allowed_audiences":["mcp-api"],"allowed_scopes":["records.read"]}`)
	f.Add("a: &x [*x]\n", "{}")
	f.Add("? [a]\n: {<<: b}\n---\n", "null")
	path := write(f, nil)
	f.Fuzz(func(t *testing.T, text, grants string) {
		for name, text := range map[string]string{"profiles.yaml": text, "a.jsonl": grants} {
			if err := os.WriteFile(filepath.Join(filepath.Dir(path), name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		s, err := policy.Load(path)
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("Load took %v", took)
		}
		if (s == nil) != (err != nil) {
			t.Fatalf("Load = %v, %v", s, err)
		}
		if err != nil {
			problems(t, path)
			return
		}
		for _, v := range s.Servers() { // total on whatever was accepted
			for tool := range v.Tools {
				s.Explain("gateway", "user:7", v.ID, tool, now)
			}
		}
	})
}

func FuzzEndpoint(f *testing.F) {
	for _, s := range []string{"https://records.example.org/mcp", "https://[::1]:8443/", "https://127.0.0.1", "http://localhost:1/x", "https://a.b/%2e%2e"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		u, what := policy.Endpoint(s, []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")})
		switch {
		case what != "":
		case u.String() != s:
			t.Errorf("%q was accepted as %q", s, u)
		case strings.ToLower(u.Host) != u.Host, u.User != nil, u.RawQuery != "", u.Fragment != "", strings.HasSuffix(u.Hostname(), "."):
			t.Errorf("%q was accepted", s)
		}
	})
}

// Endpoints, one by one: what is accepted comes back unchanged.
func TestEndpoint(t *testing.T) {
	local := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	for s, accepted := range map[string]bool{
		"https://records.example.org/mcp":                          true,
		"https://records.example.org":                              true,
		"https://records.example.org:8443/mcp":                     true,
		"https://192.0.2.1/mcp":                                    true, // whether it may be dialled is for egress
		"https://[2001:db8::1]:443/mcp":                            true,
		"http://127.0.0.1:8080/mcp":                                true,
		"http://127.1.2.3/mcp":                                     true,
		"http://[::1]:8080/mcp":                                    true,
		"http://localhost:8080/mcp":                                true,
		"https://xn--bcher-kva.example/mcp":                        true,
		"https://records.example.org/a%20b":                        true,
		"http://records.example.org/mcp":                           false,
		"http://10.0.0.1/mcp":                                      false,
		"http://localhost.example.org/mcp":                         false,
		"ftp://records.example.org/mcp":                            false,
		"records.example.org/mcp":                                  false,
		"//records.example.org/mcp":                                false,
		"https:records.example.org":                                false,
		"https://":                                                 false,
		"HTTPS://records.example.org/mcp":                          false,
		"https://Records.example.org/mcp":                          false,
		"https://records.example.org./mcp":                         false,
		"https://records..example.org/mcp":                         false,
		"https://-records.example.org/mcp":                         false,
		"https://rec_ords.example.org/mcp":                         false,
		"https://bücher.example/mcp":                               false,
		"https://user@records.example.org/mcp":                     false,
		"https://user:pw@records.example.org/":                     false,
		"https://records.example.org/mcp?":                         false,
		"https://records.example.org/mcp?a=b":                      false,
		"https://records.example.org/mcp#":                         false,
		"https://records.example.org/mcp#a":                        false,
		"https://records.example.org:/mcp":                         false,
		"https://records.example.org:0/mcp":                        false,
		"https://records.example.org:0443/mcp":                     false,
		"https://records.example.org:65536/mcp":                    false,
		"https://records.example.org:https/mcp":                    false,
		"https://2130706433/mcp":                                   false,
		"https://0x7f.1/mcp":                                       false,
		"https://0x7f000001/mcp":                                   false,
		"https://127.1/mcp":                                        false,
		"https://127.0.0.01/mcp":                                   false,
		"https://[::1%25eth0]/mcp":                                 false,
		"https://[0:0:0:0:0:0:0:1]/mcp":                            false,
		"https://[2001:DB8::1]/mcp":                                false,
		"https://[127.0.0.1]/mcp":                                  false,
		"https://records.example.org/a b":                          false,
		"https://records.example.org/" + strings.Repeat("a", 2048): false,
	} {
		u, what := policy.Endpoint(s, local)
		if (what == "") != accepted || accepted && u.String() != s {
			t.Errorf("%q: %q, want accepted %v", s, what, accepted)
		}
	}
	if _, what := policy.Endpoint("http://127.0.0.1:8080/mcp", nil); what == "" {
		t.Error("http to loopback is accepted without allow_cidrs")
	}
}

// many writes base, changed, with n grants in a file of their own.
func many(t testing.TB, n int, oldnew ...string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"actor":"user:n%d","enabled":true,"credential":"vault:kv/broker/subjects/n%d#token","allowed_audiences":["mcp-api"],"allowed_scopes":["records.read"],"expires":"2027-03-31","reason":"SEC-%d"}`+"\n", i, i, i)
	}
	return write(t, map[string]string{
		"profiles.yaml":  config(t, append(oldnew, "response: {token_format: jwt}", "response: {token_format: jwt}\n    grants_files: [grants/*.jsonl]")...),
		"grants/a.jsonl": b.String(),
	})
}

func BenchmarkLoad(b *testing.B) {
	const n = 100_000
	path := many(b, n)
	var before, after runtime.MemStats
	for b.Loop() {
		runtime.GC()
		runtime.ReadMemStats(&before)
		s, err := policy.Load(path)
		if err != nil {
			b.Fatal(err)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		runtime.KeepAlive(s)
	}
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/n, "B/grant")
}

func BenchmarkDecide(b *testing.B) {
	for _, n := range []int{1, 100_000} {
		s, err := policy.Load(many(b, n))
		if err != nil {
			b.Fatal(err)
		}
		q := question(b, s, "gateway", "user:7", "records", "search")
		b.Run(fmt.Sprintf("grants=%d", n), func(b *testing.B) {
			for b.Loop() {
				if _, err := s.Decide(q, now); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// 10,000 grants in the YAML itself are a file that loads.
func TestLoadManyGrantsInYAML(t *testing.T) {
	var b strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&b, "      \"user:n%d\": {enabled: true, credential: \"vault:kv/broker/subjects/n%d#token\", allowed_audiences: [mcp-api], allowed_scopes: [records.read]}\n", i, i)
	}
	path := write(t, map[string]string{"profiles.yaml": config(t, "    grants:\n", "    grants:\n"+b.String())})
	if _, err := policy.Load(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Clean(path)); err != nil {
		t.Fatal(err)
	}
}
