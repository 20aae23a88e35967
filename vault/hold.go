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

// A Hold is the place of one operation's token in Vault. It keeps a digest of the
// token, not the token. Its calls do not overlap.
type Hold struct {
	client *Client
	id     string
	minted chan struct{}     // closed when it has an epoch of its own, or will have none; nil: it takes a place in the newest
	digest [sha256.Size]byte // of the token that was put

	// Guarded by Client.mu.
	epoch   *epoch // nil: none yet; then it stays what it is
	refused error  // why there is no epoch of its own
	state   State
	ended   func(State) // see WhenEnded
}

// A State says where the token of a [Hold] is. It moves on along this list alone.
type State string

const (
	None    State = ""                   // nowhere: nothing was sent to Vault, or Vault refused it
	Held    State = "held"               // Vault has it, or may have it
	Pending State = "pending"            // it is not needed any more, and may still be there
	Dropped State = "dropped"            // gone: Vault said so
	Expired State = "expired_with_epoch" // gone: the life of its epoch is over
)

func (s State) gone() bool { return s == Dropped || s == Expired }

const (
	// A token longer than this does not fit into a header anywhere.
	maxToken = 64 << 10
	// dropAgain is how long after a drop that failed Run makes its first attempt.
	dropAgain = time.Second
	// sweepRound bounds a round of drops: a new epoch does not wait behind them.
	sweepRound = time.Second
)

// Reserve begins what a hold needs before there is a token for it: with a token for
// each operation one is minted, beside whatever the caller does meanwhile. Else
// nothing is to be done, and the place is taken by Put. What was reserved has to be
// dropped, put or not.
func (c *Client) Reserve(ctx context.Context) *Hold {
	// 26 of a-z and 2-7, at least 128 bits of chance: path names stand in clear in
	// Vault's storage and audit log, so they say nothing.
	h := &Hold{client: c, id: strings.ToLower(rand.Text())}
	if c.perOperation {
		h.minted = make(chan struct{})
		go c.mintFor(context.WithoutCancel(ctx), h)
	}
	return h
}

