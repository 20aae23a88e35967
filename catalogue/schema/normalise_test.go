package schema_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"onbehalf.internal/broker/catalogue/schema"
	"onbehalf.internal/broker/strictjson"
)

// A row is what a server advertises, and what comes of it.
type row struct{ advertised, stored, pointer, why string }

func accepted(advertised, stored string) row      { return row{advertised, stored, "", ""} }
func refused(advertised, pointer, why string) row { return row{advertised, "", pointer, why} }

func unchanged(advertised string) row { return accepted(advertised, advertised) }

func check(t *testing.T, rows []row) {
	t.Helper()
	for _, r := range rows {
		advertised := strictjson.Raw(r.advertised)
		stored, err := schema.Normalise(advertised)
		var no *schema.Refusal
		switch {
		case string(advertised) != r.advertised:
			t.Errorf("%.200s: the input was changed", r.advertised)
		case r.why == "" && (err != nil || string(stored) != r.stored):
			t.Errorf("%.200s\nis stored as %.200s, %v\nwant         %.200s", r.advertised, stored, err, r.stored)
		case r.why != "" && (!errors.As(err, &no) || no.Pointer != r.pointer || no.Why != r.why || stored != nil):
			t.Errorf("%.200s\nis stored as %.200s, %v\nwant %q: %s", r.advertised, stored, err, r.pointer, r.why)
		case r.why == "":
			again, err := schema.Normalise(stored)
			if err != nil || !bytes.Equal(again, stored) {
				t.Errorf("%.200s\nbecomes %.200s, %v, when it is normalised again", stored, again, err)
			}
		}
	}
}

// property is a schema whose one property p is that.
func property(p string) string { return `{"type":"object","properties":{"p":` + p + `}}` }

const (
	absent   = "the server advertised no parameter schema"
	noObject = "its top-level type is not object"
	noMap    = "properties is not a map of objects"
	noList   = "required is not a list of strings"
)

func widens(keyword string) string {
	return `"` + keyword + `" is not carried, and without it the tool would accept more than its server does`
}

func TestRoot(t *testing.T) {
	check(t, []row{
		// It must be an object, and say so.
		refused(``, "", absent),
		refused(`null`, "", absent),
		refused(`true`, "", absent),
		refused(`"object"`, "", absent),
		refused(`[]`, "", absent),
		refused(`{"type":"object"`, "", "the schema can not be read: document ends too early"),
		refused("{\"type\":\"object\",\"title\":\"\xff\"}", "", "the schema can not be read: document is not valid UTF-8"),
		refused(`{"type":"object","title":1,"title":2}`, "", `the schema can not be read: member "title" twice`),
		refused(`{}`, "", noObject),
		refused(`{"type":"string"}`, "", noObject),
		refused(`{"type":"Object"}`, "", noObject),
		refused(`{"type":["object"]}`, "", noObject),
		refused(`{"type":["object","null"]}`, "", noObject),
		refused(`{"type":null}`, "", noObject),
		refused(`{"anyOf":[{"type":"object"}]}`, "", noObject),

		// Nine keywords stay, with their bytes and in their order; the rest goes.
		unchanged(`{"type":"object"}`),
		unchanged(`{"not":{},"oneOf":[{}],"anyOf":[{}],"allOf":[{}],"additionalProperties":false,"required":["a"],"properties":{"a":{}},"description":"d","type":"object"}`),
		accepted(`{"title":"t","$id":"https://example.com/t","$comment":"c","type":"object","examples":[{"a":1}],"default":{},"x-vendor":{"if":1},"deprecated":true,"$anchor":"a","$vocabulary":{},"readOnly":true}`,
			`{"type":"object"}`),
		accepted(" { \"type\" : \"object\" ,\n \"properties\" : { \"b\" : { } , \"a\" : { \"enum\" : [ 1.0, 1e0, [ ], { } ] } } } ",
			"{\"type\":\"object\",\"properties\":{ \"b\" : { } , \"a\" : { \"enum\" : [ 1.0, 1e0, [ ], { } ] } }}"),
		accepted(`{"\u0074ype":"obj\u0065ct","\u0074itle":"t"}`, `{"\u0074ype":"obj\u0065ct"}`),
		accepted(`{"type":"object","items":{"if":{}},"minLength":3,"pattern":"(?=a)","format":"email"}`, `{"type":"object"}`), // they say nothing of objects

		// Well formed.
		unchanged(`{"type":"object","description":""}`),
		unchanged(`{"type":"object","additionalProperties":true}`),
		unchanged(`{"type":"object","properties":{}}`),
		unchanged(`{"type":"object","required":[]}`),
		unchanged(`{"type":"object","required":["not a property"]}`),
		refused(`{"type":"object","description":null}`, "/description", "the description is not a string"),
		refused(`{"type":"object","description":["d"]}`, "/description", "the description is not a string"),
		refused(`{"type":"object","additionalProperties":{}}`, "/additionalProperties", "additionalProperties is not a boolean"),
		refused(`{"type":"object","additionalProperties":"false"}`, "/additionalProperties", "additionalProperties is not a boolean"),
		refused(`{"type":"object","additionalProperties":null}`, "/additionalProperties", "additionalProperties is not a boolean"),
		refused(`{"type":"object","properties":[]}`, "/properties", noMap),
		refused(`{"type":"object","properties":null}`, "/properties", noMap),
		refused(`{"type":"object","properties":{"a":true}}`, "/properties/a", noMap),
		refused(`{"type":"object","properties":{"a":{},"b":[]}}`, "/properties/b", noMap),
		refused(`{"type":"object","required":{}}`, "/required", noList),
		refused(`{"type":"object","required":"a"}`, "/required", noList),
		refused(`{"type":"object","required":["a",1]}`, "/required/1", noList),
		refused(`{"type":"object","required":["a","a"]}`, "/required", "not JSON Schema: holds one value twice, at 0 and 1"),
	})
}

