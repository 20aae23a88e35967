package fault

import (
	"context"
	"errors"
	"time"
)

// Ended says why ctx is over: late where its deadline has passed, the reason of
// its cause where it was given up ([CallerCancelled] if the cause is not an
// [Error]), [None] while it goes on. A network
// call with ctx's deadline can return a moment before ctx itself notices, so
// the deadline is looked at, too.
func Ended(ctx context.Context, late Reason) Reason {
	deadline, limited := ctx.Deadline()
	switch {
	case ctx.Err() == context.Canceled:
		if e, ok := errors.AsType[*Error](context.Cause(ctx)); ok {
			return e.Reason
		}
		return CallerCancelled
	case ctx.Err() != nil, limited && !time.Now().Before(deadline):
		return late
	}
	return None
}
