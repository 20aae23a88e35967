package operation

import (
	"context"
	"time"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/identity"
	"onbehalf.internal/broker/ledger"
)

// Resolve records what an admin has found out about an operation in doubt, see
// [ledger.Ledger.Resolve]. While its attempt is carried there is nothing to
// resolve. What an attempt still does after its end, its drop above all, is
// waited for: until then its answer is told from memory, where the word is not.
func (r *Runner) Resolve(ctx context.Context, by identity.Caller, id string, attempt int, ran bool, reason string) (_ ledger.Operation, repeated bool, err error) {
	if err := r.settled(ctx, id); err != nil {
		return ledger.Operation{}, false, err
	}
	return r.ledger.Resolve(ctx, id, attempt, ran, ledger.Resolution{By: by.ID(), At: r.now(), Reason: reason})
}

// settled waits until nobody but the ledger speaks for this operation. An
// attempt that begins after that is another one than the admin's word is about,
// and the ledger tells them apart.
func (r *Runner) settled(ctx context.Context, id string) error {
	const op = "operation.settled"
	if until := r.drainsUntil(id); !until.IsZero() {
		return fault.New(op, fault.NotInDoubt, "its answer may still come, until "+until.UTC().Format(time.RFC3339)+": ask again then, or cancel it")
	}
	w := r.carried(id)
	if w == nil {
		return nil
	}
	select {
	case <-w.ended:
	default:
		return fault.New(op, fault.NotInDoubt, "an attempt of it is being carried: what becomes of it is not known yet")
	}
	select {
	case <-w.released:
		return nil
	case <-ctx.Done():
		return fault.New(op, fault.NotInDoubt, "its last attempt is still being cleaned up; ask again in a moment")
	}
}

// InDoubt returns what has ended in doubt, of all callers, newest first, without
// results.
func (r *Runner) InDoubt(ctx context.Context, limit int) ([]ledger.Operation, error) {
	return r.ledger.InDoubt(ctx, limit)
}
