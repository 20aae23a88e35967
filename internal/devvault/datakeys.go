package devvault

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// encrypts is the one kind of key here that encrypts.
const encrypts = "aes256-gcm96"

// An encrypter is a key with all its versions; the newest encrypts, and those
// from least on decrypt.
type encrypter struct {
	versions []cipher.AEAD
	since    []time.Time
	least    int      // min_decryption_version
	dataKeys []string // that it made, in base64
}

func newEncrypter() *encrypter {
	e := &encrypter{least: 1}
	e.rotate()
	return e
}

func (e *encrypter) rotate() {
	block, err := aes.NewCipher(random(32))
	if err != nil {
		panic(err) // the key is ours
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err)
	}
	e.versions, e.since = append(e.versions, aead), append(e.since, time.Now())
}

func random(n int) []byte {
	b := make([]byte, n)
	rand.Read(b)
	return b
}

func (e *encrypter) describe(name string) document {
	keys := document{}
	for i := e.least; i <= len(e.since); i++ {
		keys[strconv.Itoa(i)] = e.since[i-1].Unix()
	}
	return document{"name": name, "type": encrypts, "keys": keys, "latest_version": len(e.versions), "min_decryption_version": e.least}
}

// dataKey is transit/datakey/plaintext/<key>; "wrapped" is not here.
func (t transit) dataKey(below string, body document) reply {
	name, plain := strings.CutPrefix(below, "plaintext/")
	key := t[name]
	bits := 256
	if asked, ok := body["bits"]; ok { // a number, or the text of one
		bits, _ = strconv.Atoi(fmt.Sprint(asked))
	}
	switch {
	case !plain:
		return said(http.StatusBadRequest, "Invalid path, must be 'plaintext'")
	case key == nil:
		return said(http.StatusBadRequest, "encryption key not found")
	case key.encrypter == nil:
		return said(http.StatusBadRequest, "message encryption not supported for key type "+key.signer.kind)
	case bits != 128 && bits != 256 && bits != 512:
		return said(http.StatusBadRequest, "invalid bit length")
	}
	e, made := key.encrypter, random(bits/8)
	version := len(e.versions)
	sealed := e.versions[version-1].Seal(nil, nil, made, nil)
	encode := base64.StdEncoding.EncodeToString
	e.dataKeys = append(e.dataKeys, encode(made))
	return reply{status: http.StatusOK, data: document{"key_version": version, "plaintext": encode(made),
		"ciphertext": fmt.Sprintf("vault:v%d:%s", version, encode(sealed))}}
}

// decrypt is transit/decrypt/<key>. Whatever is wrong, Vault says 400.
func (k *transitKey) decrypt(body document) reply {
	switch {
	case k == nil:
		return said(http.StatusBadRequest, "encryption key not found")
	case k.encrypter == nil:
		return said(http.StatusBadRequest, "message decryption not supported for key type "+k.signer.kind)
	}
	e := k.encrypter
	text, _ := body["ciphertext"].(string)
	rest, ok := strings.CutPrefix(text, "vault:v")
	number, encoded, ok2 := strings.Cut(rest, ":")
	version, err := strconv.Atoi(number)
	switch {
	case !ok || !ok2 || err != nil || version < 1:
		return said(http.StatusBadRequest, "invalid ciphertext")
	case version > len(e.versions):
		return said(http.StatusBadRequest, "invalid ciphertext: version is too new")
	case version < e.least:
		return said(http.StatusBadRequest, "ciphertext or signature version is disallowed by policy (too old)")
	}
	sealed, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return said(http.StatusBadRequest, "invalid ciphertext: could not decode base64")
	}
	plain, err := e.versions[version-1].Open(nil, nil, sealed, nil)
	if err != nil {
		return said(http.StatusBadRequest, "cipher: message authentication failed")
	}
	return reply{status: http.StatusOK, data: document{"plaintext": base64.StdEncoding.EncodeToString(plain)}}
}
