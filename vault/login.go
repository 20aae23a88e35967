package vault

import (
	"context"
	"math"
	"net/http"
	"time"

	"github.com/hashicorp/vault/api"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/secret"
	"onbehalf.internal/broker/strictjson"
)

// A login is one token of ours. A new login is a new value: the identity of the
// pointer says whether somebody has logged in meanwhile.
type login struct {
	client    *api.Client // carries the token
	token     secret.Text
	ours      bool // we made the token, and revoke it at the end
	renewable bool

	ends    time.Time // zero: never; guarded by Client.mu, like renewAt
	renewAt time.Time // zero: never
}

func (l *login) over(now time.Time) bool { return !l.ends.IsZero() && !now.Before(l.ends) }

func (l *login) left(now time.Time) time.Duration {
	if l.ends.IsZero() {
		return math.MaxInt64
	}
	return l.ends.Sub(now)
}

// live sets how long l lives, counted from before the request that said so.
// Its life is renewed when two thirds of it are over, and a short one while it has
// still more than an epoch needs: epochs die with their login.
func (l *login) live(since time.Time, life time.Duration) {
	l.ends, l.renewAt = time.Time{}, time.Time{}
	if life > 0 {
		l.ends = since.Add(life)
		l.renewAt = since.Add(max(time.Second, life/3, min(life/3*2, life-2*epochLife)))
	}
}

func (c *Client) currentLogin() *login {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.login
}

// keepLogin does what is due for the login: the first one, a renewal, the next.
func (c *Client) keepLogin(ctx context.Context) error {
	c.mu.Lock()
	l, now := c.login, c.now()
	over := l == nil || l.over(now)
	due := over || !l.renewAt.IsZero() && !now.Before(l.renewAt)
	c.mu.Unlock()
	switch {
	case !due:
		return nil
	case over || !l.renewable:
		return c.logIn(ctx, l)
	}
	return c.renew(ctx, l)
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
// one if old is dead, else old itself, for then the refusal was policy's.
func (c *Client) replace(ctx context.Context, old *login) (*login, error) {
	err := c.alone(ctx, func() error {
		if c.currentLogin() != old {
			return nil
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

func (c *Client) alone(ctx context.Context, f func() error) error {
	select {
	case c.loggingIn <- struct{}{}:
		defer func() { <-c.loggingIn }()
		return f()
	case <-ctx.Done():
		return unanswered("vault.login", ctx.Err())
	}
}

// enter logs in. Epochs of the former login stay until their operations end;
// Run mints the next one under the new login.
func (c *Client) enter(ctx context.Context) error {
	byMethod := c.byToken
	if c.auth.Method == "approle" {
		byMethod = c.byAppRole
	}
	l, err := byMethod(ctx)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.login = l
	left := l.left(c.now())
	c.announceLocked()
	c.mu.Unlock()
	c.log.Info("vault login", "method", c.auth.Method, "life", left)
	c.rouse()
	return nil
}

// byToken looks up what the given token is good for.
func (c *Client) byToken(ctx context.Context) (*login, error) {
	const op = "vault.login"
	client, err := c.library(c.token)
	if err != nil {
		return nil, err
	}
	since := c.now()
	a, err := read(ctx, client, "auth/token/lookup-self")
	switch {
	case err != nil:
		return nil, unanswered(op, err)
	case a.status != http.StatusOK:
		return nil, unwanted(op, a)
	}
	data := a.object("data")
	life, ok := seconds(data, "ttl")
	if !ok {
		return nil, fault.New(op, fault.VaultUnexpected, "a lookup without a ttl")
	}
	l := &login{client: client, token: c.token}
	l.renewable, _ = member[bool](data, "renewable")
	l.live(since, life)
	return l, nil
}

func (c *Client) byAppRole(ctx context.Context) (*login, error) {
	const op = "vault.login"
	id, err := c.secret()
	if err != nil || id.IsZero() {
		return nil, fault.New(op, fault.VaultNotReady, "the secret_id cannot be read")
	}
	door, err := c.library(secret.Text{})
	if err != nil {
		return nil, err
	}
	since := c.now()
	a, err := write(ctx, door, "auth/"+c.auth.Mount+"/login", map[string]string{"role_id": c.auth.RoleID, "secret_id": id.Reveal()})
	switch {
	case err != nil:
		return nil, unanswered(op, err)
	case a.status == http.StatusBadRequest:
		return nil, fault.New(op, fault.VaultDenied, "Vault does not accept role_id and secret_id")
	case a.status != http.StatusOK:
		return nil, unwanted(op, a)
	}
	t, ok := issued(a)
	if !ok || t.value.IsZero() {
		return nil, fault.New(op, fault.VaultUnexpected, "a login without a token")
	}
	client, err := c.library(t.value)
	if err != nil {
		return nil, err
	}
	l := &login{client: client, token: t.value, ours: true, renewable: t.renewable}
	l.live(since, t.life)
	return l, nil
}

// An issue is what Vault tells of a token that it made or renewed.
type issue struct {
	value     secret.Text
	accessor  string
	life      time.Duration // 0: for ever
	renewable bool
}

func issued(a answer) (t issue, ok bool) {
	auth := a.object("auth")
	value, _ := member[string](auth, "client_token")
	t.value = secret.New(value)
	t.accessor, _ = member[string](auth, "accessor")
	t.renewable, _ = member[bool](auth, "renewable")
	t.life, ok = seconds(auth, "lease_duration")
	return t, ok
}

// seconds reads a life in seconds; 0 is for ever.
func seconds(members map[string]strictjson.Raw, name string) (time.Duration, bool) {
	const century = 100 * 365 * 24 * 3600 // three of them do not fit into a Duration
	n, ok := member[int64](members, name)
	return time.Duration(n) * time.Second, ok && 0 <= n && n <= century
}
