package vault

import (
	"context"
	"crypto/rand"
	"iter"
	"net/http"
	"strings"
	"time"
)

// lastLook is how long before its end an epoch that still has holds is asked for.
const lastLook = time.Second

// Ends is when the hold's epoch runs out by itself; Vault ends it no sooner.
func (h *Hold) Ends() time.Time { return h.epoch.ends }

// Lapsed reports whether the hold's epoch has run out by its own time: Vault knew
// it until the last look, a second before. Afterwards Vault says the same of an
// epoch that somebody revoked, so one that nobody could ask for has not lapsed.
func (h *Hold) Lapsed() bool {
	c := h.client
	c.mu.Lock()
	defer c.mu.Unlock()
	return h.epoch.lasted && !c.now().Before(h.epoch.ends)
}

// watch asks for every epoch that is about to run out under its holds.
func (c *Client) watch(ctx context.Context) error {
	const op = "vault.watch"
	for {
		e := c.ending()
		if e == nil {
			return nil
		}
		a, err := c.plain(ctx, http.MethodGet, "cubbyhole/op/"+strings.ToLower(rand.Text()), e.token, nil) // nothing is there
		switch {
		case err != nil:
			return unanswered(op, err)
		case a.status == http.StatusNotFound:
			c.mu.Lock()
			e.lasted = true
			c.mu.Unlock()
		case a.status == http.StatusForbidden:
			c.died(e)
		default:
			return unwanted(op, a)
		}
	}
}

// ending returns an epoch that is due for its last look, nil if there is none.
func (c *Client) ending() *epoch {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	for e := range c.aliveLocked() {
		if at, due := c.lookLocked(e, now); due && !now.Before(at) {
			return e
		}
	}
	return nil
}

// aliveLocked are all epochs, also those of one hold each.
func (c *Client) aliveLocked() iter.Seq[*epoch] {
	return func(yield func(*epoch) bool) {
		for _, e := range c.epochs {
			if !yield(e) {
				return
			}
		}
		for e := range c.own {
			if !yield(e) {
				return
			}
		}
	}
}

// lookLocked is when e is to be looked at for the last time; due is false if it is not.
func (c *Client) lookLocked(e *epoch, now time.Time) (at time.Time, due bool) {
	return e.ends.Add(-lastLook), e.holds > 0 && !e.lasted && !e.dead && now.Before(e.ends)
}
