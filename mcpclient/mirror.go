package mcpclient

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/strictjson"
)

// A mirror is one argument of a tool that a modern server wants to see in a
// header, too: a property of the tool's schema with "x-mcp-header"
// (2026-07-28, Streamable HTTP, "Custom Headers from Tool Parameters").
type mirror struct {
	name string   // of the header
	path []string // to the argument, through objects
	kind string   // "string", "integer" or "boolean"
}

// mirrors are those of one tool. Their headers begin with Mcp-Param-, so that no
// server can name one that means something else.
type mirrors []mirror

type header struct{ name, value string }

const (
	annotation   = "x-mcp-header"
	mirrorPrefix = "Mcp-Param-"
	maxMirrorTTL = time.Hour
	maxSafe      = 1<<53 - 1 // integers that every JSON library reads exactly
)

// mirrored returns the headers of a call, as far as the tool's schema is known
// here; ok is false if an argument is not what the schema says, since the
// server would have to refuse what we then send.
func (c *Conversation) mirrored(call Call) (headers []header, ok bool) {
	known, here := c.listed[call.Tool]
	if !here {
		known, here = c.client.mirrors.Get(c.mirrorKey(call.Tool, false))
	}
	if !here {
		known, _ = c.client.mirrors.Get(c.mirrorKey(call.Tool, true))
	}
	return known.of(call.Arguments)
}

// mirrorAnew reads the tools again, after a refusal that says that headers and
// body do not agree, and reports whether m now says something else.
func (c *Conversation) mirrorAnew(ctx context.Context, m *message) bool {
	if _, e := c.walk(ctx, nil); e.failure != fault.None {
		return false
	}
	anew, ok := c.listed[m.name].of(m.params.Arguments)
	changed := ok && !slices.Equal(anew, m.mirrored)
	m.mirrored = anew
	return changed
}

// learn keeps what a page says about the headers of its tools: for this
// conversation, and for as long as the server says for others. A list that is
// not public is for one Context.
func (c *Conversation) learn(tool string, found mirrors, l Listing) {
	c.listed[tool] = found
	key := c.mirrorKey(tool, l.Public)
	switch {
	case found != nil && l.TTL > 0 && (l.Public || c.call.Context != ""):
		c.client.mirrors.Set(key, found, min(l.TTL, maxMirrorTTL))
	case c.call.Context != "" || l.Public:
		c.client.mirrors.Delete(key)
	}
}

func (c *Conversation) mirrorKey(tool string, public bool) string {
	whose := ""
	if !public {
		whose = c.call.Context
	}
	return serverKey(c.server) + "\x00" + whose + "\x00" + tool
}

// of returns the headers for arguments. An argument that is absent or null has none.
func (all mirrors) of(arguments strictjson.Raw) (headers []header, ok bool) {
	for _, m := range all {
		raw := m.find(arguments)
		if raw == nil {
			continue
		}
		value, ok := m.value(raw)
		if !ok {
			return nil, false
		}
		headers = append(headers, header{m.name, value})
	}
	return headers, true
}

func (m mirror) find(in strictjson.Raw) strictjson.Raw {
	for _, name := range m.path {
		in = strictjson.Parts(in)[name]
	}
	if string(in) == "null" {
		return nil
	}
	return in
}

// value writes an argument as its header has it, before encoding.
func (m mirror) value(raw strictjson.Raw) (string, bool) {
	switch m.kind {
	case "boolean":
		return string(raw), string(raw) == "true" || string(raw) == "false"
	case "integer":
		f, ok := number(raw)
		i := int64(f)
		return strconv.FormatInt(i, 10), ok && float64(i) == f && -maxSafe <= i && i <= maxSafe
	}
	return text(raw)
}

// toolMirrors reads the annotations of a listed tool. ok is false where one of
// them is none: the specification has clients leave such a tool out.
func toolMirrors(tool strictjson.Raw) (name string, found mirrors, ok bool) {
	m := strictjson.Parts(tool)
	name, _ = text(m["name"])
	s := search{}
	s.schema(m["inputSchema"], nil, true)
	slices.SortFunc(s.found, func(a, b mirror) int { return strings.Compare(a.name, b.name) })
	return name, s.found, !s.wrong
}

// A search walks a schema.
type search struct {
	found mirrors
	wrong bool
}

// schema looks at one schema. Where only a chain of "properties" leads to it, an
// annotation counts; anywhere else it is a mistake.
func (s *search) schema(raw strictjson.Raw, path []string, reachable bool) {
	m := strictjson.Parts(raw) // none for true and false, which are schemas, too
	if name, annotated := m[annotation]; annotated {
		s.annotated(name, m["type"], path, reachable)
	}
	for keyword, value := range m {
		s.below(keyword, value, path, reachable)
	}
}

// below looks at the schemas in the value of a keyword.
func (s *search) below(keyword string, value strictjson.Raw, path []string, reachable bool) {
	switch keyword {
	case "properties", "patternProperties", "$defs", "definitions", "dependentSchemas":
		for name, schema := range strictjson.Parts(value) {
			s.schema(schema, append(slices.Clone(path), name), reachable && keyword == "properties")
		}
	case "allOf", "anyOf", "oneOf", "prefixItems", "items", "additionalItems", "additionalProperties", "contains", "propertyNames", "not", "if", "then", "else", "unevaluatedItems", "unevaluatedProperties":
		list, _ := elements(value)
		for _, schema := range append(list, value) {
			s.schema(schema, nil, false)
		}
	}
}

func (s *search) annotated(raw, kind strictjson.Raw, path []string, reachable bool) {
	name, _ := text(raw)
	of, _ := text(kind)
	token, rest := cutToken(name)
	taken := slices.ContainsFunc(s.found, func(m mirror) bool { return strings.EqualFold(m.name, mirrorPrefix+name) })
	if len(path) == 0 || !reachable || token == "" || rest != "" || taken || !slices.Contains([]string{"string", "integer", "boolean"}, of) {
		s.wrong = true
		return
	}
	s.found = append(s.found, mirror{mirrorPrefix + name, path, of})
}
