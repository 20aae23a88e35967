package schema

import (
	"strings"

	"onbehalf.internal/broker/strictjson"
)

const (
	maxLevels = 12     // objects and arrays in one another, the root being the first
	maxStored = 16_384 // bytes
)

// Normalise returns the schema that is stored for a tool whose server
// advertised that one, or a *[Refusal].
//
// Of the root it keeps type, description, properties, required,
// additionalProperties, allOf, anyOf, oneOf and not. Local references are
// replaced by what they refer to. Below the root nothing else changes, but for
// the two keywords that draft-07 spells otherwise: items, where it is a list,
// and additionalItems beside it.
//
// A refusal's pointer leads into the advertised schema, and into the one with
// its references replaced where that is too deep or does not compile.
func Normalise(advertised strictjson.Raw) (strictjson.Raw, error) {
	w, err := read(advertised)
	if err != nil {
		return nil, err
	}
	// The order decides which of two reasons is told. What is dropped is never
	// measured: a long list of examples at the root costs nothing.
	if err := first(w.object, w.draft, w.keywords, w.wellFormed); err != nil {
		return nil, err
	}
	stored, err := w.schema(w.root)
	if err != nil {
		return nil, err
	}
	if _, err := Compile(stored); err != nil {
		return nil, err
	}
	return stored, nil
}

func first(checks ...func() error) error {
	for _, check := range checks {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// read checks that there is an object.
func read(advertised strictjson.Raw) (*walk, error) {
	root := &node{raw: advertised}
	if len(advertised) == 0 {
		return nil, root.refuse("the server advertised no parameter schema")
	}
	if err := strictjson.Check(advertised); err != nil {
		return nil, root.refuse("the schema can not be read: %v", err)
	}
	if root.kind() != '{' {
		return nil, root.refuse("the server advertised no parameter schema")
	}
	return &walk{root: root}, nil
}

func (w *walk) object() error {
	if w.root.get("type").text() != "object" {
		return w.root.refuse("its top-level type is not object")
	}
	return nil
}

// draft reads $schema. Without it a schema is in 2020-12, as MCP says.
func (w *walk) draft() error {
	named := w.root.get("$schema")
	if named == nil {
		return nil
	}
	uri := strings.TrimSuffix(named.text(), "#")
	switch _, rest, _ := strings.Cut(uri, "://"); {
	case uri == "http://"+rest, uri == "https://"+rest: // both are in use for either
		switch rest {
		case "json-schema.org/draft/2020-12/schema":
			return nil
		case "json-schema.org/draft-07/schema":
			w.draft07 = true
			return nil
		}
	}
	return named.refuse("the schema is in neither JSON Schema 2020-12 nor draft-07")
}

func (w *walk) keywords() error {
	for _, part := range w.root.open() {
		switch {
		case widening[part.name], wideningRoot[part.name]:
			return part.refuse("%q is not carried, and without it the tool would accept more than its server does", part.name)
		case part.name == "$ref" && w.draft07:
			return part.refuse("in draft-07 a type beside a reference does not count")
		}
	}
	return nil
}

// wellFormed looks at the keywords that those who are offered a schema rely on
// most. JSON Schema itself allows more.
func (w *walk) wellFormed() error {
	if v := w.root.get("description"); v != nil && v.kind() != '"' {
		return v.refuse("the description is not a string")
	}
	if v := w.root.get("additionalProperties"); v != nil && v.kind() != 't' && v.kind() != 'f' {
		return v.refuse("additionalProperties is not a boolean")
	}
	if err := only(w.root.get("properties"), '{', '{', "properties is not a map of objects"); err != nil {
		return err
	}
	return only(w.root.get("required"), '[', '"', "required is not a list of strings")
}

// only refuses v, unless it is absent or what it holds is of one kind.
func only(v *node, outer, inner byte, why string) error {
	switch {
	case v == nil:
		return nil
	case v.kind() != outer:
		return v.refuse("%s", why)
	}
	for _, part := range v.open() {
		if part.kind() != inner {
			return part.refuse("%s", why)
		}
	}
	return nil
}

// bounds refuses a schema that is too deep or too large to be stored.
func (w *walk) bounds() error {
	if err := shallow(w.root, 1); err != nil {
		return err
	}
	if len(w.root.raw) > maxStored {
		return w.root.refuse("the schema exceeds %d bytes once stored", maxStored)
	}
	return nil
}

// shallow refuses what lies too deep. n is at that level, if it is a level.
func shallow(n *node, level int) error {
	if n.kind() != '{' && n.kind() != '[' {
		return nil
	}
	if level > maxLevels {
		return n.refuse("the schema is nested deeper than %d levels", maxLevels)
	}
	for _, part := range n.open() {
		if err := shallow(part, level+1); err != nil {
			return err
		}
	}
	return nil
}
