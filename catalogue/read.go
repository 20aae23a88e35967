package catalogue

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"onbehalf.internal/broker/catalogue/schema"
	"onbehalf.internal/broker/strictjson"
)

// A Tool is what a server advertised as one, and we have taken.
type Tool struct {
	Server      string
	Name        string // remote: it goes on the wire
	Local       string // what model, policy and people call it: mcp_<server>_<name>
	Title       string // as Shown and bounded; empty if it is not a string
	Description string // likewise
	Schema      strictjson.Raw
	Definition  strictjson.Raw // what was advertised, as far as it says what the tool is
	Pin         string         // sha256: of the Definition
}

// A Skip is an advertised tool that was not taken.
type Skip struct {
	Tool    string // its name as far as it has one, Shown and cut
	Why     string // a sentence of ours; names in it are quoted and cut
	Pointer string // into its inputSchema, where that is the reason; see schema.Refusal
}

func (s Skip) String() string {
	if s.Pointer == "" {
		return s.Why
	}
	return s.Why + ", at " + strconv.Quote(s.Pointer)
}

const (
	maxTitle       = 256
	maxDescription = 8192
	maxDefinition  = 131_072 // bytes; each that was ever seen is kept
)

// defining are the members that make a definition, in its order.
var defining = []string{"name", "title", "description", "inputSchema", "outputSchema", "annotations"}

// Read returns the tools of a server as it advertised them, in its order, and what
// was skipped. taken says which other server has a local name, whichever way its
// letters are; "" for none. Of two tools with one local name the first keeps it, even
// if it is skipped for what comes later.
func Read(server string, advertised []strictjson.Raw, taken func(local string) (by string)) (tools []Tool, skipped []Skip) {
	r := reading{server, taken, map[string]string{}}
	for i, raw := range advertised {
		if t, no := r.tool(i+1, raw); no != nil {
			no.Why, no.Pointer = spelled(no.Why, ""), spelled(no.Pointer, "") // both may quote the schema
			skipped = append(skipped, *no)
		} else {
			tools = append(tools, t)
		}
	}
	return tools, skipped
}

// A reading is one call of Read.
type reading struct {
	server string
	taken  func(local string) (by string)
	names  map[string]string // :: local name in lower case → the remote name that has it
}

// tool reads entry n. The order of its checks decides which of two reasons is told.
func (r *reading) tool(n int, raw strictjson.Raw) (t Tool, no *Skip) {
	members, err := strictjson.Members(raw)
	if err != nil {
		return t, &Skip{Why: fmt.Sprintf("entry %d is not a tool: %v", n, err)}
	}
	t.Server, t.Name = r.server, text(members["name"])
	if t.Name == "" {
		return t, &Skip{Why: fmt.Sprintf("entry %d has no name", n)}
	}
	t.Local = "mcp_" + t.Server + "_" + t.Name
	if why := r.unfit(t); why != "" {
		left := LeftOut(t.Name, why)
		return t, &left
	}
	t.Title = bounded(text(members["title"]), "\n\t", maxTitle)
	t.Description = bounded(text(members["description"]), "\n\t", maxDescription)
	if t.Schema, err = schema.Normalise(members["inputSchema"]); err != nil {
		return t, refused(t.Name, err)
	}
	if t.Definition, t.Pin, err = define(members); err != nil {
		return t, refused(t.Name, err)
	}
	return t, nil
}

// localName has no room for look-alikes, for what cannot be seen, nor for a line
// break at its end.
var localName = regexp.MustCompile(`\A[A-Za-z0-9_-]{1,64}\z`)

// unfit says why the tool cannot have its local name; "" if it has it now. Names that
// differ in case alone are one name to some who keep them.
func (r *reading) unfit(t Tool) string {
	if !localName.MatchString(t.Local) {
		return "cannot be given a valid local name"
	}
	folded := strings.ToLower(t.Local)
	if first, used := r.names[folded]; used && first == t.Name {
		return "is listed twice"
	} else if used {
		return "differs from " + quoted(first) + " in case alone"
	}
	r.names[folded] = t.Name
	if by := r.taken(t.Local); by != "" {
		return fmt.Sprintf("would be %s, which is a tool of server %s", quoted(t.Local), quoted(by))
	}
	return ""
}

// LeftOut is the Skip of a tool whose name may be anything. why goes on from it.
func LeftOut(name, why string) Skip {
	return Skip{Tool: bounded(name, "", nameShown), Why: quoted(name) + " " + why}
}

// refused is the Skip of a tool whose name is fit.
func refused(name string, err error) *Skip {
	if no, ok := errors.AsType[*schema.Refusal](err); ok {
		return &Skip{Tool: name, Why: quoted(name) + " was skipped: " + no.Why, Pointer: no.Pointer}
	}
	return &Skip{Tool: name, Why: quoted(name) + " was skipped: " + err.Error()}
}

// define puts the definition together from the members of a tool, each as it came.
func define(members map[string]strictjson.Raw) (def strictjson.Raw, pin string, err error) {
	for _, name := range defining {
		if value, ok := members[name]; ok {
			def = strconv.AppendQuote(append(def, ','), name)
			def = append(append(def, ':'), value...)
		}
	}
	def = append(def, '}')
	def[0] = '{' // it has a name at least
	if len(def) > maxDefinition {
		return nil, "", fmt.Errorf("its definition exceeds %d bytes", maxDefinition)
	}
	digest, err := strictjson.Digest(def)
	if err != nil {
		return nil, "", fmt.Errorf("its definition cannot be pinned: %w", err)
	}
	return def, "sha256:" + hex.EncodeToString(digest[:]), nil
}

// text returns the text that raw is; "" if it is of another kind or absent.
func text(raw strictjson.Raw) (s string) {
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}