// Put puts a token where only the hold's epoch can read it. When it fails, the token
// may be there all the same: [Hold.State] says so. In an epoch that others hold in,
// Run then drops it; an epoch of its own is for the caller to drop.
func (h *Hold) Put(ctx context.Context, token secret.Text) error {
	const op = "vault.Put"
	c := h.client
	body, ok := entry(token)
	if !ok {
		return fault.New(op, fault.HoldFailed, "the token is empty, too long or not text")
	}
	if err := h.place(ctx); err != nil {
		return err
	}
	h.digest = token.Digest()
	a, err := c.plain(ctx, http.MethodPost, h.path(), h.epoch.token, body)
	switch {
	case err == nil && a.status == http.StatusNoContent:
		return nil
	case h.own(): // its drop ends the epoch, and whatever is in it
	case err == nil && a.status >= 400 && a.status < 500: // Vault refused: not stored
		c.settle(h, None)
	default: // perhaps stored: a 500 may only mean that Vault could not write its own audit record
		c.settle(h, Pending)
	}
	switch {
	case err != nil:
		return unanswered(op, err)
	case a.status == http.StatusForbidden:
		c.died(h.epoch)
	}
	return unwanted(op, a)
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

// place takes a place in the newest epoch, or waits for the hold's own.
func (h *Hold) place(ctx context.Context) error {
	const op = "vault.Put"
	if err := h.settled(ctx); err != nil {
		return err
	}
	c := h.client
	c.mu.Lock()
	defer c.mu.Unlock()
	e := h.epoch
	switch {
	case h.refused != nil:
		return h.refused
	case h.state != None:
		return fault.New(op, fault.HoldFailed, "a hold is put once")
	case !h.own():
		e = c.newestLocked()
	case !c.usableLocked(e):
		e = nil
	}
	if e == nil {
		return fault.New(op, fault.VaultNotReady, "no live epoch"+c.becauseLocked())
	}
	e.holds++
	h.epoch, h.state = e, Held
	return nil
}

// settled waits until it is known whether there is an epoch of the hold's own.
func (h *Hold) settled(ctx context.Context) error {
	if !h.own() {
		return nil
	}
	select {
	case <-h.minted:
		return nil
	case <-ctx.Done():
		return unanswered("vault.mint", ctx.Err())
	}
}

// own reports whether the hold has an epoch for itself.
func (h *Hold) own() bool { return h.minted != nil }

// ID is the last segment of the hold's path, 26 of a-z and 2-7.
func (h *Hold) ID() string { return h.id }

// Epoch is the accessor of the hold's epoch: who revokes it in Vault stops every
// operation of that epoch before its next leg. It is empty while there is none.
func (h *Hold) Epoch() string {
	h.client.mu.Lock()
	defer h.client.mu.Unlock()
	if h.epoch == nil {
		return ""
	}
	return h.epoch.accessor
}

// State says where the token is.
func (h *Hold) State() State {
	h.client.mu.Lock()
	defer h.client.mu.Unlock()
	return h.state
}

// WhenEnded has f called once, with Dropped or Expired, when the token is not there
// any more: at once if that is known already. It is mostly Run that finds out, so f
// must not block. It is not called if Run ends before it is known.
func (h *Hold) WhenEnded(f func(State)) {
	h.client.mu.Lock()
	gone := h.state.gone()
	if !gone {
		h.ended = f
	}
	h.client.mu.Unlock()
	if gone {
		f(h.state)
	}
}

func (h *Hold) path() string { return "cubbyhole/op/" + h.id }

// Read is the check before a leg, and the only way to the token. It fails with
// hold_gone if the hold or its epoch is no more, with hold_changed if another
// value is there, else with a vault_ reason.
func (h *Hold) Read(ctx context.Context) (secret.Text, error) {
	const op = "vault.Read"
	if h.State() != Held {
		return secret.Text{}, fault.New(op, fault.HoldGone, "it was dropped, or not put")
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

// Drop ends the hold. Nil means that nothing of it is in Vault. After an error it
// may still be there: Run goes on until it is gone or its epoch has ended. The
// context should not be the operation's own, which may have ended.
func (h *Hold) Drop(ctx context.Context) error {
	c := h.client
	if err := h.settled(ctx); err != nil {
		c.settle(h, Pending)
		return err
	}
	if h.over() {
		return nil
	}
	if err := c.end(ctx, h); err != nil {
		c.settle(h, Pending)
		return err
	}
	c.settle(h, Dropped)
	return nil
}

// over reports whether nothing of the hold is in Vault.
func (h *Hold) over() bool {
	h.client.mu.Lock()
	defer h.client.mu.Unlock()
	return h.state.gone() || h.epoch == nil || h.state == None && !h.own()
}

// end removes what Vault has of h: its entry, or the whole epoch if it is its own.
func (c *Client) end(ctx context.Context, h *Hold) (err error) {
	if h.own() {
		err = c.revoke(ctx, h.epoch)
	} else {
		err = h.delete(ctx)
	}
	c.count(c.drops, err)
	return err
}

func (h *Hold) delete(ctx context.Context) error {
	const op = "vault.Drop"
	a, err := h.client.plain(ctx, http.MethodDelete, h.path(), h.epoch.token, nil)
	if err != nil {
		return unanswered(op, err)
	}
	switch a.status {
	case http.StatusForbidden: // the epoch is dead, and its cubbyhole with it; if it is not, its revocation sweeps it
		h.client.died(h.epoch)
		return nil
	case http.StatusNoContent, http.StatusNotFound:
		return nil
	}
	return unwanted(op, a)
}

// settle moves h on, and tells whoever wants to know that it is gone.
func (c *Client) settle(h *Hold, to State) {
	c.mu.Lock()
	gone := c.settleLocked(h, to)
	c.mu.Unlock()
	if gone {
		tell(h)
	}
	c.rouse()
}

// settleLocked reports whether h is gone by this.
func (c *Client) settleLocked(h *Hold, to State) bool {
	if h.state.gone() {
		return false
	}
	if h.state == Held {
		h.epoch.holds--
	}
	h.state = to
	if to == Pending {
		if _, known := c.pending[h]; !known && h.epoch != nil { // while its epoch is minted, mintFor looks after it
			c.pending[h] = c.now()
		}
		return false
	}
	delete(c.pending, h)
	if to == Expired {
		c.drops[string(Expired)]++
	}
	if to.gone() && h.own() {
		delete(c.own, h.epoch)
	}
	return to.gone()
}

// tell calls who waits for the end of holds that are gone by now; not under the
// lock, for it is not our code.
func tell(gone ...*Hold) {
	for _, h := range gone {
		if h.ended != nil {
			h.ended(h.state)
		}
	}
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
	c.expire()
	for began := c.now(); c.now().Sub(began) < sweepRound; {
		h := c.duePending()
		if h == nil {
			return nil
		}
		if err := c.end(ctx, h); err != nil {
			return err
		}
		c.settle(h, Dropped)
	}
	return nil
}

func (c *Client) duePending() *Hold {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	for h, since := range c.pending {
		if !now.Before(since.Add(dropAgain)) {
			return h
		}
	}
	return nil
}

// expire settles what was pending in epochs whose life is over.
func (c *Client) expire() {
	c.mu.Lock()
	now := c.now()
	var gone []*Hold
	for h := range c.pending {
		if h.epoch.over(now) && c.settleLocked(h, Expired) {
			gone = append(gone, h)
		}
	}
	c.mu.Unlock()
	tell(gone...)
}
