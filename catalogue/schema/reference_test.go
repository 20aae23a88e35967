package schema_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"onbehalf.internal/broker/catalogue/schema"
	"onbehalf.internal/broker/strictjson"
)

const (
	nowhere   = "the reference leads nowhere"
	outside   = "the reference leads out of the schema"
	itself    = "the reference leads back to itself"
	noSchema  = "the reference leads to what is not a schema"
	noPointer = "the reference is not a JSON pointer"
)

// with is a schema whose one property p is that, and whose $defs are these.
func with(p, defs string) string {
	return `{"type":"object","properties":{"p":` + p + `},"$defs":{` + defs + `}}`
}

func draft07(s string) string {
	return `{"$schema":"http://json-schema.org/draft-07/schema#",` + strings.TrimPrefix(s, "{")
}

func TestReferences(t *testing.T) {
	const a = `"a":{ "type" : "string", "title":"A" }`
	check(t, []row{
		// A reference alone is its target, byte for byte.
		accepted(with(`{"$ref":"#/$defs/a"}`, a), property(`{ "type" : "string", "title":"A" }`)),
		accepted(with(`{"\u0024ref":"\u0023/$defs/a"}`, a), property(`{ "type" : "string", "title":"A" }`)),
		accepted(with(`{"items":{"$ref":"#/$defs/a"},"x":[ 1 ]}`, a), property(`{"items":{ "type" : "string", "title":"A" },"x":[ 1 ]}`)),
		accepted(with(`{"anyOf":[{"$ref":"#/$defs/a"},{ }]}`, a), property(`{"anyOf":[{ "type" : "string", "title":"A" },{ }]}`)),
		accepted(with(`{"$ref":"#/$defs/yes"}`, `"yes":true`), property(`{"allOf":[true]}`)), // a property is an object
		accepted(with(`{"$ref":"#/$defs/b"}`, `"b":{"$ref":"#/$defs/c"},"c":{"type":"null"}`), property(`{"type":"null"}`)),
		accepted(`{"type":"object","properties":{"p":{"$ref":"#/properties/q"},"q":{"type":"null"}}}`,
			`{"type":"object","properties":{"p":{"type":"null"},"q":{"type":"null"}}}`),
		accepted(`{"type":"object","properties":{"p":{"$ref":"#/definitions/a/properties/b"}},"definitions":{"a":{"properties":{"b":{"const":1}}}}}`, property(`{"const":1}`)),
		accepted(with(`{"$ref":"#/$defs/a/anyOf/1/items"}`, `"a":{"anyOf":[{},{"items":{"const":1}}]}`), property(`{"const":1}`)),
		accepted(with(`{"$ref":"#/$defs/a~1b~01%20%25"}`, `"a/b~1 %":{"const":1}`), property(`{"const":1}`)),
		accepted(with(`{"$ref":"#/$defs/"}`, `"":{"const":1}`), property(`{"const":1}`)),
		accepted(`{"$id":"https://example.com/s","type":"object","properties":{"p":{"$ref":"#/$defs/a"}},"$defs":{"a":{}}}`, property(`{}`)),

		// What nobody refers to is not looked at.
		accepted(with(`{}`, `"a":{"if":{},"$ref":"https://example.com/"}`), property(`{}`)),
		accepted(`{"type":"object","definitions":{"a":{"$ref":"#/definitions/a"}}}`, `{"type":"object"}`),
		refused(with(`{"$ref":"#/$defs/a"}`, `"a":{"if":{}}`), "/$defs/a/if", widens("if")),
		refused(with(`{"$ref":"#/$defs/a"}`, `"a":{"$id":"b"}`), "/$defs/a/$id", `"$id" is understood at the root only`),

		// In 2020-12 what stands beside it counts too.
		accepted(with(`{"minLength":3,"$ref":"#/$defs/a","description":"d"}`, a),
			property(`{"minLength":3,"description":"d","allOf":[{ "type" : "string", "title":"A" }]}`)),
		accepted(with(`{"$ref":"#/$defs/a","allOf":[{"minLength":1},true],"maxLength":2}`, a),
			property(`{"allOf":[{ "type" : "string", "title":"A" },{"minLength":1},true],"maxLength":2}`)),
		refused(with(`{"$ref":"#/$defs/a","allOf":[]}`, a), "/properties/p/allOf", "allOf is not a list of schemas"),
		refused(with(`{"$ref":"#/$defs/a","allOf":{"x":{}}}`, a), "/properties/p/allOf", "allOf is not a list of schemas"),
		accepted(`{"type":"object","$ref":"#/$defs/a","description":"d","title":"t","$defs":{"a":{"required":["p"]}}}`,
			`{"type":"object","description":"d","allOf":[{"required":["p"]}]}`),
		// Annotations say nothing; those of the place win.
		accepted(with(`{"$ref":"#/$defs/a","description":"d","title":"t","default":1,"examples":[2],"deprecated":true,"readOnly":true,"writeOnly":true,"$comment":"c"}`, a),
			property(`{"description":"d","title":"t","default":1,"examples":[2],"deprecated":true,"readOnly":true,"writeOnly":true,"$comment":"c","type":"string"}`)),
		accepted(with(`{"$ref":"#/$defs/no","description":"d"}`, `"no":false`), property(`{"description":"d","allOf":[false]}`)),
		accepted(with(`{"$ref":"#/$defs/a","format":"email"}`, a), property(`{"format":"email","allOf":[{ "type" : "string", "title":"A" }]}`)),

		// A name, a value and a keyword that nobody knows are no references.
		unchanged(`{"type":"object","properties":{"$ref":{"type":"string"}}}`),
		unchanged(property(`{"properties":{"$ref":{"type":"string"}},"required":["$ref"]}`)),
		unchanged(property(`{"const":{"$ref":"https://example.com/"},"default":{"$ref":1},"examples":[{"$ref":"#"}],"enum":[{"$ref":"x"}],"x-vendor":{"$ref":"x"}}`)),

		// Nowhere, somewhere else, not a schema, not a pointer.
		refused(with(`{"$ref":"#/$defs/b"}`, a), "/properties/p/$ref", nowhere),
		refused(with(`{"$ref":"#/$defs/a/title/0"}`, a), "/properties/p/$ref", noSchema),
		refused(with(`{"$ref":"#/$defs/a/title"}`, a), "/properties/p/$ref", noSchema),
		refused(with(`{"$ref":"#/$defs"}`, a), "/properties/p/$ref", noSchema),
		refused(with(`{"$ref":"#/properties"}`, a), "/properties/p/$ref", noSchema),
		refused(with(`{"$ref":"#/$defs/group/a"}`, `"group":{"a":{}}`), "/properties/p/$ref", noSchema),
		refused(with(`{"$ref":"#/$defs/a/const"}`, `"a":{"const":{"type":"string"}}`), "/properties/p/$ref", noSchema),
		refused(with(`{"$ref":"#/$defs/a/anyOf"}`, `"a":{"anyOf":[{}]}`), "/properties/p/$ref", noSchema),
		refused(with(`{"$ref":"#/$defs/a/anyOf/00"}`, `"a":{"anyOf":[{}]}`), "/properties/p/$ref", nowhere),
		refused(with(`{"$ref":"#/$defs/a~2b"}`, `"a~2b":{}`), "/properties/p/$ref", noPointer),
		refused(with(`{"$ref":"#/$defs/a~"}`, `"a~":{}`), "/properties/p/$ref", noPointer),
		refused(with(`{"$ref":"#/%zz"}`, a), "/properties/p/$ref", noPointer),
		refused(with(`{"$ref":1}`, a), "/properties/p/$ref", "the reference is not a string"),
		refused(with(`{"$ref":{"type":"string"}}`, a), "/properties/p/$ref", "the reference is not a string"),
		refused(with(`{"$ref":"#a"}`, `"a":{"$anchor":"a"}`), "/properties/p/$ref", "the reference is to an anchor"),
		refused(with(`{"$ref":"#$defs/a"}`, a), "/properties/p/$ref", "the reference is to an anchor"),
		refused(with(`{"$ref":""}`, a), "/properties/p/$ref", outside),
		refused(with(`{"$ref":"a"}`, a), "/properties/p/$ref", outside),
		refused(with(`{"$ref":"/$defs/a"}`, a), "/properties/p/$ref", outside),
		refused(with(`{"$ref":"https://example.com/s#/$defs/a"}`, a), "/properties/p/$ref", outside),
		refused(with(`{"$ref":"https://json-schema.org/draft/2020-12/schema"}`, a), "/properties/p/$ref", outside),
		refused(`{"$id":"https://example.com/s","type":"object","properties":{"p":{"$ref":"https://example.com/s#/$defs/a"}},"$defs":{"a":{}}}`, "/properties/p/$ref", outside),
		refused(with(`{"$ref":"#/$defs/b/properties/q"}`, `"b":{"$id":"b","properties":{"q":{"$ref":"#/$defs/a"}}},`+a), "/properties/p/$ref",
			"the reference leads into a schema with its own $id"),

		// In circles.
		refused(`{"type":"object","allOf":[{"$ref":"#"}]}`, "/allOf/0/$ref", itself),
		refused(`{"type":"object","$ref":"#"}`, "/$ref", itself),
		refused(`{"type":"object","properties":{"children":{"items":{"$ref":"#"}}}}`, "/properties/children/items/$ref", itself),
		refused(with(`{"$ref":"#/properties/p"}`, a), "/properties/p/$ref", itself),
		refused(with(`{"$ref":"#/$defs/b"}`, `"b":{"$ref":"#/$defs/b"}`), "/$defs/b/$ref", itself),
		refused(with(`{"$ref":"#/$defs/b"}`, `"b":{"not":{"$ref":"#/$defs/c"}},"c":{"items":{"$ref":"#/$defs/b"}}`), "/$defs/c/items/$ref", itself),
		refused(with(`{"items":{"items":{"$ref":"#/properties/p/items"}}}`, a), "/properties/p/items/items/$ref", itself),
	})
}

