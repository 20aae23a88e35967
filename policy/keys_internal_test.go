package policy

import (
	"crypto/sha256"
	flags "flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flags.Bool("update", false, "write docs/reference.md")

// everywhere opens every mapping that there is, each in all of its forms; step is a step of
// an exchange. It does not load, since no one file can say all of it; but no key of it
// is unknown.
const everywhere = `version: 1
listen: {api: "127.0.0.1:1"}
vault: {auth: {method: approle}, hold: {role: r}}
store: {path: b}
operation: {timeout: 1s}
stop: {drain: 1s}
keys: {results: "file:k"}
audit: {heads: stdout}
ui: {origin: "https://b.example"}
mcp: {origin: "https://b.example"}
traces: {otlp: "https://c.example"}
callers:
  program: {roles: [operate], actors: {signed: {admin: {claim: c}}}, approvers: {admin: {claim: c}}}
  people: {roles: [audit, approve], sign_in: {audit: {claim: c}, approve: {claim: c}, admin: {claim: c}}}
  desks: {roles: [operate], tokens: {admin: {claim: c}}}
profiles:
  first: {allowed_scopes: [s], STEP, grants_files: ["*.jsonl"], grants: {"user:1": {credential: {refresh_token: r}}, "user:2": {credential: {vault_oidc: {role: r}}}, "user:3": {credential: x}}}
  second: {allowed_scopes: [s], STEP, then: {STEP}}
  third: {OTHER, then: {OTHER}}
servers:
  one: {url: "https://a", auth: {mode: delegated}, approval: {expires: 1m}, import: {every: 1m}, probe: {every: 1m}, limits: {body: 1},
    recovery: {tool: t}, tools: {t: {enabled: true, request_key: {window: 1m}}}}
  two: {auth: {mode: legacy, credential: "vault:kv/a#b", placement: header}}
`

const (
	stepOf = `client: {auth: private_key_jwt, key: "vault:kv/a#b"}, actor: {source: stored}, introspection: {endpoint: "https://a"},
    revoke: {mode: best_effort}, response: {token_format: jwt_verified}, extra_params: {p: v}`
	besides   = `audit: {sink: "file:s"}` // the forms of what can be there once
	otherStep = `client: {auth: mtls}, actor: {source: client_credentials}, response: {token_format: jwt}`
)

// learned is what the loader knows, by shape.
func learned(t *testing.T) map[string]*known {
	t.Helper()
	dir := t.TempDir()
	all := strings.NewReplacer("STEP", stepOf, "OTHER", otherStep).Replace(everywhere)
	for name, text := range map[string]string{"everywhere.yaml": all, "besides.yaml": besides, "a.jsonl": `{"actor":"user:4"}` + "\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l := &loader{dir: dir, files: map[string][]byte{}, lists: map[string][]string{}, sum: sha256.New(), keys: map[string]*known{}}
	l.snapshot("everywhere.yaml")
	l.snapshot("besides.yaml")
	for _, p := range l.problems {
		if strings.Contains(p.Text, "known key") || strings.Contains(p.Text, notYAML) {
			t.Fatal(p)
		}
	}
	delete(l.keys, "")
	maps.DeleteFunc(l.keys, func(shape string, _ *known) bool { return strings.Contains(shape, ".extra_params.") })
	return l.keys
}

// TestReference: docs/reference.md has every key that the loader knows, with what it holds
// it to and what keys.txt says of it, and no other.
// go test ./policy -run TestReference -update writes it.
func TestReference(t *testing.T) {
	keys, meanings := learned(t), readMeanings(t)
	for shape, k := range keys {
		switch {
		case len(k.values) == 0 && k.sections == 0:
			t.Errorf("%s is known, and nothing was read of it: everywhere has no mapping in which it is", shape)
		case slices.Contains(k.values, string(mapping)) && k.sections == 0:
			t.Errorf("%s is a mapping, and everywhere does not open it", shape)
		}
		if _, said := meanings[plain(shape)]; !said && !strings.HasSuffix(shape, "<name>") {
			t.Errorf("%s has no meaning in keys.txt", shape)
		}
	}
	for shape := range meanings {
		if keys[shape] == nil {
			t.Errorf("%s is in keys.txt, and no key", shape)
		}
	}
	if t.Failed() {
		return
	}
	page, want := "../docs/reference.md", reference(keys, meanings)
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(page); err != nil || string(got) != want {
		t.Errorf("%s is not what the loader knows (%v): go test ./policy -run TestReference -update", page, err)
	}
}

// plain is where the meaning of a key stands: the second step of two has the keys of the
// first.
func plain(shape string) string {
	if rest, ok := strings.CutPrefix(shape, "profiles.<name>.then."); ok {
		return "profiles.<name>." + rest
	}
	return shape
}

// readMeanings reads keys.txt: a shape, a tab and what the key means, a line each.
func readMeanings(t *testing.T) map[string]string {
	t.Helper()
	raw, err := os.ReadFile("keys.txt")
	if err != nil {
		t.Fatal(err)
	}
	meanings := map[string]string{}
	for line := range strings.Lines(string(raw)) {
		shape, meaning, ok := strings.Cut(strings.TrimSpace(line), "\t")
		if _, twice := meanings[shape]; !ok || twice || meaning == "" {
			t.Fatalf("keys.txt: %q", line)
		}
		meanings[shape] = meaning
	}
	return meanings
}

// reference writes the page: a table for each mapping.
func reference(keys map[string]*known, meanings map[string]string) string {
	var b strings.Builder
	b.WriteString(`# Every key of profiles.yaml

Made from what the loader asks for: ` + "`go test ./policy -run TestReference -update`" + `. What it holds a value to is in the words of its own refusal. What one key
demands of another, ` + "`broker check`" + ` says; a whole example is configs/profiles.yaml. ` + "`<name>`" + ` is a name of yours.
`)
	section := "-"
	for _, shape := range slices.SortedFunc(maps.Keys(keys), byMapping) {
		parent, key := parentOf(shape)
		if key == "<name>" {
			continue
		}
		if parent != section {
			section = parent
			title := "The top level"
			if parent != "" {
				title = "`" + parent + "`"
			}
			fmt.Fprintf(&b, "\n## %s\n\n| key | value | without it | meaning |\n|---|---|---|---|\n", title)
		}
		k := keys[shape]
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", key, cell(k.values), k.without(keys[parent]), meanings[plain(shape)])
	}
	return b.String()
}

func parentOf(shape string) (parent, key string) {
	i := strings.LastIndex(shape, ".")
	return shape[:max(i, 0)], shape[i+1:]
}

func byMapping(a, b string) int {
	parentA, keyA := parentOf(a)
	parentB, keyB := parentOf(b)
	if parentA == parentB {
		return strings.Compare(keyA, keyB)
	}
	return strings.Compare(parentA, parentB)
}

// cell says what may be written, in words that go on from "must be".
func cell(values []string) string {
	var kinds, rules []string
	for _, v := range values {
		rule := strings.TrimPrefix(strings.Replace(v, "is not among", "among", 1), "must be ")
		if v == string(list) || v == string(mapping) || v == string(text) && len(values) == 1 {
			kinds = append(kinds, v)
		} else if v != string(text) {
			rules = append(rules, rule)
		}
	}
	said := strings.Join(slices.DeleteFunc([]string{strings.Join(kinds, " or "), strings.Join(rules, "; or ")}, func(s string) bool { return s == "" }), ": ")
	return strings.NewReplacer("|", `\|`, "<", "&lt;").Replace(said)
}

// without says what holds where the key is not there.
func (k *known) without(in *known) string {
	switch {
	case k.needed > 0 && (in == nil || k.needed >= in.sections):
		return "**refused**"
	case k.needed > 0:
		return "refused in some forms"
	case len(k.absent) == 0:
		return "–"
	}
	var quoted []string
	for _, a := range k.absent {
		quoted = append(quoted, fmt.Sprintf("`%q`", a))
	}
	return strings.ReplaceAll(strings.Join(quoted, ", "), `"`, "")
}