func TestDraft(t *testing.T) {
	const neither = "the schema is in neither JSON Schema 2020-12 nor draft-07"
	says := func(uri string) string { return `{"$schema":` + uri + `,"type":"object"}` }
	check(t, []row{
		accepted(says(`"https://json-schema.org/draft/2020-12/schema"`), `{"type":"object"}`),
		accepted(says(`"https://json-schema.org/draft/2020-12/schema#"`), `{"type":"object"}`),
		accepted(says(`"http://json-schema.org/draft-07/schema#"`), `{"type":"object"}`),
		accepted(says(`"http://json-schema.org/draft-07/schema"`), `{"type":"object"}`),
		accepted(says(`"https://json-schema.org/draft-07/schema#"`), `{"type":"object"}`),
		refused(says(`"http://json-schema.org/draft-06/schema#"`), "/$schema", neither),
		refused(says(`"https://json-schema.org/draft/2019-09/schema"`), "/$schema", neither),
		refused(says(`"http://json-schema.org/schema"`), "/$schema", neither), // whatever is newest
		refused(says(`"https://json-schema.org/draft/2020-12/schema##"`), "/$schema", neither),
		refused(says(`"ftp://json-schema.org/draft-07/schema"`), "/$schema", neither),
		refused(says(`"json-schema.org/draft-07/schema"`), "/$schema", neither),
		refused(says(`"https://example.com/meta"`), "/$schema", neither),
		refused(says(`"file:///etc/passwd"`), "/$schema", neither),
		refused(says(`""`), "/$schema", neither),
		refused(says(`null`), "/$schema", neither),
	})
}

