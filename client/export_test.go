package client

import "onbehalf.internal/broker/fault"

// Next is next, in words.
func Next(op *Operation, reason fault.Reason, unclear, neverSent bool) string {
	var failed *Error
	if op == nil {
		failed = &Error{Reason: reason, unclear: unclear, NeverSent: neverSent}
	}
	return map[action]string{tell: "tell", again: "again", send: "send", ask: "ask", follow: "follow"}[next(op, failed)]
}
