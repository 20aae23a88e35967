package session

import (
	"context"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/secret"
)

// Revoke ends the exchanged token at the provider, where the profile says so, also
// one that failed the checks of the exchange, and says what became of it: ""
// (nothing to revoke), "revoked" or "failed". It comes after Close, when nothing
// uses the token any more, and runs on a context of its own: no answer waits for
// it. A second call does nothing.
//
// A grant that no longer stands does not stop it, on the contrary.
func (s *Session) Revoke(ctx context.Context) string {
	p := s.revokes()
	s.mu.Lock()
	token, first := s.last, s.closed && !s.ended
	if first {
		s.last, s.ended = secret.Text{}, true
	}
	s.mu.Unlock()
	if p == nil || !first {
		return ""
	}
	if err := s.revoke(context.WithoutCancel(ctx), p, token); err != nil {
		return "failed"
	}
	return "revoked"
}

func (s *Session) revoke(ctx context.Context, p *policy.Profile, token secret.Text) error {
	ctx, cancel := context.WithTimeout(ctx, revokeBudget)
	defer cancel()
	return s.leg(ctx, "revoke", func(ctx context.Context) error {
		if token.IsZero() {
			return fault.New("session.Revoke", fault.HoldGone, "the token could not be read before its hold was dropped")
		}
		key, err := s.m.key(ctx, p)
		if err != nil {
			return err
		}
		return s.m.Exchange.Revoke(ctx, p, token, key)
	})
}

// revokes returns the profile at which this session's token has to be revoked;
// nil where there is none, no token was issued, or a reopening has revoked it.
func (s *Session) revokes() *policy.Profile {
	p := s.d.Profile()
	if p == nil || s.issued.Scopes == nil && !s.refused || s.over || p.Issuing().Revocation.Endpoint == nil {
		return nil
	}
	return p.Issuing()
}

// readForRevocation reads the token once more: soon its hold is gone.
func (s *Session) readForRevocation(ctx context.Context) {
	if s.revokes() == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lastRead)
	defer cancel()
	if token, err := s.hold.Read(ctx); err == nil {
		s.keepForRevocation(token)
	}
}

// keepRefused keeps what was issued and failed the checks.
func (s *Session) keepRefused(token secret.Text) {
	if s.refused = !token.IsZero(); s.refused {
		s.token = token.Digest()
		s.keepForRevocation(token)
	}
}

// keepForRevocation keeps a token that no leg can use any more.
func (s *Session) keepForRevocation(token secret.Text) {
	if s.revokes() == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = token
}
