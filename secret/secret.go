// Package secret holds text that cannot be printed, and names for text that
// somebody else keeps.
//
// A [Text] prints as "[secret]" under every verb of fmt, in slog, in JSON and
// in YAML, wherever it sits in a structure. [Text.Reveal] is the only way to the value, so
// a search for "Reveal(" lists every place where a secret can leave the
// process. A [Ref] names a secret in Vault and is safe to print.
//
// The value sits in a closure: fmt does not call our methods for a Text in an
// unexported field of somebody's struct, it walks the memory. In a string it
// finds the secret, behind a pointer %s finds it too; a func is an address.
// TestNeverPrinted holds this.
//
// This package does not wipe memory: the Go runtime copies strings.
package secret

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"log/slog"
)

const redacted = "[secret]"

// Text is a token, a key or an assertion. The zero Text is empty.
type Text struct{ reveal func() string }

// New returns a Text that reveals s.
func New(s string) Text { return Text{func() string { return s }} }

// Reveal returns the value. Call it on the line that puts it on the wire.
func (t Text) Reveal() string {
	if t.reveal == nil {
		return ""
	}
	return t.reveal()
}

// IsZero reports whether t holds no value.
func (t Text) IsZero() bool { return t.Reveal() == "" }

// Equal compares in constant time for values of equal length.
func (t Text) Equal(u Text) bool {
	a, b := t.Digest(), u.Digest()
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

// Digest is the SHA-256 of the value. It identifies a token of high entropy
// without giving it away; never use it for a password.
func (t Text) Digest() [32]byte { return sha256.Sum256([]byte(t.Reveal())) }

func (Text) String() string               { return redacted }
func (Text) GoString() string             { return redacted }
func (Text) Format(f fmt.State, _ rune)   { fmt.Fprint(f, redacted) }
func (Text) LogValue() slog.Value         { return slog.StringValue(redacted) }
func (Text) MarshalText() ([]byte, error) { return []byte(redacted), nil }
