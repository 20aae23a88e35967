// Package subject finds the credential of the actor on whose behalf an
// operation runs: the subject token of RFC 8693 §2.1.
//
//	stored         subject.go   a token in Vault, sent as it is
//	vault_oidc     subject.go   a token that Vault signs for this operation
//	file           file.go      a token in a file that somebody else keeps fresh
//	refresh_token  refresh.go   an access token, refreshed for this operation at the profile's provider
//
// What always holds:
//
//   - The way from an actor to a credential is a grant and nothing else. There
//     is no fallback to another actor's, a server's or the broker's own, nor from
//     one kind to another. A grant for which the broker itself is the subject is
//     one of its own, in a profile for that; it has no subject token.
//   - What is found is looked at before anybody may send it: a value that could
//     not be a token, or that could break out of a header or a form, is refused,
//     and so is a JWT that has ended.
//   - Nothing is kept: each operation gets a token of its own, and no two
//     operations the same refreshed or issued one.
//   - A stored refresh token is sent by one operation of one broker at a time, and
//     what replaces it is in Vault before the access token is used, see [Resolver].
//
// It does not verify a token's signature: whoever takes it does.
package subject

import (
	"context"
	"crypto/rand"
	"maps"
	"slices"
	"sync"
	"time"

	"onbehalf.internal/broker/exchange"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/secret"
	"onbehalf.internal/broker/vault"
)

const accessTokenType = "urn:ietf:params:oauth:token-type:access_token" // RFC 8693 §3

// A Resolver finds subject tokens. It is safe for concurrent use.
//
// How a refresh token is kept from being lost or sent twice:
//
//	turn in this process ── read ── claim ── refresh ── write back ── use
//	                         ↑ somebody else's claim: wait
//
// The claim is written by check-and-set into the secret itself, so of all brokers
// that know a version of the secret one may send its token. From the claim on
// nothing that the operation does interrupts the way to the write-back: it has
// limits of its own and goes on when the operation has ended.
//
// What a crash leaves is a claim. Other brokers pass over it when they have seen
// it unchanged for [claimLife], and then send the stored token: only the provider
// knows whether it is spent.
type Resolver struct {
	vault    *vault.Client
	exchange *exchange.Client
	now      func() time.Time
	id       string // of this Resolver's claims

	mu    sync.Mutex           // guards turns; never held across I/O
	turns map[secret.Ref]*turn // one for each refresh token that a grant has named
}

// New returns a Resolver over the two ways to a token. A nil now is time.Now.
func New(v *vault.Client, x *exchange.Client, now func() time.Time) *Resolver {
	if now == nil {
		now = time.Now
	}
	return &Resolver{vault: v, exchange: x, now: now, id: rand.Text(), turns: map[secret.Ref]*turn{}}
}

// Subject returns the subject token that d's grant names, and the zero Subject
// where the broker itself is the subject. The key is what the
// broker proves itself with at the profile's provider; it is asked for only where
// the token comes from there.
//
// The error is a *fault.Error: no_grant, subject_expired, a vault_ or credential_
// reason, those of [exchange.Client.Refresh], rotation_lost, or budget_spent,
// wall_clock and caller_cancelled.
func (r *Resolver) Subject(ctx context.Context, d policy.Decision, key func(context.Context) (exchange.Key, error)) (exchange.Subject, error) {
	const op = "subject.Subject"
	if d.IsZero() || d.Grant() == nil {
		return exchange.Subject{}, fault.New(op, fault.NoGrant, "")
	}
	if d.Grant().Credential.Kind == policy.BrokersOwn {
		return exchange.Subject{}, nil
	}
	s, err := r.find(ctx, d, key)
	if err != nil {
		return exchange.Subject{}, err
	}
	if !Sendable(s.Token) {
		return exchange.Subject{}, fault.New(op, fault.CredentialRejected, "the subject credential is not a token: visible ASCII, 1 to 16384 characters")
	}
	if ended(s.Token, r.now()) {
		return exchange.Subject{}, fault.New(op, fault.SubjectExpired, "the exp of the actor's token is in the past")
	}
	return s, nil
}

func (r *Resolver) find(ctx context.Context, d policy.Decision, key func(context.Context) (exchange.Key, error)) (s exchange.Subject, err error) {
	switch c := d.Grant().Credential; c.Kind {
	case policy.Stored:
		s.Token, err = r.vault.Credential(ctx, c.Ref)
	case policy.VaultOIDC:
		s.Token, err = r.issued(ctx, c)
	case policy.File:
		s.Token, err = readFile(c.File)
	case policy.RefreshToken:
		s.Type = accessTokenType
		s.Token, err = r.refreshed(ctx, d.Profile(), c.Ref, key)
	default:
		err = fault.New("subject.Subject", fault.CredentialMissing, "the grant names no kind of credential that is known")
	}
	return s, err
}

// issued asks Vault for a token and looks whether it can be one of this moment.
func (r *Resolver) issued(ctx context.Context, c policy.Credential) (secret.Text, error) {
	token, err := r.vault.IssueOIDC(ctx, c.Mount, c.Role)
	if err != nil {
		return secret.Text{}, err
	}
	said, ok := readClaims(token)
	if !ok || said.subject == "" || !said.expires.After(r.now()) {
		return secret.Text{}, fault.New("subject.Subject", fault.CredentialRejected, "the token that Vault issued is no JWT with a sub and an exp in the future")
	}
	return token, nil
}

// Drain waits until no refresh is under way that has begun before, or ctx ends. A
// process that stops sooner has lost what the provider gives it then.
func (r *Resolver) Drain(ctx context.Context) error {
	r.mu.Lock()
	turns := slices.Collect(maps.Values(r.turns))
	r.mu.Unlock()
	for _, t := range turns {
		if err := t.enter(ctx); err != nil {
			return err
		}
		t.leave()
	}
	return nil
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