// TestDraft07: such a schema is stored in the words of 2020-12.
func TestDraft07(t *testing.T) {
	const a = `"a":{"type":"string"}`
	check(t, []row{
		// What stands beside a reference does not count, whatever it is.
		accepted(draft07(with(`{"$ref":"#/$defs/a","minLength":3,"description":"d","if":{},"$id":"x"}`, a)), property(`{"type":"string"}`)),
		accepted(draft07(with(`{"$ref":"#/$defs/no","minLength":3}`, `"no":false`)), property(`{"allOf":[false]}`)),
		refused(draft07(`{"type":"object","$ref":"#/$defs/a","$defs":{"a":{"type":"object"}}}`), "/$ref", "in draft-07 a type beside a reference does not count"),
		refused(draft07(`{"type":"object","allOf":[{"$ref":"#"}]}`), "/allOf/0/$ref", itself),

		// A list of items is spelled otherwise.
		accepted(draft07(property(`{"items":[{ },{"const":1}],"additionalItems":false}`)), property(`{"prefixItems":[{ },{"const":1}],"items":false}`)),
		accepted(draft07(with(`{"additionalItems":{"$ref":"#/$defs/a"},"items":[{"$ref":"#/$defs/a"}]}`, a)), property(`{"items":{"type":"string"},"prefixItems":[{"type":"string"}]}`)),
		accepted(draft07(with(`{"items":[{"$ref":"#/properties/q/items/1"}]},"q":{"items":[{},{"const":2}]}`, a)),
			`{"type":"object","properties":{"p":{"prefixItems":[{"const":2}]},"q":{"prefixItems":[{},{"const":2}]}}}`),
		accepted(draft07(property(`{"items":{"const":1},"additionalItems":{"if":{}}}`)), property(`{"items":{"const":1},"additionalItems":{"if":{}}}`)), // it says nothing
		refused(draft07(property(`{"items":[{"if":{}}]}`)), "/properties/p/items/0/if", widens("if")),
		refused(draft07(property(`{"items":[{}],"additionalItems":{"if":{}}}`)), "/properties/p/additionalItems/if", widens("if")),
		refused(draft07(property(`{"items":[]}`)), "/properties/p/prefixItems", "not JSON Schema: has fewer than 1 elements"),

		// It knows none of these; in 2020-12 they would begin to count.
		refused(draft07(property(`{"prefixItems":[{}]}`)), "/properties/p/prefixItems", `"prefixItems" is no keyword of draft-07`),
		refused(draft07(property(`{"contains":{},"minContains":0}`)), "/properties/p/minContains", `"minContains" is no keyword of draft-07`),
		refused(draft07(property(`{"contains":{},"maxContains":0}`)), "/properties/p/maxContains", `"maxContains" is no keyword of draft-07`),
		refused(draft07(property(`{"contentSchema":{}}`)), "/properties/p/contentSchema", `"contentSchema" is no keyword of draft-07`),
		unchanged(property(`{"prefixItems":[{}],"contains":{},"minContains":0,"maxContains":3,"contentSchema":{}}`)),
	})
}

