// Package fault names the ways an operation can fail or end, and what a caller
// may do next.
//
// Both lists are closed on purpose: one word goes to the caller, into the audit
// record, into the ledger and into the log, so that one failure can be followed
// through all four. What a caller may do depends on the word alone, never on
// the text after it.
//
// What always holds:
//
//   - Every [Reason] belongs to exactly one [Kind] (the table in reasons.go).
//   - An [Error] holds no foreign text: no answer of a server, no error string
//     of a library. Detail is a sentence of ours, with %q around names.
//   - An error that nobody classified is [Internal], see [ReasonOf].
//   - What a caller may do next is derived from an [Outcome], never stored.
//
// This package does not log, does not wrap, and does not know HTTP.
package fault

import (
	"errors"
	"time"
)

// A Kind says whose move is next. It is the `kind` of a problem answer.
type Kind string

const (
	Invalid         Kind = "invalid"         // the request cannot be read; mend the named field
	Unauthenticated Kind = "unauthenticated" // nobody we know
	Denied          Kind = "denied"          // policy said no; asking again will not help
	NotFound        Kind = "not_found"       // not there, or not yours: the same answer
	Conflict        Kind = "conflict"        // the request key belongs to another request
	Busy            Kind = "busy"            // a limit of ours; ask later
	Unavailable     Kind = "unavailable"     // something we need is away; nothing was sent to the server
	Refused         Kind = "refused"         // a counterpart answered, and the answer was no
	Spent           Kind = "spent"           // the budget ran out before this leg; it was not sent
	Unknown         Kind = "unknown"         // it left the process and is not understood
	Internal        Kind = "internal"        // our own defect; details stay with us
)

// An Error says which step failed and why. It is safe to print and to send.
type Error struct {
	Op     string // the step, as package.Function
	Reason Reason
	Detail string // one sentence of ours: which field, what to do; may be empty

	After time.Duration // a counterpart wants to be left alone for so long; 0: it did not say
}

// New returns an Error. The detail, if any, must be ours: see [Error].
func New(op string, reason Reason, detail string) *Error {
	return &Error{Op: op, Reason: reason, Detail: detail}
}

func (e *Error) Error() string {
	s := e.Op + ": " + string(e.Reason)
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	return s
}

// Kind returns the kind of e's reason.
func (e *Error) Kind() Kind { return e.Reason.Kind() }

// ReasonOf returns the reason of the outermost Error in err's tree. Silence
// must not read as "safe to repeat": what nobody classified is [InternalError].
func ReasonOf(err error) Reason {
	if e := (*Error)(nil); errors.As(err, &e) {
		return e.Reason
	}
	return InternalError
}

// KindOf returns the kind of err's reason.
func KindOf(err error) Kind { return ReasonOf(err).Kind() }
