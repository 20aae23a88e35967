package schema

// A position says what the value of a keyword is.
type position int

const (
	data  position = iota // not a schema: an example, a constant, a number, a keyword that nobody knows
	one                   // a schema
	many                  // a list of schemas
	named                 // a map of schemas
)

// positions are those of JSON Schema 2020-12, as far as we carry them. A name
// means something here and nowhere else: a property may be called "$ref".
var positions = map[string]position{
	"properties": named, "$defs": named, "definitions": named,
	"allOf": many, "anyOf": many, "oneOf": many, "prefixItems": many,
	"not": one, "items": one, "contains": one, "additionalProperties": one, "contentSchema": one,
}

// retained are the keywords of the root that are stored.
var retained = set("type", "description", "properties", "required", "additionalProperties", "allOf", "anyOf", "oneOf", "not")

// widening are keywords that we do not carry, because those who are offered the
// schema can not be relied on to know them. To leave one out would let through
// what the server refuses.
var widening = set("$dynamicRef", "$recursiveRef", "if", "then", "else", "patternProperties", "propertyNames",
	"dependentSchemas", "dependentRequired", "dependencies", "unevaluatedProperties", "unevaluatedItems")

// wideningRoot are keywords that are not retained at the root and would be
// missed there. Others that say something of objects are retained or in widening.
var wideningRoot = set("minProperties", "maxProperties", "enum", "const")

// rootOnly are keywords that change what a reference or a keyword below them
// means. At the root they are dropped, when references have been followed.
var rootOnly = set("$schema", "$id", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$vocabulary", "$defs", "definitions")

// newWords are keywords that draft-07 passes over and 2020-12 does not.
var newWords = set("prefixItems", "minContains", "maxContains", "contentSchema")

// annotations say nothing about what is accepted.
var annotations = set("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment")

// counts are keywords whose number counts something. The library reads it into
// an int and does not notice when it is too large for one.
var counts = set("minLength", "maxLength", "minItems", "maxItems", "minContains", "maxContains", "minProperties", "maxProperties")

func set(names ...string) map[string]bool {
	m := map[string]bool{}
	for _, name := range names {
		m[name] = true
	}
	return m
}
