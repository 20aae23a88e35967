package session

import (
	"context"
	"time"

	"onbehalf.internal/broker/cache"
	"onbehalf.internal/broker/exchange"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/secret"
	"onbehalf.internal/broker/subject"
	"onbehalf.internal/broker/vault"
)

// keyLife is how long a profile's client key and certificate are remembered. They
// are the broker's own and not an actor's; what the provider refuses is forgotten at once.
const keyLife = time.Minute

// A Manager opens sessions.
type Manager struct {
	Vault    *vault.Client
	Exchange *exchange.Client
	Policy   *policy.Holder
	Now      func() time.Time

	subjects *subject.Resolver
	keys     *cache.Cache[secret.Text] // :: Vault reference → client key or certificate
}

// NewManager returns a Manager over the two ways to a credential.
func NewManager(v *vault.Client, x *exchange.Client, p *policy.Holder, now func() time.Time) *Manager {
	return &Manager{Vault: v, Exchange: x, Policy: p, Now: now, subjects: subject.New(v, x, now), keys: cache.New[secret.Text](256, now)}
}

// Open opens the session that d allows. The context carries the operation's
// deadline, which these legs spend from. A Session comes back also with an
// error, for its legs and for Close.
func (m *Manager) Open(ctx context.Context, d policy.Decision) (*Session, error) {
	s := &Session{m: m, d: d}
	switch auth := d.Server().Auth; {
	case d.Dry():
		return s.shut(fault.SessionClosed, "a dry exchange is for nobody, and opens no session")
	case auth.Mode == "legacy" && auth.Credential.IsZero():
	case auth.Mode == "legacy": // one credential for everything
		s.source = m.stored(auth.Credential)
	case d.Discovery() && auth.Discovery.IsZero():
		return s.shut(fault.DiscoveryMissing, "")
	case d.Discovery():
		s.source = m.stored(auth.Discovery)
	default:
		s.source = s.held
		return s, s.delegate(ctx)
	}
	return s, nil
}

// shut closes a session that has no source: open, it would be an anonymous one.
func (s *Session) shut(reason fault.Reason, detail string) (*Session, error) {
	s.closed = true
	return s, fault.New("session.Open", reason, detail)
}

// delegate runs subject credential → exchange → hold. It comes first, and again when
// a session is opened anew. The leg "subject" is there also where the broker itself is
// the subject: then it reads the client's key alone. What the hold needs of Vault
// before there is a token for it is done beside the exchange.
func (s *Session) delegate(ctx context.Context) error {
	var who exchange.Subject
	var key exchange.Key
	err := s.checkedLeg(ctx, "subject", func(ctx context.Context) (err error) {
		if who, err = s.m.subjects.Subject(ctx, s.d, s.ownKey); err != nil {
			return err
		}
		key, err = s.key(ctx, s.d.Profile())
		return err
	})
	if err != nil {
		s.m.forgetKey(s.d.Profile(), err)
		return err
	}
	var issued exchange.Issued
	err = s.checkedLeg(ctx, "exchange", func(ctx context.Context) (err error) {
		s.delegation = delegation{hold: s.m.Vault.Reserve(ctx)}
		issued, err = s.m.Exchange.Exchange(ctx, s.d, who, key)
		return err
	})
	if err != nil {
		s.m.forgetKey(s.d.Profile(), err)
		s.keepRefused(issued.Refused)
		return err
	}
	token := issued.Token
	issued.Token = secret.Text{} // from the next leg on it is in Vault, and nowhere else
	s.issued, s.token = issued, token.Digest()
	err = s.checkedLeg(ctx, "hold", func(ctx context.Context) error {
		err := s.hold.Put(ctx, token)
		s.put = s.hold.State() != vault.None
		return err
	})
	if err != nil {
		s.keepForRevocation(token)
	}
	return err
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
	if reason := fault.Ended(ctx, fault.BudgetSpent); reason != fault.None {
		return fault.New(op, reason, "")
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

// Drain waits until no subject credential is being refreshed, or ctx ends.
func (m *Manager) Drain(ctx context.Context) error { return m.subjects.Drain(ctx) }

// ownKey is the key for a refresh of the subject credential, which may outlive
// the operation and so has no legs in it.
func (s *Session) ownKey(ctx context.Context) (exchange.Key, error) {
	return s.m.key(ctx, s.d.Profile())
}

// key returns what the broker proves itself with at p's token endpoint. Every
// further request of the exchange is a leg of its own, with the checks of one.
func (s *Session) key(ctx context.Context, p *policy.Profile) (exchange.Key, error) {
	k, err := s.m.key(ctx, p)
	if p.Further() {
		k.Leg = s.checkedLeg
	}
	if p.Then != nil {
		k.Then = func(ctx context.Context) (exchange.Key, error) { return s.key(ctx, p.Then) }
	}
	return k, err
}

// key reads what p's client authentication needs; empty where it needs nothing.
func (m *Manager) key(ctx context.Context, p *policy.Profile) (k exchange.Key, err error) {
	c := p.Client
	if !c.Transit.IsZero() {
		k.Sign = func(ctx context.Context, input []byte) ([]byte, error) {
			return m.Vault.Sign(ctx, c.Transit, c.Alg, input)
		}
	}
	if k.Text, err = m.remembered(ctx, c.Key); err != nil {
		return k, err
	}
	if k.Certificate, err = m.remembered(ctx, c.Certificate); err != nil {
		return k, err
	}
	if p.Actor.Source == "stored" {
		k.Actor, err = m.stored(p.Actor.Credential)(ctx)
	}
	return k, err
}

// remembered reads a field, at most once a minute; nothing for no reference.
func (m *Manager) remembered(ctx context.Context, ref secret.Ref) (secret.Text, error) {
	if ref.IsZero() {
		return secret.Text{}, nil
	}
	if value, ok := m.keys.Get(ref.String()); ok {
		return value, nil
	}
	value, err := m.Vault.Credential(ctx, ref)
	if err == nil {
		m.keys.Set(ref.String(), value, keyLife)
	}
	return value, err
}

// forgetKey drops keys that the provider did not accept: they may have been rotated.
func (m *Manager) forgetKey(p *policy.Profile, err error) {
	if fault.ReasonOf(err) != fault.ProviderConfig {
		return
	}
	for ; p != nil; p = p.Then {
		m.keys.Delete(p.Client.Key.String())
		m.keys.Delete(p.Client.Certificate.String())
	}
}
