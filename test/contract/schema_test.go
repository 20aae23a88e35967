package contract

import (
	"database/sql"
	"strings"
	"testing"

	"onbehalf.internal/broker/brokertest"
	"onbehalf.internal/broker/fault"
)

// C6
func normalisesASchema(t *testing.T, r *rig) {
	const kept = `"description":"What to find.","properties":{"q":{"type":"string","title":"stays"}},"required":["q"],"additionalProperties":false`
	r.server.lists(tool("search", `{"type":"object","title":"T","$id":"https://peer.example/s","examples":[{"q":"a"}],"x-vendor":{"a":1},`+kept+`}`))
	if got := r.imports(t); got.Imported != 1 {
		t.Errorf("%+v", got)
	}
	if got, want := string(r.kept(t)["search"].Schema), `{"type":"object",`+kept+`}`; got != want {
		t.Errorf("kept as %s, want %s", got, want)
	}
}

// C7. Of references ours refuses those that lead out: a local one is replaced by
// what it refers to, which loses nothing.
func refusesASchema(t *testing.T, r *rig) {
	rows := []struct{ name, schema, why, pointer string }{
		{"nested-ref", `{"type":"object","properties":{"q":{"$ref":"https://peer.example/s"}}}`, "leads out of the schema", "/properties/q/$ref"},
		{"nested-dependentRequired", `{"type":"object","properties":{"q":{"type":"object","dependentRequired":{"a":["b"]}}}}`, `"dependentRequired" is not carried`, "/properties/q/dependentRequired"},
		{"if-then", `{"type":"object","if":{"required":["a"]},"then":{"required":["b"]}}`, `"if" is not carried`, "/if"},
		{"union", `{"type":["object","null"]}`, "top-level type is not object", ""},
		{"string", `{"type":"string"}`, "top-level type is not object", ""},
		{"none", `["object"]`, "advertised no parameter schema", ""},
		{"deep", strings.Repeat(`{"type":"object","properties":{"q":`, 6) + `{"type":"object","properties":{}}` + strings.Repeat("}}", 6), "nested deeper than 12 levels", "/properties"},
		{"large", `{"type":"object","description":"` + strings.Repeat("x", 16_384) + `"}`, "exceeds 16384 bytes", ""},
	}
	tools := []string{search, tool("find", `{"type":"object","$defs":{"q":{"type":"string"}},"properties":{"q":{"$ref":"#/$defs/q"}}}`)}
	for _, row := range rows {
		tools = append(tools, tool(row.name, row.schema))
	}
	r.server.lists(tools...)
	got := r.imports(t)
	if got.Imported != 2 || len(got.Skipped) != len(rows) || names(r.kept(t)) != "find search" || r.seen(t).Import.Status != "partial" {
		t.Fatalf("%+v", got)
	}
	if local := string(r.kept(t)["find"].Schema); local != `{"type":"object","properties":{"q":{"type":"string"}}}` {
		t.Errorf("a local reference: %s", local)
	}
	for i, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			if s := got.Skipped[i]; s.Tool != row.name || !strings.Contains(s.Why, row.why) || !strings.HasPrefix(s.Pointer, row.pointer) {
				t.Errorf("%+v, want %q at %q", s, row.why, row.pointer)
			}
		})
	}
}

// C8. What is stored is there to be read; ours takes nothing for a schema that it
// would not have written, but the empty one.
func storedSchema(t *testing.T, r *rig) {
	r.server.lists(search, tool("find", anything))
	for _, row := range []struct {
		stored  string
		offered bool
	}{{`{}`, true}, {`[]`, false}, {`null`, false}, {`{"type":`, false}} {
		t.Run(row.stored, func(t *testing.T) {
			r.imports(t)
			r.stores(t, "search", row.stored)
			k, there := r.kept(t)["search"]
			if !there || row.offered != (k.Schema != nil) {
				t.Errorf("kept %v as %s", there, k.Schema)
			}
			o, offered := r.offered(t)["search"]
			if offered != row.offered || offered && string(o.Schema) != row.stored {
				t.Errorf("offered %v as %s", offered, o.Schema)
			}
			if _, offered := r.offered(t)["find"]; !offered {
				t.Error("another tool is not offered any more")
			}
			before := len(r.server.of("tools/call"))
			a := r.call(t, brokertest.Call{})
			if sent := len(r.server.of("tools/call")) - before; row.offered != (a.State == fault.Succeeded) || row.offered != (sent == 1) {
				t.Errorf("%d calls were sent: %s", sent, a.Body)
			}
		})
	}
}

// stores puts a schema in the place of a tool's own, as a hand in the database would.
func (r *rig) stores(t *testing.T, tool, schema string) {
	t.Helper()
	r.must(t, r.Stop())
	db, err := sql.Open("sqlite", r.DatabasePath())
	r.must(t, err)
	defer db.Close()
	_, err = db.Exec(`UPDATE tools SET schema = ? WHERE server = 'peer' AND name = ?`, schema, tool)
	r.must(t, err)
	r.must(t, r.Restart(t.Context()))
}
