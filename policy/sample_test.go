package policy_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v4"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/policy"
)

// sample copies the example out of the repository, whose file modes are
// whatever the checkout made them.
func sample(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("../configs")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"profiles.yaml", "gateway.jwks", "grants/partners.jsonl"} {
		if err := os.Chmod(dir+"/"+name, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir + "/profiles.yaml"
}

func sampleKeys(t testing.TB) string {
	t.Helper()
	b, err := os.ReadFile("../configs/gateway.jwks")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestSampleLoads(t *testing.T) {
	s, err := policy.Load(sample(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []struct {
		actor, server, tool string
		want                fault.Reason
	}{
		{"user:7", "records", "search", fault.None},
		{"user:8", "records", "search", fault.None},
		{"service:nightly", "records", "search", fault.GrantDisabled},
		{"user:7", "records", "purge", fault.ToolDisabled},
		{"user:7", "tickets", "list", fault.None},
	} {
		if _, got := s.Explain("gateway", r.actor, r.server, r.tool, now); got != string(r.want) {
			t.Errorf("%s, %s, %s: %q, want %q", r.actor, r.server, r.tool, got, r.want)
		}
	}
	var actors []string
	for g := range s.Grants("company") {
		actors = append(actors, g.Actor+" "+g.Where)
	}
	example, err := os.ReadFile("../configs/profiles.yaml")
	if err != nil {
		t.Fatal(err)
	}
	before, _, _ := strings.Cut(string(example), "\n      \"user:7\":")
	line := strings.Count(before, "\n") + 2
	want := []string{"service:nightly grants/partners.jsonl:2", fmt.Sprint("user:7 profiles.yaml:", line), "user:8 grants/partners.jsonl:1"}
	if diff := cmp.Diff(want, actors); diff != "" {
		t.Error(diff)
	}
}

// The example says that every key is in it.
func TestSampleHasEveryKey(t *testing.T) {
	example, err := os.ReadFile("../configs/profiles.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var tree yaml.Node
	if err := yaml.Load([]byte(full), &tree); err != nil {
		t.Fatal(err)
	}
	names := []string{"gateway", "company", "plain", "user:7", "records", "tickets", "search", "save", "hint"}
	for _, key := range keysOf(&tree) {
		if !slices.Contains(names, key) && !strings.Contains(string(example), key+":") {
			t.Errorf("%q is not in the example", key)
		}
	}
}

func keysOf(n *yaml.Node) (keys []string) {
	for i, child := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 {
			keys = append(keys, child.Value)
		}
		keys = append(keys, keysOf(child)...)
	}
	return keys
}
