package vault

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/ownfile"
	"onbehalf.internal/broker/secret"
)

// Vault and OpenBao lock an AppRole out, for everybody and with 403 to the right
// secret id too, after five refusals with less than 15 minutes between them.
const (
	maxRefusals = 2 // a second time, since a 400 need not be about the secret id
	lockout     = 16 * time.Minute
)

// An approle is what is remembered from one login by AppRole to the next. It
// belongs to whoever is logging in.
type approle struct {
	wrapping  [32]byte    // the digest of the wrapping token that was sent to be unwrapped
	unwrapped secret.Text // what was in it; zero: we do not know

	refused  [32]byte // the digest of the secret id that Vault refused last
	refusals int
	until    time.Time // it is not shown again before this
	why      error
}

func (c *Client) byAppRole(ctx context.Context) (*login, error) {
	id, err := c.secretID(ctx)
	if err != nil {
		return nil, err
	}
	r := &c.approle
	if id.Digest() != r.refused {
		r.refusals, r.until = 0, time.Time{}
	}
	if c.now().Before(r.until) {
		return nil, r.why
	}
	l, err := c.enterBy(ctx, c.answers, map[string]string{"role_id": c.auth.RoleID, "secret_id": id.Reveal()})
	if fault.ReasonOf(err) != fault.VaultDenied {
		return l, err
	}
	r.refused = id.Digest()
	if r.refusals++; r.refusals >= maxRefusals {
		r.until = c.now().Add(lockout)
		r.why = fault.New("vault.login", fault.VaultDenied, fmt.Sprintf(
			"Vault refused role_id and secret_id %d times: this secret_id is not shown again for %.0f minutes, since more refusals lock the role out; put another into %q",
			r.refusals, lockout.Minutes(), c.auth.SecretIDFile))
		return nil, r.why
	}
	return nil, err
}

// secretID reads the secret id. One that came wrapped is kept, since a wrapping
// token is good for one use; its file may go or be replaced after that.
func (c *Client) secretID(ctx context.Context) (secret.Text, error) {
	held, err := readSecret(c.auth.SecretIDFile, ownfile.Ours)
	if c.auth.Wrapping == "" {
		return held, err
	}
	r := &c.approle
	if !r.unwrapped.IsZero() && (err != nil || held.Digest() == r.wrapping) {
		return r.unwrapped, nil
	}
	if err != nil {
		return secret.Text{}, err
	}
	return c.unwrap(ctx, held)
}

// unwrap takes the secret id out of a wrapping token. It first asks what made the
// token, which does not use it up: one from elsewhere would have us log in with
// what somebody else has chosen.
func (c *Client) unwrap(ctx context.Context, wrapping secret.Text) (secret.Text, error) {
	const op = "vault.unwrap"
	door, err := c.library(secret.Text{}, c.answers)
	if err != nil {
		return secret.Text{}, err
	}
	a, err := write(ctx, door, "sys/wrapping/lookup", map[string]string{"token": wrapping.Reveal()})
	switch {
	case err != nil:
		return secret.Text{}, unanswered(op, err)
	case a.status == http.StatusBadRequest || a.status == http.StatusForbidden:
		return secret.Text{}, c.spent(wrapping)
	case a.status != http.StatusOK:
		return secret.Text{}, unwanted(op, a)
	}
	if path, _ := member[string](a.object("data"), "creation_path"); path != c.auth.Wrapping {
		return secret.Text{}, fault.New(op, fault.VaultDenied, fmt.Sprintf(
			"the wrapping token in %q was not made at %q, so it was not unwrapped: somebody else may have put it there", c.auth.SecretIDFile, c.auth.Wrapping))
	}
	inside, err := c.library(wrapping, c.answers)
	if err != nil {
		return secret.Text{}, err
	}
	c.approle.wrapping, c.approle.unwrapped = wrapping.Digest(), secret.Text{}
	a, err = write(ctx, inside, "sys/wrapping/unwrap", map[string]string{})
	switch {
	case err != nil:
		return secret.Text{}, unanswered(op, err)
	case a.status == http.StatusBadRequest || a.status == http.StatusForbidden:
		c.approle.wrapping = [32]byte{} // it was not our sending that used it up
		return secret.Text{}, c.spent(wrapping)
	case a.status != http.StatusOK:
		return secret.Text{}, unwanted(op, a)
	}
	id, ok := member[string](a.object("data"), "secret_id")
	if !ok || id == "" {
		return secret.Text{}, fault.New(op, fault.VaultUnexpected, "a wrapping token without a secret_id in it")
	}
	c.approle.unwrapped = secret.New(id)
	return c.approle.unwrapped, nil
}

// spent is the fault of a wrapping token that Vault does not know any more.
func (c *Client) spent(wrapping secret.Text) error {
	why := "it has run out, or somebody has unwrapped it before us: then destroy its secret_id; an earlier run of this broker counts as somebody"
	if wrapping.Digest() == c.approle.wrapping {
		why = "this broker has sent it to be unwrapped, and the answer was lost"
	}
	return fault.New("vault.unwrap", fault.VaultDenied, fmt.Sprintf("the wrapping token in %q is good no more: %s; put a new one there", c.auth.SecretIDFile, why))
}
