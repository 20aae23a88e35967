package policy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
	"go.yaml.in/yaml/v4/plugin/loaderlimits"

	"onbehalf.internal/broker/strictjson"
)

// A node is one value of a file, YAML or JSON alike. Whatever the format can
// say and we do not want (an alias, a tag, null) has become a problem and a
// broken node on the way here.
type node struct {
	kind    kind
	value   string // of a scalar, as it was written
	line    int
	items   []*node  // of a list
	members []member // of a mapping, in the order of the file; no key twice
}

type member struct {
	key   string
	line  int
	value *node
}

type kind string

const (
	broken  kind = "" // reported already; whoever asks for it sees nothing
	text    kind = "text"
	flag    kind = "true or false"
	number  kind = "a number"
	date    kind = "a date"
	list    kind = "a list"
	mapping kind = "a mapping"
)

// maxDepth is twice what the schema needs.
const maxDepth = 16

// parseYAML returns the only document of a file, or nil when the text is too
// broken to look at its values.
func (l *loader) parseYAML(file string, b []byte) *node {
	if !l.readable(file, b) {
		return nil
	}
	documents, err := yaml.NewLoader(bytes.NewReader(b), yaml.WithV4Defaults(),
		yaml.WithPlugin(loaderlimits.New(loaderlimits.DepthValue(maxDepth))))
	if err != nil {
		panic("policy: internal error: options of the YAML reader")
	}
	var first, second yaml.Node
	switch err := documents.Load(&first); {
	case errors.Is(err, io.EOF):
		l.problem(file, 0, "", "is empty; write at least version, listen, vault, store and callers")
		return nil
	case err != nil:
		l.problem(file, lineOf(err), "", notYAML)
		return nil
	}
	switch err := documents.Load(&second); {
	case err == nil:
		l.problem(file, second.Line, "", "a second document begins here; one file holds one document")
	case !errors.Is(err, io.EOF):
		l.problem(file, lineOf(err), "", notYAML)
	}
	return yamlTree{l, file}.node("", first.Content[0])
}

// The library's own words may quote the file, so they stop here.
const notYAML = "is not YAML that can be read here; look at indentation, quotes and brackets (nesting may be 16 deep)"

func lineOf(err error) int {
	if e := (*yaml.LoadError)(nil); errors.As(err, &e) {
		return max(e.Mark.Line, e.ContextMark.Line)
	}
	return 0
}

// readable reports whether the text of a file can be trusted to be what an
// editor shows.
func (l *loader) readable(file string, b []byte) bool {
	before := len(l.problems)
	if bytes.HasPrefix(b, []byte("\xef\xbb\xbf")) {
		l.problem(file, 1, "", "begins with a byte order mark; save it without one")
		return false
	}
	line := 0
	for raw := range bytes.Lines(b) {
		line++
		raw = bytes.TrimSuffix(bytes.TrimSuffix(raw, []byte("\n")), []byte("\r"))
		if what := unfit(strings.ReplaceAll(string(raw), "\t", " ")); what != "" {
			l.problem(file, line, "", what)
		}
	}
	return len(l.problems) == before
}

// unfit says what is wrong with a text that people cannot see as it is, or that
// nobody has filled in.
func unfit(s string) string {
	switch {
	case !utf8.ValidString(s):
		return "is not valid UTF-8"
	case strings.ContainsFunc(s, invisible):
		return "holds a control character, a line break or an invisible character; remove it"
	case strings.Contains(s, "${"):
		return `holds "${"; there is no templating, write the value itself`
	}
	return ""
}

// invisible reports what does not show as itself: control and format
// characters (zero width, bidi, tags), separators of lines, spaces that are
// none, what is not assigned.
func invisible(r rune) bool { return r != ' ' && !unicode.IsPrint(r) }

// A yamlTree turns the library's nodes into ours.
type yamlTree struct {
	l    *loader
	file string
}

