package policy_test

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.yaml.in/yaml/v4"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/policy"
)

// reviewed is base with what a reviewer asks about: a grant of another profile, one
// that has expired, servers that need approval or an administrator, and a caller
// that signs.
func reviewed(t testing.TB) *policy.Snapshot {
	t.Helper()
	text := config(t,
		"  lonely:\n", `  portal:
    roles: [operate]
    bearer_sha256: ["`+sha256Hex("portal")+`"]
    actors: {signed: {issuer: https://portal.example.org, jwks: portal.jwks, audience: broker, subjects: ["user:"], admin: {claim: roles, value: admin}}}
    servers: [records, static]
    zone: local
  lonely:
`,
		"slow: {enabled: true, timeout: 3m}", `slow: {enabled: true, requires_admin: true, pin: "`+looked+`"}`,
		"servers:\n  records", `  other:
    token_endpoint: https://other.example.org/token
    client: {id: broker, auth: basic, key: "vault:kv/broker/other#key"}
    allowed_audiences: [mcp-api]
    allowed_scopes: [records.read]
    response: {token_format: jwt}
    grants:
      "user:7": {enabled: true, credential: "vault:kv/broker/other/7#token", allowed_audiences: [mcp-api], allowed_scopes: [records.read]}
  wide:
    token_endpoint: https://wide.example.org/token
    client: {id: broker, auth: basic, key: "vault:kv/broker/wide#key"}
    allowed_audiences: [wide-api]
    allowed_scopes: [all]
    response: {token_format: jwt}
    grants_files: [wide.jsonl]
servers:
  wide:
    url: https://wide.example.org/mcp
    enabled: true
    data_class: publicContent
    requires_approval: false
    auth: {mode: delegated, profile: wide, audience: wide-api, scopes: [all]}
    tools: {get: {enabled: true, effect: read}, put: {enabled: false}}
  records`,
		"servers: [records, inert, off, asking, secrets, odd, static]", "servers: [records, inert, off, asking, secrets, odd, static, wide]")
	s, err := policy.Load(write(t, map[string]string{"profiles.yaml": text, "portal.jwks": sampleKeys(t), "wide.jsonl": `{"actor":"user:9","enabled":true,"credential":"vault:kv/broker/wide/9#token","allowed_audiences":["wide-api"],"allowed_scopes":["all"],"expires":"2026-11-30","since":"2026-01-02","approved_by":"ann","reason":"SEC-9"}
{"actor":"service:nightly","enabled":true,"credential":"vault:kv/broker/wide/n#token","allowed_audiences":["wide-api"],"allowed_scopes":["all"],"expires":"2026-12-01"}
{"actor":"user:ghost","enabled":true,"credential":"vault:kv/broker/wide/g#token","allowed_audiences":["wide-api"],"allowed_scopes":["all"]}
`}))
	if err != nil {
		t.Fatalf("Load:\n%v", err)
	}
	return s
}

// short is a row as the tables below have it.
func short(r policy.Row) string {
	marks := ""
	for mark, is := range map[string]bool{" approval": r.Approval, " admin": r.Admin} {
		if is {
			marks += mark
		}
	}
	return strings.TrimRight(fmt.Sprintf("%s by %v via %s: %s/%s %s%s", r.Actor, r.Callers, r.Profile, r.Server, r.Tool, r.Status, marks)+" "+r.Why, " ")
}

func shorts(rows iter.Seq[policy.Row]) (all []string) {
	for r := range rows {
		all = append(all, short(r))
	}
	return all
}

