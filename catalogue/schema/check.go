package schema

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"onbehalf.internal/broker/strictjson"
)

// A Schema holds arguments against a stored schema. It may be used by many
// goroutines at once.
type Schema struct {
	compiled *jsonschema.Schema
	values   int
}

// maxPairs bounds the values of a schema times those of the arguments: every
// part of the one can be held against every part of the other, and each pair
// that does not fit takes memory until the check ends.
const maxPairs = 1 << 20

// Compile returns the Schema of a stored one: what [Normalise] returned, or {},
// which accepts everything. It refuses all else; a row that somebody changed is
// not taken for a schema.
func Compile(stored strictjson.Raw) (*Schema, error) {
	w, err := read(stored)
	if err != nil {
		return nil, err
	}
	checks := []func() error{w.bounds, w.object, w.keywords, w.wellFormed}
	if string(stored) == "{}" {
		checks = nil
	}
	if err := first(checks...); err != nil {
		return nil, err
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(stored))
	if err != nil {
		return nil, w.root.refuse("the schema can not be read")
	}
	values, err := measure(doc, nil)
	if err != nil {
		return nil, err
	}
	if again, err := w.schema(w.root); err != nil {
		return nil, err
	} else if !bytes.Equal(again, stored) {
		return nil, w.root.refuse("the schema is not as one is stored")
	}
	compiled, err := compile(doc)
	if err != nil {
		return nil, err
	}
	return &Schema{compiled, values}, nil
}

// compile has no loader: the library's own would read file URLs.
func compile(doc any) (*jsonschema.Schema, error) {
	const name = "urn:schema"
	c := jsonschema.NewCompiler()
	c.UseLoader(jsonschema.SchemeURLLoader{})
	if err := c.AddResource(name, doc); err != nil {
		return nil, &Refusal{"", "the schema can not be compiled"}
	}
	compiled, err := c.Compile(name)
	var malformed *jsonschema.SchemaValidationError
	var found *jsonschema.ValidationError
	switch {
	case err == nil:
		return compiled, nil
	case errors.As(err, &malformed) && errors.As(malformed.Err, &found):
		first := misfits(found)[0]
		return nil, &Refusal{first.Pointer, "not JSON Schema: " + first.Why}
	}
	return nil, &Refusal{"", "the schema can not be compiled"}
}

// Refusals is what is wrong with arguments, in the order of the pointers and at
// most maxRefusals of it.
type Refusals []Refusal

const maxRefusals = 5

func (rs Refusals) Error() string {
	lines := make([]string, len(rs))
	for i := range rs {
		lines[i] = rs[i].Error()
	}
	return strings.Join(lines, "; ")
}

// Check returns nil if arguments fit the schema, and [Refusals] if not. Numbers
// are compared as they are written, not as floats. Arguments that are absent are
// {}: that is for the caller to say.
func (s *Schema) Check(arguments strictjson.Raw) error {
	if err := strictjson.Check(arguments); err != nil {
		return Refusals{{"", "the arguments can not be read: " + err.Error()}}
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(arguments))
	if err != nil {
		return Refusals{{"", "the arguments can not be read"}}
	}
	values, err := measure(doc, nil)
	if r := (*Refusal)(nil); errors.As(err, &r) {
		return Refusals{*r}
	}
	if values > maxPairs/s.values {
		return Refusals{{"", "the arguments hold too many values to check them against this schema"}}
	}
	if found := (*jsonschema.ValidationError)(nil); errors.As(s.compiled.Validate(doc), &found) {
		rs := misfits(found)
		return rs[:min(len(rs), maxRefusals)]
	}
	return nil
}

// measure counts the values of v and refuses a number that would take long to
// compare, or that the library can not read: it takes that for no limit in a
// schema, and panics at one in arguments.
func measure(v any, at []string) (int, error) {
	n := 1
	var parts int
	var err error
	switch v := v.(type) {
	case json.Number:
		if !manageable(v.String()) {
			return 0, &Refusal{pointer(at), "a number of too many digits or too large an exponent"}
		}
	case []any:
		for i, element := range v {
			if parts, err = measure(element, append(at, strconv.Itoa(i))); err != nil {
				return 0, err
			}
			n += parts
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if parts, err = measure(v[name], append(at, name)); err != nil {
				return 0, err
			}
			n += parts
		}
	}
	return n, nil
}

func manageable(number string) bool {
	const maxDigits, maxExponent = 100, 400
	exponent := 0
	if i := strings.IndexAny(number, "eE"); i >= 0 {
		var err error
		if exponent, err = strconv.Atoi(number[i+1:]); err != nil {
			return false
		}
	}
	return len(number) <= maxDigits && -maxExponent <= exponent && exponent <= maxExponent
}

// misfits are the places that do not fit, in order.
func misfits(found *jsonschema.ValidationError) Refusals {
	rs := collect(nil, found)
	slices.SortFunc(rs, func(a, b Refusal) int { return cmp.Or(cmp.Compare(a.Pointer, b.Pointer), cmp.Compare(a.Why, b.Why)) })
	return slices.Compact(rs)
}

func collect(rs Refusals, e *jsonschema.ValidationError) Refusals {
	if !joint(e) {
		return append(rs, Refusal{pointer(e.InstanceLocation), describe(e.ErrorKind)})
	}
	for _, cause := range e.Causes {
		rs = collect(rs, cause)
	}
	return rs
}
