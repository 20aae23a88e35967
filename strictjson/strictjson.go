// Package strictjson reads JSON that comes from outside, so that the broker and
// whoever stands beside it can not read two different things in one document.
//
// What always holds for every function here:
//
//   - A document is one JSON value (RFC 8259): valid UTF-8 without lone
//     surrogates, no byte order mark, nothing after it, at most [MaxDepth]
//     levels of objects and arrays.
//   - No object has one name twice, at any depth, however it is escaped.
//   - Names match exactly: "Tool" is not "tool", and no folding of Unicode
//     makes it so.
//   - A sub-document that we only pass on keeps its bytes ([Raw]); a number in
//     it is never read as a float.
//   - Errors name the member and what is wrong with it, never its value.
//
// This package does not limit the size of a document, since it starts when the
// bytes are in memory, and does not know which strings are good names.
package strictjson

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Raw is a sub-document, byte for byte as it came.
type Raw = jsontext.Value

// MaxDepth is how many objects and arrays may lie in one another. The library
// stops at 10,000; whoever walks a document recursively wants less.
const MaxDepth = 64

// Check reports whether b is one JSON value as the package describes it.
func Check(b []byte) error { return checkWithin(b, MaxDepth) }

func checkWithin(b []byte, levels int) error {
	switch {
	case len(b) == 0:
		return errors.New("empty document")
	case bytes.HasPrefix(b, []byte("\ufeff")):
		return errors.New("document begins with a byte order mark")
	case !utf8.Valid(b):
		return errors.New("document is not valid UTF-8")
	}
	d := jsontext.NewDecoder(bytes.NewBuffer(b))
	for {
		if _, err := d.ReadToken(); err != nil {
			return syntax(err)
		}
		switch depth := d.StackDepth(); {
		case depth > levels:
			return fmt.Errorf("document is nested deeper than %d levels", levels)
		case depth == 0:
			return checkEnd(d)
		}
	}
}

// Decode checks b, whose top level is an object, and fills into, a pointer to a
// zero struct. It refuses a member that the struct does not have, and null
// where the Go type is neither a pointer nor [Raw]. A member that is absent
// leaves its field at zero: whether it had to be there is for the caller to say.
//
// After an error into holds anything; do not look at it.
func Decode(b []byte, into any) error {
	if err := checkObject(b, MaxDepth); err != nil {
		return err
	}
	err := json.Unmarshal(b, into, json.RejectUnknownMembers(true), json.WithUnmarshalers(refuseNull))
	return semantic(err)
}

// DecodeKnown is Decode for an answer that may have members we do not know, which are
// passed over, and holds a document of somebody else's: at most that many levels.
func DecodeKnown(b []byte, levels int, into any) error {
	if err := checkObject(b, levels); err != nil {
		return err
	}
	return semantic(json.Unmarshal(b, into, json.WithUnmarshalers(refuseNull)))
}

// Members checks b, whose top level is an object, and returns its members. It
// is for envelopes that may have members we do not know.
func Members(b []byte) (map[string]Raw, error) { return MembersWithin(b, MaxDepth) }

// MembersWithin is Members for a document of at most that many levels. Where the
// library's own strictness is enough, it walks b once; why it refused, Check says.
func MembersWithin(b []byte, levels int) (map[string]Raw, error) {
	var m map[string]Raw
	failure := json.Unmarshal(b, &m)
	if failure == nil && m != nil && shallow(b, levels) {
		return m, nil
	}
	if err := checkObject(b, levels); err != nil {
		return nil, err
	}
	return m, semantic(failure)
}

// shallow reports whether b has too few brackets to be nested deeper. False says
// nothing.
func shallow(b []byte, levels int) bool {
	return bytes.Count(b, []byte("{"))+bytes.Count(b, []byte("[")) <= levels
}

// Parts returns the members of b, an object inside a document that was checked;
// nil for anything else.
func Parts(b Raw) map[string]Raw {
	var m map[string]Raw
	if b.Kind() != jsontext.KindBeginObject || json.Unmarshal(b, &m) != nil {
		return nil
	}
	return m
}

// A Member is a name and its value as they stand in an object.
type Member struct {
	Name    string
	Spelled Raw // the name with its quotes and escapes
	Value   Raw
}

// Ordered is Parts in the order of the document. Nothing is copied: what it
// returns shares the bytes of b.
func Ordered(b Raw) []Member {
	values := inside(b, jsontext.KindBeginObject)
	var members []Member
	for i := 0; i+1 < len(values); i += 2 {
		name, _ := jsontext.AppendUnquote(nil, values[i])
		members = append(members, Member{string(name), values[i], values[i+1]})
	}
	return members
}

