// Package schema decides which parameter schemas of tools the broker keeps, and
// holds the arguments of a call against them.
//
// [Normalise] takes what an MCP server advertises as the inputSchema of a tool
// and returns the schema as it is stored and offered, or a [Refusal]. [Compile]
// takes what was stored, and [Schema.Check] says whether arguments fit it.
//
// What always holds:
//
//   - A stored schema is one object in the words of JSON Schema 2020-12, of at
//     most 12 levels and 16,384 bytes, without a reference. It compiles.
//   - It accepts what the advertised one accepts. What can not be carried is a
//     refusal, not a schema with that part left out: a model would send what
//     the server then refuses.
//   - What needs no change keeps its bytes: the order of names, the spelling of
//     numbers, {} and [].
//   - Normalise is a function of the bytes alone. What it returns, it returns
//     again when it is given that.
//   - No file is read and no connection made, whatever a schema names.
//   - The work is bounded, for a schema that multiplies itself as for arguments
//     and a schema that were made to take long together.
//   - An error names a place and says in our words what is wrong there, never a
//     value.
//
// `format` is not checked; the schema carries it. The package does not know
// whether two schemas mean the same, and keeps nothing.
package schema

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// A Refusal says what is wrong with a schema or with arguments, and where.
type Refusal struct {
	// Pointer is the place as RFC 6901 writes it, from the root of what was
	// given; "" is the root. It is made of names that somebody else chose: a
	// character that does not print is U+FFFD in it, and it is cut after
	// maxPointer bytes.
	Pointer string
	Why     string // a sentence of ours; names in it are quoted and cut
}

func (r *Refusal) Error() string {
	if r.Pointer == "" {
		return r.Why
	}
	return strconv.Quote(r.Pointer) + ": " + r.Why
}

const (
	maxPointer = 200 // bytes: enough to find the place by
	maxName    = 40  // characters
)

var escape, unescape = strings.NewReplacer("~", "~0", "/", "~1"), strings.NewReplacer("~0", "~", "~1", "/")

// pointer writes names as a JSON pointer.
func pointer(names []string) string {
	var b strings.Builder
	for _, name := range names {
		b.WriteByte('/')
		b.WriteString(escape.Replace(name[:min(len(name), maxPointer)]))
		if b.Len() > maxPointer {
			return printable(b.String()[:maxPointer]) + "…"
		}
	}
	return printable(b.String())
}

func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, s)
}

func quote(name string) string {
	if short := []rune(name[:min(len(name), 4*maxName+4)]); len(short) > maxName {
		return strconv.Quote(string(short[:maxName])) + "…"
	}
	return strconv.Quote(name)
}

// quoteAll shows three of the names, sorted: the library does not find them in
// one order.
func quoteAll(names []string) string {
	const most = 3
	names = slices.Sorted(slices.Values(names))
	var shown []string
	for _, name := range names[:min(len(names), most)] {
		shown = append(shown, quote(name))
	}
	list := strings.Join(shown, ", ")
	if len(names) > most {
		list += fmt.Sprintf(" and %d more", len(names)-most)
	}
	return list
}
