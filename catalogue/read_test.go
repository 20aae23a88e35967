package catalogue_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"onbehalf.internal/broker/catalogue"
	"onbehalf.internal/broker/strictjson"
)

const anything = `{"type":"object"}`

// advertised is a tool as a server lists it; members come after its schema.
func advertised(name, members string) strictjson.Raw {
	return strictjson.Raw(fmt.Sprintf(`{"name":%q,"inputSchema":%s%s}`, name, anything, members))
}

func list(names ...string) (all []strictjson.Raw) {
	for _, name := range names {
		all = append(all, advertised(name, ""))
	}
	return all
}

func nobody(string) string { return "" }

// TestRead has the checks of one tool in their order: an entry that fails two of them
// is told the first.
func TestRead(t *testing.T) {
	elsewhere := func(local string) string {
		if local == "mcp_records_there" {
			return "rec"
		}
		return ""
	}
	long := strings.Repeat("ä", 70)
	for _, tc := range []struct {
		name  string
		entry string
		want  catalogue.Skip // zero: it is taken
	}{
		{"a tool", `{"name":"search","inputSchema":` + anything + `}`, catalogue.Skip{}},
		{"what we do not know", `{"name":"search","inputSchema":` + anything + `,"icons":[],"_meta":{"a":1}}`, catalogue.Skip{}},

		{"a number", `7`, catalogue.Skip{Why: `entry 2 is not a tool: document is a number, not an object`}},
		{"null", `null`, catalogue.Skip{Why: `entry 2 is not a tool: document is null, not an object`}},
		{"nothing", ``, catalogue.Skip{Why: `entry 2 is not a tool: empty document`}},
		{"a member twice", `{"name":"a","name":"b"}`, catalogue.Skip{Why: `entry 2 is not a tool: member "name" twice`}},
		{"no name", `{"inputSchema":` + anything + `}`, catalogue.Skip{Why: `entry 2 has no name`}},
		{"a name that is no string", `{"name":7}`, catalogue.Skip{Why: `entry 2 has no name`}},
		{"a name that is null", `{"name":null}`, catalogue.Skip{Why: `entry 2 has no name`}},
		{"an empty name", `{"name":""}`, catalogue.Skip{Why: `entry 2 has no name`}},
		{"Name", `{"Name":"a"}`, catalogue.Skip{Why: `entry 2 has no name`}},
		{"an unfit name", `{"name":"a.b"}`, catalogue.Skip{Tool: "a.b", Why: `"a.b" cannot be given a valid local name`}},
		{"an unfit name to look at", `{"name":"se\u0430rch\u202e\n"}`,
			catalogue.Skip{Tool: `seаrch\u{202e}\u{a}`, Why: `"se\u0430rch\u202e\n" cannot be given a valid local name`}},
		{"an unfit name without end", `{"name":"` + long + `"}`,
			catalogue.Skip{Tool: strings.Repeat("ä", 30) + "…", Why: `"` + strings.Repeat(`\u00e4`, 30) + `"... cannot be given a valid local name`}},
		{"the name of another one", `{"name":"first"}`, catalogue.Skip{Tool: "first", Why: `"first" is listed twice`}},
		{"the name of another one in other letters", `{"name":"First"}`, catalogue.Skip{Tool: "First", Why: `"First" differs from "first" in case alone`}},
		{"the name of another server's", `{"name":"there"}`, catalogue.Skip{Tool: "there", Why: `"there" would be "mcp_records_there", which is a tool of server "rec"`}},
		{"no schema", `{"name":"a"}`, catalogue.Skip{Tool: "a", Why: `"a" was skipped: the server advertised no parameter schema`}},
		{"a schema that is none", `{"name":"a","inputSchema":[]}`, catalogue.Skip{Tool: "a", Why: `"a" was skipped: the server advertised no parameter schema`}},
		{"a schema that cannot be carried", `{"name":"a","inputSchema":{"type":"object","properties":{"q":{"$ref":"http://192.0.2.1/s"}}}}`,
			catalogue.Skip{Tool: "a", Why: `"a" was skipped: `, Pointer: "/properties/q/$ref"}},
		{"a schema that names what cannot be seen", `{"name":"a","inputSchema":{"type":"object","properties":{"\ufe0f":{"$ref":"http://192.0.2.1/s"}}}}`,
			catalogue.Skip{Tool: "a", Why: `"a" was skipped: `, Pointer: `/properties/\u{fe0f}/$ref`}},
		{"a definition without end", `{"name":"a","inputSchema":` + anything + `,"outputSchema":"` + strings.Repeat("x", 131_072) + `"}`,
			catalogue.Skip{Tool: "a", Why: `"a" was skipped: its definition exceeds 131072 bytes`}},
		{"a number that cannot be compared", `{"name":"a","inputSchema":` + anything + `,"annotations":1e99999999999}`,
			catalogue.Skip{Tool: "a", Why: `"a" was skipped: its definition cannot be pinned: the exponent of a number does not fit into 32 bits`}},
	} {
		all := []strictjson.Raw{advertised("first", ""), strictjson.Raw(tc.entry), advertised("last", "")}
		tools, skipped := catalogue.Read("records", all, elsewhere)
		if len(tools)+len(skipped) != 3 {
			t.Errorf("%s: %d taken, %d skipped of 3", tc.name, len(tools), len(skipped))
		}
		var got catalogue.Skip
		if len(skipped) == 1 {
			got = skipped[0]
		}
		if tc.want.Pointer != "" && strings.HasPrefix(got.Why, tc.want.Why) {
			got.Why = tc.want.Why // the rest is package schema's
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: %s", tc.name, diff)
		}
	}
}

