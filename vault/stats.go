package vault

import (
	"maps"
	"time"

	"onbehalf.internal/broker/fault"
)

// Stats are numbers of a [Client], for metrics. The keys of the counters are "ok",
// reasons of package fault and, for holds that nobody could drop, "expired_with_epoch".
type Stats struct {
	Holds   int           // tokens that operations have in Vault now
	Epochs  int           // that live
	Pending int           // see [Client.Pending]
	Oldest  time.Duration // how long the oldest of them has been pending
	Login   time.Duration // what is left of its life; 0: there is none; the longest Duration: for ever

	Mints, Revocations, Drops map[string]uint64 // requests by result
}

// Stats returns the numbers as they are now.
func (c *Client) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	s := Stats{Pending: len(c.pending), Mints: maps.Clone(c.mints), Revocations: maps.Clone(c.revocations), Drops: maps.Clone(c.drops)}
	if c.login != nil {
		s.Login = max(0, c.login.left(now))
	}
	add := func(e *epoch) {
		s.Holds += e.holds
		if now.Before(e.ends) {
			s.Epochs++
		}
	}
	for _, e := range c.epochs {
		add(e)
	}
	for e := range c.own {
		add(e)
	}
	for _, since := range c.pending {
		s.Oldest = max(s.Oldest, now.Sub(since))
	}
	return s
}

// count notes the result of one request.
func (c *Client) count(counter map[string]uint64, err error) {
	result := "ok"
	if err != nil {
		result = string(fault.ReasonOf(err))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	counter[result]++
}
