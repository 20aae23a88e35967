package devvault

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"strconv"
	"strings"
)

// A transit is one Transit engine: its keys by name.
type transit map[string]*transitKey

// A transitKey is of a kind that signs, or of the one that encrypts.
type transitKey struct {
	signer    *signer
	encrypter *encrypter
	deletable bool
}

func newTransitKey(kind string) *transitKey {
	if kind == encrypts {
		return &transitKey{encrypter: newEncrypter()}
	}
	if s := newSigner(kind); s != nil {
		return &transitKey{signer: s}
	}
	return nil
}

// A signer is a key with all its versions; the newest signs.
type signer struct {
	kind     string
	versions []crypto.Signer
}

func newSigner(kind string) *signer {
	s := &signer{kind: kind}
	if !s.rotate() {
		return nil
	}
	return s
}

func (s *signer) newest() crypto.Signer { return s.versions[len(s.versions)-1] }

// rotate adds a version. It fails for a kind of key that does not sign, and
// for those that are not here.
func (s *signer) rotate() bool {
	var key crypto.Signer
	var err error
	switch s.kind {
	case "rsa-2048":
		key, err = rsa.GenerateKey(rand.Reader, 2048)
	case "ecdsa-p256":
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case "ecdsa-p384":
		key, err = ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	case "ed25519":
		_, key, err = ed25519.GenerateKey(rand.Reader)
	default:
		return false
	}
	if err != nil {
		panic(err) // the system has no randomness
	}
	s.versions = append(s.versions, key)
	return true
}

func (s *Server) configureTransitMount(c call) reply {
	switch there := s.transits[c.rest] != nil; {
	case c.method == http.MethodGet:
		return reply{status: http.StatusOK, data: document{"type": "transit"}}
	case there || s.mounts[c.rest] != nil:
		return said(http.StatusBadRequest, "path is already in use at "+c.rest+"/")
	}
	s.transits[c.rest] = transit{}
	return done
}

func (t transit) serve(c call, below string) reply {
	what, name, _ := strings.Cut(below, "/")
	switch {
	case what == "keys":
		name, part, _ := strings.Cut(name, "/")
		return t.keep(c, name, part)
	case c.method == http.MethodGet:
		return absent
	case what == "sign":
		return t[name].sign(c.body)
	case what == "datakey":
		return t.dataKey(name, c.body)
	case what == "decrypt":
		return t[name].decrypt(c.body)
	}
	return absent
}

// keep is transit/keys/<name>, and what is below it: rotate and config.
func (t transit) keep(c call, name, part string) reply {
	key := t[name]
	switch there := key != nil; {
	case !there && c.method == http.MethodGet:
		return absent
	case !there && (part != "" || c.method == http.MethodDelete):
		return said(http.StatusBadRequest, "no existing key named "+name+" could be found")
	case part == "rotate":
		key.rotate()
	case part == "config":
		if what := key.configure(c.body); what != "" {
			return said(http.StatusBadRequest, what)
		}
	case c.method == http.MethodDelete && !key.deletable:
		return said(http.StatusBadRequest, "deletion is not allowed for this key")
	case c.method == http.MethodDelete:
		delete(t, name)
		return done
	case !there:
		kind, _ := c.body["type"].(string)
		if key = newTransitKey(kind); key == nil {
			return said(http.StatusBadRequest, "unknown key type")
		}
		t[name] = key
	}
	return reply{status: http.StatusOK, data: key.describe(name)}
}

func (k *transitKey) rotate() {
	if k.encrypter != nil {
		k.encrypter.rotate()
		return
	}
	k.signer.rotate()
}

func (k *transitKey) describe(name string) document {
	if k.encrypter != nil {
		return k.encrypter.describe(name)
	}
	return k.signer.describe(name)
}

// configure is transit/keys/<name>/config, as far as it is here; it says what is wrong.
func (k *transitKey) configure(body document) (what string) {
	if deletable, ok := body["deletion_allowed"].(bool); ok {
		k.deletable = deletable
	}
	least, ok := body["min_decryption_version"].(float64)
	switch {
	case !ok:
		return ""
	case k.encrypter == nil:
		return "not here for a key that signs"
	case int(least) > len(k.encrypter.versions):
		return "cannot set min decryption version beyond the latest key version"
	}
	k.encrypter.least = max(1, int(least))
	return ""
}

func (s *signer) describe(name string) document {
	keys := document{}
	for i, key := range s.versions {
		keys[strconv.Itoa(i+1)] = document{"public_key": publicKey(key)}
	}
	return document{"name": name, "type": s.kind, "keys": keys, "latest_version": len(s.versions)}
}

// publicKey is PEM, but base64 of the bare 32 bytes for ed25519, as Vault has it.
func publicKey(key crypto.Signer) string {
	if public, ok := key.Public().(ed25519.PublicKey); ok {
		return base64.StdEncoding.EncodeToString(public)
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		panic(err) // the key is ours
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

// sign is transit/sign/<key>. As in Vault, what does not concern the kind of
// the key is ignored.
func (k *transitKey) sign(body document) reply {
	switch {
	case k == nil:
		return said(http.StatusBadRequest, "signing key not found")
	case k.signer == nil:
		return said(http.StatusBadRequest, "key type "+encrypts+" does not support signing")
	}
	s := k.signer
	encoded, _ := body["input"].(string)
	input, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return said(http.StatusBadRequest, "unable to decode input")
	}
	signature := signJWS(s.newest(), input, body)
	text := base64.StdEncoding.EncodeToString(signature)
	if body["marshaling_algorithm"] == "jws" {
		text = base64.RawURLEncoding.EncodeToString(signature)
	}
	version := len(s.versions)
	return reply{status: http.StatusOK, data: document{"key_version": version, "signature": fmt.Sprintf("vault:v%d:%s", version, text)}}
}

func signJWS(key crypto.Signer, input []byte, order document) []byte {
	sum, digest := crypto.SHA256, sha256.New()
	if order["hash_algorithm"] == "sha2-384" {
		sum, digest = crypto.SHA384, sha512.New384()
	}
	digest.Write(input)
	hashed := digest.Sum(nil)
	var signature []byte
	var err error
	switch key := key.(type) {
	case ed25519.PrivateKey:
		signature = ed25519.Sign(key, input)
	case *ecdsa.PrivateKey:
		var r, s *big.Int
		r, s, err = ecdsa.Sign(rand.Reader, key, hashed)
		size := (key.Curve.Params().BitSize + 7) / 8
		signature = append(r.FillBytes(make([]byte, size)), s.FillBytes(make([]byte, size))...)
	case *rsa.PrivateKey:
		var options crypto.SignerOpts = sum
		if order["signature_algorithm"] == "pss" {
			pss := &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthAuto, Hash: sum}
			if order["salt_length"] == "hash" {
				pss.SaltLength = rsa.PSSSaltLengthEqualsHash
			}
			options = pss
		}
		signature, err = key.Sign(rand.Reader, hashed, options)
	}
	if err != nil {
		panic(err) // the key is ours
	}
	return signature
}
