package strictjson

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Digest returns the SHA-256 of what b says: two documents have one digest if
// and only if they hold the same values. The order of members, white space,
// escapes in strings and the spelling of a number (1, 1.0, 10e-1) do not
// matter; every decimal place of a number does.
//
// RFC 8785 is not used because it writes numbers as floats: there 2^53 and
// 2^53+1 are the same bytes, and two different calls would be the same request.
//
// A number whose exponent does not fit into 32 bits is refused.
func Digest(b []byte) ([32]byte, error) {
	if err := Check(b); err != nil {
		return [32]byte{}, err
	}
	tokens, err := appendValue(nil, jsontext.NewDecoder(bytes.NewBuffer(b)))
	if err != nil {
		return [32]byte{}, err
	}
	return sha256.Sum256(tokens), nil
}

// appendValue appends the next value of d to dst. Every token begins with its
// kind and, where its length is not fixed, the number of bytes, elements or
// members that follow: no two different values have the same bytes.
func appendValue(dst []byte, d *jsontext.Decoder) ([]byte, error) {
	token, err := d.ReadToken()
	if err != nil {
		return nil, syntax(err)
	}
	switch kind := token.Kind(); kind {
	case jsontext.KindBeginObject:
		return appendObject(dst, d)
	case jsontext.KindBeginArray:
		return appendArray(dst, d)
	case jsontext.KindString:
		return appendText(dst, byte(kind), token.String()), nil
	case jsontext.KindNumber:
		number, err := decimal(token.String())
		return appendText(dst, byte(kind), number), err
	default: // null, true, false
		return append(dst, byte(kind)), nil
	}
}

func appendText(dst []byte, kind byte, s string) []byte {
	dst = binary.AppendUvarint(append(dst, kind), uint64(len(s)))
	return append(dst, s...)
}

func appendArray(dst []byte, d *jsontext.Decoder) (_ []byte, err error) {
	var elements []byte
	n := uint64(0)
	for ; d.PeekKind() != jsontext.KindEndArray; n++ {
		if elements, err = appendValue(elements, d); err != nil {
			return nil, err
		}
	}
	if _, err := d.ReadToken(); err != nil {
		return nil, syntax(err)
	}
	dst = binary.AppendUvarint(append(dst, '['), n)
	return append(dst, elements...), nil
}

func appendObject(dst []byte, d *jsontext.Decoder) ([]byte, error) {
	type pair struct {
		name  string
		value []byte
	}
	var pairs []pair
	for d.PeekKind() != jsontext.KindEndObject {
		name, err := d.ReadToken()
		if err != nil {
			return nil, syntax(err)
		}
		p := pair{name: name.String()} // before the next read, which ends the token's life
		if p.value, err = appendValue(nil, d); err != nil {
			return nil, err
		}
		pairs = append(pairs, p)
	}
	if _, err := d.ReadToken(); err != nil {
		return nil, syntax(err)
	}
	slices.SortFunc(pairs, func(a, b pair) int { return strings.Compare(a.name, b.name) })
	dst = binary.AppendUvarint(append(dst, '{'), uint64(len(pairs)))
	for _, p := range pairs {
		dst = append(appendText(dst, '"', p.name), p.value...)
	}
	return dst, nil
}

// decimal returns the one spelling of the number that literal, a JSON number,
// stands for: 0 (which -0 is too), or digits without a zero at either end, "e"
// and an exponent.
func decimal(literal string) (string, error) {
	unsigned, negative := strings.CutPrefix(literal, "-")
	mantissa, power := cutExponent(unsigned)
	exp, err := strconv.ParseInt(power, 10, 32)
	if err != nil {
		return "", errors.New("the exponent of a number does not fit into 32 bits")
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	if digits == "" {
		return "0", nil
	}
	significant := strings.TrimRight(digits, "0")
	exp += int64(len(digits) - len(significant) - len(fraction))
	if negative {
		significant = "-" + significant
	}
	return significant + "e" + strconv.FormatInt(exp, 10), nil
}

func cutExponent(s string) (mantissa, power string) {
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		return s[:i], s[i+1:]
	}
	return s, "0"
}
