package schema

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"onbehalf.internal/broker/strictjson"
)

// A node is one value of a document that was checked. It is opened when
// somebody asks what is in it, and once: much of a hostile document is never
// looked at.
type node struct {
	raw     strictjson.Raw
	parent  *node
	name    string         // in its object, or its index in its array
	spelled strictjson.Raw // the name with its quotes and escapes; nil in an array

	opened bool
	parts  []*node // in the order of the document
	named  map[string]*node

	busy bool // the walk is inside it: a reference to it has no end
}

// kind is the first byte of the value; a digit or a minus sign is '0'.
func (n *node) kind() byte {
	if n == nil {
		return 0
	}
	return byte(n.raw.Kind())
}

func (n *node) open() []*node {
	if n.opened {
		return n.parts
	}
	n.opened = true
	switch n.kind() {
	case '{':
		for _, m := range strictjson.Ordered(n.raw) {
			n.parts = append(n.parts, &node{raw: m.Value, parent: n, name: m.Name, spelled: m.Spelled})
		}
	case '[':
		for i, element := range strictjson.Elements(n.raw) {
			n.parts = append(n.parts, &node{raw: element, parent: n, name: strconv.Itoa(i)})
		}
	}
	n.named = make(map[string]*node, len(n.parts))
	for _, part := range n.parts {
		n.named[part.name] = part
	}
	return n.parts
}

// get is the member or element of that name, or nil.
func (n *node) get(name string) *node {
	n.open()
	return n.named[name]
}

func (n *node) text() string {
	var s string
	if n.kind() == '"' {
		_ = json.Unmarshal(n.raw, &s) // it was checked
	}
	return s
}

// refuse is a Refusal at n.
func (n *node) refuse(format string, args ...any) error {
	var names []string
	for ; n.parent != nil; n = n.parent {
		names = append(names, n.name)
	}
	slices.Reverse(names)
	return &Refusal{pointer(names), fmt.Sprintf(format, args...)}
}

// encode writes an object, or a list where no value has a name.
func encode(open byte, values []strictjson.Member) strictjson.Raw {
	out := strictjson.Raw{open}
	for i, v := range values {
		if i > 0 {
			out = append(out, ',')
		}
		if open == '{' {
			out = append(append(out, v.Spelled...), ':')
		}
		out = append(out, v.Value...)
	}
	return append(out, open+2) // '{' and '}', '[' and ']' are two apart
}
