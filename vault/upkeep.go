package vault

import (
	"cmp"
	"context"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"onbehalf.internal/broker/fault"
)

const (
	maxWait  = 10 * time.Second // between two attempts while Vault is away
	farewell = 2 * time.Second  // for revoking what is ours at the end
)

// Run keeps the Client ready until ctx ends: it logs in, renews, mints and
// rotates epochs, watches and retires the old ones and drops what is pending. It recovers
// by itself when Vault was away. At the end it revokes its epochs and, where
// it made it, its login token. It always returns nil, within two seconds of
// ctx's end. Call it once.
func (c *Client) Run(ctx context.Context) error {
	defer c.leave()
	for failures := 0; ctx.Err() == nil; {
		wake := c.wake
		if c.tend(ctx) {
			failures = 0
		} else {
			failures++
			wake = nil // whoever rouses us does not shorten a back-off
		}
		timer := time.NewTimer(c.pause(failures))
		select {
		case <-timer.C:
		case <-wake:
		case <-ctx.Done():
		}
		timer.Stop()
	}
	return nil
}

// tend does all that is due and reports whether all of it worked.
func (c *Client) tend(ctx context.Context) bool {
	err := c.keepLogin(ctx)
	if err == nil || c.stands() { // a login that could not be renewed yet mints on
		err = cmp.Or(err, c.keepEpoch(ctx))
	}
	c.note(err)
	watched, retired, swept := c.watch(ctx), c.retire(ctx), c.sweep(ctx)
	for _, err := range []error{err, watched, retired, swept} {
		if err != nil && ctx.Err() == nil {
			c.log.Warn("vault upkeep", "error", err)
		}
	}
	if ctx.Err() == nil {
		c.tell()
	}
	return err == nil && watched == nil && retired == nil && swept == nil
}

// tell logs when readiness has changed: who asks whether we are ready is not told why.
func (c *Client) tell() {
	err := c.Ready()
	switch {
	case err == nil && c.told != "ready":
		c.log.Info("vault ready")
		c.told = "ready"
	case err != nil && c.told != "not ready":
		c.log.Warn("vault not ready", "error", err)
		c.told = "not ready"
	}
}

// note keeps why the login or the epoch is not what it should be, for Ready.
func (c *Client) note(err error) {
	known, _ := err.(*fault.Error)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.trouble != known {
		c.trouble = known
		c.announceLocked()
	}
}

// pause is how long nothing is due. After failures it is a back-off: a second, and
// up to twice as much more each time, at random, so that brokers do not come
// back to a restarted Vault all at once.
func (c *Client) pause(failures int) time.Duration {
	if failures > 0 {
		most := min(maxWait-time.Second, time.Second<<min(failures-1, 8))
		return time.Second + rand.N(most)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	next := now.Add(rotation)
	sooner := func(t time.Time) {
		if !t.IsZero() && t.Before(next) {
			next = t
		}
	}
	sooner(c.login.renewAt)
	for e := range c.aliveLocked() {
		if at, due := c.lookLocked(e, now); due {
			sooner(at)
		}
	}
	if c.auth.Method == "token_file" {
		sooner(c.lookAt)
	}
	for i, e := range c.epochs {
		sooner(e.gone)
		if i == len(c.epochs)-1 {
			sooner(c.turnLocked(e))
		}
	}
	for _, since := range c.pending {
		sooner(since.Add(dropAgain))
	}
	return next.Sub(now)
}

// leave gives back what is ours. Vault would end it all by itself, later.
func (c *Client) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), farewell)
	defer cancel()
	c.mu.Lock()
	l, epochs := c.login, slices.AppendSeq(c.epochs, maps.Keys(c.own))
	c.login, c.epochs = nil, nil
	c.announceLocked()
	c.mu.Unlock()
	for _, e := range epochs {
		err := c.revoke(ctx, e)
		c.count(c.revocations, err)
		if err != nil {
			c.log.Warn("vault epoch not revoked", "accessor", e.accessor, "error", err)
			continue
		}
		c.forget(e, Dropped)
	}
	if l != nil && l.release != nil {
		defer l.release()
	}
	if l != nil && l.ours {
		a, err := write(ctx, l.client, "auth/token/revoke-self", map[string]string{})
		if err != nil || a.status != http.StatusNoContent {
			c.log.Warn("vault login not revoked")
		}
	}
	c.release()
}
