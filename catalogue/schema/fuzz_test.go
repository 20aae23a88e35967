package schema_test

import (
	"bytes"
	"strings"
	"testing"

	"onbehalf.internal/broker/catalogue/schema"
	"onbehalf.internal/broker/strictjson"
)

// FuzzNormalise: what is stored is stored again as it is, keeps to the bounds,
// names no reference and compiles; what is not is a Refusal.
func FuzzNormalise(f *testing.F) {
	for _, seed := range []string{
		`{"type":"object"}`,
		with(`{"$ref":"#/$defs/a","minLength":1}`, `"a":{"type":"string","allOf":[{"$ref":"#/$defs/b"}]},"b":{"enum":[1.0,{}]}`),
		draft07(with(`{"items":[{"$ref":"#/definitions/a"}],"additionalItems":false}`, `"a":{"const":[]}`)),
		`{"type":"object","allOf":[{"$ref":"#"}],"anyOf":[true,{"not":{"pattern":"^a{3}"}}]}`,
		with(`{"not":{"not":{"$ref":"#/$defs/a"}}}`, `"a":{"not":{"not":{"not":{"not":{"not":{"not":{"const":[[[]]]}}}}}}}`), // 13 levels
		property(`{"contains":{"multipleOf":1e-3},"maxItems":3}`),
		"{\"type\":\"object\",\"properties\":{\"\\u0000\":{\"if\":{}}}}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, advertised []byte) {
		stored, err := schema.Normalise(advertised)
		if err != nil {
			if no, ok := err.(*schema.Refusal); !ok || stored != nil || no.Why == "" || len(err.Error()) > 2000 || hasControl(err.Error()) {
				t.Fatalf("%q: %q, %v", advertised, stored, err)
			}
			return
		}
		if again, err := schema.Normalise(stored); err != nil || !bytes.Equal(again, stored) {
			t.Fatalf("%q\nis stored as %q\nand then as   %q, %v", advertised, stored, again, err)
		}
		if len(stored) > 16_384 || levels(stored) > 12 {
			t.Fatalf("%q is stored: %d bytes, %d levels", advertised, len(stored), levels(stored))
		}
		s, err := schema.Compile(stored)
		if err != nil {
			t.Fatalf("%q is stored as %q: %v", advertised, stored, err)
		}
		_ = s.Check(strictjson.Raw(`{"a":[1,"b",null],"p":{"a":1.5}}`))
	})
}

// FuzzCheck: a schema and arguments that somebody made for each other take no
// panic out of the check, and it says the same twice.
func FuzzCheck(f *testing.F) {
	f.Add([]byte(`{}`), []byte(`{}`))
	f.Add([]byte(property(`{"minimum":1e9,"multipleOf":0.1}`)), []byte(`{"p":1e300}`))
	f.Add([]byte(property(`{"minimum":1}`)), []byte(`{"p":1e9999999}`))
	f.Add([]byte(`{"type":"object","allOf":[{"additionalProperties":{"type":"null"}}]}`), []byte(`{"a":1,"b":"","c":[],"d":{},"e":true,"f":1,"g":""}`))
	f.Add([]byte(property(`{"type":"string","pattern":"^a"}`)), []byte(`{"p":"b"}`))
	f.Add([]byte(`{"type":"object","additionalProperties":false,"oneOf":[{},{"required":["a"]}]}`), []byte(`{"a":1,"\u0000":2}`))
	f.Add([]byte(property(`{"uniqueItems":true,"prefixItems":[{"const":{}}],"items":{"anyOf":[{"enum":[1]}]}}`)), []byte(`{"p":[{},1,2,1.0]}`))
	f.Fuzz(func(t *testing.T, stored, arguments []byte) {
		s, err := schema.Compile(stored)
		if err != nil {
			return
		}
		err = s.Check(arguments)
		if text(err) != text(s.Check(arguments)) || len(text(err)) > 5000 || hasControl(text(err)) {
			t.Fatalf("%q against %q: %q", arguments, stored, text(err))
		}
	})
}

func hasControl(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// levels counts the objects and arrays in one another.
func levels(v strictjson.Raw) int {
	deepest := 0
	for _, m := range strictjson.Ordered(v) {
		deepest = max(deepest, levels(m.Value))
	}
	for _, element := range strictjson.Elements(v) {
		deepest = max(deepest, levels(element))
	}
	if k := v.Kind(); k != '{' && k != '[' {
		return 0
	}
	return deepest + 1
}
