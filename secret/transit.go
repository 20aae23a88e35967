package secret

import (
	"fmt"
	"strings"
)

// A TransitRef names a key of a Vault Transit engine: vault-transit:<mount>/<key>.
// The key stays in Vault, which signs with it or wraps data keys. The zero TransitRef
// names nothing.
type TransitRef struct{ mount, key string }

// ParseTransitRef checks s. Like a [Ref], a TransitRef holds no segment that
// could be read as something else; mount and key are one segment each.
func ParseTransitRef(s string) (TransitRef, error) {
	rest, ok := strings.CutPrefix(s, "vault-transit:")
	mount, key, ok2 := strings.Cut(rest, "/")
	if !ok || !ok2 {
		return TransitRef{}, fmt.Errorf(`a key that stays in Vault is written "vault-transit:<mount>/<key>"`)
	}
	for _, seg := range []string{mount, key} {
		if !segment.MatchString(seg) || strings.Contains(seg, "..") {
			return TransitRef{}, fmt.Errorf(`%q in the name of a key: segments are letters, digits and "_.@-"`, seg)
		}
	}
	return TransitRef{mount, key}, nil
}

func (r TransitRef) Mount() string  { return r.mount }
func (r TransitRef) Key() string    { return r.key }
func (r TransitRef) IsZero() bool   { return r == TransitRef{} }
func (r TransitRef) String() string { return "vault-transit:" + r.mount + "/" + r.key }
