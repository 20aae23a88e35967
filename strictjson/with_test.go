package strictjson_test

import (
	"testing"

	"onbehalf.internal/broker/strictjson"
)

// TestWith: one more member, and no other byte changes but white space at the end.
func TestWith(t *testing.T) {
	for _, tc := range []struct{ doc, name, value, want string }{
		{`{}`, "k", "v", `{"k":"v"}`},
		{" {\n} \n", "k", "v", " {\"k\":\"v\"}"},
		{`{"a":1.0, "b" :{"k":2}}`, "k", "v", `{"a":1.0, "b" :{"k":2},"k":"v"}`},
		{`{"a":"}" }`, "k\"", "v\\", `{"a":"}","k\"":"v\\"}`},
		{`{"k":null}`, "k", "v", ""},
		{`{"\u006b":1}`, "k", "v", ""},
	} {
		before := strictjson.Raw(tc.doc)
		got, err := strictjson.With(before, tc.name, tc.value)
		if string(got) != tc.want || (err == nil) != (tc.want != "") || string(before) != tc.doc {
			t.Errorf("%s: %s, %v, want %s", tc.doc, got, err, tc.want)
		}
		if err == nil && strictjson.Check(got) != nil {
			t.Errorf("%s: %s is not JSON", tc.doc, got)
		}
	}
}
