package vault

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"time"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/secret"
)

// An epoch is a short-lived child of a login. Its cubbyhole keeps the holds of
// the operations that began while it was the newest.
type epoch struct {
	token    secret.Text
	accessor string
	login    *login
	life     time.Duration
	born     time.Time // before the request that minted it
	ends     time.Time // at the earliest: counted from born. It dies with its login, too: see usableLocked
	gone     time.Time // at the latest: counted from the answer, and some slack

	// Guarded by Client.mu.
	holds  int  // operations that have not asked for their drop yet
	dead   bool // Vault denied something to it: no new holds
	lasted bool // Vault knew it until the last look
}

// newestLocked returns the epoch for new holds, nil if there is none.
func (c *Client) newestLocked() *epoch {
	if len(c.epochs) == 0 {
		return nil
	}
	e := c.epochs[len(c.epochs)-1]
	if e.dead || !c.usableLocked(e) {
		return nil
	}
	return e
}

// usableLocked reports whether e will live for long enough to be of use to a new
// hold: it is a child of its login and dies with it.
func (c *Client) usableLocked(e *epoch) bool {
	until := c.now().Add(skew)
	return until.Before(e.ends) && !e.login.over(until)
}

// over reports whether Vault has destroyed all that e held, whatever we know of it.
func (e *epoch) over(now time.Time) bool { return !now.Before(e.gone) }

// turnLocked is when e is to be replaced: at once if it is dead or its login is not
// ours any more, but never sooner than a second after it was minted.
func (c *Client) turnLocked(e *epoch) time.Time {
	if e.dead || e.login != c.login {
		return e.born.Add(time.Second)
	}
	return e.born.Add(max(time.Second, min(rotation, e.life*2/5)))
}

// keepEpoch mints an epoch if one is due and there is a login to do it with.
func (c *Client) keepEpoch(ctx context.Context) error {
	c.mu.Lock()
	l := c.login
	if l == nil || l.over(c.now()) {
		c.mu.Unlock()
		return nil
	}
	due := len(c.epochs) == 0 || !c.now().Before(c.turnLocked(c.epochs[len(c.epochs)-1]))
	c.mu.Unlock()
	if !due {
		return nil
	}
	e, err := c.mint(ctx, l)
	if fault.ReasonOf(err) == fault.VaultDenied {
		next, lost := c.replace(ctx, l)
		switch {
		case lost != nil:
			return lost
		case next != l:
			e, err = c.mint(ctx, next)
		}
	}
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.epochs = append(c.epochs, e)
	c.announceLocked()
	c.mu.Unlock()
	c.log.Debug("vault epoch minted", "accessor", e.accessor, "life", e.life)
	return nil
}

// An accessor goes into the log and the audit; behind the point stands its namespace.
var accessor = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}(\.[A-Za-z0-9_-]{1,64})?$`)

// mint makes an epoch. The role caps its life on Vault's side; we ask for the
// same, so that a role without a cap does not make a crash leave more behind.
// If the answer is lost, so is the token, and Vault ends it within its life.
func (c *Client) mint(ctx context.Context, l *login) (*epoch, error) {
	e, err := c.create(ctx, l)
	c.count(c.mints, err)
	return e, err
}

func (c *Client) create(ctx context.Context, l *login) (*epoch, error) {
	born := c.now()
	t, err := c.issueEpoch(ctx, l, epochLife)
	if err != nil {
		return nil, err
	}
	if t.life > epochLife {
		return nil, endless()
	}
	return &epoch{token: t.value, accessor: t.accessor, login: l, life: t.life, born: born,
		ends: born.Add(t.life), gone: c.now().Add(t.life + slack)}, nil
}

// issueEpoch asks the token role for a token with this life at most.
func (c *Client) issueEpoch(ctx context.Context, l *login, life time.Duration) (issue, error) {
	const op = "vault.mint"
	a, err := write(ctx, l.client, "auth/token/create/"+c.role, map[string]string{"explicit_max_ttl": fmt.Sprintf("%.0fs", life.Seconds())})
	switch {
	case err != nil:
		return issue{}, unanswered(op, err)
	case a.status == http.StatusBadRequest:
		return issue{}, fault.New(op, fault.VaultUnexpected, "Vault answered 400: is there a token role "+c.role+"?")
	case a.status != http.StatusOK:
		return issue{}, unwanted(op, a)
	}
	t, ok := issued(a)
	if !ok || t.value.IsZero() || !accessor.MatchString(t.accessor) || t.life <= 0 {
		return issue{}, endless()
	}
	return t, nil
}

func endless() error {
	return fault.New("vault.mint", fault.VaultUnexpected, "an epoch without a token, an accessor or an end within 75s")
}

// mintFor mints an epoch for h alone. It does not end with h's operation: what Vault
// has minted has to be known to be revoked.
func (c *Client) mintFor(ctx context.Context, h *Hold) {
	defer close(h.minted)
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var e *epoch
	err := c.asLogin(ctx, "vault.mint", func(l *login) (err error) {
		e, err = c.mint(ctx, l)
		return err
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		h.refused = err
		return
	}
	h.epoch, c.own[e] = e, true
	if h.state == Pending { // given up meanwhile
		c.pending[h] = c.now()
		c.rouse()
	}
}

// died notes that Vault denied something to e. Run replaces it.
func (c *Client) died(e *epoch) {
	c.mu.Lock()
	e.dead = true
	c.announceLocked()
	c.mu.Unlock()
	c.rouse()
}

// retire revokes the epochs that were replaced and have no operation any more,
// and forgets those that have ended. Revoking sweeps what a failed drop left.
func (c *Client) retire(ctx context.Context) error {
	for {
		e, ended := c.idleEpoch()
		switch {
		case e == nil:
			return nil
		case ended:
			c.forget(e, Expired)
			continue
		}
		err := c.revoke(ctx, e)
		c.count(c.revocations, err)
		if err != nil {
			return err
		}
		c.forget(e, Dropped)
	}
}

// idleEpoch finds an epoch that nobody needs any more.
func (c *Client) idleEpoch() (e *epoch, ended bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	for i, e := range c.epochs {
		ended := e.over(now)
		replaced := i < len(c.epochs)-1
		if ended || replaced && e.holds == 0 {
			return e, ended
		}
	}
	return nil, false
}

// revoke ends e and all that its cubbyhole holds. A 403 says that it is dead.
func (c *Client) revoke(ctx context.Context, e *epoch) error {
	const op = "vault.revoke"
	a, err := c.plain(ctx, http.MethodPost, "auth/token/revoke-self", e.token, nil)
	switch {
	case err != nil:
		return unanswered(op, err)
	case a.status != http.StatusNoContent && a.status != http.StatusForbidden:
		return unwanted(op, a)
	}
	return nil
}

// forget removes e. What was still to be dropped in it is gone with it.
func (c *Client) forget(e *epoch, how State) {
	c.mu.Lock()
	c.epochs = slices.DeleteFunc(c.epochs, func(x *epoch) bool { return x == e })
	delete(c.own, e)
	var gone []*Hold
	for h := range c.pending {
		if h.epoch == e && c.settleLocked(h, how) {
			gone = append(gone, h)
		}
	}
	c.announceLocked()
	c.mu.Unlock()
	tell(gone...)
}