// TestTheFirstKeepsItsName: also where it is skipped for its schema, or because the
// name is another server's. A call of the second would be one of the first.
func TestTheFirstKeepsItsName(t *testing.T) {
	for _, first := range []string{`{"name":"search"}`, `{"name":"SEARCH"}`, string(advertised("search", ""))} {
		tools, skipped := catalogue.Read("records", []strictjson.Raw{strictjson.Raw(first), advertised("search", ""), advertised("Search", "")}, nobody)
		if len(tools)+len(skipped) != 3 || len(skipped) < 2 || len(tools) == 1 && !strings.Contains(first, `"search"`) {
			t.Errorf("%s: %v, %v", first, tools, skipped)
		}
	}
}

// TestNames: the whole local name is 1 to 64 of A-Z a-z 0-9 _ -, and nothing is done
// to a name to make it fit.
func TestNames(t *testing.T) {
	fit := func(server, name string) [3]string { return [3]string{server, name, "mcp_" + server + "_" + name} }
	unfit := func(server, name string) [3]string { return [3]string{server, name, ""} }
	for _, tc := range [][3]string{
		fit("records", "search"),
		fit("records", "Search-2_b"),
		fit("a_b", "c"),
		fit("records", "__proto__"),
		fit("r", strings.Repeat("x", 58)), // 64 in all

		unfit("r", strings.Repeat("x", 59)),
		unfit("rec.ords", "search"),
		unfit("records", "a.b"),
		unfit("records", "a/b"),
		unfit("records", "../x"),
		unfit("records", "a b"),
		unfit("records", "search\n"),
		unfit("records", "tool\ntool"),
		unfit("records", "tool\x00"),
		unfit("records", "tool\x1b[31m"),
		unfit("records", "größe"),
		unfit("records", "admin\u200btool"),
		unfit("records", "ad\u202emin"),
		unfit("records", "verify_\u057dser"),
		unfit("records", "\uff41dmin"),
		unfit("records", "tool\u2028"),
		unfit("records", "\U000e0061dmin"),
		unfit("records", "\u017fearch"), // lower case of it is none
		unfit("records", "\u212aey"),    // lower case of it is "key"
		unfit("records", strings.Repeat("x", 129)),
	} {
		name := strings.NewReplacer("\n", `\n`, "\x00", `\u0000`, "\x1b", `\u001b`).Replace(tc[1])
		tools, skipped := catalogue.Read(tc[0], []strictjson.Raw{strictjson.Raw(`{"name":"` + name + `","inputSchema":` + anything + `}`)}, nobody)
		switch {
		case tc[2] == "" && (len(tools) != 0 || len(skipped) != 1):
			t.Errorf("%q of %q: %v", tc[1], tc[0], tools)
		case tc[2] != "" && (len(tools) != 1 || tools[0].Local != tc[2] || tools[0].Name != tc[1]):
			t.Errorf("%q of %q: %v, %v", tc[1], tc[0], tools, skipped)
		}
	}
}

