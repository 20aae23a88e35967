package audit

import (
	"time"

	"onbehalf.internal/broker/fault"
)

// A Leg is one HTTP exchange inside an operation, or the one that was not
// sent because something stood before it.
type Leg struct {
	Name   string        // subject, actor, exchange, then, jwks, introspection, hold, server/discover, initialize, notifications/initialized, tools/list, tools/call, ping, notifications/cancelled, delete, drop, revoke
	Budget time.Duration // what was left of the operation's deadline when it began
	Took   time.Duration
	Reason fault.Reason // why it failed; None where it did not

	// For traces alone: neither a record nor a row of the ledger has them.
	Began time.Time
	Span  [8]byte // what its server was told that the leg is; zero: nothing
}
