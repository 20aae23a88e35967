package policy_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"onbehalf.internal/broker/policy"
)

// TestDiff: each row changes one thing and says what became of the grants. More
// conditions are narrower, fewer are wider, and what is another is both: wider.
func TestDiff(t *testing.T) {
	const (
		seven     = "\n      \"user:7\":\n        enabled: true\n        credential: \"vault:kv/broker/subjects/7#token\"\n        allowed_audiences: [mcp-api]\n        allowed_scopes: [records.read]\n        expires: 2027-03-31\n"
		expiry    = "        expires: 2027-03-31\n"
		cred7     = `"vault:kv/broker/subjects/7#token"`
		search    = "search: {enabled: true, effect: read}"
		listed    = "servers: [records, inert, off, asking, secrets, odd, static]"
		scopes7   = "allowed_scopes: [records.read]\n" + expiry
		audience7 = "allowed_audiences: [mcp-api]\n        " + scopes7
		records   = "url: https://records.example.org/mcp\n    enabled: true\n    data_class: internalConfiguration\n    requires_approval: false"
	)
	type change struct{ old, new string }
	pinned := func(pin string) string { return `search: {enabled: true, effect: read, pin: "` + pin + `"}` }
	for name, r := range map[string]struct {
		base    []string // what both files have
		change  change
		widens  []string // kind, actor, what was gained; the other way round it was lost
		narrows []string // the same, the other way round
	}{
		"scope": {nil, change{scopes7, "allowed_scopes: [records.read, records.write]\n" + expiry}, []string{"widened user:7 + scope records.write"}, nil},
		"audience, and the server that it opens": {[]string{"audience: other-api, scopes: [records.read, records.write]", "audience: other-api, scopes: [records.read]"},
			change{audience7, "allowed_audiences: [mcp-api, other-api]\n        " + scopes7},
			[]string{"widened user:7 + audience other-api, odd at https://odd.example.org/mcp, odd audience other-api, odd scope records.read, " +
				"odd/search by gateway, odd/search definition any, odd/search without an administrator, odd/search without approval, tool odd/search"}, nil},
		"enabled":     {nil, change{"\"user:8\":\n        enabled: false", "\"user:8\":\n        enabled: true"}, []string{"widened user:8 + grant enabled"}, nil},
		"a later end": {nil, change{expiry, "        expires: 2027-04-01\n"}, []string{"widened user:7 + until 2027-04-01"}, []string{"narrowed user:7 - until 2027-04-01"}},
		"no end":      {nil, change{expiry, ""}, []string{"widened user:7 + until any"}, []string{"narrowed user:7 - until any"}},
		"any subject": {nil, change{cred7, cred7 + "\n        subject: \"7\""}, []string{"narrowed user:7 - subject any"}, []string{"widened user:7 + subject any"}},
		"another subject": {[]string{cred7, cred7 + "\n        subject: \"7\""}, change{"subject: \"7\"", "subject: any"},
			[]string{"widened user:7 + subject any - subject 7"}, []string{"widened user:7 + subject 7 - subject any"}},
		"another credential": {nil, change{cred7, `"vault:kv/broker/subjects/root#token"`},
			[]string{"widened user:7 + credential vault:kv/broker/subjects/root#token - credential vault:kv/broker/subjects/7#token"},
			[]string{"widened user:7 + credential vault:kv/broker/subjects/7#token - credential vault:kv/broker/subjects/root#token"}},
		"another token endpoint": {nil, change{"https://identity.example.org/oauth/token", "https://other.example.org/oauth/token"},
			both("widened %s + token endpoint https://other.example.org/oauth/token - token endpoint https://identity.example.org/oauth/token"),
			both("widened %s + token endpoint https://identity.example.org/oauth/token - token endpoint https://other.example.org/oauth/token")},
		"another address": {nil, change{"https://records.example.org/mcp", "https://other.example.org/mcp"},
			both("widened %s + records at https://other.example.org/mcp - records at https://records.example.org/mcp"),
			both("widened %s + records at https://records.example.org/mcp - records at https://other.example.org/mcp")},
		"a tool": {nil, change{"purge: {enabled: false}", "purge: {enabled: true}"},
			both("widened %s + records/purge by gateway, records/purge definition any, records/purge without an administrator, records/purge without approval, tool records/purge"), nil},
		"approval": {nil, change{"    requires_approval: false\n    auth: {mode: delegated, profile: company, audience: mcp-api", "    auth: {mode: delegated, profile: company, audience: mcp-api"},
			both("narrowed %s - records/search without approval, records/slow without approval"),
			both("widened %s + records/search without approval, records/slow without approval")},
		"an administrator": {nil, change{search, "search: {enabled: true, effect: read, requires_admin: true}"},
			both("narrowed %s - records/search by gateway, records/search without an administrator"),
			both("widened %s + records/search by gateway, records/search without an administrator")},
		"a pin": {nil, change{search, pinned(looked)}, both("narrowed %s - records/search definition any"), both("widened %s + records/search definition any")},
		"another pin": {[]string{search, pinned(looked)}, change{looked, another},
			both("widened %s + records/search definition " + another + " - records/search definition " + looked),
			both("widened %s + records/search definition " + looked + " - records/search definition " + another)},
		"a caller's list": {nil, change{listed, strings.Replace(listed, "records, ", "", 1)},
			both("narrowed %s - records/search by gateway, records/slow by gateway"), both("widened %s + records/search by gateway, records/slow by gateway")},
		"a caller's word": {nil, change{`"user:7", "user:8", "user:9"`, `"user:8", "user:9"`},
			[]string{"narrowed user:7 - asking/search by gateway, records/search by gateway, records/slow by gateway"},
			[]string{"widened user:7 + asking/search by gateway, records/search by gateway, records/slow by gateway"}},
		"a caller's zone": {nil, change{"zone: externalEu", "zone: externalGlobal"},
			both("narrowed %s - records/search by gateway, records/slow by gateway"), both("widened %s + records/search by gateway, records/slow by gateway")},
		"what the server asks for": {[]string{scopes7, "allowed_scopes: [records.read, records.write]\n" + expiry},
			change{"scopes: [records.read], discovery", "scopes: [records.read, records.write], discovery"},
			[]string{"widened user:7 + records scope records.write",
				"narrowed user:8 - records at https://records.example.org/mcp, records audience mcp-api, records scope records.read, records/search by gateway, records/search definition any, " +
					"records/search without an administrator, records/search without approval, records/slow by gateway, records/slow definition any, records/slow without an administrator, " +
					"records/slow without approval, tool records/search, tool records/slow"}, nil},
		"a grant":      {nil, change{seven, "\n"}, []string{"removed user:7 -"}, []string{"added user:7 +"}},
		"a server off": {nil, change{records, strings.Replace(records, "enabled: true", "enabled: false", 1)}, []string{"narrowed user:7 -", "narrowed user:8 -"}, []string{"widened user:7 +", "widened user:8 +"}},
		"words":        {nil, change{expiry, expiry + "        reason: SEC-1\n        since: 2026-01-01\n        approved_by: ann\n"}, []string{}, []string{}},
		"effect":       {nil, change{search, "search: {enabled: true, effect: write}"}, []string{}, []string{}},
	} {
		before := config(t, r.base...)
		if strings.Count(before, r.change.old) != 1 {
			t.Fatalf("%s: %q is there %d times", name, r.change.old, strings.Count(before, r.change.old))
		}
		after := strings.Replace(before, r.change.old, r.change.new, 1)
		checkDiff(t, name, load(t, before), load(t, after), r.widens)
		checkDiff(t, name+", undone", load(t, after), load(t, before), r.narrows)
		checkDiff(t, name+", unchanged", load(t, after), load(t, after), []string{})
	}
}

