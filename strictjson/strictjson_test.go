package strictjson_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"onbehalf.internal/broker/strictjson"
)

// nested is n arrays in one another.
func nested(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }

func TestCheck(t *testing.T) {
	accepted := func(doc string) [2]string { return [2]string{doc, ""} }
	refused := func(doc, why string) [2]string { return [2]string{doc, why} }

	for _, r := range [][2]string{
		accepted(`{"actor":"a"}`),
		accepted(" {} \n"),
		accepted(`null`),
		accepted(`""`),
		accepted(`[1e400,9007199254740993]`), // not read as floats
		accepted(`"a\u0000b"`),               // a string; whether it is a name is not asked here
		accepted(`"\ud83d\ude00"`),
		accepted(`{"a":1,"A":2}`), // two names
		accepted(`[{"a":1},{"a":1}]`),
		accepted(nested(strictjson.MaxDepth)),
		accepted(strings.Repeat(`{"a":`, strictjson.MaxDepth) + `1` + strings.Repeat(`}`, strictjson.MaxDepth)),

		refused(``, `empty document`),
		refused(" \t", `document ends too early`),
		refused(`{"a":`, `document ends too early`),
		refused("\ufeff{}", `document begins with a byte order mark`),
		refused("\"\xff\"", `document is not valid UTF-8`),
		refused(`{"actor":"a","actor":"b"}`, `member "actor" twice`),
		refused(`{"actor":"a","\u0061ctor":"b"}`, `member "actor" twice`),
		refused(`{"x":{"list":[0,{"b":1,"b":2}]}}`, `member "x/list/1/b" twice`),
		refused(`{"`+strings.Repeat("k", 100_000)+`":1,"`+strings.Repeat("k", 100_000)+`":1}`, `member "`+strings.Repeat("k", 64)+`" twice`),
		refused(`{"actor":"a"}{"actor":"b"}`, `document has something after its end`),
		refused(`{"actor":"a"}x`, `document has something after its end`),
		refused(`{"actor":"a"},`, `document has something after its end`),
		refused(`{"actor":"\ud800"}`, `document is not JSON at byte 10`),
		refused(`{'actor':1}`, `document is not JSON at byte 1`),
		refused(`[1,]`, `document is not JSON at byte 2`),
		refused(`[01]`, `document is not JSON at byte 2`),
		refused(`NaN`, `document is not JSON at byte 0`),
		refused("\"a\nb\"", `document is not JSON at byte 2`),
		refused(`/* */ {}`, `document is not JSON at byte 0`),
		refused(nested(strictjson.MaxDepth+1), `document is nested deeper than 64 levels`),
		refused(nested(100_000), `document is nested deeper than 64 levels`),
	} {
		doc, why := r[0], r[1]
		if got := text(strictjson.Check([]byte(doc))); got != why {
			t.Errorf("Check(%.60q) = %q, want %q", doc, got, why)
		}
	}
}

// call is a body as the broker takes one.
type call struct {
	Server    string            `json:"server"`
	Tool      string            `json:"tool"`
	Arguments strictjson.Raw    `json:"arguments"`
	Wait      *bool             `json:"wait"`
	Count     int               `json:"count"`
	Enabled   bool              `json:"enabled"`
	Scopes    []string          `json:"scopes"`
	Labels    map[string]string `json:"labels"`
	Auth      struct {
		Mode string `json:"mode"`
	} `json:"auth"`
}

// TestDecodeKnown: what is not known is passed over, and nothing else is forgiven.
func TestDecodeKnown(t *testing.T) {
	for doc, why := range map[string]string{
		`{"tool":"greet","new":{"a":[null]}}`: "",
		`{"Tool":"greet"}`:                    "",
		`{"tool":null}`:                       `member "tool" is null`,
		`{"tool":1}`:                          `member "tool": a number does not fit here`,
		`{"tool":"greet","tool":"greet"}`:     `member "tool" twice`,
		`{"new":{"a":1,"a":2}}`:               `member "new/a" twice`,
		`{"new":` + nested(2) + `}`:           "",
		`{"new":` + nested(3) + `}`:           `document is nested deeper than 3 levels`,
		`{"tool":"greet"} {}`:                 `document has something after its end`,
		`[]`:                                  `document is an array, not an object`,
	} {
		var got struct {
			Tool string `json:"tool"`
		}
		if err := strictjson.DecodeKnown([]byte(doc), 3, &got); text(err) != why || why == "" && got.Tool != "" && got.Tool != "greet" || strings.Contains(doc, "Tool") && got.Tool != "" {
			t.Errorf("%.60s: %+v, %v, want %q", doc, got, err, why)
		}
	}
}

