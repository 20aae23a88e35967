package audit

import (
	"crypto/sha256"
	"errors"
	"math/bits"
	"slices"

	"golang.org/x/mod/sumdb/tlog"
)

// A Tree is the Merkle tree over the canonical lines of a chain (RFC 6962 §2.1), as
// much of it as the next line needs: the roots of its full subtrees, the largest
// first, one for each bit that is set in its size. The zero Tree is empty.
type Tree struct {
	size uint64
	full []tlog.Hash
}

// Size is the number of lines in t.
func (t *Tree) Size() uint64 { return t.size }

// Add takes the next canonical line into t.
func (t *Tree) Add(line []byte) {
	root := tlog.RecordHash(line)
	for level := t.size; level&1 == 1; level >>= 1 { // two of a size are one of the next
		last := len(t.full) - 1
		root = tlog.NodeHash(t.full[last], root)
		t.full = t.full[:last]
	}
	t.full = append(t.full, root)
	t.size++
}

// Root is the tree's hash.
func (t *Tree) Root() [sha256.Size]byte {
	if t.size == 0 {
		return sha256.Sum256(nil)
	}
	last := len(t.full) - 1
	root := t.full[last]
	for _, left := range slices.Backward(t.full[:last]) {
		root = tlog.NodeHash(left, root)
	}
	return root
}

// Clone returns a tree that grows by itself.
func (t *Tree) Clone() Tree { return Tree{t.size, slices.Clone(t.full)} }

// Bytes is what [TreeOf] makes the same tree of.
func (t *Tree) Bytes() (b []byte) {
	for _, h := range t.full {
		b = append(b, h[:]...)
	}
	return b
}

// TreeOf returns the tree of so many lines that Bytes was called on.
func TreeOf(size uint64, b []byte) (Tree, error) {
	t := Tree{size: size}
	for full := range slices.Chunk(b, tlog.HashSize) {
		if len(full) == tlog.HashSize {
			t.full = append(t.full, tlog.Hash(full))
		}
	}
	if len(b) != tlog.HashSize*bits.OnesCount64(size) {
		return Tree{}, errors.New("these are not the hashes of a tree of this size")
	}
	return t, nil
}
