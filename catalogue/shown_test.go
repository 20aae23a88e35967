package catalogue_test

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"onbehalf.internal/broker/catalogue"
)

func TestShown(t *testing.T) {
	for _, tc := range []struct{ name, text, want string }{
		{"plain", "Reads a record.\n\t- by id", "Reads a record.\n\t- by id"},
		{"of other languages", "größer, größer — 記録を検索 \U0001f50d", "größer, größer — 記録を検索 \U0001f50d"},
		{"a space that does not break", "10\u00a0km", "10\u00a0km"},
		{"what looks like an escape", `\u{202e}`, `\u{202e}`},
		{"controls", "a\x00b\x1b[31mc\x7f\u0085\r", `a\u{0}b\u{1b}[31mc\u{7f}\u{85}\u{d}`},
		{"zero width", "\u200b\u200c\u200d\u2060", `\u{200b}\u{200c}\u{200d}\u{2060}`},
		{"bidirectional", "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c",
			`\u{202a}\u{202b}\u{202c}\u{202d}\u{202e}\u{2066}\u{2067}\u{2068}\u{2069}\u{200e}\u{200f}\u{61c}`},
		{"tags", "\U000e0001\U000e0061", `\u{e0001}\u{e0061}`},
		{"separators of lines", "\u2028\u2029", `\u{2028}\u{2029}`},
		{"byte order mark, soft hyphen", "\ufeff\u00ad", `\u{feff}\u{ad}`},
		{"variation selectors", "\ufe0f\U000e0100\u180b", `\u{fe0f}\u{e0100}\u{180b}`},
		{"fillers", "\u034f\u115f\u1160\u3164\uffa0\u17b4\u2800\U0001d159", `\u{34f}\u{115f}\u{1160}\u{3164}\u{ffa0}\u{17b4}\u{2800}\u{1d159}`},
		{"for private use, not assigned", "\ue000\U000f0000\uffff", `\u{e000}\u{f0000}\u{ffff}`},
		{"not UTF-8", "a\xff\xfeb", "a\ufffd\ufffdb"},
		{"nothing", "", ""},
	} {
		if got := catalogue.Shown(tc.text); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

// FuzzShown: nothing is left that cannot be seen, what can be seen stays, and a second
// time changes nothing.
func FuzzShown(f *testing.F) {
	for _, seed := range []string{"plain\n", "\u202egnirts", "\u200b\u3164\U000e0061", "\xff\x00", `\u{20`, strings.Repeat("é", 300)} {
		f.Add(seed)
	}
	hidden := []*unicode.RangeTable{unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co, unicode.Cs, unicode.Variation_Selector, unicode.Bidi_Control}
	f.Fuzz(func(t *testing.T, s string) {
		got := catalogue.Shown(s)
		if !utf8.ValidString(got) {
			t.Fatalf("%q is not UTF-8", got)
		}
		for _, r := range got {
			if r != '\n' && r != '\t' && unicode.In(r, hidden...) {
				t.Fatalf("%q holds %U", got, r)
			}
		}
		if again := catalogue.Shown(got); again != got {
			t.Fatalf("%q, then %q", got, again)
		}
		if !strings.ContainsFunc(s, func(r rune) bool { return r > unicode.MaxASCII || r < ' ' || r == 0x7f }) && got != s {
			t.Fatalf("%q became %q", s, got)
		}
	})
}
