package audit

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
)

// A Head names the last record of a chain. The zero Head is that of a chain
// without records.
type Head struct {
	Seq  uint64
	Hash [sha256.Size]byte
}

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

// A BadRecord is the first line that is not as it was written.
type BadRecord struct {
	Line int // from 1
	Why  string
}

func (e *BadRecord) Error() string { return fmt.Sprintf("the record in line %d %s", e.Line, e.Why) }

// Verify reads exported lines from the first record on and returns the head of
// the chain. The error is a *[BadRecord], or that of r.
func Verify(r io.Reader) (Head, error) {
	in := bufio.NewReaderSize(r, lineLimit)
	var head Head
	for n := 1; ; n++ {
		line, err := in.ReadSlice('\n')
		switch {
		case err == io.EOF && len(line) == 0:
			return head, nil
		case err == io.EOF:
			return head, &BadRecord{n, "is cut off"}
		case errors.Is(err, bufio.ErrBufferFull):
			return head, &BadRecord{n, "is too long to be one"}
		case err != nil:
			return head, err
		}
		next, why := head.follow(line)
		if why != "" {
			return head, &BadRecord{n, why}
		}
		head = next
	}
}

// follow checks an exported line as the record after h. It compares bytes: two
// spellings of one JSON value are two lines.
func (h Head) follow(line []byte) (next Head, why string) {
	if len(line) < hashLength {
		return h, "is not a record"
	}
	canonical := append(bytes.Clone(line[:len(line)-hashLength]), '}')
	hash := Link(canonical)
	if !bytes.Equal(line, Exported(canonical, hash)) {
		return h, "does not match its hash"
	}
	return h.Follow(canonical, hash)
}

// Follow checks a canonical line, and the hash that was stored with it, as the
// record after h. why is empty if it is as it was written.
func (h Head) Follow(line []byte, hash [sha256.Size]byte) (next Head, why string) {
	next = Head{h.Seq + 1, Link(line)}
	if hash != next.Hash {
		return h, "does not match its hash"
	}
	if start := fmt.Appendf(nil, `{"seq":%d,"prev":"%x",`, next.Seq, h.Hash); !bytes.HasPrefix(line, start) {
		return h, "does not follow the one before it"
	}
	return next, ""
}
