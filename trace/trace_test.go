package trace_test

import (
	"net/http"
	"strings"
	"testing"

	"onbehalf.internal/broker/trace"
)

const (
	id      = "4bf92f3577b34da6a3ce929d0e0e4736"
	span    = "00f067aa0ba902b7"
	whole   = "00-" + id + "-" + span + "-01"
	unknown = "00-" + id + "-" + span + "-00"
)

func TestParse(t *testing.T) {
	for _, tc := range []struct {
		name          string
		parent, state []string
		want, kept    string // as it is given on; "": there is none
	}{
		{"sampled", []string{whole}, nil, whole, ""},
		{"not sampled", []string{unknown}, nil, unknown, ""},
		{"other flags beside", []string{"00-" + id + "-" + span + "-03"}, nil, whole, ""},
		{"a later version", []string{"cc-" + id + "-" + span + "-01"}, nil, whole, ""},
		{"with a state", []string{whole}, []string{"congo=t61rcWkgMzE,rojo=00f067aa0ba902b7"}, whole, "congo=t61rcWkgMzE,rojo=00f067aa0ba902b7"},
		{"a state in two headers", []string{whole}, []string{"congo=a", "t@v=b c"}, whole, "congo=a,t@v=b c"},
		{"empty members", []string{whole}, []string{"congo=a, ,rojo=b"}, whole, "congo=a, ,rojo=b"},

		{"none", nil, nil, "", ""},
		{"a state alone", nil, []string{"congo=a"}, "", ""},
		{"two", []string{whole, whole}, nil, "", ""},
		{"empty", []string{""}, nil, "", ""},
		{"version ff", []string{"ff-" + id + "-" + span + "-01"}, nil, "", ""},
		{"upper case", []string{strings.ToUpper(whole)}, nil, "", ""},
		{"no trace", []string{"00-" + strings.Repeat("0", 32) + "-" + span + "-01"}, nil, "", ""},
		{"no span", []string{"00-" + id + "-" + strings.Repeat("0", 16) + "-01"}, nil, "", ""},
		{"longer", []string{whole + "-00"}, nil, "", ""},
		{"spaces", []string{" " + whole[1:]}, nil, "", ""},
		{"not hexadecimal", []string{"00-" + strings.Repeat("g", 32) + "-" + span + "-01"}, nil, "", ""},

		{"a state without a key", []string{whole}, []string{"=a"}, whole, ""},
		{"a state without a value", []string{whole}, []string{"congo"}, whole, ""},
		{"a state in upper case", []string{whole}, []string{"Congo=a"}, whole, ""},
		{"a key twice", []string{whole}, []string{"congo=a,congo=b"}, whole, ""},
		{"a control character", []string{whole}, []string{"congo=a\x01"}, whole, ""},
		{"beyond ASCII", []string{whole}, []string{"congo=ä"}, whole, ""},
		{"a state of 512 bytes", []string{whole}, []string{long(512)}, whole, long(512)},
		{"a state of 513 bytes", []string{whole}, []string{long(513)}, whole, ""},
		{"33 members", []string{whole}, []string{strings.Repeat(",", 32)}, whole, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := trace.Parse(http.Header{"Traceparent": tc.parent, "Tracestate": tc.state})
			if c.IsZero() != (tc.want == "") || !c.IsZero() && c.Parent() != tc.want || c.State != tc.kept {
				t.Errorf("%s %q, want %s %q", c.Parent(), c.State, tc.want, tc.kept)
			}
		})
	}
}

// long is a state of so many bytes, none of its members longer than one may be.
func long(n int) string {
	return "a=" + strings.Repeat("x", 200) + ",b=" + strings.Repeat("x", 200) + ",c=" + strings.Repeat("x", n-408)
}

func TestChild(t *testing.T) {
	begun := trace.Context{}.Child()
	if begun.IsZero() || !begun.Sampled || begun.Span == [8]byte{} {
		t.Errorf("%+v is not the beginning of a trace", begun)
	}
	for _, parent := range []trace.Context{begun, {Trace: [16]byte{1}, Span: [8]byte{2}, State: "a=b"}} {
		child := parent.Child()
		if child.Trace != parent.Trace || child.Span == parent.Span || child.Sampled != parent.Sampled || child.State != parent.State {
			t.Errorf("%+v is not below %+v", child, parent)
		}
	}
}

// FuzzParse: what is taken is given on as it came, but for its version and flags.
func FuzzParse(f *testing.F) {
	f.Add(whole, "congo=a")
	f.Add(whole+"-", "=")
	f.Fuzz(func(t *testing.T, parent, state string) {
		c := trace.Parse(http.Header{"Traceparent": {parent}, "Tracestate": {state}})
		if !c.IsZero() && c.Parent()[2:53] != parent[2:53] || c.State != "" && c.State != state {
			t.Errorf("%q %q became %q %q", parent, state, c.Parent(), c.State)
		}
	})
}
