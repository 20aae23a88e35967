package audit

import (
	"bufio"
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
)

// A Checkpoint says which records there were: the first Size of a ledger, whose
// [Tree] has this root. Signed, it is a C2SP checkpoint
// (https://c2sp.org/tlog-checkpoint).
type Checkpoint struct {
	Origin string // see [Origin]
	Size   uint64
	Root   [sha256.Size]byte
}

// Origin is the first line of the checkpoints of a ledger.
func Origin(ledger string) string { return "onbehalf-broker/" + ledger }

// Sign returns the checkpoint as a signed note.
func (c Checkpoint) Sign(key note.Signer) ([]byte, error) {
	text := fmt.Sprintf("%s\n%d\n%s\n", c.Origin, c.Size, base64.StdEncoding.EncodeToString(c.Root[:]))
	return note.Sign(&note.Note{Text: text}, key)
}

var errCheckpoint = errors.New("is not a checkpoint: three lines, an empty one, and lines with signatures")

// OpenCheckpoint reads a signed note. One of the keys must have signed it.
func OpenCheckpoint(msg []byte, keys ...note.Verifier) (Checkpoint, error) {
	n, err := note.Open(msg, note.VerifierList(keys...))
	if err != nil {
		return Checkpoint{}, err
	}
	lines := strings.SplitN(n.Text, "\n", 4) // more may follow, which is not ours
	if len(lines) < 4 {
		return Checkpoint{}, errCheckpoint
	}
	size, err := strconv.ParseUint(lines[1], 10, 63)
	root, err2 := base64.StdEncoding.Strict().DecodeString(lines[2])
	if err != nil || err2 != nil || len(root) != sha256.Size || size == 0 || strconv.FormatUint(size, 10) != lines[1] {
		return Checkpoint{}, errCheckpoint
	}
	return Checkpoint{lines[0], size, [sha256.Size]byte(root)}, nil
}

// A BadHead is a signed head that proves nothing.
type BadHead struct {
	Number int // in its file, from 1
	Why    string
}

func (e *BadHead) Error() string { return fmt.Sprintf("head %d %s", e.Number, e.Why) }

const headLimit = 64 << 10 // bytes of a line; far above any checkpoint's

// ReadHeads reads checkpoints that were written one after the other. The error is a
// *[BadHead] where one is not signed by one of the keys; any other says that this
// is no file of heads.
func ReadHeads(r io.Reader, keys ...note.Verifier) (heads []Checkpoint, err error) {
	notes, err := ReadNotes(r)
	for i, msg := range notes {
		c, bad := OpenCheckpoint(msg, keys...)
		if bad != nil {
			return nil, badHead(i+1, bad)
		}
		heads = append(heads, c)
	}
	if err != nil {
		return nil, err
	}
	return heads, nil
}

// ReadNotes reads signed notes that were written one after the other, each as it is.
func ReadNotes(r io.Reader) (notes [][]byte, err error) {
	in := bufio.NewScanner(r)
	in.Buffer(nil, headLimit)
	var msg []byte
	end := func() {
		if len(msg) > 0 {
			notes = append(notes, msg)
		}
		msg = nil
	}
	for signed := false; in.Scan(); {
		line := in.Bytes()
		signature := bytes.HasPrefix(line, []byte("— "))
		if signed && !signature {
			end()
		}
		signed = signature
		if len(msg) > 0 || len(line) > 0 { // empty lines may stand between two
			msg = append(append(msg, line...), '\n')
		}
	}
	end()
	return notes, in.Err()
}

func badHead(number int, err error) error {
	foreign, wrong := (*note.UnverifiedNoteError)(nil), (*note.InvalidSignatureError)(nil)
	switch {
	case errors.As(err, &foreign):
		return &BadHead{number, "is not signed by a key that was given"}
	case errors.As(err, &wrong):
		return &BadHead{number, "has a signature that is not of what stands in it"}
	}
	return fmt.Errorf("head %d %w", number, errCheckpoint)
}

// A key signs. What it signs with is in a function, where nothing prints it.
type key struct {
	note.Verifier
	sign func([]byte) []byte
}

func (k key) Sign(msg []byte) ([]byte, error) { return k.sign(msg), nil }

// NewKey makes a key with a name: the text of its file, which [ParseKey] reads, and
// its public half as package note writes it.
func NewKey(name string) (file []byte, verifier string, err error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, "", err
	}
	if verifier, err = note.NewEd25519VerifierKey(name, public); err != nil {
		return nil, "", errors.New("the name of a key has no space and no plus sign, such as broker.example")
	}
	if _, err := note.NewVerifier(verifier); err != nil {
		return nil, "", errors.New("the name of a key has no space and no plus sign, such as broker.example")
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	block := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	return append([]byte(verifier+"\n"), block...), verifier, err
}

// ParseKey reads the file of a key: a line with its public half, which has the
// key's name, and its private half in PEM (PKCS #8; RFC 7468 §2 lets text stand
// before it).
func ParseKey(file []byte) (note.Signer, error) {
	const how = "; `broker audit keygen` makes one"
	line, rest, _ := strings.Cut(string(file), "\n")
	verifier, err := note.NewVerifier(line)
	if err != nil {
		return nil, errors.New("its first line must be the verifier key, <name>+<hash>+<key>" + how)
	}
	block, after := pem.Decode([]byte(rest))
	if block == nil || !strings.HasPrefix(rest, "-----BEGIN PRIVATE KEY-----\n") || len(bytes.TrimSpace(after)) > 0 {
		return nil, errors.New("after its first line must stand one private key in PEM, PKCS #8, and nothing more" + how)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	private, ok := parsed.(ed25519.PrivateKey)
	if err != nil || !ok {
		return nil, errors.New("its private key must be of Ed25519, in PKCS #8" + how)
	}
	if own, err := note.NewEd25519VerifierKey(verifier.Name(), private.Public().(ed25519.PublicKey)); err != nil || own != line {
		return nil, errors.New("its first line is the verifier key of another private key" + how)
	}
	return key{verifier, func(msg []byte) []byte { return ed25519.Sign(private, msg) }}, nil
}