// TestBomb: a schema that multiplies itself is stopped while it grows.
func TestBomb(t *testing.T) {
	bomb := func(each string, n int) string {
		var defs []string
		for i := range n {
			defs = append(defs, fmt.Sprintf(`"d%d":`+each, i, i+1))
		}
		return `{"type":"object","allOf":[{"$ref":"#/$defs/d0"}],"$defs":{` + strings.Join(defs, ",") + fmt.Sprintf(`,"d%d":{}}}`, n)
	}
	const double = `{"allOf":[{"$ref":"#/$defs/d%[2]d"},{"$ref":"#/$defs/d%[2]d"}]}`
	for _, advertised := range []string{
		bomb(double, 100),
		bomb(`{"properties":{"a":{"$ref":"#/$defs/d%[2]d"},"b":{"$ref":"#/$defs/d%[2]d"},"c":{"$ref":"#/$defs/d%[2]d"}}}`, 20_000),
		bomb(`{"$ref":"#/$defs/d%[2]d"}`, 20_000), // a chain
		bomb(`{"$ref":"#/$defs/d%[2]d","description":"`+strings.Repeat("d", 10_000)+`"}`, 100),
	} {
		var err error
		mib := allocated(func() { _, err = schema.Normalise(strictjson.Raw(advertised)) })
		var no *schema.Refusal
		if !errors.As(err, &no) || no.Why != "what the references refer to exceeds 65536 bytes" || !strings.HasSuffix(no.Pointer, "/$ref") {
			t.Errorf("%.80s: %v", advertised, err)
		}
		if mib > 64 {
			t.Errorf("%.80s: %d MiB are allocated for %d bytes", advertised, mib, len(advertised))
		}
	}
	// As often as fits it may be used.
	check(t, []row{accepted(bomb(double, 3), `{"type":"object","allOf":[`+strings.Replace(`{"allOf":[X,X]}`, "X", `{"allOf":[{"allOf":[{},{}]},{"allOf":[{},{}]}]}`, 2)+`]}`)})
}