// both is a line for each of the two grants.
func both(line string) []string {
	return []string{strings.Replace(line, "%s", "user:7", 1), strings.Replace(line, "%s", "user:8", 1)}
}

// checkDiff compares the changes with the wanted ones; a wanted one that ends in + or -
// says nothing of what follows, nil wants what the other way round says.
func checkDiff(t *testing.T, name string, before, after *policy.Snapshot, want []string) {
	t.Helper()
	var got []string
	for c := range policy.Diff(before, after) {
		got = append(got, changed(c))
	}
	if want == nil {
		for c := range policy.Diff(after, before) {
			want = append(want, strings.NewReplacer("widened", "narrowed", "narrowed", "widened", " + ", " - ", " - ", " + ").Replace(changed(c)))
		}
	}
	same := slices.EqualFunc(want, got, func(w, g string) bool {
		return w == g || strings.HasSuffix(w, " +") && strings.HasPrefix(g, w) || strings.HasSuffix(w, " -") && strings.HasPrefix(g, w)
	})
	if !same {
		t.Errorf("%s:\n%s", name, cmp.Diff(want, got))
	}
}

func changed(c policy.Change) string {
	s := string(c.Kind) + " " + c.Actor
	if c.Gained != nil {
		s += " + " + strings.Join(c.Gained, ", ")
	}
	if c.Lost != nil {
		s += " - " + strings.Join(c.Lost, ", ")
	}
	return s
}

// TestDiffNamesBothLines: a change is found in both files.
func TestDiffNamesBothLines(t *testing.T) {
	before := load(t, config(t, "\n      \"user:8\":\n        enabled: false\n        credential: \"vault:kv/broker/subjects/8#token\"\n        allowed_audiences: [mcp-api]\n        allowed_scopes: [records.read]", ""))
	after := load(t, config(t, "profiles:\n", "\nprofiles:\n", "        expires: 2027-03-31\n", ""))
	seven := func(s *policy.Snapshot) string { g, _ := s.Grant("company", "user:7"); return g.Where }
	eight, _ := after.Grant("company", "user:8")
	got := map[string][2]string{}
	for c := range policy.Diff(before, after) {
		got[c.Actor] = [2]string{c.Old, c.New}
	}
	want := map[string][2]string{"user:7": {seven(before), seven(after)}, "user:8": {"", eight.Where}}
	if diff := cmp.Diff(want, got); diff != "" || seven(before) == seven(after) {
		t.Error(diff)
	}
}

// TestWider: what makes a check of a change fail.
func TestWider(t *testing.T) {
	for kind, want := range map[policy.ChangeKind]bool{policy.Added: true, policy.Widened: true, policy.Removed: false, policy.Narrowed: false} {
		if kind.Wider() != want {
			t.Errorf("%s: %v", kind, !want)
		}
	}
}

func BenchmarkDiff(b *testing.B) {
	before, err := policy.Load(many(b, 100_000))
	if err != nil {
		b.Fatal(err)
	}
	after, err := policy.Load(many(b, 100_000, "purge: {enabled: false}", "purge: {enabled: true}"))
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		for range policy.Diff(before, after) {
		}
	}
}