// TestList: each grant at each tool that it opens, by whoever can use it, sorted. What
// is disabled or has expired is there and marked, and so is what opens nothing.
func TestList(t *testing.T) {
	s := reviewed(t)
	const (
		nightly = "service:nightly by [gateway] via wide: wide/get active"
		asking  = "user:7 by [gateway] via company: asking/search active approval"
		search  = "user:7 by [gateway portal] via company: records/search active"
		slow    = "user:7 by [portal] via company: records/slow active admin" // gateway proves no administrator
		other   = "user:7 by [] via other: / active"                          // no server uses the profile
		asking8 = "user:8 by [gateway] via company: asking/search disabled approval"
		search8 = "user:8 by [gateway portal] via company: records/search disabled"
		slow8   = "user:8 by [portal] via company: records/slow disabled admin"
		wide    = "user:9 by [gateway] via wide: wide/get expired"
		ghost   = "user:ghost by [] via wide: wide/get active" // nobody speaks for it
	)
	for name, r := range map[string]struct {
		f    policy.Filter
		want []string
	}{
		"all":        {policy.Filter{}, []string{nightly, asking, search, slow, other, asking8, search8, slow8, wide, ghost}},
		"an actor":   {policy.Filter{Actor: "user:7"}, []string{asking, search, slow, other}},
		"a profile":  {policy.Filter{Profile: "other"}, []string{other}},
		"a server":   {policy.Filter{Server: "records"}, []string{search, slow, search8, slow8}},
		"a tool":     {policy.Filter{Tool: "search"}, []string{asking, search, asking8, search8}},
		"everything": {policy.Filter{Actor: "user:8", Profile: "company", Server: "records", Tool: "slow"}, []string{slow8}},
		"nobody":     {policy.Filter{Actor: "user:"}, nil},
	} {
		if diff := cmp.Diff(r.want, shorts(s.List(r.f, now))); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
	for r := range s.List(policy.Filter{}, now) { // whoever stops reading stops the list
		if short(r) != nightly {
			t.Error("not the first")
		}
		break
	}
}

// TestRow: every field, of a row with a tool and of one without.
func TestRow(t *testing.T) {
	s := reviewed(t)
	expired := slices.Collect(s.List(policy.Filter{Actor: "user:9"}, now))
	idle := slices.Collect(s.List(policy.Filter{Profile: "other"}, now))
	g, _ := s.Grant("other", "user:7")
	for _, r := range []struct{ want, got []policy.Row }{
		{[]policy.Row{{Actor: "user:9", Callers: []string{"gateway"}, Profile: "wide", Credential: "vault:kv/broker/wide/9#token", Server: "wide",
			Audiences: []string{"wide-api"}, Scopes: []string{"all"}, Tool: "get", Effect: "read", DataClass: "publicContent", Since: "2026-01-02",
			ApprovedBy: "ann", Reason: "SEC-9", Expires: "2026-11-30", Enabled: true, Status: policy.Expired, Where: "wide.jsonl:1"}}, expired},
		{[]policy.Row{{Actor: "user:7", Profile: "other", Credential: "vault:kv/broker/other/7#token", Audiences: []string{"mcp-api"},
			Scopes: []string{"records.read"}, Enabled: true, Status: policy.Active, Where: g.Where}}, idle},
	} {
		if diff := cmp.Diff(r.want, r.got); diff != "" {
			t.Error(diff)
		}
	}
}

// The order of keys and of lists changes the lines that a list names, and nothing else.
func TestOrderListsNothingElse(t *testing.T) {
	list := func(s *policy.Snapshot) (rows []policy.Row) {
		for r := range s.List(policy.Filter{}, now) {
			r.Where = ""
			rows = append(rows, r)
		}
		return rows
	}
	var tree yaml.Node
	if err := yaml.Load([]byte(config(t)), &tree); err != nil {
		t.Fatal(err)
	}
	want := list(load(t, config(t)))
	rng := rand.New(rand.NewPCG(5, 6))
	for range 8 {
		shuffle(rng, &tree)
		text, err := yaml.Dump(&tree)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, list(load(t, string(text)))); diff != "" || len(want) == 0 {
			t.Fatalf("%d rows, other ones from\n%s\n%s", len(want), text, diff)
		}
	}
}

// TestWhoCan: everybody who may call the tool now, and by which caller. A legacy
// server takes everybody for whom a caller speaks.
func TestWhoCan(t *testing.T) {
	s := reviewed(t)
	later := now.AddDate(1, 0, 0)
	for _, r := range []struct {
		server, tool string
		at           time.Time
		want         []string
	}{
		{"records", "search", now, []string{"user:7 by [gateway portal] via company: records/search active"}},
		{"records", "slow", now, []string{"user:7 by [portal] via company: records/slow active admin"}},
		{"records", "search", later, nil}, // expired by then
		{"records", "purge", now, nil},
		{"records", "nothing", now, nil},
		{"nowhere", "search", now, nil},
		{"asking", "search", now, []string{"user:7 by [gateway] via company: asking/search active approval"}}, // it may ask
		{"secrets", "search", now, nil},
		{"wide", "get", now, []string{"service:nightly by [gateway] via wide: wide/get active"}}, // user:9 has expired, nobody speaks for the ghost
		{"static", "search", now, []string{
			"service:nightly by [gateway] via : static/search no grant needed",
			"user: by [portal] via : static/search no grant needed",
			"user:7 by [gateway portal] via : static/search no grant needed",
			"user:8 by [gateway portal] via : static/search no grant needed",
			"user:9 by [gateway portal] via : static/search no grant needed",
		}},
	} {
		if diff := cmp.Diff(r.want, shorts(s.WhoCan(policy.Filter{Server: r.server, Tool: r.tool}, r.at))); diff != "" {
			t.Errorf("%s/%s at %v:\n%s", r.server, r.tool, r.at, diff)
		}
	}
}

