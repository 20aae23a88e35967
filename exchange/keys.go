package exchange

import (
	"context"
	"crypto"
	"crypto/sha256"
	"encoding/json"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/golang-jwt/jwt/v5"

	"onbehalf.internal/broker/cache"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/secret"
)

const (
	keysFresh = 10 * time.Minute // then they are asked for again, so that a withdrawn key goes
	keysKept  = time.Hour        // in an outage the old ones go on for so long
	keysPause = 30 * time.Second // between two requests to one address
	keysRetry = 2 * time.Second  // after a failed one
)

// verify holds the token's signature against the provider's keys. The key
// decides which algorithms there are (RFC 8725 §3.1), the header may only name
// one of them: no "none", no secret, no key that the token brings along.
func (c *Client) verify(ctx context.Context, p *policy.Profile, token secret.Text, k Key) error {
	header, err := segment(token, 0)
	if err != nil {
		return err
	}
	alg, kid := header.text("alg"), header.text("kid")
	if header.wrong != "" || header.has("crit") { // nobody here knows an extension (RFC 7515 §4.1.11)
		return malformed("its token's header is not one that we understand")
	}
	key, err := c.key(ctx, p, kid, alg, k)
	if err != nil {
		return err
	}
	if key == nil {
		return refuse(fault.WrongSignature, "the provider has no key for the token's kid and alg")
	}
	parser := jwt.NewParser(jwt.WithValidMethods([]string{alg}), jwt.WithStrictDecoding(), jwt.WithoutClaimsValidation()) // claims are held against the order
	if _, err := parser.Parse(token.Reveal(), func(*jwt.Token) (any, error) { return key, nil }); err != nil {
		return refuse(fault.WrongSignature, "the token is not signed with the provider's key")
	}
	return nil
}

// A keyset is what a key set document said, and when.
type keyset struct {
	keys []jose.JSONWebKey
	read time.Time
}

// find returns the key with that kid that can verify alg, or nil. Without a kid
// there has to be one such key, and no more.
func (s keyset) find(kid, alg string) (found crypto.PublicKey) {
	for _, key := range s.keys {
		fits := slices.ContainsFunc(methods(key.Key), func(m jwt.SigningMethod) bool { return m.Alg() == alg })
		if !fits || kid != "" && key.KeyID != kid || key.Algorithm != "" && key.Algorithm != alg || key.Use != "" && key.Use != "sig" {
			continue
		}
		if found != nil {
			return nil
		}
		found = key.Key
	}
	return found
}

// parseKeys reads a JWKS (RFC 7517 §5) one key at a time: one that we cannot
// use is passed over.
func parseKeys(b []byte) (keys []jose.JSONWebKey) {
	m, ok := open(b)
	var list []json.RawMessage
	if !ok || json.Unmarshal(m.raw["keys"], &list) != nil {
		return nil
	}
	for _, raw := range list {
		var key jose.JSONWebKey
		if json.Unmarshal(raw, &key) == nil && key.IsPublic() {
			keys = append(keys, key)
		}
	}
	return keys
}

// A keyring remembers key sets. The zero keyring is empty.
type keyring struct {
	mu    sync.Mutex               // guards the fields; never held across I/O
	sets  *cache.Cache[keyset]     // :: where → what was there
	asked *cache.Cache[struct{}]   // :: where → a request left not long ago
	under map[string]chan struct{} // :: where → closed when the request under way has ended
}

// key finds the key for a token: in what is known, if that is fresh, else in
// what the provider says now. A kid that is not known is a reason to ask again,
// at most every thirty seconds.
func (c *Client) key(ctx context.Context, p *policy.Profile, kid, alg string, k Key) (crypto.PublicKey, error) {
	if p.Response.JWKS == nil {
		return c.fileKeys(p).find(kid, alg), nil
	}
	where := p.Response.JWKS.String()
	known, there := c.keys.get(where, c.Now)
	key := known.find(kid, alg)
	if key != nil && c.now().Sub(known.read) < keysFresh {
		return key, nil
	}
	err := c.freshen(ctx, p, where, k)
	if now, got := c.keys.get(where, c.Now); got {
		known, there = now, true
		key = known.find(kid, alg)
	}
	switch {
	case key != nil, there && err == nil: // an outage does not end what the old keys verify
		return key, nil
	case err != nil:
		return nil, err
	default:
		return nil, refuse(fault.KeysUnavailable, "the provider's keys were asked for a moment ago and could not be had")
	}
}