func TestDecode(t *testing.T) {
	accepted := func(doc string) [2]string { return [2]string{doc, ""} }
	refused := func(doc, why string) [2]string { return [2]string{doc, why} }

	for _, r := range [][2]string{
		accepted(`{}`),
		accepted(`{"server":"records","tool":"search","arguments":{"q":[null]}}`),
		accepted(`{"wait":null}`),
		accepted(`{"arguments":null}`),
		accepted(`{"too\u006c":"search"}`),

		refused(`null`, `document is null, not an object`),
		refused(`[]`, `document is an array, not an object`),
		refused(`""`, `document is a string, not an object`),
		refused(` 7`, `document is a number, not an object`),
		refused(`{"tol":"search"}`, `unknown member "tol"`),
		refused(`{"tool":"greet","Tool":"secret"}`, `unknown member "Tool"`),
		refused(`{"TOOL":"secret"}`, `unknown member "TOOL"`),
		refused(`{"too\u004c":"secret"}`, `unknown member "tooL"`),
		refused(`{"\u017ferver":"x"}`, `unknown member "ſerver"`), // folds to "server"
		refused(`{"to\u00f6l":"x"}`, `unknown member "toöl"`),
		refused(`{"auth":{"Mode":"x"}}`, `unknown member "auth/Mode"`),
		refused(`{"`+strings.Repeat("k", 100_000)+`":1}`, `unknown member "`+strings.Repeat("k", 64)+`"`),
		refused(`{"tool":"greet","tool":"secret"}`, `member "tool" twice`),
		refused(`{"arguments":{"a":1,"a":2}}`, `member "arguments/a" twice`),
		refused(`{"arguments":`+nested(64)+`}`, `document is nested deeper than 64 levels`),
		refused(`{"tool":null}`, `member "tool" is null`),
		refused(`{"count":null}`, `member "count" is null`),
		refused(`{"enabled":null}`, `member "enabled" is null`),
		refused(`{"scopes":null}`, `member "scopes" is null`),
		refused(`{"scopes":["a",null]}`, `member "scopes/1" is null`),
		refused(`{"labels":null}`, `member "labels" is null`),
		refused(`{"labels":{"a":null}}`, `member "labels/a" is null`),
		refused(`{"auth":null}`, `member "auth" is null`),
		refused(`{"tool":7}`, `member "tool": a number does not fit here`),
		refused(`{"count":"7"}`, `member "count": a string does not fit here`),
		refused(`{"count":7.5}`, `member "count": a number does not fit here`),
		refused(`{"enabled":"true"}`, `member "enabled": a string does not fit here`),
		refused(`{"scopes":"a"}`, `member "scopes": a string does not fit here`),
		refused(`{"tool":{"secret":"x"}}`, `member "tool": an object does not fit here`),
	} {
		doc, why := r[0], r[1]
		var c call
		if got := text(strictjson.Decode([]byte(doc), &c)); got != why {
			t.Errorf("Decode(%.60q) = %q, want %q", doc, got, why)
		}
	}
}

func TestDecodeFills(t *testing.T) {
	yes := true
	want := call{Server: "records", Tool: "search", Wait: &yes, Count: 7, Arguments: strictjson.Raw(`{"n": 9007199254740993,  "big":1e400}`)}

	var got call
	err := strictjson.Decode([]byte(`{"server":"records","tool":"search","wait":true,"count":7,"arguments": {"n": 9007199254740993,  "big":1e400} }`), &got)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("Decode = %v, -want +got:\n%s", err, diff)
	}
}

func TestMembers(t *testing.T) {
	got, err := strictjson.Members([]byte(` {"a": [1, 2] ,"n":null,"Big":9007199254740993} `))
	want := map[string]strictjson.Raw{"a": strictjson.Raw(`[1, 2]`), "n": strictjson.Raw(`null`), "Big": strictjson.Raw(`9007199254740993`)}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("Members = %v, -want +got:\n%s", err, diff)
	}
	for doc, why := range map[string]string{
		`null`:                `document is null, not an object`,
		`true`:                `document is a boolean, not an object`,
		`{"a":1}{}`:           `document has something after its end`,
		`{"a":{"b":1,"b":2}}`: `member "a/b" twice`,
	} {
		if _, err := strictjson.Members([]byte(doc)); text(err) != why {
			t.Errorf("Members(%q) = %v, want %q", doc, err, why)
		}
	}
}