// TestCan: every tool that the actor may be the cause of, whoever asks or one caller.
func TestCan(t *testing.T) {
	s := reviewed(t)
	for _, r := range []struct {
		caller, actor string
		want          []string
	}{
		{"", "user:7", []string{
			"user:7 by [gateway] via company: asking/search active approval",
			"user:7 by [gateway portal] via company: records/search active",
			"user:7 by [portal] via company: records/slow active admin",
			"user:7 by [gateway portal] via : static/search no grant needed",
		}},
		{"gateway", "user:7", []string{
			"user:7 by [gateway] via company: asking/search active approval",
			"user:7 by [gateway] via company: records/search active",
			"user:7 by [gateway] via : static/search no grant needed",
		}},
		{"lonely", "user:7", nil},
		{"nobody", "user:7", nil},
		{"", "user:ghost", []string{"user:ghost by [portal] via : static/search no grant needed"}},
		{"", "service:other", nil},
	} {
		if diff := cmp.Diff(r.want, shorts(s.Can(r.caller, r.actor, now))); diff != "" {
			t.Errorf("%q for %s:\n%s", r.caller, r.actor, diff)
		}
	}
}

// WhoCan and Can say what Decide says to every caller, actor and tool: nothing is
// left out, and nothing is made up; of the file that a server was never imported for, and of
// a holder with suspensions and offers.
func TestReportsAreDecide(t *testing.T) {
	h := policy.NewHolder(load(t, config(t)))
	rng := rand.New(rand.NewPCG(7, 8))
	total := 0
	for round := range 12 {
		s := h.Current()
		for _, at := range anyTime {
			total += sameAsDecide(t, fmt.Sprint("round ", round, " at ", at), s, at)
		}
		h.SetOffers(anyOffers(rng))
		suspendAny(t, rng, h)
	}
	if s := load(t, config(t)); sameAsDecide(t, "file", s, now) == 0 || total < 50 {
		t.Errorf("%d allowed", total)
	}
}

// sameAsDecide compares what is allowed by gateway, and returns how much that is.
func sameAsDecide(t *testing.T, name string, s *policy.Snapshot, at time.Time) int {
	t.Helper()
	want, who, can := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, server := range anyServer {
		for _, tool := range anyTool {
			for _, actor := range anyActor {
				if _, err := s.Decide(question(t, s, "gateway", actor, server, tool), at); err == nil {
					want[actor+" "+server+" "+tool] = true
				}
			}
			for r := range s.WhoCan(policy.Filter{Server: server, Tool: tool}, at) {
				who[r.Actor+" "+r.Server+" "+r.Tool] = slices.Equal(r.Callers, []string{"gateway"})
			}
		}
	}
	for _, actor := range anyActor {
		for r := range s.Can("gateway", actor, at) {
			can[r.Actor+" "+r.Server+" "+r.Tool] = slices.Equal(r.Callers, []string{"gateway"})
		}
	}
	if diff := cmp.Diff(want, who); diff != "" {
		t.Errorf("%s: WhoCan, %d allowed:\n%s", name, len(want), diff)
	}
	if diff := cmp.Diff(want, can); diff != "" {
		t.Errorf("%s: Can:\n%s", name, diff)
	}
	return len(want)
}

// A list goes on after any of its rows as if it had not been stopped.
func TestAfter(t *testing.T) {
	s := reviewed(t)
	for name, list := range map[string]func(policy.Filter) iter.Seq[policy.Row]{
		"List":    func(f policy.Filter) iter.Seq[policy.Row] { return s.List(f, now) },
		"of user": func(f policy.Filter) iter.Seq[policy.Row] { f.Actor = "user:8"; return s.List(f, now) },
		"Whole":   func(f policy.Filter) iter.Seq[policy.Row] { return s.Whole(f, now) },
		"WhoCan": func(f policy.Filter) iter.Seq[policy.Row] {
			f.Server, f.Tool = "static", "search"
			return s.WhoCan(f, now)
		},
	} {
		all := slices.Collect(list(policy.Filter{}))
		if len(all) < 3 {
			t.Errorf("%s: %d rows", name, len(all))
		}
		for i, row := range all {
			if diff := cmp.Diff(all[i+1:], slices.Collect(list(policy.Filter{After: row.ID()})), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s after %+v:\n%s", name, row.ID(), diff)
			}
		}
	}
}