// fileKeys are the keys of a file that was read with the configuration.
func (c *Client) fileKeys(p *policy.Profile) keyset {
	digest := sha256.Sum256(p.Response.Keys)
	where := "sha256:" + string(digest[:])
	set, there := c.keys.get(where, c.Now)
	if !there {
		set = keyset{keys: parseKeys(p.Response.Keys)}
		c.keys.set(where, set, keysKept)
	}
	return set
}

// freshen asks for the keys, unless that was done a moment ago. Who comes while
// somebody else asks waits for that answer; that the other one has been given
// up is no answer.
func (c *Client) freshen(ctx context.Context, p *policy.Profile, where string, k Key) error {
	for {
		done, mine := c.keys.claim(where, c.Now)
		switch {
		case mine:
			return c.renew(ctx, p, where, k)
		case done == nil: // not now
			return nil
		}
		select {
		case <-done:
		case <-ctx.Done():
			return unanswered(ctx, ctx.Err())
		}
	}
}

// renew is the claimed request. Whatever ends it, the claim is given back.
func (c *Client) renew(ctx context.Context, p *policy.Profile, where string, k Key) (err error) {
	var set keyset
	defer func() { c.keys.release(where, set, err) }()
	return k.leg(ctx, "jwks", func(ctx context.Context) (err error) {
		set, err = c.askKeys(ctx, p, where)
		return err
	})
}

func (c *Client) askKeys(ctx context.Context, p *policy.Profile, where string) (keyset, error) {
	timed, stop := bounded(ctx, p.Timeout)
	defer stop()
	req, err := http.NewRequestWithContext(timed, http.MethodGet, where, nil)
	if err != nil {
		return keyset{}, refuse(fault.ProviderConfig, "the address of the keys is none")
	}
	re, err := c.fetch(p, req, login{}) // anybody may read them
	if err = unanswered(ctx, err); err != nil && fault.Ended(ctx, fault.WallClock) != fault.None || fault.ReasonOf(err) == fault.HostRefused {
		return keyset{}, err
	}
	set := keyset{keys: parseKeys(re.body), read: c.now()}
	if err != nil || re.status != http.StatusOK || len(set.keys) == 0 {
		return keyset{}, refuse(fault.KeysUnavailable, "the provider's keys could not be had")
	}
	return set, nil
}

func (r *keyring) get(where string, now func() time.Time) (keyset, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.readyLocked(now)
	return r.sets.Get(where)
}

func (r *keyring) set(where string, s keyset, ttl time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sets.Set(where, s, ttl)
}

// claim says whose turn it is to ask: ours, somebody else's who closes done, or
// nobody's, with a nil done, for a while after the last request.
func (r *keyring) claim(where string, now func() time.Time) (done chan struct{}, mine bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.readyLocked(now)
	if done, busy := r.under[where]; busy {
		return done, false
	}
	if _, lately := r.asked.Get(where); lately {
		return nil, false
	}
	r.asked.Set(where, struct{}{}, keysPause)
	r.under[where] = make(chan struct{})
	return r.under[where], true
}

// release ends a claim with what came of it. A failure is tried again sooner
// than a success, and at once where it was not the provider's.
func (r *keyring) release(where string, s keyset, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case len(s.keys) > 0:
		r.sets.Set(where, s, keysKept)
	case fault.ReasonOf(err) == fault.KeysUnavailable:
		r.asked.Set(where, struct{}{}, keysRetry)
	default:
		r.asked.Delete(where)
	}
	close(r.under[where])
	delete(r.under, where)
}

func (r *keyring) readyLocked(now func() time.Time) {
	if r.sets == nil {
		r.sets, r.asked, r.under = cache.New[keyset](256, now), cache.New[struct{}](256, now), map[string]chan struct{}{}
	}
}
