// Package subject finds the credential of the actor on whose behalf an
// operation runs: the subject token of RFC 8693 §2.1.
//
// What always holds:
//
//   - The way from an actor to a credential is a grant and nothing else. There
//     is no fallback to another actor's, a server's or the broker's own.
//   - What is found is looked at before anybody may send it: a value that could
//     not be a token, or that could break out of a header or a form, is refused.
//
// Only stored credentials exist so far; a grant says where in Vault.
package subject

import (
	"context"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/secret"
	"onbehalf.internal/broker/vault"
)

// Token returns the subject token that d's grant names.
func Token(ctx context.Context, v *vault.Client, d policy.Decision) (secret.Text, error) {
	const op = "subject.Token"
	if d.Grant() == nil {
		return secret.Text{}, fault.New(op, fault.NoGrant, "")
	}
	token, err := v.Credential(ctx, d.Grant().Credential)
	if err != nil {
		return secret.Text{}, err
	}
	if !Sendable(token) {
		return secret.Text{}, fault.New(op, fault.CredentialRejected, "the stored subject credential is not a token: visible ASCII, 1 to 16384 characters")
	}
	return token, nil
}

// maxToken is what still fits a header line at common servers.
const maxToken = 16 << 10

// Sendable reports whether t can stand in a header or a form as it is: visible
// ASCII without spaces, 1 to 16384 characters.
func Sendable(t secret.Text) bool {
	s := t.Reveal()
	if len(s) == 0 || len(s) > maxToken {
		return false
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}