// What is suspended, or not offered, stays in a list, and says that it is suspended.
func TestSuspendedList(t *testing.T) {
	s := reviewed(t)
	h := policy.NewHolder(s)
	h.SetOffers(policy.Offers{"records": {}})
	for _, target := range []policy.Target{{Sort: "server", Name: "records"}, {Sort: "actor", Name: "service:nightly"}} {
		if _, _, err := h.Suspend(policy.Suspension{ID: target.Name, Since: now, Target: target}, func() error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	want := slices.Collect(s.List(policy.Filter{}, now))
	for i, row := range want {
		if row.Status == policy.Active && (row.Server == "records" || row.Actor == "service:nightly") {
			want[i].Status = policy.Suspended
		}
	}
	if diff := cmp.Diff(want, slices.Collect(h.Current().List(policy.Filter{}, now))); diff != "" {
		t.Error(diff)
	}
	expiring := shorts(h.Current().Expiring(1, now))
	if diff := cmp.Diff([]string{"user:9 by [] via wide: / expired", "service:nightly by [] via wide: / suspended"}, expiring); diff != "" {
		t.Error(diff)
	}
}

// TestExpiring: what has expired comes first, and the last day of the window is
// in it.
func TestExpiring(t *testing.T) {
	s := reviewed(t)
	const (
		gone     = "user:9 by [] via wide: / expired"
		tomorrow = "service:nightly by [] via wide: / active"
		march    = "user:7 by [] via company: / active"
	)
	for days, want := range map[int][]string{
		0: {gone}, 1: {gone, tomorrow}, 120: {gone, tomorrow}, 121: {gone, tomorrow, march}, // 31 March, and noon is past midnight
	} {
		if diff := cmp.Diff(want, shorts(s.Expiring(days, now))); diff != "" {
			t.Errorf("%d days:\n%s", days, diff)
		}
	}
}

// TestOrphaned: what opens nothing, and why. What is disabled itself may still open
// something.
func TestOrphaned(t *testing.T) {
	for name, r := range map[string]struct {
		s    *policy.Snapshot
		want []string
	}{
		"as it is": {reviewed(t), []string{"user:7 by [] via other: / active no server with a tool uses the profile"}},
		"servers off": {load(t, config(t,
			"url: https://records.example.org/mcp\n    enabled: true", "url: https://records.example.org/mcp\n    enabled: false",
			"url: https://asking.example.org/mcp\n    enabled: true\n    data_class: publicContent", "url: https://asking.example.org/mcp\n    enabled: true")),
			func() (want []string) {
				for _, who := range []string{"user:7 by [] via company: / active", "user:8 by [] via company: / disabled"} {
					want = append(want, who+" asking/search: server_inert; odd/search: audience_not_allowed; records/purge: server_disabled; "+
						"records/search: server_disabled; records/slow: server_disabled")
				}
				return want
			}()},
	} {
		if diff := cmp.Diff(r.want, shorts(r.s.Orphaned(now))); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}

// TestSpeaks: the check before the others names the caller's line, and why not.
func TestSpeaks(t *testing.T) {
	s := load(t, config(t))
	for _, r := range []struct {
		caller, actor string
		want          fault.Reason
	}{
		{"gateway", "user:7", fault.None},
		{"lonely", "user:8", fault.ActorNotAllowed},
		{"nobody", "user:7", fault.CallerUnknown},
	} {
		c, reason := s.Speaks(r.caller, r.actor)
		who, known := s.Caller(r.caller)
		if reason != r.want || c.OK != (r.want == fault.None) || known && c.Where != who.Where || c.Value != r.caller+" for "+r.actor {
			t.Errorf("%s for %s: %+v, %q", r.caller, r.actor, c, reason)
		}
	}
}

// A list makes its rows one at a time: before the first one there are no others.
func TestListHoldsNoRows(t *testing.T) {
	s, err := policy.Load(many(t, 2000))
	if err != nil {
		t.Fatal(err)
	}
	rows := s.List(policy.Filter{}, now)
	if got := testing.AllocsPerRun(5, func() {
		for range rows {
			break
		}
	}); got > 500 {
		t.Errorf("%v allocations before the first row", got)
	}
}

// Every actor has a grant for three tools, and a caller that speaks for all of them.
func BenchmarkReports(b *testing.B) {
	path := many(b, 100_000, `asserted: ["user:7", "user:8", "user:9", "service:nightly"]`,
		`signed: {issuer: https://gateway.example.org, jwks: gateway.jwks, audience: broker, subjects: ["user:"]}`)
	if err := os.WriteFile(filepath.Join(filepath.Dir(path), "gateway.jwks"), []byte(sampleKeys(b)), 0o600); err != nil {
		b.Fatal(err)
	}
	s, err := policy.Load(path)
	if err != nil {
		b.Fatal(err)
	}
	for name, rows := range map[string]iter.Seq[policy.Row]{
		"list":     s.List(policy.Filter{}, now),
		"who-can":  s.WhoCan(policy.Filter{Server: "records", Tool: "search"}, now),
		"can":      s.Can("", "user:7", now),
		"expiring": s.Expiring(365, now),
		"orphaned": s.Orphaned(now),
	} {
		b.Run(name, func(b *testing.B) {
			n := 0
			for b.Loop() {
				n = 0
				for range rows {
					n++
				}
			}
			b.ReportMetric(float64(n), "rows")
		})
	}
}