// TestKeywords: a keyword counts where a schema stands, and nowhere else.
func TestKeywords(t *testing.T) {
	var rows []row
	x := strings.Repeat("x", 100)
	for _, keyword := range []string{"$dynamicRef", "$recursiveRef", "if", "then", "else", "patternProperties", "propertyNames",
		"dependentSchemas", "dependentRequired", "dependencies", "unevaluatedProperties", "unevaluatedItems"} {
		with := `{"` + keyword + `":{}}`
		rows = append(rows,
			refused(`{"type":"object","`+keyword+`":{}}`, "/"+keyword, widens(keyword)),
			refused(property(with), "/properties/p/"+keyword, widens(keyword)),
			refused(property(`{"items":`+with+`}`), "/properties/p/items/"+keyword, widens(keyword)),
			refused(property(`{"contains":`+with+`}`), "/properties/p/contains/"+keyword, widens(keyword)),
			refused(property(`{"additionalProperties":`+with+`}`), "/properties/p/additionalProperties/"+keyword, widens(keyword)),
			refused(property(`{"contentSchema":`+with+`}`), "/properties/p/contentSchema/"+keyword, widens(keyword)),
			refused(property(`{"prefixItems":[{},`+with+`]}`), "/properties/p/prefixItems/1/"+keyword, widens(keyword)),
			refused(property(`{"properties":{"q":`+with+`}}`), "/properties/p/properties/q/"+keyword, widens(keyword)),
			refused(`{"type":"object","allOf":[`+with+`]}`, "/allOf/0/"+keyword, widens(keyword)),
			refused(`{"type":"object","anyOf":[{"oneOf":[`+with+`]}]}`, "/anyOf/0/oneOf/0/"+keyword, widens(keyword)),
			refused(`{"type":"object","not":`+with+`}`, "/not/"+keyword, widens(keyword)),
			unchanged(property(`{"properties":`+with+`,"required":["`+keyword+`"]}`)),
			unchanged(property(`{"const":`+with+`,"enum":[`+with+`],"default":`+with+`,"examples":[`+with+`]}`)),
			unchanged(property(`{"x-vendor":`+with+`,"additionalItems":`+with+`}`)),
		)
	}
	for _, keyword := range []string{"minProperties", "maxProperties", "enum", "const"} {
		rows = append(rows, refused(`{"type":"object","`+keyword+`":1}`, "/"+keyword, widens(keyword)))
	}
	for _, keyword := range []string{"$schema", "$id", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$vocabulary", "$defs", "definitions"} {
		rows = append(rows, refused(property(`{"`+keyword+`":{}}`), "/properties/p/"+keyword, `"`+keyword+`" is understood at the root only`))
	}
	check(t, append(rows,
		refused(property(`{"\u0069f":{}}`), "/properties/p/if", widens("if")),
		unchanged(property(`{"If":{},"ref":"#/x","$Ref":"#/x"}`)),
		unchanged(property(`{"minProperties":1,"maxProperties":2,"const":{}}`)),
		unchanged(`{"type":"object","properties":{"$ref":{"type":"string"},"$defs":{},"if":{}}}`),
		refused(`{"type":"object","properties":{"`+x+`":{"properties":{"`+x+`":{"if":{}}}}}}`, "/properties/"+x+"/properties/"+x[:200-len("/properties//properties/"+x)]+"…", widens("if")),
		refused(`{"type":"object","properties":{"~/\"\n":{"if":{}}}}`, "/properties/~0~1\"\ufffd/if", widens("if")),
	))
}

// TestOrder: of two reasons the first in the order is told.
func TestOrder(t *testing.T) {
	deep := strings.Repeat(`{"not":`, 12) + `{}` + strings.Repeat(`}`, 12)
	long := `"` + strings.Repeat("d", 20_000) + `"`
	check(t, []row{
		refused(`{"type":"string","$schema":"x","if":{}}`, "", noObject),
		refused(`{"type":"object","if":{},"$schema":"x"}`, "/$schema", "the schema is in neither JSON Schema 2020-12 nor draft-07"),
		refused(`{"type":"object","description":1,"if":{}}`, "/if", widens("if")),
		refused(`{"type":"object","not":{"if":{}},"description":1}`, "/description", "the description is not a string"),
		refused(`{"type":"object","allOf":[`+deep+`,{"if":{}}]}`, "/allOf/1/if", widens("if")),
		refused(`{"type":"object","description":`+long+`,"not":`+deep+`}`, "/not/not/not/not/not/not/not/not/not/not/not/not", "the schema is nested deeper than 12 levels"),
		refused(`{"type":"object","description":`+long+`,"not":1}`, "", "the schema exceeds 16384 bytes once stored"),
		refused(`{"type":"object","not":1}`, "/not", "not JSON Schema: is number and not boolean or object"),
	})
}

