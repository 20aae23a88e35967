package mcpclient

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"strconv"

	"onbehalf.internal/broker/strictjson"
)

// A numbering gives each request of a conversation an id of its own, which no
// server has seen from anybody: some key their streams by the bare id, and
// would hand one caller's answer to another.
type numbering struct {
	prefix string // of ids in text
	base   int64  // of ids in numbers
	count  int64
}

func newNumbering(numbers bool) numbering {
	var b [16]byte
	rand.Read(b[:]) // never fails: crypto/rand
	if numbers {
		return numbering{base: int64(binary.BigEndian.Uint64(b[:]) >> 12)} // 52 bits: exact in every JSON library
	}
	return numbering{prefix: base64.RawURLEncoding.EncodeToString(b[:]) + "-"}
}

// next returns the next id as it stands in JSON.
func (n *numbering) next() strictjson.Raw {
	n.count++
	if n.prefix == "" {
		return strconv.AppendInt(nil, n.base+n.count, 10)
	}
	return strictjson.Raw(`"` + n.prefix + strconv.FormatInt(n.count, 10) + `"`)
}
