package schema_test

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"onbehalf.internal/broker/catalogue/schema"
	"onbehalf.internal/broker/strictjson"
)

func compiled(t testing.TB, stored string) *schema.Schema {
	t.Helper()
	s, err := schema.Compile(strictjson.Raw(stored))
	if err != nil {
		t.Fatalf("%.200s: %v", stored, err)
	}
	return s
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestCompile(t *testing.T) {
	for _, r := range [][2]string{
		{`{}`, ""}, // accepts everything
		{`{"type":"object"}`, ""},
		{property(`{"prefixItems":[ true ]}`), ""},

		{``, absent},
		{`null`, absent},
		{`[]`, absent},
		{`"{}"`, absent},
		{`{"type":"object"`, "the schema can not be read: document ends too early"},
		{`{"type":"object","type":"string"}`, `the schema can not be read: member "type" twice`},
		{`{"type":"string"}`, noObject},
		{`{"type":"object","minProperties":1}`, `"/minProperties": ` + widens("minProperties")},
		{`{"type":"object","properties":{"p":true}}`, `"/properties/p": ` + noMap},
		{property(strings.Repeat(`[`, 11) + strings.Repeat(`]`, 11)), `"/properties/p` + strings.Repeat("/0", 10) + `": the schema is nested deeper than 12 levels`},
		{`{"type":"object","description":"` + strings.Repeat("d", 16_384) + `"}`, "the schema exceeds 16384 bytes once stored"},
		{property(`{"type":"strin"}`), `"/properties/p/type": not JSON Schema: fits no alternative of anyOf`},
		// What Normalise would have changed was not stored by us.
		{`{"type":"object","title":"t"}`, "the schema is not as one is stored"},
		{`{"type":"object" }`, "the schema is not as one is stored"},
		{property(`{"allOf":[{"$ref":"#/properties/q"}]},"q":{}`), "the schema is not as one is stored"},
		{property(`{"if":{}}`), `"/properties/p/if": ` + widens("if")},
		{property(`{"$ref":"#"}`), `"/properties/p/$ref": ` + itself},
		{property(`{"maximum":1e500}`), `"/properties/p/maximum": a number of too many digits or too large an exponent`},
	} {
		if _, err := schema.Compile(strictjson.Raw(r[0])); text(err) != r[1] {
			t.Errorf("%s: %q, want %q", r[0], text(err), r[1])
		}
	}
	if err := compiled(t, `{}`).Check(strictjson.Raw(`{"a":[1]}`)); err != nil {
		t.Errorf("{} refuses: %v", err)
	}
}

// TestCheck says what is told for each keyword: a pointer and our words.
func TestCheck(t *testing.T) {
	for _, r := range [][3]string{ // the property p, its value, what is wrong
		{`{}`, `null`, ``},
		{`{"type":"string"}`, `"x"`, ``},
		{`{"type":"string"}`, `1`, `is number and not string`},
		{`{"type":["string","null"]}`, `{}`, `is object and not null or string`},
		{`{"type":"integer"}`, `1.0`, ``},
		{`{"type":"integer"}`, `1.5`, `is number and not integer`},
		{`{"enum":["a","b"]}`, `"c"`, `is none of the values of enum`},
		{`{"const":{"a":[1.0]}}`, `{"a":[1]}`, ``},
		{`{"const":"a"}`, `"secret"`, `does not keep to const`},
		{`{"minLength":2}`, `"é"`, `has fewer than 2 characters`},
		{`{"maxLength":1}`, `"é"`, ``},
		{`{"maxLength":1}`, `"ab"`, `has more than 1 characters`},
		{`{"pattern":"^a"}`, `"secret"`, `does not keep to pattern`},
		{`{"format":"email"}`, `"no address"`, ``}, // not checked
		{`{"minimum":2}`, `1`, `does not keep to minimum`},
		{`{"maximum":2}`, `3`, `does not keep to maximum`},
		{`{"exclusiveMinimum":2}`, `2`, `does not keep to exclusiveMinimum`},
		{`{"exclusiveMaximum":2}`, `2`, `does not keep to exclusiveMaximum`},
		{`{"multipleOf":0.1}`, `0.3`, ``},
		{`{"multipleOf":0.1}`, `0.35`, `does not keep to multipleOf`},
		{`{"minItems":1}`, `[]`, `has fewer than 1 elements`},
		{`{"maxItems":0}`, `[1]`, `has more than 0 elements`},
		{`{"uniqueItems":true}`, `[1,"1",1.0]`, `holds one value twice, at 0 and 2`},
		{`{"contains":{"const":1}}`, `[2]`, `does not keep to contains`},
		{`{"contains":{"const":1},"minContains":2}`, `[1]`, `does not keep to minContains`},
		{`{"contains":{"const":1},"maxContains":1}`, `[1,1]`, `does not keep to maxContains`},
		{`{"minProperties":1}`, `{}`, `has fewer than 1 members`},
		{`{"maxProperties":0}`, `{"a":1}`, `has more than 0 members`},
		{`{"required":["b","a"]}`, `{"c":1}`, `lacks "a", "b"`},
		{`{"required":["a","b","c","d","e"]}`, `{}`, `lacks "a", "b", "c" and 2 more`},
		{`{"additionalProperties":false}`, `{"b":1,"a":"secret"}`, `has what is not allowed here: "a", "b"`},
		{`{"not":{"type":"string"}}`, `"secret"`, `fits what not excludes`},
		{`{"anyOf":[{"type":"string"},{"type":"null"}]}`, `1`, `fits no alternative of anyOf`},
		{`{"oneOf":[{"type":"string"},{"type":"null"}]}`, `1`, `fits no alternative of oneOf`},
		{`{"oneOf":[{},true]}`, `1`, `fits more than one alternative of oneOf`},
		{`{"allOf":[{"type":"string"},{"type":"string"}]}`, `1`, `is number and not string`}, // once
		{`{"allOf":[{"type":"string"},{"minLength":2}]}`, `"a"`, `has fewer than 2 characters`},
	} {
		want := r[2]
		if want != "" {
			want = `"/p": ` + want
		}
		if err := compiled(t, property(r[0])).Check(strictjson.Raw(`{"p":` + r[1] + `}`)); text(err) != want {
			t.Errorf("%s against %s: %q, want %q", r[1], r[0], text(err), want)
		}
	}
}

// TestCheckPlaces: the pointer leads into the arguments, and what can not be
// read is refused as a whole.
func TestCheckPlaces(t *testing.T) {
	s := compiled(t, `{"type":"object","properties":{"a/b~":{"prefixItems":[{"type":"string"}],"items":{"type":"null"}},"n":{"minimum":0}},"required":["n"],"additionalProperties":false,"anyOf":[{"not":{"properties":{"x":false}}}]}`)
	for _, r := range [][2]string{
		{`{"n":1,"x":1}`, `has what is not allowed here: "x"`},
		{`{"a/b~":["s",null,1]}`, `fits no alternative of anyOf; lacks "n"; "/a~1b~0/2": is number and not null`},
		{`[]`, `is array and not object`},
		{``, "the arguments can not be read: empty document"},
		{`{"n":1,"n":2}`, `the arguments can not be read: member "n" twice`},
		{`{"n":1}}`, "the arguments can not be read: document has something after its end"},
		{`{"n":1e401}`, `"/n": a number of too many digits or too large an exponent`},
		{`{"n":` + strings.Repeat("1", 101) + `}`, `"/n": a number of too many digits or too large an exponent`},
	} {
		if err := s.Check(strictjson.Raw(r[0])); text(err) != r[1] {
			t.Errorf("%s: %q, want %q", r[0], text(err), r[1])
		}
	}
}

// TestNumbersAreExact: two numbers that are one float are two numbers.
func TestNumbersAreExact(t *testing.T) {
	for _, r := range [][3]string{
		{`{"const":9007199254740993}`, `9007199254740993`, "fits"},
		{`{"const":9007199254740993}`, `9007199254740992`, ""},
		{`{"maximum":9007199254740992}`, `9007199254740993`, ""},
		{`{"enum":[0.1]}`, `0.1000000000000000055511151231257827`, ""},
		{`{"enum":[100]}`, `1e2`, "fits"},
		{`{"maximum":1e400}`, `1.0000000000000000000000001e400`, ""},
		{`{"uniqueItems":true}`, `[9007199254740993,9007199254740992]`, "fits"},
	} {
		err := compiled(t, property(r[0])).Check(strictjson.Raw(`{"p":` + r[1] + `}`))
		if (err == nil) != (r[2] == "fits") {
			t.Errorf("%s against %s: %v", r[1], r[0], err)
		}
	}
}

// TestCheckIsBounded: neither the message nor the memory grows with what a
// schema and arguments can do to each other.
func TestCheckIsBounded(t *testing.T) {
	const tooMany = "the arguments hold too many values to check them against this schema"
	const once = `{"const":0}`
	alternatives := compiled(t, property(`{"items":{"anyOf":[`+strings.Repeat(once+",", 999)+once+`]}}`))
	list := func(n int) strictjson.Raw { return strictjson.Raw(`{"p":[` + strings.Repeat("1,", n-1) + `1]}`) }

	var err error
	if mib := allocated(func() { err = alternatives.Check(list(500)) }); mib > 512 {
		t.Errorf("500 elements: %d MiB are allocated", mib)
	}
	if rs, ok := err.(schema.Refusals); !ok || len(rs) != 5 || rs[0].Pointer != "/p/0" {
		t.Errorf("500 elements: %v", err)
	}
	if err := alternatives.Check(list(100_000)); text(err) != tooMany {
		t.Errorf("100,000 elements: %.300v", err)
	}
	if err := compiled(t, property(`{"items":{"type":"integer"}}`)).Check(list(100_000)); err != nil {
		t.Errorf("100,000 elements that fit: %v", err)
	}

	long := strings.Repeat(`\u001b`, 30_000)
	err = compiled(t, property(`{"additionalProperties":{"additionalProperties":false}}`)).Check(strictjson.Raw(
		`{"p":{"` + long + `":{"` + long + `":1,"b":1,"c":1,"d":1},"` + long + `a":{"a":1}}}`))
	if s := text(err); s == "" || len(s) > 2500 || strings.Contains(s, "\x1b") {
		t.Errorf("long names: %d bytes: %.300q", len(s), s)
	}
	one := compiled(t, `{"type":"object","allOf":[{"additionalProperties":{"items":false}}]}`)
	arguments := strictjson.Raw(`{"` + strings.Repeat("n", 100_000) + `":[` + strings.Repeat("1,", 49_999) + `1]}`)
	if mib := allocated(func() { err = one.Check(arguments) }); err == nil || mib > 256 {
		t.Errorf("50,000 places below a long name: %d MiB are allocated, %.300v", mib, err)
	}
}

// allocated is how many MiB f allocates, given back or not.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return (after.TotalAlloc - before.TotalAlloc) >> 20
}

// TestCheckAtOnce is for the race detector.
func TestCheckAtOnce(t *testing.T) {
	s := compiled(t, property(`{"type":"string","pattern":"^a","minLength":2}`))
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 50 {
				value, want := fmt.Sprintf(`{"p":"ab%d"}`, i), ""
				if i%2 == 0 {
					value, want = `{"p":1}`, `"/p": is number and not string`
				}
				if err := s.Check(strictjson.Raw(value)); text(err) != want {
					t.Errorf("%s: %v", value, err)
				}
			}
		})
	}
	all.Wait()
}
