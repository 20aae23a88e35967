package catalogue

import (
	"bytes"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"onbehalf.internal/broker/strictjson"
)

// A Change is one place where two definitions differ. Both values are JSON, as Shown
// and cut; one that is absent is "".
type Change struct {
	Pointer string `json:"pointer"` // RFC 6901, from the root of the definition
	Old     string `json:"old"`
	New     string `json:"new"`
}

const (
	maxChanges = 100 // more than that nobody reads
	maxValue   = 256 // bytes
	maxPointer = 200 // bytes
)

// Diff says to people what is different between two definitions: in the order of the
// names, lists element by element. Where they differ in more than maxChanges places,
// each member of the definition is one change. What has one pin does not differ. A
// definition that is absent has no members.
func Diff(old, new strictjson.Raw) []Change {
	none := strictjson.Raw("{}")
	if len(old) == 0 {
		old = none
	}
	if len(new) == 0 {
		new = none
	}
	all := walk(nil, "", old, new, strictjson.MaxDepth)
	if len(all) > maxChanges {
		return walk(nil, "", old, new, 1)
	}
	return all
}

// walk appends where the values at pointer differ. One that is absent is nil.
func walk(all []Change, pointer string, old, new strictjson.Raw, levels int) []Change {
	switch {
	case same(old, new):
		return all
	case levels > 0 && old.Kind() == '{' && new.Kind() == '{':
		was, is := strictjson.Parts(old), strictjson.Parts(new)
		for _, name := range names(was, is) {
			all = walk(all, pointer+"/"+escape.Replace(name), was[name], is[name], levels-1)
		}
		return all
	case levels > 0 && old.Kind() == '[' && new.Kind() == '[':
		was, is := strictjson.Elements(old), strictjson.Elements(new)
		for i := range max(len(was), len(is)) {
			all = walk(all, pointer+"/"+strconv.Itoa(i), element(was, i), element(is, i), levels-1)
		}
		return all
	}
	before, after := excerpts(Shown(string(old)), Shown(string(new)))
	return append(all, Change{bounded(pointer, "", maxPointer), before, after})
}

var escape = strings.NewReplacer("~", "~0", "/", "~1")

func same(a, b strictjson.Raw) bool {
	if bytes.Equal(a, b) {
		return true
	}
	ofA, errA := strictjson.Digest(a)
	ofB, errB := strictjson.Digest(b)
	return errA == nil && errB == nil && ofA == ofB
}

// names returns those of both objects, each once.
func names(a, b map[string]strictjson.Raw) []string {
	all := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.Sort(all)
	return slices.Compact(all)
}

func element(list []strictjson.Raw, i int) strictjson.Raw {
	if i < len(list) {
		return list[i]
	}
	return nil
}

// excerpts cuts two values. What is too long begins shortly before they differ: a
// sentence at the end of a long description is what one looks for.
func excerpts(a, b string) (string, string) {
	const before = 40 // bytes
	start := 0
	for start < min(len(a), len(b)) && a[start] == b[start] {
		start++
	}
	start = max(start-before, 0)
	if max(len(a), len(b)) <= maxValue || start == 0 {
		return cut(a, maxValue), cut(b, maxValue)
	}
	for !utf8.RuneStart(a[start]) {
		start--
	}
	return cut("…"+a[start:], maxValue), cut("…"+b[start:], maxValue)
}