func (t yamlTree) node(path string, n *yaml.Node) *node {
	if what := refused(n); what != "" {
		t.l.problem(t.file, n.Line, path, what)
		return &node{line: n.Line}
	}
	switch n.Kind {
	case yaml.MappingNode:
		return t.mapping(path, n)
	case yaml.SequenceNode:
		items := make([]*node, len(n.Content))
		for i, item := range n.Content {
			items[i] = t.node(fmt.Sprintf("%s[%d]", path, i), item)
		}
		return &node{kind: list, line: n.Line, items: items}
	default:
		return t.l.scalar(t.file, path, &node{kind: kinds[n.Tag], line: n.Line, value: n.Value})
	}
}

var kinds = map[string]kind{"!!str": text, "!!bool": flag, "!!int": number, "!!float": number, "!!timestamp": date}

// refused names what YAML can say and this file must not.
func refused(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		return "anchors and aliases are not allowed; write the value out"
	case n.Style&yaml.TaggedStyle != 0:
		return "tags are not allowed; write the value without one"
	case n.Tag == "!!null":
		return "has no value; write one or remove the key"
	}
	return ""
}

func (t yamlTree) mapping(path string, n *yaml.Node) *node {
	m := &node{kind: mapping, line: n.Line}
	lines := make(map[string]int, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if what := refusedKey(key); what != "" {
			t.l.problem(t.file, key.Line, path, what)
			continue
		}
		if first, twice := lines[key.Value]; twice {
			t.l.problem(t.file, key.Line, under(path, key.Value), fmt.Sprintf("is given twice, first on line %d; remove one", first))
			continue
		}
		lines[key.Value] = key.Line
		m.members = append(m.members, member{key.Value, key.Line, t.node(under(path, key.Value), value)})
	}
	return m
}

func refusedKey(key *yaml.Node) string {
	switch {
	case key.Tag == "!!merge":
		return "merge keys are not allowed; write the values out"
	case key.Kind != yaml.ScalarNode:
		return "a key here is not a single text; write it as one"
	case refused(key) != "":
		return "a key here: " + refused(key)
	case key.Tag != "!!str":
		return fmt.Sprintf("the key %s is not text; put it in quotes", quote(key.Value))
	case unfit(key.Value) != "":
		return "a key here " + unfit(key.Value)
	case isToken(key.Value):
		return "a key here looks like a token; " + noSecrets
	}
	return ""
}

const noSecrets = "this file names credentials in Vault and holds none"

// scalar checks what every scalar of every format has to be.
func (l *loader) scalar(file, path string, n *node) *node {
	what := unfit(n.value)
	if what == "" && isToken(n.value) {
		what = "looks like a token or a private key; " + noSecrets
	}
	if what != "" {
		l.problem(file, n.line, path, what)
		n.kind = broken
	}
	return n
}

// parseJSON returns the object that one line of a grants file holds, or nil.
func (l *loader) parseJSON(file string, line int, b []byte) *node {
	var members map[string]any
	if err := strictjson.Decode(b, &members); err != nil {
		l.problem(file, line, "", "is not one JSON object: "+err.Error())
		return nil
	}
	return l.jsonNode(file, line, "", members)
}

func (l *loader) jsonNode(file string, line int, path string, value any) *node {
	switch v := value.(type) {
	case string:
		return l.scalar(file, path, &node{kind: text, line: line, value: v})
	case bool:
		return &node{kind: flag, line: line, value: fmt.Sprint(v)}
	case float64:
		return &node{kind: number, line: line, value: fmt.Sprint(v)}
	case []any:
		n := &node{kind: list, line: line}
		for i, item := range v {
			n.items = append(n.items, l.jsonNode(file, line, fmt.Sprintf("%s[%d]", path, i), item))
		}
		return n
	case map[string]any:
		n := &node{kind: mapping, line: line}
		for key, item := range v {
			n.members = append(n.members, member{key, line, l.jsonNode(file, line, under(path, key), item)})
		}
		return n
	default: // null
		l.problem(file, line, path, "has no value; write one or remove the member")
		return &node{line: line}
	}
}