// TestMembersWithin tells deep from wide, and from brackets in a string.
func TestMembersWithin(t *testing.T) {
	for doc, why := range map[string]string{
		`{"a":[1]}`:                       "",
		`{"a":[[1]]}`:                     `document is nested deeper than 2 levels`,
		`{"a":[],"b":[],"c":{},"d":[{}]}`: `document is nested deeper than 2 levels`,
		`{"a":[],"b":[],"c":{},"d":[1]}`:  "",
		`{"a":"[[[{{{","b":"\"[[["}`:      "",
		`{"a":` + nested(9_999) + `}`:     `document is nested deeper than 2 levels`,
		`{"a":` + nested(10_001) + `}`:    `document is nested deeper than 2 levels`,
	} {
		if m, err := strictjson.MembersWithin([]byte(doc), 2); text(err) != why || (why == "") != (m["a"] != nil) {
			t.Errorf("MembersWithin(%.60q) = %v, %v, want %q", doc, m, err, why)
		}
	}
}

// An error is printed and sent; what a document says must not be in it.
func TestErrorsHoldNoValue(t *testing.T) {
	const planted = "s3cr3t-value-of-a-member"
	for _, doc := range []string{
		`{"count":"` + planted + `"}`,
		`{"tol":"` + planted + `"}`,
		`{"tool":"` + planted + `","tool":"` + planted + `"}`,
		`{"tool":"` + planted + `"`,
		`{"tool":"` + planted + `\ud800"}`,
		`{"tool":"` + planted + "\xff\"}",
		`"` + planted + `"`,
		`{"tool":"x"}` + planted,
		`{"labels":{"a":["` + planted + `"]}}`,
	} {
		if err := strictjson.Decode([]byte(doc), &call{}); err == nil || strings.Contains(err.Error(), planted) {
			t.Errorf("Decode(%q) = %v", doc, err)
		}
	}
}

func FuzzCheck(f *testing.F) {
	for _, doc := range []string{`{"a":[1,{"b":null}]}`, `"\ud83d\ude00"`, `{"a":1,"a":2}`, "\ufeff1", nested(65), `-0.0e+10`} {
		f.Add([]byte(doc))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		before := bytes.Clone(doc)
		_, err := strictjson.Members(doc)
		if why := strictjson.Check(doc); why != nil {
			if text(err) != why.Error() {
				t.Errorf("Check = %v, Members = %v", why, err)
			}
			return
		}
		if isObject := bytes.HasPrefix(bytes.TrimLeft(doc, " \t\r\n"), []byte("{")); isObject != (err == nil) {
			t.Errorf("accepted by Check, by Members: %v", err)
		}
		if !bytes.Equal(doc, before) {
			t.Error("the document was changed")
		}
		// What is accepted is a value that can be put into another and come back unchanged.
		members, err := strictjson.Members([]byte(`{"x":` + string(doc) + `}`))
		if want := bytes.Trim(doc, " \t\r\n"); err == nil && !bytes.Equal(members["x"], want) {
			t.Errorf("came back as %q", members["x"])
		}
		if err != nil && strictjson.Check([]byte("["+string(doc)+"]")) == nil {
			t.Errorf("accepted alone and in an array, not in an object: %v", err)
		}
	})
}

func FuzzDecode(f *testing.F) {
	for _, doc := range []string{`{"tool":"a","arguments":{"x":1.50}}`, `{"wait":null}`, `{"Tool":"a"}`, `{"labels":{"a":"b"}}`} {
		f.Add([]byte(doc))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		var c call
		if strictjson.Decode(doc, &c) != nil {
			return
		}
		members, err := strictjson.Members(doc)
		if err != nil {
			t.Fatalf("accepted by Decode, not by Members: %v", err)
		}
		if !bytes.Equal(c.Arguments, members["arguments"]) {
			t.Errorf("arguments %q became %q", members["arguments"], c.Arguments)
		}
	})
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
