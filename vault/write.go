package vault

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/secret"
)

// A Version is a credential that is replaced by use: one field of a KV version 2
// secret, as it was at one version of that secret.
type Version struct {
	Value  secret.Text
	Number int    // of the secret's version
	Claim  string // who is about to replace Value; empty: nobody
}

// claimOf names the field of the same secret that holds the claim on ref's.
func claimOf(ref secret.Ref) string { return ref.Field() + "_claim" }

// ReadVersioned reads a credential with the number of its version. It fails as
// [Client.Credential] does, and with credential_unversioned for a KV engine of
// version 1, which has no check-and-set.
func (c *Client) ReadVersioned(ctx context.Context, ref secret.Ref) (v Version, err error) {
	err = c.asLogin(ctx, "vault.ReadVersioned", func(l *login) error {
		v, err = c.readVersioned(ctx, l, ref)
		return err
	})
	return v, err
}

func (c *Client) readVersioned(ctx context.Context, l *login, ref secret.Ref) (Version, error) {
	const op = "vault.ReadVersioned"
	e, err := c.versioned(ctx, op, l, ref)
	if err != nil {
		return Version{}, err
	}
	a, err := read(ctx, l.client, e.path(ref))
	switch {
	case err != nil:
		return Version{}, unanswered(op, err)
	case a.status == http.StatusNotFound:
		c.forgetMount(e.mount)
		return Version{}, missing(ref)
	case a.status != http.StatusOK:
		return Version{}, unwanted(op, a)
	}
	value, ok := field(a, 2, ref.Field())
	if !ok {
		return Version{}, missing(ref)
	}
	number, ok := member[int64](a.object("data", "metadata"), "version")
	if !ok || number <= 0 {
		return Version{}, fault.New(op, fault.VaultUnexpected, "a secret without the number of its version")
	}
	claim, _ := field(a, 2, claimOf(ref))
	return Version{secret.New(value), int(number), claim}, nil
}

// WriteCAS replaces value and claim, and no other field, if the secret is still at
// next.Number; the answer is next at its new number. Otherwise it fails with
// credential_changed, and nothing was written. After a vault_ reason but
// vault_denied it may have been written all the same. Nothing is sent twice, but
// what Vault denied to a login that was dead.
func (c *Client) WriteCAS(ctx context.Context, ref secret.Ref, next Version) (v Version, err error) {
	err = c.asLogin(ctx, "vault.WriteCAS", func(l *login) error {
		v, err = c.writeCAS(ctx, l, ref, next)
		return err
	})
	return v, err
}

func (c *Client) writeCAS(ctx context.Context, l *login, ref secret.Ref, next Version) (Version, error) {
	const op = "vault.WriteCAS"
	body, ok := change(ref, next)
	if !ok {
		return Version{}, fault.New(op, fault.CredentialRejected, "what is to be stored is empty, too long or not text")
	}
	e, err := c.versioned(ctx, op, l, ref)
	if err != nil {
		return Version{}, err
	}
	a, err := c.patch(ctx, l, e.path(ref), body)
	switch {
	case err != nil:
		return Version{}, unanswered(op, err)
	case a.status == http.StatusBadRequest && c.movedOn(ctx, l, ref, next.Number):
		return Version{}, fault.New(op, fault.CredentialChanged, fmt.Sprintf("%q is at another version than %d", ref, next.Number))
	case a.status != http.StatusOK:
		return Version{}, unwanted(op, a)
	}
	if number, ok := member[int64](a.object("data"), "version"); !ok || int(number) != next.Number+1 {
		return Version{}, fault.New(op, fault.VaultUnexpected, "a write that is not the next version")
	}
	next.Number++
	return next, nil
}

// change is a JSON merge patch (RFC 7396): null removes the claim, and what is not
// named stays. ok is false for a value that would not come back as it is.
func change(ref secret.Ref, next Version) (body []byte, ok bool) {
	if _, ok := entry(next.Value); !ok {
		return nil, false
	}
	fields := map[string]*string{ref.Field(): new(next.Value.Reveal()), claimOf(ref): nil}
	if next.Claim != "" {
		fields[claimOf(ref)] = &next.Claim
	}
	body, err := json.Marshal(map[string]any{"options": map[string]int{"cas": next.Number}, "data": fields})
	return body, err == nil
}

// movedOn tells a lost race from what else Vault answers 400 to: its words are
// not looked at, the version is.
func (c *Client) movedOn(ctx context.Context, l *login, ref secret.Ref, from int) bool {
	v, err := c.readVersioned(ctx, l, ref)
	return err == nil && v.Number != from || fault.ReasonOf(err) == fault.CredentialMissing
}

// versioned returns the engine that ref leads to, and refuses one that is not of
// version 2.
func (c *Client) versioned(ctx context.Context, op string, l *login, ref secret.Ref) (engine, error) {
	e, err := c.engine(ctx, l, ref)
	switch {
	case err != nil:
		return engine{}, err
	case e.version != 2:
		return engine{}, fault.New(op, fault.CredentialUnversioned,
			fmt.Sprintf("%q is in a KV engine of version 1: without check-and-set a rotation could be lost; move it to version 2", ref))
	}
	return e, nil
}

// patch sends what the library cannot send with its status kept.
func (c *Client) patch(ctx context.Context, l *login, path string, body []byte) (answer, error) {
	return c.send(ctx, http.MethodPatch, path, l.token, "application/merge-patch+json", body)
}

// asLogin runs call with the login, and once more with the next one if Vault
// denied it because the login was dead. What is denied was not done.
func (c *Client) asLogin(ctx context.Context, op string, call func(*login) error) error {
	l := c.currentLogin()
	if l == nil {
		return fault.New(op, fault.VaultNotReady, "no login yet")
	}
	err := call(l)
	if err == nil || fault.ReasonOf(err) != fault.VaultDenied {
		return err
	}
	next, lost := c.replace(ctx, l)
	if lost != nil || next == l || next == nil {
		return err
	}
	return call(next)
}