// TestTexts: a title and a description are text that can be seen, within bounds; the
// definition has them as they came.
func TestTexts(t *testing.T) {
	const mark = "…"
	for _, tc := range []struct{ member, value, want string }{
		{"title", `"Search"`, "Search"},
		{"title", `7`, ""},
		{"title", `null`, ""},
		{"title", `["a"]`, ""},
		{"title", `"a\u202eb\nc"`, "a\\u{202e}b\nc"},
		{"title", `"` + strings.Repeat("x", 256) + `"`, strings.Repeat("x", 256)},
		{"title", `"` + strings.Repeat("x", 257) + `"`, strings.Repeat("x", 253) + mark},
		{"title", `"` + strings.Repeat("ä", 129) + `"`, strings.Repeat("ä", 126) + mark},
		{"title", `"` + strings.Repeat("x", 255) + `\u200b"`, strings.Repeat("x", 253) + mark},
		{"description", `{}`, ""},
		{"description", `"` + strings.Repeat("x", 8192) + `"`, strings.Repeat("x", 8192)},
		{"description", `"` + strings.Repeat("x", 8193) + `"`, strings.Repeat("x", 8189) + mark},
		{"description", `"` + strings.Repeat("\u200b", 2000) + `"`, strings.Repeat(`\u{200b}`, 1023) + `\u{20` + mark},
	} {
		raw := fmt.Sprintf(`{"name":"a","%s":%s,"inputSchema":%s}`, tc.member, tc.value, anything)
		tools, skipped := catalogue.Read("records", []strictjson.Raw{strictjson.Raw(raw)}, nobody)
		if len(tools) != 1 {
			t.Errorf("%.40s: %v", raw, skipped)
			continue
		}
		got := map[string]string{"title": tools[0].Title, "description": tools[0].Description}
		if got[tc.member] != tc.want || len(got[tc.member]) > 8192 {
			t.Errorf("%.80s: %.80q, want %.80q", raw, got[tc.member], tc.want)
		}
		if string(tools[0].Definition) != raw {
			t.Errorf("defined as %.80s, want %.80s", tools[0].Definition, raw)
		}
	}
}

// TestDefinition: six members as they came, in one order, and the schema beside them
// in its normal form.
func TestDefinition(t *testing.T) {
	tools, skipped := catalogue.Read("records", []strictjson.Raw{strictjson.Raw(
		` { "annotations" : {"readOnlyHint": true} , "icons":[], "title":"T\u0041", "outputSchema":{ "type":"object" },
		"inputSchema":{"type":"object", "title":"dropped"}, "description": "d", "n\u0061me":"a", "_meta":{}} `)}, nobody)
	if len(tools) != 1 {
		t.Fatal(skipped)
	}
	want := catalogue.Tool{Server: "records", Name: "a", Local: "mcp_records_a", Title: "TA", Description: "d", Schema: strictjson.Raw(`{"type":"object"}`),
		Definition: strictjson.Raw(`{"name":"a","title":"T\u0041","description":"d","inputSchema":{"type":"object", "title":"dropped"},` +
			`"outputSchema":{ "type":"object" },"annotations":{"readOnlyHint": true}}`), Pin: tools[0].Pin}
	if diff := cmp.Diff(want, tools[0]); diff != "" {
		t.Error(diff)
	}
	if !regexp.MustCompile(`^sha256:[0-9a-f]{64}$`).MatchString(want.Pin) {
		t.Errorf("pin %q", want.Pin)
	}
}

