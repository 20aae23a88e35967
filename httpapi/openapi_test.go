package httpapi

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"onbehalf.internal/broker/fault"
)

// TestOpenAPI: docs/openapi.yaml has exactly the lines of the table, and its
// closed lists are package fault's. What each address answers is held against the
// file by docs/check, which runs a broker.
func TestOpenAPI(t *testing.T) {
	raw, err := os.ReadFile("../docs/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Paths      map[string]map[string]any
		Components struct {
			Schemas map[string]struct{ Enum []string }
		}
	}
	if err := yaml.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}

	var table, written []string
	for _, rt := range new(API).routes() {
		table = append(table, rt.method+" "+strings.ReplaceAll(rt.path, ":id", "{id}"))
	}
	for path, item := range doc.Paths {
		for method := range item {
			if method != "parameters" {
				written = append(written, strings.ToUpper(method)+" "+path)
			}
		}
	}
	same(t, "routes", written, table)

	var reasons, kinds []string
	for _, r := range fault.Reasons() {
		reasons = append(reasons, string(r))
		kinds = append(kinds, string(r.Kind()))
	}
	same(t, "reasons", doc.Components.Schemas["Reason"].Enum, reasons)
	slices.Sort(kinds)
	same(t, "kinds", doc.Components.Schemas["Kind"].Enum, slices.Compact(kinds))
	for _, state := range doc.Components.Schemas["State"].Enum {
		if retry := string((fault.Outcome{State: fault.State(state)}).Retry()); !slices.Contains(doc.Components.Schemas["Retry"].Enum, retry) {
			t.Errorf("state %s has retry %s, which the file does not have", state, retry)
		}
	}
}

func same(t *testing.T, what string, written, ours []string) {
	t.Helper()
	slices.Sort(written)
	slices.Sort(ours)
	if fmt.Sprint(written) != fmt.Sprint(ours) {
		t.Errorf("%s: the file has\n%v\nand we have\n%v", what, written, ours)
	}
}
