package mcpclient

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"strings"

	"onbehalf.internal/broker/secret"
	"onbehalf.internal/broker/strictjson"
)

// minEcho is the shortest credential that is looked for. A shorter one would be
// found by chance.
const minEcho = 8

// echoes reports whether token is in doc, as it is, in hex or in base64, also
// where JSON escapes hide it.
func echoes(doc strictjson.Raw, token secret.Text) bool {
	value := token.Reveal()
	if len(doc) < len(value) || len(value) < minEcho { // no form is shorter than the value, and an escape is longer than what it stands for
		return false
	}
	forms := echoForms(value)
	if contains(doc, forms) {
		return true
	}
	if !bytes.Contains(doc, []byte(`\`)) {
		return false
	}
	plain := doc.Clone()
	return plain.Canonicalize() == nil && contains(plain, forms)
}

func contains(doc []byte, forms []string) bool {
	for _, f := range forms {
		if bytes.Contains(doc, []byte(f)) {
			return true
		}
	}
	return false
}

// echoForms returns the ways to write value. Inside a longer text base64 depends
// on where value begins: each of the three offsets, without the characters
// that its neighbours have a part in.
func echoForms(value string) []string {
	inHex := hex.EncodeToString([]byte(value))
	forms := []string{value, inHex, strings.ToUpper(inHex)}
	for offset := range 3 {
		shifted := append(make([]byte, offset), value...)
		from, to := (offset*8+5)/6, len(shifted)*8/6
		for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			forms = append(forms, enc.EncodeToString(shifted)[from:to])
		}
	}
	return forms
}
