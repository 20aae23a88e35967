package schema

import (
	"fmt"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// joint reports whether every cause of e has to be mended. Of the causes of anyOf
// and oneOf one would do, and nobody knows which was meant.
func joint(e *jsonschema.ValidationError) bool {
	switch e.ErrorKind.(type) {
	case *kind.Schema, *kind.Group, *kind.AllOf, *kind.Reference:
		return true
	}
	return false
}

// describe says what the library found. Its own text quotes the value.
func describe(found jsonschema.ErrorKind) string {
	switch k := found.(type) {
	case *kind.Type:
		return fmt.Sprintf("is %s and not %s", k.Got, strings.Join(k.Want, " or "))
	case *kind.Required:
		return "lacks " + quoteAll(k.Missing)
	case *kind.AdditionalProperties:
		return "has what is not allowed here: " + quoteAll(k.Properties)
	case *kind.UniqueItems:
		return fmt.Sprintf("holds one value twice, at %d and %d", k.Duplicates[0], k.Duplicates[1])
	case *kind.OneOf:
		if len(k.Subschemas) > 0 {
			return "fits more than one alternative of oneOf"
		}
		return "fits no alternative of oneOf"
	}
	return fixed(found)
}

// fixed is what can be said without a name.
func fixed(found jsonschema.ErrorKind) string {
	switch k := found.(type) {
	case *kind.MinProperties:
		return fmt.Sprintf("has fewer than %d members", k.Want)
	case *kind.MaxProperties:
		return fmt.Sprintf("has more than %d members", k.Want)
	case *kind.MinItems:
		return fmt.Sprintf("has fewer than %d elements", k.Want)
	case *kind.MaxItems:
		return fmt.Sprintf("has more than %d elements", k.Want)
	case *kind.MinLength:
		return fmt.Sprintf("has fewer than %d characters", k.Want)
	case *kind.MaxLength:
		return fmt.Sprintf("has more than %d characters", k.Want)
	case *kind.Enum:
		return "is none of the values of enum"
	case *kind.AnyOf:
		return "fits no alternative of anyOf"
	case *kind.Not:
		return "fits what not excludes"
	case *kind.FalseSchema:
		return "is not allowed here"
	}
	if path := found.KeywordPath(); len(path) == 1 {
		return "does not keep to " + path[0] // const, pattern, minimum, …: words of the standard
	}
	return "does not fit"
}