func TestBounds(t *testing.T) {
	const tooLarge, tooDeep = "the schema exceeds 16384 bytes once stored", "the schema is nested deeper than 12 levels"
	described := func(n int) string { return `{"type":"object","description":"` + strings.Repeat("d", n) + `"}` }
	levels := func(open, inner, end string, n int) string {
		return strings.Repeat(open, n) + inner + strings.Repeat(end, n)
	}
	fixed := len(described(0))
	check(t, []row{
		unchanged(described(16_384 - fixed)),
		refused(described(16_385-fixed), "", tooLarge),
		accepted(`{"title":"`+strings.Repeat("d", 1_000_000)+`","type":"object"}`, `{"type":"object"}`), // it costs nothing

		unchanged(`{"type":"object","not":` + levels(`{"not":`, `{}`, `}`, 10) + `}`), // 1 + 10 + 1
		refused(`{"type":"object","not":`+levels(`{"not":`, `{}`, `}`, 11)+`}`, levels("/not", "", "", 12), tooDeep),
		unchanged(`{"type":"object","not":` + levels(`{"not":`, `true`, `}`, 11) + `}`),
		unchanged(property(`{"const":` + levels(`[`, `1`, `]`, 9) + `}`)), // lists are levels, constants too
		refused(property(`{"const":`+levels(`[`, `1`, `]`, 10)+`}`), "/properties/p/const"+levels("/0", "", "", 9), tooDeep),
		accepted(`{"type":"object","examples":`+levels(`[`, ``, `]`, 60)+`}`, `{"type":"object"}`),
		// What a reference brings counts where it is brought to.
		accepted(`{"type":"object","not":{"$ref":"#/$defs/a"},"$defs":{"a":`+levels(`{"not":`, `{}`, `}`, 10)+`}}`,
			`{"type":"object","not":`+levels(`{"not":`, `{}`, `}`, 10)+`}`),
		refused(`{"type":"object","not":{"not":{"$ref":"#/$defs/a"}},"$defs":{"a":`+levels(`{"not":`, `{}`, `}`, 10)+`}}`,
			levels("/not", "", "", 12), tooDeep),

		unchanged(property(`{"maxLength":2147483647,"minLength":1.0}`)),
		refused(property(`{"maxLength":2147483648}`), "/properties/p/maxLength", `"maxLength" is larger than 2147483647`),
		refused(property(`{"minItems":18446744073709551617}`), "/properties/p/minItems", `"minItems" is larger than 2147483647`),
		refused(property(`{"minProperties":1e400}`), "/properties/p/minProperties", `"minProperties" is larger than 2147483647`),
		refused(property(`{"maxLength":-1}`), "/properties/p/maxLength", `not JSON Schema: does not keep to minimum`),
		unchanged(property(`{"maximum":1e400,"minimum":-0.1e-400}`)),
		refused(property(`{"maximum":1e401}`), "/properties/p/maximum", "a number of too many digits or too large an exponent"),
		refused(property(`{"maximum":1e-401}`), "/properties/p/maximum", "a number of too many digits or too large an exponent"),
		refused(property(`{"enum":[`+strings.Repeat("1", 101)+`]}`), "/properties/p/enum/0", "a number of too many digits or too large an exponent"),
		refused(property(`{"enum":[1e99999999999999999999]}`), "/properties/p/enum/0", "a number of too many digits or too large an exponent"),
	})
}

func TestPattern(t *testing.T) {
	const unusable, steps = "pattern not usable", "pattern not usable: the patterns of the schema take more than 2000 steps"
	check(t, []row{
		unchanged(property(`{"pattern":"^[a-z]{1,64}(-[0-9]+)?$"}`)),
		refused(property(`{"pattern":"^(?=a)"}`), "/properties/p/pattern", unusable),
		refused(property(`{"pattern":"(a)\\1"}`), "/properties/p/pattern", unusable),
		refused(property(`{"pattern":"("}`), "/properties/p/pattern", unusable),
		refused(property(`{"pattern":"a{1001}"}`), "/properties/p/pattern", unusable),
		refused(property(`{"pattern":1}`), "/properties/p/pattern", "not JSON Schema: is number and not string"),
		unchanged(`{"type":"object","properties":{"p":{"pattern":".{999}"},"q":{"pattern":"a{999}"}}}`),
		refused(`{"type":"object","properties":{"p":{"pattern":".{999}"},"q":{"pattern":"a{999}bcd"}}}`, "/properties/q/pattern", steps),
		refused(property(`{"pattern":"`+strings.Repeat("a", 2001)+`"}`), "/properties/p/pattern", steps),
		refused(property(`{"pattern":"((a{30}){30}){30}"}`), "/properties/p/pattern", unusable), // the parser refuses more than 1,000 in all
	})
}

