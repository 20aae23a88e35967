package strictjson_test

import (
	"encoding/json"
	"math/big"
	"strings"
	"testing"

	"onbehalf.internal/broker/strictjson"
)

func TestDigest(t *testing.T) {
	// Each line holds spellings of one value; no two lines hold the same.
	values := [][]string{
		{`1`, `1.0`, `1e0`, `10e-1`, `0.1E+1`, `1.000e00`, ` 1 `},
		{`0`, `-0`, `0.0`, `0e5`, `-0.0e-5`},
		{`-1`, `-1.0`, `-10e-1`},
		{`10`, `1e1`, `1E+1`, `100e-1`},
		{`9007199254740992`, `9007199254740992.0`},
		{`9007199254740993`},
		{`12345678901234567890`},
		{`12345678901234567000`, `12345678901234567e3`},
		{`0.1`, `1e-1`},
		{`0.10000000000000001`},
		{`1e400`, `10e399`},
		{`1e401`},
		{`1e2147483647`, `10e2147483646`},
		{`null`},
		{`true`},
		{`false`},
		{`""`},
		{`"1"`},
		{`"true"`},
		{`"a"`, `"\u0061"`},
		{`"A"`},
		{`"é"`, `"\u00e9"`},
		{`"e\u0301"`}, // the same to the eye
		{`"/"`, `"\/"`},
		{`[]`, `[ ]`},
		{`{}`},
		{`[[]]`},
		{`[[],[]]`},
		{`[null]`},
		{`["a","b"]`, "[ \"a\" ,\n\"b\" ]"},
		{`["b","a"]`},
		{`["ab"]`},
		{`["a\"\u0000b","c"]`}, // where one string ends is not for the strings to say
		{`["a","b\"\u0000c"]`},
		{`["a\"\u0001b","c"]`},
		{`["a","b\"\u0001c"]`},
		{`[["a"],"b"]`},
		{`[["a","b"]]`},
		{`{"a":1,"b":2}`, `{"b":2,"a":1}`, `{ "\u0062":2.0, "a":1 }`},
		{`{"a":2,"b":1}`},
		{`{"a":{"b":1}}`},
		{`{"a":{},"b":1}`},
		{`{"a":null}`},
		{`{"a":"b"}`},
		{`{"x":{"b":[1,{"d":1,"c":2}],"a":0}}`, `{"x":{"a":0,"b":[1,{"c":2,"d":1}]}}`},
	}
	seen := map[[32]byte]string{}
	for _, spellings := range values {
		first := digest(t, spellings[0])
		if other, ok := seen[first]; ok {
			t.Errorf("%s and %s have one digest", other, spellings[0])
		}
		seen[first] = spellings[0]
		for _, s := range spellings[1:] {
			if digest(t, s) != first {
				t.Errorf("%s and %s have two digests", spellings[0], s)
			}
		}
	}
}

func TestDigestRefuses(t *testing.T) {
	const exponent = `the exponent of a number does not fit into 32 bits`
	for doc, why := range map[string]string{
		``:                                  `empty document`,
		`{"a":1,"a":1}`:                     `member "a" twice`,
		`1 1`:                               `document has something after its end`,
		`1e2147483648`:                      exponent,
		`[{"a":[1e-2147483649]}]`:           exponent,
		`1e` + strings.Repeat("9", 100_000): exponent,
		nested(65):                          `document is nested deeper than 64 levels`,
	} {
		if _, err := strictjson.Digest([]byte(doc)); text(err) != why {
			t.Errorf("Digest(%.60q) = %v, want %q", doc, err, why)
		}
	}
}

// The digest is stable under what a sender's encoder may change: order of
// members, white space, escapes. encoding/json, told to keep numbers, is one.
func FuzzDigest(f *testing.F) {
	for _, doc := range []string{`{"b":[1.50,"\u0061"],"a":{"d":null,"c":-0}}`, `9007199254740993`, `[[],{}]`, `{"<":"&"}`} {
		f.Add([]byte(doc))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		want, err := strictjson.Digest(doc)
		if err != nil {
			return
		}
		if again, err := strictjson.Digest(reencode(t, doc)); err != nil || again != want {
			t.Errorf("%q and %q have two digests (%v)", doc, reencode(t, doc), err)
		}
	})
}

// FuzzDigestNumbers holds two numbers against exact arithmetic.
func FuzzDigestNumbers(f *testing.F) {
	f.Add("1", "1.0")
	f.Add("9007199254740992", "9007199254740993")
	f.Add("-0", "0e7")
	f.Add("12e3", "120E+2")
	f.Fuzz(func(t *testing.T, a, b string) {
		x, y := rational(a), rational(b)
		if x == nil || y == nil {
			return
		}
		if same := digest(t, a) == digest(t, b); same != (x.Cmp(y) == 0) {
			t.Errorf("digests of %s and %s: same = %v", a, b, same)
		}
	})
}

func digest(t *testing.T, doc string) [32]byte {
	t.Helper()
	d, err := strictjson.Digest([]byte(doc))
	if err != nil {
		t.Fatalf("Digest(%q): %v", doc, err)
	}
	return d
}

func reencode(t *testing.T, doc []byte) []byte {
	t.Helper()
	var v any
	d := json.NewDecoder(strings.NewReader(string(doc)))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("accepted, but not by encoding/json: %v", err)
	}
	out, err := json.MarshalIndent(v, "", "\t") // sorts the members of a map
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// rational returns the value of a JSON number that is small enough to compute with.
func rational(s string) *big.Rat {
	if len(s) > 40 || strings.ContainsAny(s, " \t\r\n") || !json.Valid([]byte(s)) || strings.ContainsAny(s, `"[{tfn`) {
		return nil
	}
	if i := strings.IndexAny(s, "eE"); i >= 0 && len(s)-i > 5 {
		return nil
	}
	r, ok := new(big.Rat).SetString(s)
	if !ok {
		return nil
	}
	return r
}
