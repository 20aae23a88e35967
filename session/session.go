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
//   - A leg that finds that the token, or the epoch of its hold, ran out by its own
//     time opens the session anew: once, under the same decision, after the old hold
//     was dropped (reopen.go). What was ended from outside stays ended: a hold that is
//     gone or changed, an epoch that was revoked, a decision that no longer stands.
//   - A discovery credential can never authenticate a tool call, nor an
//     execution credential anything but the decision's own server.
//   - A certificate is shown with the token that is bound to it (RFC 8705 §3), and
//     never without.
//
// This package opens nothing anew for a farewell, and does not know whether an
// opaque token that nobody can look into is bound.
package session

import (
	"context"
	"crypto/tls"
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

// A Session is one operation's credentials. Token calls overlap with no call but
// Legs; Parting may overlap with Close and Describe.
type Session struct {
	m      *Manager
	d      policy.Decision
	source func(context.Context) (secret.Text, error) // reads the leg's credential; nil: anonymous

	delegation               // the newest
	before     string        // what became of the holds before it: "", "dropped" or "pending"
	left       []*vault.Hold // that are pending

	mu     sync.Mutex // guards the fields below
	legs   []audit.Leg
	closed bool
	last   secret.Text // to be revoked: no leg can use it any more
	ended  bool        // Revoke was called
}

// A delegation is what one exchange brought. A session has one at a time.
type delegation struct {
	hold    *vault.Hold     // reserved when the exchange begins
	issued  exchange.Issued // without its token, which is under the hold
	token   audit.Digest    // of the exchanged token, also of a refused one
	refused bool            // a token was issued and failed the checks
	put     bool            // Vault may have, or has had, the token
	over    bool            // a reopening has dropped the hold
}

// Token checks, in this order: the session is open, there is budget left, the
// newest snapshot still allows d, the token and its epoch will outlive the start of
// the leg, the hold is there and unchanged, and once more that d is allowed: what was
// revoked while Vault was asked is revoked. Where only time ran out it opens the
// session anew first. It is the [mcpclient.Gate]'s Credential.
func (s *Session) Token(ctx context.Context, leg string) (mcpclient.Credential, error) {
	if err := s.may(ctx, leg); err != nil {
		return mcpclient.Credential{}, err
	}
	var legs []audit.Leg
	if s.ranOut(s.m.Now()) {
		var err error
		if legs, err = s.reopen(ctx); err != nil {
			return mcpclient.Credential{Legs: legs}, err
		}
	}
	cred, err := s.credential(ctx)
	cred.Legs = legs
	return cred, err
}

// Parting is Token for a farewell: the operation is over, and nothing is opened
// anew.
func (s *Session) Parting(ctx context.Context, leg string) (mcpclient.Credential, error) {
	if err := s.may(ctx, leg); err != nil {
		return mcpclient.Credential{}, err
	}
	return s.credential(ctx)
}

// MayBind reports whether the token for d may come back bound to a certificate, so
// that what a connection shows is known only when the session is open.
func MayBind(d policy.Decision) bool {
	return d.Profile() != nil && !d.Discovery() && d.Profile().Issuing().Client.Auth == "mtls"
}

// Certificate is what a connection shows for the newest token; nil: nothing.
func (s *Session) Certificate() *tls.Certificate { return s.issued.Certificate }

// may asks what does not depend on the credential.
func (s *Session) may(ctx context.Context, leg string) error {
	const op = "session.Token"
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return fault.New(op, fault.SessionClosed, "")
	}
	if leg == "tools/call" && s.d.Discovery() {
		return fault.New(op, fault.SessionClosed, "a discovery credential never authenticates a tool call")
	}
	return s.m.stands(ctx, s.d)
}

// credential reads the credential.
func (s *Session) credential(ctx context.Context) (mcpclient.Credential, error) {
	readAt := s.m.Now()
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
	return mcpclient.Credential{Header: s.header(), Value: token, ReadAt: readAt, Certificate: s.Certificate()}, nil
}

// held reads the exchanged token from its hold.
func (s *Session) held(ctx context.Context) (secret.Text, error) {
	const op = "session.Token"
	switch {
	case !s.put || s.over: // a reopening could not put it
		return secret.Text{}, fault.New(op, fault.HoldGone, "there is no hold")
	case !s.issued.Expires.After(s.m.Now().Add(skew)):
		return secret.Text{}, fault.New(op, fault.LifetimeTooShort, "the exchanged token ran out before this leg")
	}
	return s.hold.Read(ctx)
}

func (s *Session) header() string {
	if auth := s.d.Server().Auth; auth.Placement == "header" {
		return auth.Header
	}
	return "Authorization"
}

// Close drops the hold, if there is one, and says what became of it and of those
// before it: "" (there was none), "dropped", or "pending" if one may still be there.
// It runs on a context of its own and is idempotent; after it no token is handed out.
func (s *Session) Close(ctx context.Context) string {
	s.mu.Lock()
	first := !s.closed
	s.closed = true
	s.mu.Unlock()
	switch {
	case !first:
		return ""
	case s.hold == nil || s.over:
		return s.before
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeBudget)
	defer cancel()
	switch {
	case !s.put: // reserved for nothing
		_ = s.hold.Drop(ctx) // what it could not end, package vault does
		return s.before
	case s.hold.State() == vault.Pending: // the put failed; what it may have left is package vault's to drop
		s.left = append(s.left, s.hold)
		return string(vault.Pending)
	}
	s.readForRevocation(ctx)
	return both(s.before, s.drop(ctx))
}

// drop drops the hold and says what became of it.
func (s *Session) drop(ctx context.Context) string {
	if err := s.leg(ctx, "drop", s.hold.Drop); err != nil {
		s.left = append(s.left, s.hold)
		return string(vault.Pending)
	}
	return string(vault.Dropped)
}

// WhenGone has f called once when it is known that every hold which was left pending
// is gone, with "dropped", or "expired_with_epoch" if one was never dropped. f must
// not block. Call it after Close.
func (s *Session) WhenGone(f func(hold string)) {
	var mu sync.Mutex
	open, how := len(s.left), vault.Dropped
	for _, h := range s.left {
		h.WhenEnded(func(state vault.State) {
			mu.Lock()
			defer mu.Unlock()
			if open--; state == vault.Expired {
				how = state
			}
			if open == 0 {
				f(string(how))
			}
		})
	}
}

// both is the word for an earlier hold, if there was one, and a later one.
func both(earlier, later string) string {
	if earlier == string(vault.Pending) {
		return earlier
	}
	return later
}

// Holds reports whether a token of this session was put into Vault, or may have been.
func (s *Session) Holds() bool { return s.put || s.before != "" }

// Legs returns the session's own legs so far. Those of a reopening come with the
// credential that it brought.
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
	s.legs = append(s.legs, audit.Leg{Name: name, Began: began, Budget: deadline.Sub(began)})
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
