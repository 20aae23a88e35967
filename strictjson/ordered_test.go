package strictjson_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"onbehalf.internal/broker/strictjson"
)

// TestOrdered: names in the order of the document, and every value with its bytes.
func TestOrdered(t *testing.T) {
	raw := func(s string) strictjson.Raw { return strictjson.Raw(s) }
	for _, tc := range []struct {
		doc  string
		want []strictjson.Member
	}{
		{` { "b" : 1.0 , "\u0061" : { "x" : [ ] } , "" : "}" } `, []strictjson.Member{
			{Name: "b", Spelled: raw(`"b"`), Value: raw(`1.0`)},
			{Name: "a", Spelled: raw(`"\u0061"`), Value: raw(`{ "x" : [ ] }`)},
			{Name: "", Spelled: raw(`""`), Value: raw(`"}"`)},
		}},
		{`{}`, nil},
		{`[{"a":1}]`, nil},
		{`"a"`, nil},
		{``, nil},
	} {
		if diff := cmp.Diff(tc.want, strictjson.Ordered(raw(tc.doc))); diff != "" {
			t.Errorf("%s: %s", tc.doc, diff)
		}
	}
}

func TestElements(t *testing.T) {
	raw := func(s string) strictjson.Raw { return strictjson.Raw(s) }
	for _, tc := range []struct {
		doc  string
		want []strictjson.Raw
	}{
		{` [ 1e2 , { "a" : 1 } , [ ] , "]" ] `, []strictjson.Raw{raw(`1e2`), raw(`{ "a" : 1 }`), raw(`[ ]`), raw(`"]"`)}},
		{`[]`, nil},
		{`{"a":[1]}`, nil},
		{`1`, nil},
		{``, nil},
	} {
		if diff := cmp.Diff(tc.want, strictjson.Elements(raw(tc.doc))); diff != "" {
			t.Errorf("%s: %s", tc.doc, diff)
		}
	}
}
