// Package seal closes what the ledger keeps of servers' answers: it compresses a
// body, and where the operator gave a key, encrypts it (AES-256-GCM), so that a
// copy of the database alone shows no result.
//
// What always holds:
//
//   - What Open returns is what Seal was given, byte for byte, or an error.
//   - A sealed body opens only for what it was sealed for: its operation. It
//     cannot be moved to another one.
//   - The first key seals; every key opens. Without its key a body stays closed.
//   - A body from before there was a Box is returned as it is.
//
// It does not hide how long a body is, roughly, and not when it was written.
package seal

import (
	"bytes"
	"compress/flate"
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"io"
	"sync"

	"onbehalf.internal/broker/secret"
)

// The first byte of a body. JSON begins with none of them.
const (
	deflated = 1 // RFC 1951
	closed   = 2 // key id, nonce, AES-256-GCM over a body of one of the other forms
)

const (
	keySize = 32
	idSize  = 8
	minimum = 512       // bytes; a shorter body does not get shorter
	maximum = 512 << 20 // bytes; more than any answer that is taken
)

// A Box seals and opens. The zero Box compresses alone. It is safe for
// concurrent use.
type Box struct{ keys []key }

type key struct {
	id   [idSize]byte
	aead cipher.AEAD
}

// New returns a Box with keys: 32 bytes each, in base64. The first one seals.
func New(keys ...secret.Text) (*Box, error) {
	b := &Box{}
	for _, text := range keys {
		raw, err := base64.StdEncoding.DecodeString(text.Reveal())
		if err != nil || len(raw) != keySize {
			return nil, errors.New("a key must be 32 bytes in base64, such as `openssl rand -base64 32` makes")
		}
		block, err := aes.NewCipher(raw)
		if err != nil {
			return nil, err
		}
		aead, err := cipher.NewGCMWithRandomNonce(block)
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(append([]byte("broker results key id"), raw...))
		b.keys = append(b.keys, key{[idSize]byte(sum[:idSize]), aead})
	}
	return b, nil
}

// Seal closes body for what it is about, an operation's id.
func (b *Box) Seal(body []byte, about string) []byte {
	if small := deflate(body); small != nil {
		body = small
	}
	if len(b.keys) == 0 {
		return body
	}
	k := b.keys[0]
	head := append([]byte{closed}, k.id[:]...)
	return k.aead.Seal(head, nil, body, []byte(about))
}

// ErrClosed says that none of the keys opens a body.
var ErrClosed = errors.New("no key opens this")

// Open returns the body that was sealed about the same. The error is ErrClosed,
// or says that the body is damaged.
func (b *Box) Open(sealed []byte, about string) ([]byte, error) {
	if len(sealed) > 0 && sealed[0] == closed {
		var err error
		if sealed, err = b.decrypt(sealed[1:], about); err != nil {
			return nil, err
		}
	}
	if len(sealed) > 0 && sealed[0] == deflated {
		return inflate(sealed[1:])
	}
	return sealed, nil
}

func (b *Box) decrypt(rest []byte, about string) ([]byte, error) {
	if len(rest) < idSize {
		return nil, errors.New("a sealed body is too short")
	}
	for _, k := range b.keys {
		if bytes.Equal(k.id[:], rest[:idSize]) {
			return k.aead.Open(nil, nil, rest[idSize:], []byte(about))
		}
	}
	return nil, ErrClosed
}

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
