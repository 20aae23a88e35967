package vault

import (
	"context"
	"math"
	"net/http"
	"time"

	"github.com/hashicorp/vault/api"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/ownfile"
	"onbehalf.internal/broker/secret"
	"onbehalf.internal/broker/strictjson"
)

// A login is one token to log in with. A new login is a new value: the identity of
// the pointer says whether somebody has logged in meanwhile.
type login struct {
	client    *api.Client // carries the token
	token     secret.Text // zero: a Vault Proxy adds it
	ours      bool        // we made the token, and revoke it at the end
	renewable bool
	release   func() // closes idle connections of its own; nil: it has none

	// Guarded by Client.mu.
	ends    time.Time // zero: never
	renewAt time.Time // zero: never
}

func (l *login) over(now time.Time) bool { return !l.ends.IsZero() && !now.Before(l.ends) }

func (l *login) left(now time.Time) time.Duration {
	if l.ends.IsZero() {
		return math.MaxInt64
	}
	return l.ends.Sub(now)
}

// live sets how long l lives, counted from before the request that said so. Its
// life is renewed when two thirds of it are over, or sooner where less than an
// epoch needs would be left: an epoch dies with its login.
func (l *login) live(since time.Time, life time.Duration) {
	l.ends, l.renewAt = time.Time{}, time.Time{}
	if life <= 0 {
		return
	}
	at := life / 3 * 2
	if need := epochLife + ahead; life > need {
		at = min(at, life-need)
	}
	l.ends = since.Add(life)
	l.renewAt = since.Add(max(time.Second, at))
}

func (c *Client) currentLogin() *login {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.login
}

// stands reports whether there is a login that epochs can be minted with.
func (c *Client) stands() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.login != nil && !c.login.over(c.now())
}

// keepLogin does what is due for the login: the first one, a renewal, the next.
func (c *Client) keepLogin(ctx context.Context) error {
	c.mu.Lock()
	l, now := c.login, c.now()
	over := l == nil || l.over(now)
	due := over || !l.renewAt.IsZero() && !now.Before(l.renewAt)
	look := !over && !now.Before(c.lookAt)
	last := over || l.left(now) < 2*epochLife
	c.mu.Unlock()
	switch moved := look && c.moved(l); {
	case !due && !moved:
		return nil
	case over || moved || !l.renewable:
		return c.logIn(ctx, l)
	}
	err := c.renew(ctx, l)
	if err != nil && last && c.logIn(ctx, l) == nil { // whatever is wrong with renewals, another login may work
		return nil
	}
	return err
}

// moved reports whether the token file holds another token than l's. A file that
// cannot be read, or holds nothing, says nothing against a login that stands; that
// it is so is logged when it begins.
func (c *Client) moved(l *login) bool {
	if c.auth.Method != "token_file" {
		return false
	}
	token, err := readSecret(c.auth.TokenFile, ownfile.Agents)
	c.mu.Lock()
	news := err != nil && (c.unread == nil || err.Error() != c.unread.Error())
	c.unread, c.lookAt = err, c.now().Add(glance)
	c.mu.Unlock()
	if news {
		c.log.Warn("vault token file", "error", err)
	}
	return err == nil && !token.Equal(l.token)
}

// renew extends l. Where Vault does not extend it any more (its maximum is
// reached, or it is dead), it is time for another.
func (c *Client) renew(ctx context.Context, l *login) error {
	const op = "vault.renew"
	since := c.now()
	a, err := write(ctx, l.client, "auth/token/renew-self", map[string]string{})
	switch {
	case err != nil:
		return unanswered(op, err)
	case a.status == http.StatusForbidden || a.status == http.StatusBadRequest:
		return c.logIn(ctx, l)
	case a.status != http.StatusOK:
		return unwanted(op, a)
	}
	t, ok := issued(a)
	if !ok {
		return fault.New(op, fault.VaultUnexpected, "a renewal without a lease")
	}
	c.mu.Lock()
	extended := since.Add(t.life).After(l.ends.Add(time.Second))
	if extended {
		l.live(since, t.life)
	}
	c.mu.Unlock()
	if !extended {
		return c.logIn(ctx, l)
	}
	c.log.Debug("vault login renewed", "life", t.life)
	return nil
}

