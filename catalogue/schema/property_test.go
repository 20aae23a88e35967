package schema_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"onbehalf.internal/broker/catalogue/schema"
	"onbehalf.internal/broker/strictjson"
)

// TestMeaningIsKept: the advertised schema, whose references the library
// follows itself, and the stored one accept the same instances.
func TestMeaningIsKept(t *testing.T) {
	stored, followed := 0, 0
	verdicts := map[bool]int{}
	for seed := range uint64(1200) {
		g := generator{rand.New(rand.NewPCG(seed, 7)), seed%2 == 0}
		advertised := g.root()
		kept, err := schema.Normalise(strictjson.Raw(advertised))
		if err != nil {
			continue
		}
		original, err := reference(t, advertised)
		if err != nil && g.draft07 {
			continue // the library minds what stands beside a reference, and does not count
		} else if err != nil {
			t.Fatalf("%s is stored and does not compile: %v", advertised, err)
		}
		stored++
		if strings.Contains(advertised, `"$ref":"`) {
			followed++
		}
		narrow := compiled(t, string(kept))
		for range 20 {
			instance := g.object(3)
			doc, err := jsonschema.UnmarshalJSON(strings.NewReader(instance))
			if err != nil {
				t.Fatal(err)
			}
			want, got := original.Validate(doc), narrow.Check(strictjson.Raw(instance))
			if (want == nil) != (got == nil) {
				t.Fatalf("seed %d: %s\nadvertised %s\n  says %v\nstored     %s\n  says %v", seed, instance, advertised, want, kept, got)
			}
			verdicts[got == nil]++
		}
	}
	if stored < 500 || followed < 500 || verdicts[true] < 2000 || verdicts[false] < 5000 {
		t.Errorf("%d schemas stored, %d of them with references, verdicts %v: the test says little", stored, followed, verdicts)
	}
}

// reference compiles a schema as the library reads it.
func reference(t *testing.T, advertised string) (*jsonschema.Schema, error) {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(advertised))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(jsonschema.SchemeURLLoader{})
	if err := c.AddResource("urn:advertised", doc); err != nil {
		t.Fatal(err)
	}
	return c.Compile("urn:advertised")
}

// A generator makes small schemas whose references often lead somewhere, and
// instances that often fit them.
type generator struct {
	*rand.Rand
	draft07 bool
}

func (g generator) of(choices ...string) string { return choices[g.IntN(len(choices))] }

func (g generator) root() string {
	uri := "https://json-schema.org/draft/2020-12/schema"
	if g.draft07 {
		uri = "http://json-schema.org/draft-07/schema#"
	}
	var defs []string
	for i := range 4 {
		defs = append(defs, fmt.Sprintf(`"d%d":%s`, i, g.schema(2, i+1)))
	}
	defs = append(defs, fmt.Sprintf(`"d4":{"properties":{"a":%s},"items":%s}`, g.schema(0, 0), g.schema(0, 0)))
	more := ""
	if !g.draft07 && g.IntN(4) == 0 {
		more = `,"$ref":` + g.ref(0)
	}
	return fmt.Sprintf(`{"$schema":%q,"type":"object","properties":{"a":%s,"b":%s},"additionalProperties":%s,"%s":[%s,%s]%s,"$defs":{%s}}`,
		uri, g.anObject(0), g.anObject(0), g.of("true", "true", "false"), g.of("allOf", "anyOf", "oneOf"), g.schema(2, 0), g.schema(1, 0), more, strings.Join(defs, ","))
}

// anObject is a schema that is an object, as a property at the root has to be.
func (g generator) anObject(from int) string {
	for {
		if s := g.schema(3, from); s[0] == '{' {
			return s
		}
	}
}

// schema is a schema with references to definitions from that number on, so that
// few of them go in circles.
func (g generator) schema(depth, from int) string {
	if g.IntN(12) == 0 {
		return g.of("true", "false")
	}
	taken := map[string]bool{}
	var members []string
	for range 1 + g.IntN(3) {
		for name, value := range g.keyword(depth, from) {
			if g.draft07 && (name == "const" && taken["$ref"] || name == "$ref" && taken["const"]) {
				continue // the library minds a const beside a reference; draft-07 does not
			}
			if !taken[name] {
				members = append(members, fmt.Sprintf("%q:%s", name, value))
			}
			taken[name] = true
		}
	}
	return "{" + strings.Join(members, ",") + "}"
}

func (g generator) keyword(depth, from int) map[string]string {
	sub := func() string { return g.schema(depth-1, from) }
	if depth == 0 || g.IntN(3) == 0 {
		return g.leaf()
	}
	switch g.IntN(9) {
	case 0, 1, 2:
		return map[string]string{"$ref": g.ref(from)}
	case 3:
		return map[string]string{"properties": `{"a":` + sub() + `,"$ref":` + sub() + `}`, "additionalProperties": sub()}
	case 4:
		return map[string]string{g.of("allOf", "anyOf", "oneOf"): "[" + sub() + "," + sub() + "]"}
	case 5:
		return map[string]string{"not": sub()}
	case 6:
		return map[string]string{"contains": sub(), "items": sub()}
	case 7:
		if g.draft07 {
			return map[string]string{"items": "[" + sub() + "," + sub() + "]", "additionalItems": sub()}
		}
		return map[string]string{"prefixItems": "[" + sub() + "," + sub() + "]", "items": sub()}
	}
	return map[string]string{"properties": `{"b":` + sub() + `}`, "required": `["b"]`}
}

func (g generator) ref(from int) string {
	if g.IntN(10) == 0 {
		return g.of(`"#/%24defs/d4"`, `"#/$defs/d4/properties/a"`, `"#/$defs/d4/items"`, `"#/$defs/d3/not"`, `"#/properties/b"`, `"#"`)
	}
	return fmt.Sprintf(`"#/$defs/d%d"`, min(from+g.IntN(4), 4))
}

func (g generator) leaf() map[string]string {
	return []map[string]string{
		{"type": g.of(`"string"`, `"integer"`, `"number"`, `"object"`, `"array"`, `"null"`, `["string","array"]`)},
		{"const": g.value(1)}, {"enum": "[" + g.value(1) + "," + g.value(0) + "]"},
		{"minimum": "1"}, {"exclusiveMaximum": "2"}, {"multipleOf": "0.5"}, {"minLength": "2"}, {"pattern": `"^a"`},
		{"maxItems": "1"}, {"uniqueItems": "true"}, {"minProperties": "1"}, {"maxProperties": "1"}, {"required": `["a"]`},
		{"description": `"d"`}, {"title": `"t"`, "default": `{"$ref":"#"}`}, {"description": `"e"`},
	}[g.IntN(16)]
}

func (g generator) value(depth int) string {
	if depth == 0 || g.IntN(2) == 0 {
		return g.of("null", "true", "0", "1", "1.0", "1.5", "2", `""`, `"a"`, `"ab"`, `"b"`)
	}
	if g.IntN(2) == 0 {
		return g.object(depth)
	}
	return g.of("[]", "["+g.value(depth-1)+"]", "["+g.value(depth-1)+","+g.value(depth-1)+"]", "[1,1,"+g.value(depth-1)+"]")
}

func (g generator) object(depth int) string {
	var members []string
	for _, name := range []string{"a", "b", "$ref"} {
		if g.IntN(2) == 0 {
			members = append(members, fmt.Sprintf("%q:%s", name, g.value(depth-1)))
		}
	}
	return "{" + strings.Join(members, ",") + "}"
}
