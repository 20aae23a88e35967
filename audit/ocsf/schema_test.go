package ocsf_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"
)

// A schema is the published one, with `extends`, `$include` and the dictionary worked
// in, as testdata/README.md says; of it, what can be checked.
type schema struct {
	Version string
	Classes map[string]*entity
	Objects map[string]*entity
	Types   map[string]*scalar
}

// An entity is a class or an object.
type entity struct {
	UID         int
	Attributes  map[string]attribute
	Constraints map[string][]string
}

type attribute struct {
	Type        string
	Object      string `json:"object_type"`
	List        bool   `json:"is_array"`
	Requirement string
	Profile     string
	Sibling     string // the attribute that says in words what this one says as a number
	Enum        map[string]struct{ Caption string }
	Deprecated  any `json:"@deprecated"`
}

type scalar struct {
	Type   string // what it is a sort of; empty: nothing else
	MaxLen int    `json:"max_len"`
	Regex  string
	Range  []int64
}

// published is the schema in testdata.
var published = sync.OnceValue(func() schema {
	file, err := os.Open("testdata/ocsf-1.3.0.json.gz")
	if err != nil {
		panic(err)
	}
	defer file.Close()
	unzipped, err := gzip.NewReader(file)
	if err != nil {
		panic(err)
	}
	var s schema
	if err := json.NewDecoder(unzipped).Decode(&s); err != nil {
		panic(err)
	}
	return s
})

// A check looks at one event and collects what is wrong with it.
type check struct {
	schema
	profiles []string
	problems []string
}

// wrong returns what is wrong with an event, each with its place.
func wrong(event []byte) []string {
	var e map[string]any
	numbers := json.NewDecoder(bytes.NewReader(event))
	numbers.UseNumber()
	if err := numbers.Decode(&e); err != nil {
		return []string{err.Error()}
	}
	c := check{schema: published()}
	metadata, _ := e["metadata"].(map[string]any)
	if metadata["version"] != c.Version {
		c.say("metadata.version", "%v, and this is %s", metadata["version"], c.Version)
	}
	profiles, _ := metadata["profiles"].([]any)
	for _, p := range profiles {
		c.profiles = append(c.profiles, fmt.Sprint(p))
	}
	for _, class := range c.Classes {
		if fmt.Sprint(class.UID) == fmt.Sprint(e["class_uid"]) {
			c.entity("", class, e)
			if want := fmt.Sprint(class.UID*100 + number(e["activity_id"])); fmt.Sprint(e["type_uid"]) != want {
				c.say("type_uid", "%v, want %s", e["type_uid"], want)
			}
			return c.problems
		}
	}
	c.say("class_uid", "%v is no class", e["class_uid"])
	return c.problems
}

func number(v any) int {
	n, _ := v.(json.Number)
	i, _ := n.Int64()
	return int(i)
}

func (c *check) say(at, format string, args ...any) {
	c.problems = append(c.problems, strings.TrimPrefix(at, ".")+": "+fmt.Sprintf(format, args...))
}

// attributes are those of an entity without those of profiles that the event does not
// name.
func (c *check) attributes(e *entity) map[string]attribute {
	all := maps.Clone(e.Attributes)
	maps.DeleteFunc(all, func(_ string, a attribute) bool { return a.Profile != "" && !slices.Contains(c.profiles, a.Profile) })
	return all
}

// entity checks a class or an object: what it lacks, what it should not have, and
// each attribute.
func (c *check) entity(at string, e *entity, values map[string]any) {
	known := c.attributes(e)
	for name, a := range known {
		if _, ok := values[name]; !ok && a.Requirement == "required" {
			c.say(at+"."+name, "is required")
		}
	}
	for rule, names := range e.Constraints {
		n := 0
		for _, name := range names {
			if _, ok := values[name]; ok {
				n++
			}
		}
		if rule == "at_least_one" && n == 0 || rule == "just_one" && n != 1 {
			c.say(at, "has %d of %v, want %s", n, names, rule)
		}
	}
	for name, value := range values {
		a, ok := known[name]
		switch at := at + "." + name; {
		case !ok:
			c.say(at, "is unknown")
		case a.Deprecated != nil:
			c.say(at, "is deprecated")
		default:
			c.attribute(at, a, value)
			c.sibling(at, a, value, values)
		}
	}
}

func (c *check) attribute(at string, a attribute, value any) {
	if !a.List {
		c.value(at, a, value)
		return
	}
	list, ok := value.([]any)
	if !ok {
		c.say(at, "is no list")
	}
	for i, value := range list {
		c.value(fmt.Sprintf("%s[%d]", at, i), a, value)
	}
}

func (c *check) value(at string, a attribute, value any) {
	if _, ok := a.Enum[fmt.Sprint(value)]; a.Enum != nil && !ok {
		c.say(at, "%v is not in its enum", value)
	}
	switch object, ok := value.(map[string]any); {
	case a.Type == "json_t":
	case a.Type != "object_t":
		c.scalar(at, a.Type, value)
	case !ok:
		c.say(at, "is no object")
	case a.Object != "object": // that one holds anything: unmapped
		c.entity(at, c.Objects[a.Object], object)
	}
}

// sibling: what a number says and what the words beside it say must be one thing. Where
// the number says Other, the words are the source's own, and wanted.
func (c *check) sibling(at string, a attribute, value any, values map[string]any) {
	words, ok := values[a.Sibling]
	caption := a.Enum[fmt.Sprint(value)].Caption
	switch {
	case a.Sibling == "":
	case caption == "Other" && (!ok || words == caption):
		c.say(at, "is Other, and %s does not say what", a.Sibling)
	case caption != "Other" && ok && words != caption:
		c.say(at, "is %s, and %s is %q", caption, a.Sibling, words)
	}
}

