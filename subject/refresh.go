package subject

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"onbehalf.internal/broker/exchange"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/secret"
	"onbehalf.internal/broker/vault"
)

// From the claim on an operation's end changes nothing, so these are the limits.
const (
	refreshLimit   = 10 * time.Second // for the provider's answer
	writeBackLimit = 10 * time.Second // for Vault to take what replaces the token

	// claimLife is how long a claim of somebody else is respected after it was first
	// seen: the limits, and as much as a claim may be older than its answer. It is
	// measured by our clock alone, so that no two clocks need to agree.
	claimLife = 30 * time.Second

	pollPause  = 30 * time.Millisecond  // while somebody else's claim stands
	retryPause = 400 * time.Millisecond // before Vault is asked once more to store what is new
)

// A turn is the right to use one stored refresh token, for one operation at a time.
type turn struct {
	free chan struct{} // holds one while nobody has the turn

	// Owned by whoever has the turn.
	lost      int       // version of the secret whose token is known to be spent; 0: none
	seen      int       // version at which somebody else's claim stands
	firstSeen time.Time // since when
}

// turnOf returns the one turn of a stored refresh token.
func (r *Resolver) turnOf(ref secret.Ref) *turn {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.turns[ref]
	if t == nil {
		t = &turn{free: make(chan struct{}, 1)}
		t.leave()
		r.turns[ref] = t
	}
	return t
}

// enter waits for the turn.
func (t *turn) enter(ctx context.Context) error {
	select {
	case <-t.free:
		return nil
	case <-ctx.Done():
		return unsent(ctx)
	}
}

func (t *turn) leave() { t.free <- struct{}{} }

// abandoned reports whether the claim at v has stood for so long that whoever made
// it must be gone.
func (t *turn) abandoned(v vault.Version, now time.Time) bool {
	if t.seen != v.Number {
		t.seen, t.firstSeen = v.Number, now
	}
	return now.Sub(t.firstSeen) >= claimLife
}

// unsent says why a token was not sent.
func unsent(ctx context.Context) error {
	return fault.New("subject.Refresh", fault.Ended(ctx, fault.BudgetSpent), "other refreshes of the same credential came first")
}

// refreshed returns an access token for the refresh token at ref.
func (r *Resolver) refreshed(ctx context.Context, p *policy.Profile, ref secret.Ref, key func(context.Context) (exchange.Key, error)) (secret.Text, error) {
	k, err := key(ctx) // before the claim: what fails here costs nobody anything
	if err != nil {
		return secret.Text{}, err
	}
	t := r.turnOf(ref)
	if err := t.enter(ctx); err != nil {
		return secret.Text{}, err
	}
	claimed, err := r.claim(ctx, ref, t)
	if err != nil {
		t.leave()
		return secret.Text{}, err
	}
	f := flight{r: r, ref: ref, turn: t, claimed: claimed}
	done := make(chan struct{})
	go func() {
		defer t.leave()
		defer close(done)
		defer f.outlive()
		f.run(context.WithoutCancel(ctx), p, k)
	}()
	select {
	case <-done:
		return f.access, f.err
	case <-ctx.Done():
		return secret.Text{}, goesOn(ctx)
	}
}

// goesOn is what an operation is told that ends before its refresh.
func goesOn(ctx context.Context) error {
	return fault.New("subject.Refresh", fault.Ended(ctx, fault.WallClock), "the refresh had begun; it goes on, and what it brings is stored")
}

// claim moves the secret one version on, with our claim in it, and returns it as it
// is then. Only whoever did that may send the token. A lost race costs nothing: it
// reads again.
func (r *Resolver) claim(ctx context.Context, ref secret.Ref, t *turn) (vault.Version, error) {
	for {
		v, err := r.vault.ReadVersioned(ctx, ref)
		switch {
		case err != nil:
			return v, err
		case v.Number == t.lost:
			return v, fault.New("subject.Refresh", fault.RotationLost, spent(ref, v.Number))
		case v.Claim == "" || v.Claim == r.id || t.abandoned(v, r.now()): // ours: left by a flight that ended
			v.Claim = r.id
			next, err := r.vault.WriteCAS(ctx, ref, v)
			if fault.ReasonOf(err) != fault.CredentialChanged {
				return next, err
			}
		default:
			if !pause(ctx, pollPause) {
				return v, unsent(ctx)
			}
		}
	}
}

func spent(ref secret.Ref, version int) string {
	return fmt.Sprintf("%q at version %d is spent, and what replaced it is lost: store another refresh token there", ref, version)
}

// pause waits between two requests to Vault, half of it at random so that brokers
// do not ask in step.
func pause(ctx context.Context, most time.Duration) bool {
	timer := time.NewTimer(most/2 + rand.N(most/2))
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// A flight is one refresh, from the claim to the write-back.
type flight struct {
	r       *Resolver
	ref     secret.Ref
	turn    *turn
	claimed vault.Version

	access secret.Text
	err    error
}

// run sends the refresh token, once, and stores what replaces it. That comes back
// also beside a refusal; without it the claim is given up.
func (f *flight) run(ctx context.Context, p *policy.Profile, k exchange.Key) {
	within, cancel := context.WithTimeout(ctx, refreshLimit)
	fresh, err := f.r.exchange.Refresh(within, p, f.claimed.Value, k)
	cancel()
	f.access, f.err = fresh.Access, err
	if fresh.Refresh.IsZero() || fresh.Refresh.Equal(f.claimed.Value) {
		f.release(ctx)
		return
	}
	if err := f.writeBack(ctx, fresh.Refresh); err != nil {
		f.err = err
	}
}

// outlive turns a panic into the error of this refresh: it is not on the operation's
// goroutine, where that would be seen to.
func (f *flight) outlive() {
	if recover() != nil {
		f.err = fault.New("subject.Refresh", fault.InternalError, "a panic in a refresh")
	}
}

// release gives the claim up. Where that fails it is in nobody's way here, and in
// other brokers' for claimLife.
func (f *flight) release(ctx context.Context) {
	v := f.claimed
	v.Claim = ""
	f.r.vault.WriteCAS(ctx, f.ref, v)
}

// writeBack stores the token in the place of the one that was sent. A write may be
// repeated: it says at which version. What is read after a failure tells whether it
// had happened, whether another field was written (then on from there), or whether
// somebody stored another token, which stands.
func (f *flight) writeBack(ctx context.Context, token secret.Text) error {
	ctx, cancel := context.WithTimeout(ctx, writeBackLimit)
	defer cancel()
	next := vault.Version{Value: token, Number: f.claimed.Number}
	for {
		_, err := f.r.vault.WriteCAS(ctx, f.ref, next)
		if err == nil {
			return nil
		}
		there, unread := f.r.vault.ReadVersioned(ctx, f.ref)
		switch {
		case unread != nil:
		case there.Value.Equal(token):
			return nil
		case !there.Value.Equal(f.claimed.Value):
			return fault.New("subject.Refresh", fault.CredentialChanged, fmt.Sprintf("%q was stored anew while it was refreshed; that stands", f.ref))
		default:
			next.Number = there.Number
		}
		if !pause(ctx, retryPause) {
			f.turn.lost = next.Number
			return fault.New("subject.Refresh", fault.RotationLost, fmt.Sprintf("the last try ended with %s; %s", fault.ReasonOf(err), spent(f.ref, next.Number)))
		}
	}
}