// TestHugePattern: a pattern that is too long to be stored is not even parsed.
func TestHugePattern(t *testing.T) {
	rows := []row{refused(property(`{"pattern":"`+strings.Repeat("a?", 1_000_000)+`"}`), "", "the schema exceeds 16384 bytes once stored")}
	if mib := allocated(func() { check(t, rows) }); mib > 64 {
		t.Errorf("%d MiB are allocated", mib)
	}
}

// TestNotASchema: what JSON Schema does not allow, with the place of it.
func TestNotASchema(t *testing.T) {
	check(t, []row{
		refused(property(`{"type":"strin"}`), "/properties/p/type", "not JSON Schema: fits no alternative of anyOf"),
		refused(property(`{"items":[{}]}`), "/properties/p/items", "not JSON Schema: is array and not boolean or object"), // 2020-12
		refused(property(`{"items":"x"}`), "/properties/p/items", "not JSON Schema: is string and not boolean or object"),
		refused(property(`{"allOf":{}}`), "/properties/p/allOf", "not JSON Schema: is object and not array"),
		refused(property(`{"properties":[]}`), "/properties/p/properties", "not JSON Schema: is array and not object"),
		refused(property(`{"minLength":"1"}`), "/properties/p/minLength", "not JSON Schema: is string and not integer"),
		refused(property(`{"enum":1}`), "/properties/p/enum", "not JSON Schema: is number and not array"),
		refused(`{"type":"object","anyOf":[]}`, "/anyOf", "not JSON Schema: has fewer than 1 elements"),
		refused(`{"type":"object","oneOf":[{"multipleOf":0}]}`, "/oneOf/0/multipleOf", "not JSON Schema: does not keep to exclusiveMinimum"),
	})
}

// TestContractRows are the rows of the predecessor's own tests: five keywords
// kept verbatim, and eight schemas refused and not mended. One is different: a
// reference that leads somewhere is replaced.
func TestContractRows(t *testing.T) {
	const five = `"type":"object","description":"Find a record","properties":{"id":{"type":"string"},"opts":{}},"required":["id"],"additionalProperties":false`
	big := `{"type":"object","properties":{"p":{"description":"` + strings.Repeat("x", 17_000) + `"}}}`
	deep := property(strings.Repeat(`{"items":`, 20) + `{}` + strings.Repeat(`}`, 20))
	check(t, []row{
		accepted(`{"title":"T","$id":"urn:t","examples":[],"x-vendor":1,`+five+`}`, `{`+five+`}`),
		refused(property(`{"$ref":"#/$defs/p"}`), "/properties/p/$ref", "the reference leads nowhere"),
		refused(property(`{"dependentRequired":{"a":["b"]}}`), "/properties/p/dependentRequired", widens("dependentRequired")),
		refused(`{"type":"object","if":{},"then":{}}`, "/if", widens("if")),
		refused(`{"type":["object","null"]}`, "", noObject),
		refused(`{"type":"string"}`, "", noObject),
		refused(`"not a schema"`, "", absent),
		refused(deep, "/properties/p"+strings.Repeat("/items", 10), "the schema is nested deeper than 12 levels"),
		refused(big, "", "the schema exceeds 16384 bytes once stored"),
	})
}

// TestRefusalIsOurs: names of the schema are quoted and cut, and do not grow the
// message.
func TestRefusalIsOurs(t *testing.T) {
	evil := strings.Repeat(`\u001b[31m\n`, 1000)
	for _, advertised := range []string{
		`{"type":"object","properties":{"` + evil + `":{"if":{}}}}`,
		`{"type":"object","properties":{"` + evil + `":{"$ref":"#/` + evil + `"}}}`,
		`{"type":"object","$schema":"` + evil + `"}`,
		`{"type":"object","properties":{"p":{"enum":"` + evil + `"}}}`,
		`{"type":"object","title":1,"` + evil + `":1,"` + evil + `":2}`,
	} {
		_, err := schema.Normalise(strictjson.Raw(advertised))
		if err == nil {
			t.Fatalf("%.80s is accepted", advertised)
		}
		if text := err.Error(); len(text) > 1000 || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' }) {
			t.Errorf("%.80s: %d bytes: %.300q", advertised, len(text), text)
		}
		if no := (*schema.Refusal)(nil); errors.As(err, &no) && (len(no.Pointer) > 900 || strings.Contains(no.Pointer, "\x1b")) {
			t.Errorf("%.80s: the pointer is %.300q", advertised, no.Pointer)
		}
	}
}