// Elements returns the elements of b, an array inside a document that was
// checked; nil for anything else. Nothing is copied.
func Elements(b Raw) []Raw { return inside(b, jsontext.KindBeginArray) }

// inside returns the values directly inside b, names among them, in b's own
// bytes: those of the decoder live until its next read.
func inside(b Raw, kind jsontext.Kind) []Raw {
	d := jsontext.NewDecoder(bytes.NewBuffer(b))
	if start, err := d.ReadToken(); err != nil || start.Kind() != kind {
		return nil
	}
	var values []Raw
	for {
		v, err := d.ReadValue()
		if err != nil { // the closing bracket
			return values
		}
		end := d.InputOffset()
		values = append(values, b[end-int64(len(v)):end:end])
	}
}

// With returns the object b, which was checked before, with one more member of
// text at its end. The rest keeps its bytes. It fails if the name is taken.
func With(b Raw, name, value string) (Raw, error) {
	if _, taken := Parts(b)[name]; taken {
		return nil, fmt.Errorf("%q is there already", name)
	}
	member, err := json.Marshal(map[string]string{name: value})
	if err != nil {
		return nil, err
	}
	head := bytes.TrimRight(b[:bytes.LastIndexByte(b, '}')], " \t\r\n")
	if head[len(head)-1] != '{' {
		head = append(slices.Clip(head), ',')
	}
	return append(slices.Clip(head), member[1:]...), nil
}

func checkObject(b []byte, levels int) error {
	if err := checkWithin(b, levels); err != nil {
		return err
	}
	if kind := Raw(b).Kind(); kind != jsontext.KindBeginObject {
		return fmt.Errorf("document is %s, not an object", kindName(kind))
	}
	return nil
}

// checkEnd reports whether d, which has read one value, has nothing left.
func checkEnd(d *jsontext.Decoder) error {
	if _, err := d.ReadToken(); err != io.EOF {
		return errors.New("document has something after its end")
	}
	return nil
}

var errNull = errors.New("null")

// refuseNull runs before every value is decoded. The library takes null for
// the zero value of any type, which would make a member that is there look
// like one that is absent.
var refuseNull = json.UnmarshalFromFunc(func(d *jsontext.Decoder, into any) error {
	t := reflect.TypeOf(into).Elem()
	if d.PeekKind() == jsontext.KindNull && t.Kind() != reflect.Pointer && t != reflect.TypeFor[Raw]() {
		return errNull
	}
	return errors.ErrUnsupported // the usual rules apply
})

// syntax says in our words what the library found. Its own text can quote
// the document.
func syntax(err error) error {
	var e *jsontext.SyntacticError
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("document ends too early")
	case !errors.As(err, &e):
		return errors.New("document is not JSON")
	case errors.Is(e.Err, jsontext.ErrDuplicateName):
		return fmt.Errorf("member %s twice", member(e.JSONPointer))
	}
	return fmt.Errorf("document is not JSON at byte %d", e.ByteOffset)
}

// semantic does the same for a document that is JSON but not what was asked for.
func semantic(err error) error {
	var e *json.SemanticError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &e):
		return errors.New("document does not fit")
	case errors.Is(e.Err, json.ErrUnknownName):
		return fmt.Errorf("unknown member %s", member(e.JSONPointer))
	case errors.Is(e.Err, errNull):
		return fmt.Errorf("member %s is null", member(e.JSONPointer))
	}
	return fmt.Errorf("member %s: %s does not fit here", member(e.JSONPointer), kindName(e.JSONKind))
}

// member quotes the path to a member, as in "tools/0/name". 64 bytes tell which
// one is meant; a sender chooses the name and gets no room for more.
func member(p jsontext.Pointer) string {
	path := strings.TrimPrefix(string(p), "/")
	return strconv.Quote(path[:min(len(path), 64)])
}

func kindName(k jsontext.Kind) string {
	switch k {
	case jsontext.KindNull:
		return "null"
	case jsontext.KindTrue, jsontext.KindFalse:
		return "a boolean"
	case jsontext.KindString:
		return "a string"
	case jsontext.KindNumber:
		return "a number"
	case jsontext.KindBeginArray:
		return "an array"
	case jsontext.KindBeginObject:
		return "an object"
	}
	return "a value"
}
