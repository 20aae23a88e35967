package catalogue

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Shown returns text of a server as people and models may see it: what steers a
// terminal, turns the direction of writing or cannot be seen is spelled out, as in
// \u{202e}. Newlines and tabs stay. Shown of what it has returned is the same.
func Shown(s string) string { return spelled(s, "\n\t") }

// spelled spells out what cannot be seen, but for the characters in kept.
func spelled(s, kept string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return !visible(r) }) && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for _, r := range s { // a byte that is not UTF-8 is U+FFFD here
		if visible(r) || strings.ContainsRune(kept, r) {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, `\u{%x}`, r)
		}
	}
	return b.String()
}

// visible reports whether r leaves a mark, or the space that one would take. Format
// characters, which turn directions and hide tags, are not graphic to begin with.
func visible(r rune) bool {
	const brailleBlank, nullNotehead = '\u2800', '\U0001d159' // symbols by category, and empty
	return unicode.IsGraphic(r) &&
		!unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) && // fillers and joiners among letters and marks
		r != brailleBlank && r != nullNotehead
}

// bounded is spelled in at most that many bytes. What is thrown away is not spelled
// out before.
func bounded(s, kept string, limit int) string { return cut(spelled(cut(s, limit), kept), limit) }

// cut returns s in at most that many bytes, with a mark where something is missing.
func cut(s string, limit int) string {
	const mark = "…"
	if len(s) <= limit {
		return s
	}
	end := limit - len(mark)
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + mark
}

const nameShown = 64 // bytes of a name that nobody has checked

// quoted is a name in a sentence of ours, in ASCII: a look-alike is seen as one.
func quoted(name string) string {
	if short := cut(name, nameShown); short != name {
		return strconv.QuoteToASCII(strings.TrimSuffix(short, "…")) + "..."
	}
	return strconv.QuoteToASCII(name)
}