// scalar checks a value against its type and what that is a sort of.
func (c *check) scalar(at, name string, value any) {
	s := c.Types[name]
	if s.Type != "" {
		c.scalar(at, s.Type, value)
	}
	text, isText := value.(string)
	n, isNumber := value.(json.Number)
	whole, err := n.Int64()
	switch _, isBool := value.(bool); {
	case name == "string_t" && !isText, name == "boolean_t" && !isBool, name == "float_t" && !isNumber:
		c.say(at, "%v is no %s", value, name)
	case (name == "integer_t" || name == "long_t") && (!isNumber || err != nil):
		c.say(at, "%v is no %s", value, name)
	case name == "timestamp_t" && (whole < 1e12 || whole >= 1e13): // 2001 to 2286; seconds and microseconds are not
		c.say(at, "%d is not in milliseconds", whole)
	case s.Range != nil && (whole < s.Range[0] || whole > s.Range[1]):
		c.say(at, "%d is not in %v", whole, s.Range)
	case s.MaxLen > 0 && utf8.RuneCountInString(text) > s.MaxLen:
		c.say(at, "has more than %d characters", s.MaxLen)
	case s.Regex != "" && !regexp.MustCompile(s.Regex).MatchString(text):
		c.say(at, "%q is no %s", text, name)
	}
}

// TestWrong breaks a valid event in each way that the schema knows.
func TestWrong(t *testing.T) {
	const valid = `{"class_uid":6003,"category_uid":6,"activity_id":2,"type_uid":600302,"severity_id":1,"time":1796040000123,"status_id":1,
		"metadata":{"version":"1.3.0","product":{"name":"n","vendor_name":"v"}},"actor":{"user":{"uid":"u"}},"api":{"operation":"o"},
		"src_endpoint":{"name":"s"},"resources":[{"name":"r"}],"unmapped":{"any":{"thing":[1]}}}`
	authorized := strings.NewReplacer("600302", "300301", "6003", "3003", `"category_uid":6`, `"category_uid":3`, `"activity_id":2`, `"activity_id":1`,
		`"actor":{"user":{"uid":"u"}},"api":{"operation":"o"},`, `"user":{"uid":"u"},"privileges":["p"],`, `"resources":[{"name":"r"}],`, ``).Replace(valid)
	for _, tc := range []struct{ event, old, new, want string }{
		{valid, "", "", ""},
		{authorized, "", "", ""},
		{valid, `"metadata":{`, `"metadata":{"profiles":["host","datetime"],`, ""},
		{valid, `"time":1796040000123`, `"time":1796040000123,"metadatas":1`, "metadatas: is unknown"},
		{valid, `"name":"s"`, `"name":"s","nam":"x"`, "src_endpoint.nam: is unknown"},
		{valid, `"actor":{`, `"device":{},"actor":{`, "device: is unknown"}, // of a profile that is not named
		{valid, `"metadata":{`, `"metadata":{"profiles":["cloud"],`, "cloud: is required"},
		{valid, `"severity_id":1`, `"severity_id":7`, "severity_id: 7 is not in its enum"},
		{valid, `"category_uid":6`, `"category_uid":3`, "category_uid: 3 is not in its enum"},
		{valid, `"api":{"operation":"o"},`, ``, "api: is required"},
		{valid, `,"vendor_name":"v"`, ``, "metadata.product.vendor_name: is required"},
		{valid, `"name":"s"`, ``, "src_endpoint: has 0 of"},
		{authorized, `"privileges":["p"],`, ``, ": has 0 of [privileges group], want just_one"},
		{authorized, `["p"],`, `["p"],"group":{"name":"g"},`, ": has 2 of [privileges group], want just_one"},
		{authorized, `["p"]`, `"p"`, "privileges: is no list"},
		{authorized, `["p"]`, `[1]`, "privileges[0]: 1 is no string_t"},
		{valid, `600302`, `600303`, "type_uid: 600303, want 600302"},
		{valid, `"class_uid":6003`, `"class_uid":6999`, "class_uid: 6999 is no class"},
		{valid, `1.3.0`, `1.4.0`, "metadata.version: 1.4.0, and this is 1.3.0"},
		{valid, `1796040000123`, `1796040000`, "time: 1796040000 is not in milliseconds"},
		{valid, `"time":1796040000123`, `"time":"noon"`, "time: noon is no long_t"},
		{valid, `"name":"s"`, `"port":65536,"name":"s"`, "src_endpoint.port: 65536 is not in [0 65535]"},
		{valid, `"name":"s"`, `"port":1.5,"name":"s"`, "src_endpoint.port: 1.5 is no integer_t"},
		{valid, `"name":"s"`, `"hostname":"a b"`, `src_endpoint.hostname: "a b" is no hostname_t`},
		{valid, `"name":"s"`, `"name":"` + strings.Repeat("s", 65536) + `"`, "src_endpoint.name: has more than 65535 characters"},
		{valid, `"actor":{"user":{"uid":"u"}}`, `"actor":"u"`, "actor: is no object"},
		{valid, `"actor":{`, `"actor":{"invoked_by":"i",`, "actor.invoked_by: is deprecated"},
		{valid, `"status_id":1`, `"status_id":1,"status":"succeeded"`, `status_id: is Success, and status is "succeeded"`},
		{valid, `"status_id":1`, `"status_id":99`, "status_id: is Other, and status does not say what"},
	} {
		got := wrong([]byte(strings.Replace(tc.event, tc.old, tc.new, 1)))
		if tc.want == "" && got != nil || tc.want != "" && !slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, tc.want) }) {
			t.Errorf("%q for %q: %q, want %q", tc.new, tc.old, got, tc.want)
		}
	}
}
