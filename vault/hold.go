package vault

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/secret"
)

// A Hold is one operation's token in Vault. It keeps a digest of the token, not
// the token.
type Hold struct {
	client *Client
	epoch  *epoch
	id     string
	digest [sha256.Size]byte
	state  holdState // guarded by Client.mu
}

type holdState int

const (
	held    holdState = iota
	dropped           // the operation does not need it, but it may still be there
	gone
)

// A token longer than this does not fit into a header anywhere.
const maxToken = 64 << 10

// Hold puts a token where only the newest epoch can read it. When it fails,
// the token may be there all the same; Run then drops it.
func (c *Client) Hold(ctx context.Context, token secret.Text) (*Hold, error) {
	const op = "vault.Hold"
	body, ok := entry(token)
	if !ok {
		return nil, fault.New(op, fault.HoldFailed, "the token is empty, too long or not text")
	}
	h, err := c.begin(token)
	if err != nil {
		return nil, err
	}
	a, err := c.plain(ctx, http.MethodPost, h.path(), h.epoch.token, body)
	switch {
	case err != nil: // perhaps stored
		c.settle(h, dropped)
		return nil, unanswered(op, err)
	case a.status == http.StatusNoContent:
		return h, nil
	case a.status >= 400 && a.status < 500: // Vault refused: not stored
		c.settle(h, gone)
	default: // perhaps stored: a 500 may only mean that Vault could not write its own audit record
		c.settle(h, dropped)
	}
	if a.status == http.StatusForbidden {
		c.died(h.epoch)
	}
	return nil, unwanted(op, a)
}

// entry is the cubbyhole entry for a token; ok is false for one that would not
// come back as it is.
func entry(token secret.Text) (body []byte, ok bool) {
	value := token.Reveal()
	if value == "" || len(value) > maxToken || !utf8.ValidString(value) {
		return nil, false
	}
	body, err := json.Marshal(map[string]string{"token": value})
	return body, err == nil
}

// begin takes a place in the newest epoch.
func (c *Client) begin(token secret.Text) (*Hold, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.newestLocked()
	if e == nil {
		return nil, fault.New("vault.Hold", fault.VaultNotReady, "no live epoch"+c.becauseLocked())
	}
	e.holds++
	// 26 of a-z and 2-7, at least 128 bits of chance: path names stand in clear in
	// Vault's storage and audit log, so they say nothing.
	return &Hold{client: c, epoch: e, id: strings.ToLower(rand.Text()), digest: token.Digest()}, nil
}

// ID is the last segment of the hold's path, 26 of a-z and 2-7.
func (h *Hold) ID() string { return h.id }

// Epoch is the accessor of the hold's epoch: who revokes it in Vault stops every
// operation of that epoch before its next leg.
func (h *Hold) Epoch() string { return h.epoch.accessor }

func (h *Hold) path() string { return "cubbyhole/op/" + h.id }

// Read is the check before a leg, and the only way to the token. It fails with
// hold_gone if the hold or its epoch is no more, with hold_changed if another
// value is there, else with a vault_ reason.
func (h *Hold) Read(ctx context.Context) (secret.Text, error) {
	const op = "vault.Read"
	if h.client.stateOf(h) != held {
		return secret.Text{}, fault.New(op, fault.HoldGone, "it was dropped")
	}
	a, err := h.client.plain(ctx, http.MethodGet, h.path(), h.epoch.token, nil)
	switch {
	case err != nil:
		return secret.Text{}, unanswered(op, err)
	case a.status == http.StatusForbidden:
		h.client.died(h.epoch)
		return secret.Text{}, fault.New(op, fault.HoldGone, "its epoch has ended")
	case a.status == http.StatusNotFound:
		return secret.Text{}, fault.New(op, fault.HoldGone, "")
	case a.status != http.StatusOK:
		return secret.Text{}, unwanted(op, a)
	}
	data := a.object("data")
	if data == nil {
		return secret.Text{}, fault.New(op, fault.VaultUnexpected, "an entry without data")
	}
	value, ok := member[string](data, "token")
	digest := sha256.Sum256([]byte(value))
	if !ok || subtle.ConstantTimeCompare(digest[:], h.digest[:]) != 1 {
		return secret.Text{}, fault.New(op, fault.HoldChanged, "")
	}
	return secret.New(value), nil
}

// Drop deletes the hold. Nil means that it is gone. After an error it may still
// be there: Run goes on until it is gone or its epoch has ended. The context
// should not be the operation's own, which may have ended.
func (h *Hold) Drop(ctx context.Context) error {
	if h.client.stateOf(h) == gone {
		return nil
	}
	if err := h.delete(ctx); err != nil {
		h.client.settle(h, dropped)
		return err
	}
	h.client.settle(h, gone)
	return nil
}

func (h *Hold) delete(ctx context.Context) error {
	const op = "vault.Drop"
	a, err := h.client.plain(ctx, http.MethodDelete, h.path(), h.epoch.token, nil)
	if err != nil {
		return unanswered(op, err)
	}
	switch a.status {
	case http.StatusNoContent, http.StatusNotFound, http.StatusForbidden: // 403: the epoch is dead, and its cubbyhole with it
		return nil
	}
	return unwanted(op, a)
}

func (c *Client) stateOf(h *Hold) holdState {
	c.mu.Lock()
	defer c.mu.Unlock()
	return h.state
}

// settle notes that h's operation is done with it. States only move on.
func (c *Client) settle(h *Hold, to holdState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h.state == held {
		h.epoch.holds--
	}
	switch {
	case to == gone:
		c.goneLocked(h)
	case h.state == held:
		h.state = dropped
		c.pending[h] = c.now().Add(time.Second)
	}
	c.rouse()
}

func (c *Client) goneLocked(h *Hold) {
	h.state = gone
	delete(c.pending, h)
}

// Pending is how many holds may still be there although their operations have ended.
func (c *Client) Pending() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.pending)
}

// sweep drops what is pending and due. The first failure ends the round: what
// keeps one from going will keep the others.
func (c *Client) sweep(ctx context.Context) error {
	for {
		h := c.duePending()
		if h == nil {
			return nil
		}
		if err := h.delete(ctx); err != nil {
			return err
		}
		c.settle(h, gone)
	}
}

func (c *Client) duePending() *Hold {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	for h, due := range c.pending {
		if !now.Before(due) {
			return h
		}
	}
	return nil
}
