package session

import (
	"context"
	"slices"
	"time"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/fault"
)

// ranOut reports whether the token, or the epoch of its hold, will not outlive the
// start of a leg that begins now.
func (d *delegation) ranOut(now time.Time) bool {
	soon := now.Add(skew)
	return d.put && !d.over && !(d.issued.Expires.After(soon) && d.hold.Ends().After(soon))
}

// reopen opens the session anew and returns the legs that it took. They belong
// before the leg that asked.
func (s *Session) reopen(ctx context.Context) (legs []audit.Leg, err error) {
	opening := len(s.Legs())
	err = s.renew(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	legs = slices.Clone(s.legs[opening:])
	s.legs = s.legs[:opening]
	return legs, err
}

// renew ends the delegation and makes another. Before that the hold is read: what
// somebody killed is not made anew, though its time is over as well.
func (s *Session) renew(ctx context.Context) error {
	token, err := s.hold.Read(ctx)
	if err != nil && !(fault.ReasonOf(err) == fault.HoldGone && s.hold.Lapsed()) {
		return err
	}
	s.before = both(s.before, s.drop(ctx))
	if p := s.revokes(); p != nil {
		s.revoke(ctx, p, token) // best effort: its leg says what became of it
	}
	s.over = true
	return s.delegate(ctx)
}
