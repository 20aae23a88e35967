package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
)

// A Head names the last record of a chain. The zero Head is that of a chain
// without records.
type Head struct {
	Seq  uint64
	Hash [sha256.Size]byte
}

// A Place is a Head as a record names it.
type Place struct {
	Seq  uint64 `json:"seq"`
	Hash Digest `json:"hash"`
}

// Place returns h as a record names it.
func (h Head) Place() Place { return Place{h.Seq, h.Hash} }

// Link returns the hash of a canonical line, which the next line carries as
// its prev.
func Link(line []byte) [sha256.Size]byte { return sha256.Sum256(line) }

// Next returns the canonical line of r as the record after h, and the head
// that it makes.
func (h Head) Next(r Record) (line []byte, next Head) {
	line = r.Canonical(h.Seq+1, h.Hash)
	return line, Head{h.Seq + 1, Link(line)}
}

// Exported returns a canonical line as [Verify] reads it: its hash as the last
// member, and a line break. The hash is the one that was stored with the line;
// computing it again would hide a change.
func Exported(line []byte, hash [sha256.Size]byte) []byte {
	return fmt.Appendf(bytes.Clone(line[:len(line)-1]), hashForm, hash)
}

const (
	hashForm   = `,"hash":"%x"}` + "\n"
	hashLength = len(`,"hash":""}`+"\n") + 2*sha256.Size
	lineLimit  = 1 << 20 // bytes; far above any record
)

// Follow checks a canonical line, and the hash that was stored with it, as the
// record after h. why is empty if it is as it was written.
func (h Head) Follow(line []byte, hash [sha256.Size]byte) (next Head, why string) {
	next = Head{h.Seq + 1, Link(line)}
	if hash != next.Hash {
		return h, "does not match its hash"
	}
	start := strconv.AppendUint([]byte(`{"seq":`), next.Seq, 10)
	start = append(hex.AppendEncode(append(start, `,"prev":"`...), h.Hash[:]), `",`...)
	if !bytes.HasPrefix(line, start) {
		return h, "does not follow the one before it"
	}
	return next, ""
}
