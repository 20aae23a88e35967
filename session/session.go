// Package session holds one operation's credentials: it opens them, hands one
// out before each leg after checking, and closes them.
//
// There are three kinds, and no way from one to another:
//
//	execution   a tool call of an actor: subject credential → exchange → hold
//	discovery   an import or a probe: the server's discovery credential
//	static      a tool call at a `legacy` server: the server's own credential, or none
//
// What always holds:
//
//   - Before every leg, also before the session's own, the newest snapshot is
//     asked whether the decision still stands.
//   - The check is the fetch: a leg gets its token from Vault, read after the
//     previous leg ended. Between legs a Session holds no token. Where the
//     profile revokes, it holds one that no leg can use any more, up to Revoke,
//     and sends it to nobody but the provider.
//   - An exchanged token is put under a hold at once and never used by another
//     session. Close drops the hold, on a context of its own.
//   - A discovery credential can never authenticate a tool call, nor an
//     execution credential anything but the decision's own server.
//
// This package does not renew: a token that ran out ends the operation.
package session

import (
	"context"
	"sync"
	"time"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/exchange"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/mcpclient"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/secret"
	"onbehalf.internal/broker/vault"
)

const (
	// skew is how much longer than the start of its leg a token has to live.
	skew = 2 * time.Second
	// closeBudget bounds the drop of a hold; after it the drop is pending.
	closeBudget = 5 * time.Second
	// lastRead bounds the read before the drop, which must not eat up its budget.
	lastRead = time.Second
	// revokeBudget bounds the revocation; after it the token runs out by itself.
	revokeBudget = 2 * time.Second
)

// A Session is one operation's credentials. Token calls do not overlap.
type Session struct {
	m      *Manager
	d      policy.Decision
	source func(context.Context) (secret.Text, error) // reads the leg's credential; nil: anonymous
	issued exchange.Issued                            // without its token, which is under the hold
	token  audit.Digest                               // of the exchanged token, also of a refused one

	hold *vault.Hold // reserved when the exchange begins
	put  bool        // Vault may have, or has had, the token

	refused bool // a token was issued and failed the checks

	mu     sync.Mutex // guards the fields below
	legs   []audit.Leg
	closed bool
	last   secret.Text // to be revoked: no leg can use it any more
	ended  bool        // Revoke was called
}

// Token checks, in this order: the session is open, there is budget left, the
// newest snapshot still allows d, the token will outlive the start of the leg,
// the hold is there and unchanged, and once more that d is allowed: what was
// revoked while Vault was asked is revoked. It is the [mcpclient.Gate]'s Credential.
func (s *Session) Token(ctx context.Context, leg string) (mcpclient.Credential, error) {
	const op = "session.Token"
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return mcpclient.Credential{}, fault.New(op, fault.SessionClosed, "")
	}
	if leg == "tools/call" && s.d.Discovery() {
		return mcpclient.Credential{}, fault.New(op, fault.SessionClosed, "a discovery credential never authenticates a tool call")
	}
	if err := s.m.stands(ctx, s.d); err != nil {
		return mcpclient.Credential{}, err
	}
	readAt := s.m.Now()
	if s.hold != nil && !s.issued.Expires.After(readAt.Add(skew)) {
		return mcpclient.Credential{}, fault.New(op, fault.LifetimeTooShort, "the exchanged token ran out before this leg")
	}
	if s.source == nil {
		return mcpclient.Credential{ReadAt: readAt}, nil
	}
	token, err := s.source(ctx)
	if err == nil {
		err = s.m.stands(ctx, s.d)
	}
	if err != nil {
		return mcpclient.Credential{}, err
	}
	return mcpclient.Credential{Header: s.header(), Value: token, ReadAt: readAt}, nil
}

func (s *Session) header() string {
	if auth := s.d.Server().Auth; auth.Placement == "header" && !s.d.Discovery() {
		return auth.Header
	}
	return "Authorization"
}

// Close drops the hold, if there is one, and says what became of it: "" (there
// was none), "dropped" or "pending". It runs on a context of its own and is
// idempotent; after it no token is handed out.
func (s *Session) Close(ctx context.Context) string {
	s.mu.Lock()
	first := !s.closed
	s.closed = true
	s.mu.Unlock()
	if !first || s.hold == nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeBudget)
	defer cancel()
	switch {
	case !s.put: // reserved for nothing
		_ = s.hold.Drop(ctx) // what it could not end, package vault does
		return ""
	case s.hold.State() == vault.Pending: // the put failed; what it may have left is package vault's to drop
		return string(vault.Pending)
	}
	s.readForRevocation(ctx)
	err := s.leg(ctx, "drop", func(ctx context.Context) error { return s.hold.Drop(ctx) })
	if err != nil {
		return string(vault.Pending)
	}
	return string(vault.Dropped)
}

// WhenGone has f called once when it is known that a hold which Close left pending
// is gone, with "dropped" or "expired_with_epoch". f must not block.
func (s *Session) WhenGone(f func(hold string)) {
	s.hold.WhenEnded(func(state vault.State) { f(string(state)) })
}

// Holds reports whether a token of this session may be in Vault.
func (s *Session) Holds() bool { return s.put }

// Legs returns the session's own legs so far.
func (s *Session) Legs() []audit.Leg {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]audit.Leg(nil), s.legs...)
}

// Describe fills in what an audit record says of the credential: the epoch
// whose revocation stops this session, the token's fingerprint, the scopes as
// they were granted, and whether those are fewer than were asked for.
func (s *Session) Describe(r *audit.Record) {
	r.Token = s.token
	if s.issued.Scopes != nil {
		r.Scopes, r.Narrowed = s.issued.Scopes, s.issued.Narrowed
	}
	if s.put {
		r.Epoch = s.hold.Epoch()
	}
}

// leg runs one of the session's own legs and notes how long it took. A leg that
// begins inside another one is a part of it and stands after it.
func (s *Session) leg(ctx context.Context, name string, run func(context.Context) error) error {
	began := s.m.Now()
	deadline, _ := ctx.Deadline()
	s.mu.Lock()
	place := len(s.legs)
	s.legs = append(s.legs, audit.Leg{Name: name, Budget: deadline.Sub(began)})
	s.mu.Unlock()
	err := survive(ctx, run)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.legs[place].Took = s.m.Now().Sub(began)
	if err != nil {
		s.legs[place].Reason = fault.ReasonOf(err)
	}
	return err
}

// survive turns a panic into an error of the leg. Close and Revoke run where
// nobody else would see to it, and what panics in one operation must not end
// the others.
func survive(ctx context.Context, run func(context.Context) error) (err error) {
	defer func() {
		if recover() != nil {
			err = fault.New("session.leg", fault.InternalError, "a panic in a leg")
		}
	}()
	return run(ctx)
}
