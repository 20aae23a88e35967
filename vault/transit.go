package vault

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"regexp"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/secret"
	"onbehalf.internal/broker/strictjson"
)

// A scheme is what Transit has to be told for one JWS algorithm, and how many
// bytes its signatures have. An algorithm that does not fit the key is ignored by
// Vault, not refused, so the length is all that shows it: ES256 and EdDSA look alike.
type scheme struct {
	hash, signature, salt string
	least, most           int
}

var schemes = map[string]scheme{
	"RS256": {"sha2-256", "pkcs1v15", "", 256, 1024}, // RFC 7518 §3.3: 2048 bits or more
	"PS256": {"sha2-256", "pss", "hash", 256, 1024},  // §3.5: the salt is as long as the hash
	"ES256": {"sha2-256", "", "", 64, 64},            // §3.4: R and S, not DER
	"ES384": {"sha2-384", "", "", 96, 96},
	"EdDSA": {"", "", "", 64, 64}, // RFC 8037 §3.1, Ed25519
}

// Sign has a Transit key sign input by a JWS algorithm (RFC 7518 §3.1) and
// returns the signature as JWS has it, before base64url. The newest version of
// the key signs, and the key never leaves Vault. It is sent once.
func (c *Client) Sign(ctx context.Context, key secret.TransitRef, alg string, input []byte) (signature []byte, err error) {
	const op = "vault.Sign"
	s, ok := schemes[alg]
	if !ok || key.IsZero() {
		return nil, fault.New(op, fault.CredentialRejected, fmt.Sprintf("%q with %q cannot be signed in Vault", alg, key))
	}
	err = c.asLogin(ctx, op, func(l *login) error {
		signature, err = s.sign(ctx, l, key, input)
		return err
	})
	return signature, err
}

func (s scheme) sign(ctx context.Context, l *login, key secret.TransitRef, input []byte) ([]byte, error) {
	const op = "vault.Sign"
	a, err := write(ctx, l.client, key.Mount()+"/sign/"+key.Key(), s.order(input))
	switch {
	case err != nil:
		return nil, unanswered(op, err)
	case a.status == http.StatusBadRequest, a.status == http.StatusNotFound:
		return nil, fault.New(op, fault.CredentialMissing, fmt.Sprintf("Vault answered %d: is there a signing key %q?", a.status, key))
	case a.status != http.StatusOK:
		return nil, unwanted(op, a)
	}
	signature, ok := signatureIn(a)
	switch {
	case !ok:
		return nil, fault.New(op, fault.VaultUnexpected, "an answer without a signature")
	case len(signature) < s.least || len(signature) > s.most:
		return nil, fault.New(op, fault.CredentialRejected, fmt.Sprintf("the key %q does not fit the algorithm: its signature has %d bytes", key, len(signature)))
	}
	return signature, nil
}

// order asks for JWS marshalling whatever the key is: it makes Vault's answer
// base64url for every kind, and R and S for elliptic curves.
func (s scheme) order(input []byte) map[string]string {
	body := map[string]string{"input": base64.StdEncoding.EncodeToString(input), "marshaling_algorithm": "jws"}
	for name, value := range map[string]string{"hash_algorithm": s.hash, "signature_algorithm": s.signature, "salt_length": s.salt} {
		if value != "" {
			body[name] = value
		}
	}
	return body
}

// vault:v<version of the key>:<signature>
var signed = regexp.MustCompile(`^vault:v[1-9][0-9]{0,9}:([A-Za-z0-9_-]+)$`)

func signatureIn(a answer) ([]byte, bool) {
	text, _ := member[string](a.object("data"), "signature")
	m := signed.FindStringSubmatch(text)
	if m == nil {
		return nil, false
	}
	signature, err := base64.RawURLEncoding.DecodeString(m[1])
	return signature, err == nil
}

// A data key has 32 bytes: AES-256.
const dataKeySize = 32

// DataKey has a Transit key make a data key. It returns its 32 bytes in base64, and
// the same wrapped by the newest version of the key, which never leaves Vault. It
// fails with credential_missing where no such key encrypts.
func (c *Client) DataKey(ctx context.Context, key secret.TransitRef) (plain secret.Text, wrapped string, err error) {
	const op = "vault.DataKey"
	data, err := c.encrypted(ctx, op, key, "datakey/plaintext", map[string]string{"bits": "256"})
	if err != nil {
		return secret.Text{}, "", err
	}
	plain, ok := plainIn(data)
	wrapped, ok2 := wrappedIn(data)
	if !ok || !ok2 {
		return secret.Text{}, "", fault.New(op, fault.VaultUnexpected, "an answer without a data key of 32 bytes")
	}
	return plain, wrapped, nil
}

// Unwrap has a Transit key unwrap a data key that it has wrapped: 32 bytes, in
// base64. It fails with credential_missing where Vault will not do that with the key
// as it stands: gone, another one, or its min_decryption_version raised.
func (c *Client) Unwrap(ctx context.Context, key secret.TransitRef, wrapped string) (plain secret.Text, err error) {
	const op = "vault.Unwrap"
	data, err := c.encrypted(ctx, op, key, "decrypt", map[string]string{"ciphertext": wrapped})
	if err != nil {
		return secret.Text{}, err
	}
	plain, ok := plainIn(data)
	if !ok {
		return secret.Text{}, fault.New(op, fault.VaultUnexpected, "an answer without a data key of 32 bytes")
	}
	return plain, nil
}

// encrypted asks a key that encrypts for what it does, and returns the answer's data.
func (c *Client) encrypted(ctx context.Context, op string, key secret.TransitRef, what string, body map[string]string) (data map[string]strictjson.Raw, err error) {
	if key.IsZero() {
		return nil, fault.New(op, fault.CredentialRejected, "no key is named")
	}
	err = c.asLogin(ctx, op, func(l *login) error {
		a, err := write(ctx, l.client, key.Mount()+"/"+what+"/"+key.Key(), body)
		switch {
		case err != nil:
			return unanswered(op, err)
		case a.status == http.StatusBadRequest, a.status == http.StatusNotFound:
			// Vault says 400 whatever is wrong with the key, or with what is to be decrypted.
			return fault.New(op, fault.CredentialMissing, fmt.Sprintf("Vault answered %d: does the key %q encrypt, and is it the one from before?", a.status, key))
		case a.status != http.StatusOK:
			return unwanted(op, a)
		}
		data = a.object("data")
		return nil
	})
	return data, err
}

// plainIn returns the data key as it came. The length rules out the line breaks that
// the decoder would skip.
func plainIn(data map[string]strictjson.Raw) (secret.Text, bool) {
	text, _ := member[string](data, "plaintext")
	raw, err := base64.StdEncoding.Strict().DecodeString(text)
	ok := err == nil && len(raw) == dataKeySize && len(text) == base64.StdEncoding.EncodedLen(dataKeySize)
	return secret.New(text), ok
}

// vault:v<version of the key>:<the data key, encrypted>; by RSA-4096 that has 684
// characters, and less by every other kind of key.
var wrapping = regexp.MustCompile(`^vault:v[1-9][0-9]{0,9}:[A-Za-z0-9+/]{1,700}={0,2}$`)

func wrappedIn(data map[string]strictjson.Raw) (string, bool) {
	text, _ := member[string](data, "ciphertext")
	return text, wrapping.MatchString(text)
}
