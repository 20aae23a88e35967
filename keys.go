package broker

import (
	"context"
	"fmt"
	"strings"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/ownfile"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/seal"
	"onbehalf.internal/broker/secret"
)

// resultsBox makes what results are kept in; without keys it compresses alone. A key
// in Vault is not asked for yet: the broker starts, and answers, while Vault is away.
func (b *Broker) resultsBox(keys []policy.SealingKey) (*seal.Box, error) {
	var all []seal.Key
	for _, k := range keys {
		if k.File == "" {
			all = append(all, seal.InVault(b.transit(k.Transit)))
			continue
		}
		own, err := keysIn(k.File)
		if err != nil {
			return nil, fmt.Errorf("keys.results: %w", err)
		}
		all = append(all, own...)
	}
	return seal.New(all...), nil
}

// keysIn reads a file with one key a line, or more.
func keysIn(path string) (keys []seal.Key, err error) {
	text, err := ownfile.Read(path, ownfile.Ours)
	if err != nil {
		return nil, err
	}
	for _, line := range strings.Fields(string(text)) {
		key, err := seal.Own(secret.New(line))
		if err != nil {
			return nil, fmt.Errorf("%q: %w", path, err)
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		err = fmt.Errorf("%q: holds no key", path)
	}
	return keys, err
}

// transit is what a key in Vault can be asked for. That Vault gives no data key is
// logged: as long as there is an older one, nobody else would notice.
func (b *Broker) transit(ref secret.TransitRef) seal.Transit {
	return seal.Transit{
		Name: ref.String(),
		Now:  b.now,
		DataKey: func(ctx context.Context) (plain secret.Text, wrapped string, err error) {
			if plain, wrapped, err = b.vault.DataKey(ctx, ref); err != nil {
				b.log.Warn("no data key", "key", ref.String(), "reason", string(fault.ReasonOf(err)))
			}
			return plain, wrapped, err
		},
		Unwrap: func(ctx context.Context, wrapped string) (secret.Text, error) {
			return b.vault.Unwrap(ctx, ref, wrapped)
		},
	}
}
