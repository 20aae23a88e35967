// Package seal closes what the ledger keeps of servers' answers: it compresses a
// body, and where the operator gave a key, encrypts it (AES-256-GCM), so that a
// copy of the database alone shows no result. A key is the broker's own, or stays
// in Vault, which makes and unwraps data keys with it (transit.go).
//
// What always holds:
//
//   - What Open returns is what Seal was given, byte for byte, or an error.
//   - A sealed body opens only for what it was sealed for: its operation. It
//     cannot be moved to another one.
//   - The first key seals; every key opens. Without its key a body stays closed.
//   - Where there is a key, Seal returns no body that is not sealed. It waits for
//     nothing: what it needs of Vault [Box.Ready] has asked for before.
//   - A body from before there was a Box is returned as it is.
//
// It does not hide how long a body is, roughly, and not when it was written.
package seal

import (
	"bytes"
	"compress/flate"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"io"
	"slices"
	"sync"

	"onbehalf.internal/broker/secret"
)

// The first byte of a body. JSON begins with none of them.
const (
	deflated  = 1 // RFC 1951
	closed    = 2 // key id, nonce, AES-256-GCM over a body that is deflated or as it was
	enveloped = 3 // key id, length and text of a wrapped data key, and the rest as in closed
)

const (
	keySize = 32
	idSize  = 8
	minimum = 512       // bytes; a shorter body does not get shorter
	maximum = 512 << 20 // bytes; more than any answer that is taken
)

// A Box seals and opens. The zero Box compresses alone. It is safe for
// concurrent use.
type Box struct{ keys []Key }

// A Key is one of the broker's own, or stays in Vault.
type Key struct {
	form byte // of the bodies that it seals
	id   [idSize]byte
	own  cipher.AEAD // nil: it stays in Vault
	away *transit    // nil: it is our own
}

// New returns a Box with keys. The first one seals.
func New(keys ...Key) *Box { return &Box{keys} }

// Own returns a key of the broker's own: 32 bytes, in base64.
func Own(text secret.Text) (Key, error) {
	raw, err := decode(text)
	if err != nil {
		return Key{}, err
	}
	aead, err := newAEAD(raw)
	return Key{form: closed, id: idOf("broker results key id", raw), own: aead}, err
}

func decode(text secret.Text) ([]byte, error) {
	raw, err := base64.StdEncoding.DecodeString(text.Reveal())
	if err != nil || len(raw) != keySize {
		return nil, errors.New("a key must be 32 bytes in base64, such as `openssl rand -base64 32` makes")
	}
	return raw, nil
}

func newAEAD(raw []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(raw)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

func idOf(label string, what []byte) [idSize]byte {
	sum := sha256.Sum256(append([]byte(label), what...))
	return [idSize]byte(sum[:idSize])
}

// Ready makes sure that Seal has what it needs. With a key that stays in Vault it may
// ask for a data key, and wait as long as ctx and the question last; the error is
// Vault's.
func (b *Box) Ready(ctx context.Context) error {
	if len(b.keys) == 0 || b.keys[0].away == nil {
		return nil
	}
	return b.keys[0].away.ready(ctx)
}

// Seal closes body for what it is about, an operation's id. It fails if there has to
// be a data key and Ready has not been asked for one.
func (b *Box) Seal(body []byte, about string) ([]byte, error) {
	if small := deflate(body); small != nil {
		body = small
	}
	if len(b.keys) == 0 {
		return body, nil
	}
	k := b.keys[0]
	head, aead := append([]byte{k.form}, k.id[:]...), k.own
	if k.away != nil {
		data, err := k.away.sealing()
		if err != nil {
			return nil, err
		}
		head, aead = data.appendTo(head), data.aead
	}
	return aead.Seal(head, nil, body, []byte(about)), nil
}

// ErrClosed says that none of the keys opens a body, or that Vault will not unwrap
// its data key as that key stands.
var ErrClosed = errors.New("no key opens this")

// Open returns the body that was sealed about the same. The error is ErrClosed, or
// says that the body is damaged, or is Vault's where a data key could not be had: then
// it may open another time.
func (b *Box) Open(ctx context.Context, sealed []byte, about string) ([]byte, error) {
	if len(sealed) > 0 && (sealed[0] == closed || sealed[0] == enveloped) {
		var err error
		if sealed, err = b.decrypt(ctx, sealed[0], sealed[1:], about); err != nil {
			return nil, err
		}
	}
	if len(sealed) > 0 && sealed[0] == deflated {
		return inflate(sealed[1:])
	}
	return sealed, nil
}

func (b *Box) decrypt(ctx context.Context, form byte, rest []byte, about string) ([]byte, error) {
	if len(rest) < idSize {
		return nil, errDamaged
	}
	id, rest := [idSize]byte(rest[:idSize]), rest[idSize:]
	i := slices.IndexFunc(b.keys, func(k Key) bool { return k.form == form && k.id == id })
	if i < 0 {
		return nil, ErrClosed
	}
	aead := b.keys[i].own
	if form == enveloped {
		var err error
		if aead, rest, err = b.keys[i].away.opening(ctx, rest); err != nil {
			return nil, err
		}
	}
	return aead.Open(nil, nil, rest, []byte(about))
}

var errDamaged = errors.New("the head of a sealed body is damaged")

// deflaters are costly to make: half a megabyte each.
var deflaters = sync.Pool{New: func() any { w, _ := flate.NewWriter(nil, flate.BestSpeed); return w }}

// deflate returns nil for what does not get shorter.
func deflate(body []byte) []byte {
	if len(body) < minimum {
		return nil
	}
	out := bytes.NewBuffer([]byte{deflated})
	w := deflaters.Get().(*flate.Writer)
	defer deflaters.Put(w)
	w.Reset(out)
	if _, err := w.Write(body); err != nil || w.Close() != nil || out.Len() >= len(body) {
		return nil
	}
	return out.Bytes()
}

func inflate(body []byte) ([]byte, error) {
	r := flate.NewReader(bytes.NewReader(body))
	whole, err := io.ReadAll(io.LimitReader(r, maximum+1))
	if err != nil || len(whole) > maximum {
		return nil, errors.New("a compressed body is damaged")
	}
	return whole, nil
}
