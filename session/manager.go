package session

import (
	"context"
	"errors"
	"time"

	"onbehalf.internal/broker/cache"
	"onbehalf.internal/broker/exchange"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/secret"
	"onbehalf.internal/broker/subject"
	"onbehalf.internal/broker/vault"
)

// keyLife is how long a profile's client key is remembered. It is the broker's
// own key and not an actor's; a key that the provider refuses is forgotten at once.
const keyLife = time.Minute

// A Manager opens sessions.
type Manager struct {
	Vault    *vault.Client
	Exchange *exchange.Client
	Policy   *policy.Holder
	Now      func() time.Time

	keys *cache.Cache[secret.Text] // :: Vault reference → client key
}

// NewManager returns a Manager over the two ways to a credential.
func NewManager(v *vault.Client, x *exchange.Client, p *policy.Holder, now func() time.Time) *Manager {
	return &Manager{Vault: v, Exchange: x, Policy: p, Now: now, keys: cache.New[secret.Text](256, now)}
}

// Open opens the session that d allows. The context carries the operation's
// deadline, which these legs spend from. A Session comes back also with an
// error, for its legs and for Close.
func (m *Manager) Open(ctx context.Context, d policy.Decision) (*Session, error) {
	s := &Session{m: m, d: d}
	switch auth := d.Server().Auth; {
	case d.Discovery() && auth.Discovery.IsZero():
		return s, fault.New("session.Open", fault.DiscoveryMissing, "")
	case d.Discovery():
		s.source = m.stored(auth.Discovery)
	case auth.Mode == "delegated":
		return s, s.delegate(ctx)
	case !auth.Credential.IsZero():
		s.source = m.stored(auth.Credential)
	}
	return s, nil
}

// delegate runs subject credential → exchange → hold.
func (s *Session) delegate(ctx context.Context) error {
	var subjectToken, clientKey secret.Text
	err := s.checkedLeg(ctx, "subject", func(ctx context.Context) (err error) {
		if subjectToken, err = subject.Token(ctx, s.m.Vault, s.d); err != nil {
			return err
		}
		clientKey, err = s.m.clientKey(ctx, s.d.Profile())
		return err
	})
	if err != nil {
		return err
	}
	err = s.checkedLeg(ctx, "exchange", func(ctx context.Context) (err error) {
		s.issued, err = s.m.Exchange.Exchange(ctx, s.d, subjectToken, clientKey)
		return err
	})
	if err != nil {
		s.m.forgetKey(s.d.Profile(), err)
		return err
	}
	token := s.issued.Token
	s.issued.Token, s.token = secret.Text{}, token.Digest() // from the next leg on it is in Vault, and nowhere else
	err = s.checkedLeg(ctx, "hold", func(ctx context.Context) (err error) {
		s.put = true
		s.hold, err = s.m.Vault.Hold(ctx, token)
		return err
	})
	if err != nil {
		return err
	}
	s.source = s.hold.Read
	return nil
}

func (s *Session) checkedLeg(ctx context.Context, name string, run func(context.Context) error) error {
	return s.leg(ctx, name, func(ctx context.Context) error {
		if err := s.m.stands(ctx, s.d); err != nil {
			return err
		}
		return run(ctx)
	})
}

// stands asks whether a leg may leave now: budget left, and the newest snapshot
// still allows the same thing.
func (m *Manager) stands(ctx context.Context, d policy.Decision) error {
	const op = "session.stands"
	switch err := ctx.Err(); {
	case errors.Is(err, context.DeadlineExceeded):
		return fault.New(op, fault.BudgetSpent, "")
	case err != nil:
		return fault.New(op, fault.CallerCancelled, "")
	}
	return m.Policy.Current().Stands(d, m.Now())
}

func (m *Manager) stored(ref secret.Ref) func(context.Context) (secret.Text, error) {
	return func(ctx context.Context) (secret.Text, error) {
		token, err := m.Vault.Credential(ctx, ref)
		if err == nil && !subject.Sendable(token) {
			err = fault.New("session.Token", fault.CredentialRejected, "the stored credential is not a token")
		}
		return token, err
	}
}

// clientKey returns the key with which the broker authenticates at p's token
// endpoint; empty where the profile needs none.
func (m *Manager) clientKey(ctx context.Context, p *policy.Profile) (secret.Text, error) {
	ref := p.Client.Key
	if ref.IsZero() {
		return secret.Text{}, nil
	}
	if key, ok := m.keys.Get(ref.String()); ok {
		return key, nil
	}
	key, err := m.Vault.Credential(ctx, ref)
	if err == nil {
		m.keys.Set(ref.String(), key, keyLife)
	}
	return key, err
}

// forgetKey drops a key that the provider did not accept: it may have been rotated.
func (m *Manager) forgetKey(p *policy.Profile, err error) {
	if fault.ReasonOf(err) == fault.ProviderConfig {
		m.keys.Delete(p.Client.Key.String())
	}
}
