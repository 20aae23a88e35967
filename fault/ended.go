package fault

import (
	"context"
	"time"
)

// Ended says why ctx is over: late where its deadline has passed,
// [CallerCancelled] where it was given up, [None] while it goes on. A network
// call with ctx's deadline can return a moment before ctx itself notices, so
// the deadline is looked at, too.
func Ended(ctx context.Context, late Reason) Reason {
	deadline, limited := ctx.Deadline()
	switch {
	case ctx.Err() == context.Canceled:
		return CallerCancelled
	case ctx.Err() != nil, limited && !time.Now().Before(deadline):
		return late
	}
	return None
}
