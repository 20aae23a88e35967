package session

import (
	"context"

	"onbehalf.internal/broker/exchange"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/secret"
)

// DryExchange asks the identity provider of d for a token for nobody, see
// [exchange.Client.Dry], and says how it went. What is issued is held nowhere: it is
// revoked at once, where the profile revokes, and dropped. Describe of what is returned
// says which token it was.
func (m *Manager) DryExchange(ctx context.Context, d policy.Decision) (*Session, error) {
	s := &Session{m: m, d: d, closed: true} // nothing is ever handed out
	var key exchange.Key
	err := s.checkedLeg(ctx, "subject", func(ctx context.Context) (err error) {
		key, err = s.key(ctx, d.Profile())
		return err
	})
	if err == nil {
		err = s.checkedLeg(ctx, "exchange", func(ctx context.Context) error { return s.dry(ctx, key) })
	}
	m.forgetKey(d.Profile(), err)
	s.Revoke(ctx)
	return s, err
}

func (s *Session) dry(ctx context.Context, key exchange.Key) error {
	issued, err := s.m.Exchange.Dry(ctx, s.d, key)
	s.keepRefused(issued.Refused)
	if token := issued.Token; err == nil && !token.IsZero() {
		issued.Token = secret.Text{}
		s.issued, s.token = issued, token.Digest()
		s.keepForRevocation(token)
	}
	return err
}