// logIn replaces old, once for all who ask at the same time.
func (c *Client) logIn(ctx context.Context, old *login) error {
	return c.alone(ctx, func() error {
		if c.currentLogin() != old {
			return nil
		}
		return c.enter(ctx)
	})
}

// replace returns a login to use after Vault denied something to old: another
// one if old is dead or its file holds another token, else old itself, for then
// the refusal was policy's.
func (c *Client) replace(ctx context.Context, old *login) (*login, error) {
	err := c.alone(ctx, func() error {
		switch {
		case c.currentLogin() != old:
			return nil
		case c.moved(old):
			return c.enter(ctx)
		}
		a, err := read(ctx, old.client, "auth/token/lookup-self")
		switch {
		case err != nil:
			return unanswered("vault.lookup", err)
		case a.status == http.StatusOK:
			return nil
		case a.status != http.StatusForbidden:
			return unwanted("vault.lookup", a)
		}
		return c.enter(ctx)
	})
	return c.currentLogin(), err
}

// alone runs f for one at a time. What failed is not tried again within a second,
// however many ask: its error is theirs too. Run waits longer by itself.
func (c *Client) alone(ctx context.Context, f func() error) error {
	select {
	case c.loggingIn <- struct{}{}:
		defer func() { <-c.loggingIn }()
	case <-ctx.Done():
		return unanswered("vault.login", ctx.Err())
	}
	if c.now().Before(c.restUntil) {
		return c.lost
	}
	err := f()
	if err != nil && ctx.Err() == nil { // one who had no time left has found out nothing
		c.lost, c.restUntil = err, c.now().Add(time.Second)
	}
	return err
}

// enter logs in. Epochs of the former login stay until their operations end;
// Run mints the next one under the new login.
func (c *Client) enter(ctx context.Context) error {
	l, err := c.prove(ctx)
	if err == nil {
		err = c.namespaced(ctx, l)
	}
	if err != nil {
		return err
	}
	c.mu.Lock()
	old := c.login
	c.login = l
	left := l.left(c.now())
	c.lookAt = c.now().Add(glance)
	c.announceLocked()
	c.mu.Unlock()
	if old != nil && old.release != nil {
		old.release()
	}
	c.log.Info("vault login", "method", c.auth.Method, "life", left)
	c.rouse()
	return nil
}

// namespaced refuses a Vault that has no namespaces: it ignores the header and
// would answer from its root. It is asked for a namespace that cannot be.
func (c *Client) namespaced(ctx context.Context, l *login) error {
	const op = "vault.login"
	if c.answers.namespace == "" {
		return nil
	}
	nowhere, err := c.library(l.token, answers{c.answers.next, c.answers.namespace + "/no-such-namespace"})
	if err != nil {
		return err
	}
	a, err := read(ctx, nowhere, "auth/token/lookup-self")
	switch {
	case err != nil:
		return unanswered(op, err)
	case a.status == http.StatusOK:
		return fault.New(op, fault.VaultNotReady, "this Vault has no namespaces, and would ignore vault.namespace: remove it, or name another Vault")
	case a.status >= 500 || a.status == http.StatusTooManyRequests:
		return unwanted(op, a)
	}
	return nil
}

// An issue is what Vault tells of a token that it made or renewed.
type issue struct {
	value     secret.Text
	accessor  string
	life      time.Duration // 0: for ever
	renewable bool
	orphan    bool
	policies  []string
}

func issued(a answer) (t issue, ok bool) {
	auth := a.object("auth")
	value, _ := member[string](auth, "client_token")
	t.value = secret.New(value)
	t.accessor, _ = member[string](auth, "accessor")
	t.renewable, _ = member[bool](auth, "renewable")
	t.orphan, _ = member[bool](auth, "orphan")
	t.policies = names(auth["policies"])
	t.life, ok = seconds(auth, "lease_duration")
	return t, ok
}

// seconds reads a life in seconds; 0 is for ever.
func seconds(members map[string]strictjson.Raw, name string) (time.Duration, bool) {
	const century = 100 * 365 * 24 * 3600 // three of them do not fit into a Duration
	n, ok := member[int64](members, name)
	return time.Duration(n) * time.Second, ok && 0 <= n && n <= century
}