// TestPin: what a model or a person could be told otherwise is another pin, how it is
// written down is not.
func TestPin(t *testing.T) {
	const whole = `{"name":"a","title":"T","description":"Reads.","inputSchema":{"type":"object","properties":{"n":{"type":"integer","maximum":9007199254740992},"q":{"type":"string"}},"required":["n","q"]},` +
		`"outputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}`
	pin := func(doc string) string {
		tools, skipped := catalogue.Read("records", []strictjson.Raw{strictjson.Raw(doc)}, nobody)
		if len(tools) != 1 {
			t.Fatalf("%s: %v", doc, skipped)
		}
		return tools[0].Pin
	}
	for _, tc := range []struct {
		name     string
		old, new string
		other    bool
	}{
		{"the order of members", `"n":{"type":"integer","maximum":9007199254740992},"q":{"type":"string"}`, `"q":{"type":"string"},"n":{"maximum":9007199254740992,"type":"integer"}`, false},
		{"the order of the tool's members", `"title":"T","description":"Reads.",`, `"description":"Reads.","title":"T",`, false},
		{"white space", `"title":"T"`, ` "title" : "T" `, false},
		{"an escape", `"Reads."`, `"\u0052eads."`, false},
		{"a member that says nothing of it", `"title":"T"`, `"title":"T","_meta":{"x":1},"icons":[]`, false},

		{"one character", `Reads.`, `Reads!`, true},
		{"one zero-width character", `Reads.`, "Reads\u200b.", true},
		{"one tag character", `Reads.`, "Reads.\U000e0061", true},
		{"an empty description", `"description":"Reads.",`, `"description":"",`, true},
		{"no description", `"description":"Reads.",`, ``, true},
		{"one in a big number", `9007199254740992`, `9007199254740993`, true},
		{"the order of a list", `["n","q"]`, `["q","n"]`, true},
		{"the title", `"T"`, `"U"`, true},
		{"the result", `"outputSchema":{"type":"object"}`, `"outputSchema":{"type":"object","properties":{}}`, true},
		{"annotations alone", `true`, `false`, true},
		{"what the stored schema does not carry", `"required":["n","q"]`, `"required":["n","q"],"examples":[1]`, true},
	} {
		if !strings.Contains(whole, tc.old) {
			t.Fatalf("%s: nothing to replace", tc.name)
		}
		if got := pin(strings.Replace(whole, tc.old, tc.new, 1)); (got != pin(whole)) != tc.other {
			t.Errorf("%s: another pin is %v", tc.name, !tc.other)
		}
	}
}

// FuzzRead: whatever a server lists, every entry is taken or skipped; what is taken
// has a valid name of its own and keeps to the bounds.
func FuzzRead(f *testing.F) {
	for _, seed := range [][2]string{
		{"records", `[{"name":"a","inputSchema":{"type":"object"}},{"name":"A","inputSchema":{"type":"object"}},7,null]`},
		{"a_b", `[{"name":"c","title":1,"description":"\u202e","inputSchema":{"type":"object","properties":{"a":{"$ref":"#"}}}}]`},
		{"x.y", `[{"name":"\ud83d\ude00"}]`},
		{"r", `[{"name":"a","name":"b"},{"name":""},{"inputSchema":{}},{"name":"q","inputSchema":{"type":"object"},"annotations":1e9999999999}]`},
	} {
		f.Add(seed[0], seed[1])
	}
	local := regexp.MustCompile(`\A[A-Za-z0-9_-]{1,64}\z`)
	f.Fuzz(func(t *testing.T, server, doc string) {
		all := strictjson.Elements(strictjson.Raw(doc))
		if all == nil {
			all = []strictjson.Raw{strictjson.Raw(doc)}
		}
		tools, skipped := catalogue.Read(server, all, nobody)
		if len(tools)+len(skipped) != len(all) {
			t.Fatalf("%d taken and %d skipped of %d", len(tools), len(skipped), len(all))
		}
		seen := map[string]bool{}
		for _, tool := range tools {
			folded := strings.ToLower(tool.Local)
			if !local.MatchString(tool.Local) || seen[folded] || tool.Local != "mcp_"+server+"_"+tool.Name {
				t.Fatalf("local name %q", tool.Local)
			}
			seen[folded] = true
			if len(tool.Title) > 256 || len(tool.Description) > 8192 || len(tool.Schema) > 16_384 || len(tool.Definition) > 131_072 ||
				tool.Title != catalogue.Shown(tool.Title) || tool.Description != catalogue.Shown(tool.Description) {
				t.Fatalf("out of bounds: %+v", tool)
			}
			if err := strictjson.Check(tool.Definition); err != nil {
				t.Fatal(err)
			}
		}
		for _, s := range skipped {
			if s.Why == "" || len(s.Why) > 2000 || len(s.Tool) > 64 || !utf8.ValidString(s.String()) ||
				catalogue.Shown(s.String()) != s.String() || strings.ContainsAny(s.String()+s.Tool, "\n\t") {
				t.Fatalf("%+v", s)
			}
		}
	})
}