// TestNothingIsFetched: neither a file nor an address that a schema names is
// touched, though both are there.
func TestNothingIsFetched(t *testing.T) {
	file := filepath.Join(t.TempDir(), "schema.json")
	if err := os.WriteFile(file, []byte(`{"type":"string"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	visits := make(chan string)
	go func() {
		visit := "none"
		if c, err := listener.Accept(); err == nil {
			visit = "one"
			c.Close()
		}
		visits <- visit
	}()
	for _, uri := range []string{"file://" + file, file, "http://" + listener.Addr().String() + "/s", "//" + listener.Addr().String() + "/s"} {
		for _, s := range []string{
			property(`{"$ref":"` + uri + `"}`),
			property(`{"$dynamicRef":"` + uri + `"}`),
			property(`{"$schema":"` + uri + `","$id":"x"}`),
			`{"$schema":"` + uri + `","type":"object"}`,
			`{"$id":"` + uri + `","type":"object","allOf":[{"$ref":"other"}]}`,
		} {
			if stored, err := schema.Normalise(strictjson.Raw(s)); err == nil {
				t.Errorf("%s is stored as %s", s, stored)
			}
			if _, err := schema.Compile(strictjson.Raw(s)); err == nil {
				t.Errorf("%s compiles", s)
			}
		}
	}
	listener.Close()
	if visit := <-visits; visit != "none" {
		t.Error("a connection was made")
	}
}
