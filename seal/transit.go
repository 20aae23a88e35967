package seal

import (
	"context"
	"crypto/cipher"
	"encoding/binary"
	"sync"
	"time"

	"onbehalf.internal/broker/cache"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/secret"
)

// Transit is what a key that stays in Vault can be asked for. Both functions bound
// themselves, and their errors are of package fault.
type Transit struct {
	Name string           // of the key, as the operator wrote it: what it has sealed says so
	Now  func() time.Time // nil: time.Now

	// DataKey makes a data key: 32 bytes in base64, and the same wrapped by the key.
	DataKey func(context.Context) (plain secret.Text, wrapped string, err error)

	// Unwrap returns what DataKey wrapped. The reason is credential_missing where Vault
	// will not, as the key stands.
	Unwrap func(ctx context.Context, wrapped string) (plain secret.Text, err error)
}

const (
	// Random nonces are good for 2^32 bodies of one key (NIST SP 800-38D, 8.3). A
	// ledger of 11,700 operations a second writes 2^30 of them in a day.
	life    = 24 * time.Hour
	pause   = time.Minute // from a failed attempt to replace a data key to the next
	most    = 256         // data keys that were unwrapped and are remembered
	longest = 1024        // bytes of a wrapped data key; two say how many
)

// A dataKey is what Vault made: for use, and for the body to carry.
type dataKey struct {
	wrapped string
	aead    cipher.AEAD
}

// appendTo appends the length and the text of the wrapped key; cutWrapped is its
// opposite.
func (d dataKey) appendTo(head []byte) []byte {
	return append(binary.BigEndian.AppendUint16(head, uint16(len(d.wrapped))), d.wrapped...)
}

func cutWrapped(rest []byte) (wrapped string, body []byte, err error) {
	if len(rest) < 2 {
		return "", nil, errDamaged
	}
	n := int(binary.BigEndian.Uint16(rest))
	if n == 0 || n > longest || len(rest) < 2+n {
		return "", nil, errDamaged
	}
	return string(rest[2 : 2+n]), rest[2+n:], nil
}

// A transit is a key in Vault with the data keys that this process has of it. They
// are nowhere else in the clear.
type transit struct {
	Transit
	unwrapped *cache.Cache[dataKey] // :: wrapped → data key

	mu      sync.Mutex // guards all below; never held across I/O
	current dataKey    // it seals; zero: none yet
	renewAt time.Time
	asked   map[string]*question // :: what is to be unwrapped, or "" for the next data key → the one that is under way
}

// InVault returns a key that stays in Vault. It may be used before Vault is there.
func InVault(t Transit) Key {
	if t.Now == nil {
		t.Now = time.Now
	}
	away := &transit{Transit: t, unwrapped: cache.New[dataKey](most, t.Now), asked: map[string]*question{}}
	return Key{form: enveloped, id: idOf("broker results key name", []byte(t.Name)), away: away}
}

// ready returns when there is a data key. One that is due to be replaced seals on
// while Vault is asked for the next.
func (v *transit) ready(ctx context.Context) error {
	v.mu.Lock()
	have := v.current.aead != nil
	var q *question
	if !have || !v.Now().Before(v.renewAt) {
		q = v.askLocked(ctx, "")
	}
	v.mu.Unlock()
	if have {
		return nil
	}
	_, err := q.answer(ctx)
	return err
}

// sealing returns the data key that seals.
func (v *transit) sealing() (dataKey, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.current.aead == nil {
		return dataKey{}, fault.New("seal.Seal", fault.InternalError, "there is no data key yet")
	}
	return v.current, nil
}

// opening returns what opens the body that follows a wrapped data key.
func (v *transit) opening(ctx context.Context, rest []byte) (cipher.AEAD, []byte, error) {
	wrapped, body, err := cutWrapped(rest)
	if err != nil {
		return nil, nil, err
	}
	data, err := v.find(ctx, wrapped)
	if fault.ReasonOf(err) == fault.CredentialMissing {
		err = ErrClosed
	}
	return data.aead, body, err
}

func (v *transit) find(ctx context.Context, wrapped string) (dataKey, error) {
	v.mu.Lock()
	known, ok := v.unwrapped.Get(wrapped)
	if v.current.wrapped == wrapped {
		known, ok = v.current, true
	}
	if ok {
		v.mu.Unlock()
		return known, nil
	}
	q := v.askLocked(ctx, wrapped)
	v.mu.Unlock()
	return q.answer(ctx)
}

// A question is on its way to Vault, for all who want to know the same.
type question struct {
	done chan struct{} // closed when the next two are there
	data dataKey
	err  error
}

// answer waits for it, or for ctx.
func (q *question) answer(ctx context.Context) (dataKey, error) {
	select {
	case <-q.done:
		return q.data, q.err
	case <-ctx.Done():
		return dataKey{}, fault.New("seal.answer", fault.VaultUnreachable, "no data key in time")
	}
}

// askLocked asks Vault, unless that is under way. It goes on without whoever asked
// first: others wait for the answer too.
func (v *transit) askLocked(ctx context.Context, wrapped string) *question {
	if q := v.asked[wrapped]; q != nil {
		return q
	}
	q := &question{done: make(chan struct{})}
	v.asked[wrapped] = q
	go func() {
		defer close(q.done)
		q.data, q.err = v.ask(context.WithoutCancel(ctx), wrapped)
		v.mu.Lock()
		defer v.mu.Unlock()
		delete(v.asked, wrapped)
		v.keepLocked(wrapped, q.data, q.err)
	}()
	return q
}

func (v *transit) ask(ctx context.Context, wrapped string) (dataKey, error) {
	var plain secret.Text
	var err error
	if wrapped == "" {
		plain, wrapped, err = v.DataKey(ctx)
	} else {
		plain, err = v.Unwrap(ctx, wrapped)
	}
	if err != nil {
		return dataKey{}, err
	}
	raw, err := decode(plain)
	if err != nil || wrapped == "" || len(wrapped) > longest {
		return dataKey{}, fault.New("seal.ask", fault.VaultUnexpected, "no data key, or one that no body can carry")
	}
	aead, err := newAEAD(raw)
	return dataKey{wrapped, aead}, err
}

// keepLocked remembers an answer. A refusal to unwrap is not remembered: an operator
// may mend what it comes from.
func (v *transit) keepLocked(wrapped string, data dataKey, err error) {
	switch now := v.Now(); {
	case wrapped != "" && err == nil:
		v.unwrapped.Set(wrapped, data, life)
	case wrapped != "":
	case err == nil:
		v.current, v.renewAt = data, now.Add(life)
	default:
		v.renewAt = now.Add(pause)
	}
}
