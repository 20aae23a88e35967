package schema

import (
	"bytes"
	"math"
	"strconv"

	"onbehalf.internal/broker/strictjson"
)

// A walk goes through the places of a document where a schema stands, and
// returns them as they are stored.
type walk struct {
	root    *node
	draft07 bool

	followed int // bytes, see maxFollowed
	steps    int // see maxSteps
}

// schema returns the schema n as it is stored: n's own bytes if nothing changes.
func (w *walk) schema(n *node) (strictjson.Raw, error) {
	if n.kind() != '{' {
		return n.raw, nil // true and false; anything else does not compile
	}
	n.busy = true
	defer func() { n.busy = false }()

	var kept []strictjson.Member
	var target strictjson.Raw
	changed := n == w.root
	for _, part := range w.counting(n) {
		if err := w.keyword(n, part); err != nil {
			return nil, err
		}
		if part.name == "$ref" {
			var err error
			if target, err = w.follow(part); err != nil {
				return nil, err
			}
			continue
		}
		value, err := w.value(w.position(n, part.name), part)
		if err != nil {
			return nil, err
		}
		m := strictjson.Member{Name: part.name, Spelled: w.spelled(n, part), Value: value}
		kept = append(kept, m)
		changed = changed || !bytes.Equal(m.Spelled, part.spelled) || !bytes.Equal(m.Value, part.raw)
	}
	switch {
	case target != nil:
		return merge(n, kept, target)
	case changed:
		return encode('{', kept), nil
	}
	return n.raw, nil
}

// counting are the members of a schema that say something: at the root those
// that are retained, and in draft-07 nothing beside a reference.
func (w *walk) counting(n *node) []*node {
	if ref := n.get("$ref"); ref != nil && w.draft07 {
		return []*node{ref}
	}
	if n != w.root {
		return n.open()
	}
	var parts []*node
	for _, part := range n.open() {
		if retained[part.name] || part.name == "$ref" {
			parts = append(parts, part)
		}
	}
	return parts
}

// keyword refuses what can not be carried at that place.
func (w *walk) keyword(n, part *node) error {
	switch name := part.name; {
	case widening[name]:
		return part.refuse("%q is not carried, and without it the tool would accept more than its server does", name)
	case rootOnly[name]:
		return part.refuse("%q is understood at the root only", name)
	case w.draft07 && newWords[name]:
		return part.refuse("%q is no keyword of draft-07", name)
	case counts[name] && part.kind() == '0':
		if f, _ := strconv.ParseFloat(string(part.raw), 64); f > math.MaxInt32 {
			return part.refuse("%q is larger than %d", name, math.MaxInt32)
		}
	case name == "pattern" && part.kind() == '"':
		return w.pattern(part)
	}
	return nil
}

// tuple reports whether n says, in the words of draft-07, what 2020-12 says with
// prefixItems.
func (w *walk) tuple(n *node) bool { return w.draft07 && n.get("items").kind() == '[' }

// spelled is the name of part in 2020-12, in which every schema is stored: the
// stored one has no $schema that would say otherwise. Between the drafts only a
// list of items is spelled differently, of what we carry.
func (w *walk) spelled(n, part *node) strictjson.Raw {
	switch {
	case part.name == "items" && w.tuple(n):
		return strictjson.Raw(`"prefixItems"`)
	case part.name == "additionalItems" && w.tuple(n):
		return strictjson.Raw(`"items"`)
	}
	return part.spelled
}

func (w *walk) position(n *node, keyword string) position {
	switch {
	case keyword == "items" && w.tuple(n):
		return many
	case keyword == "additionalItems" && w.tuple(n):
		return one
	}
	return positions[keyword]
}

func (w *walk) value(is position, v *node) (strictjson.Raw, error) {
	switch is {
	case one:
		return w.schema(v)
	case many, named:
		return w.each(v)
	}
	return v.raw, nil
}

// each returns the list or map v of schemas as it is stored.
func (w *walk) each(v *node) (strictjson.Raw, error) {
	var kept []strictjson.Member
	changed := false
	for _, part := range v.open() {
		value, err := w.schema(part)
		if err != nil {
			return nil, err
		}
		kept = append(kept, strictjson.Member{Name: part.name, Spelled: part.spelled, Value: value})
		changed = changed || !bytes.Equal(value, part.raw)
	}
	if changed {
		return encode(v.kind(), kept), nil
	}
	return v.raw, nil
}
