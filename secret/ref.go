package secret

import (
	"fmt"
	"regexp"
	"strings"
)

// A Ref names one field of one Vault secret: vault:<mount>/<path>#<field>. A mount
// may have more than one segment: which of them are the mount's, Vault knows. The
// zero Ref names nothing.
type Ref struct{ path, field string }

var segment = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.@-]{0,127}$`)

// ParseRef checks s. A Ref holds no segment that a server or a client library
// could read as something else ("..", an empty one, "%2f", a query).
func ParseRef(s string) (Ref, error) {
	rest, ok := strings.CutPrefix(s, "vault:")
	path, field, ok2 := strings.Cut(rest, "#")
	if !ok || !ok2 || !strings.Contains(path, "/") {
		return Ref{}, fmt.Errorf(`a credential is written "vault:<mount>/<path>#<field>"`)
	}
	for _, seg := range append(strings.Split(path, "/"), field) {
		if !segment.MatchString(seg) || strings.Contains(seg, "..") {
			return Ref{}, fmt.Errorf(`%q in a credential reference: segments are letters, digits and "_.@-"`, seg)
		}
	}
	return Ref{path, field}, nil
}

func (r Ref) Path() string   { return r.path } // with the mount
func (r Ref) Field() string  { return r.field }
func (r Ref) IsZero() bool   { return r == Ref{} }
func (r Ref) String() string { return "vault:" + r.path + "#" + r.field }
