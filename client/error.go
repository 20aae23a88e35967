package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"onbehalf.internal/broker/fault"
)

// An Error says why there is no result. What to do next: Operation.Retry where there
// is an operation; where Open is set, [Client.ByKey] before anything else; otherwise nothing
// was begun, and Kind says whose move is next.
type Error struct {
	Reason fault.Reason // of the problem, or the cause of the outcome
	Detail string       // the broker's own words, or ours
	Status int          // of the broker's answer; 0: there was none

	Operation *Operation // how it stands, as far as was seen; nil: nothing of it was

	Key       string // the call's request key, and when it was first sent
	FirstSent time.Time
	Open      bool // nobody knows whether the key was taken up

	NeverSent bool // the broker's proof that the key it was asked for was never sent

	unclear bool          // of one request: it may have been taken up
	after   time.Duration // the broker wants to be left alone for so long
	cause   error         // the context's, or what Bearer or Assertion said
}

func (e *Error) Error() string {
	words := []string{"broker"}
	if e.Operation != nil {
		words = append(words, string(e.Operation.State))
	}
	if e.Reason != fault.None {
		words = append(words, string(e.Reason))
	}
	if e.Detail != "" {
		words = append(words, fmt.Sprintf("%#q", e.Detail))
	}
	if errors.Is(e.cause, context.Canceled) || errors.Is(e.cause, context.DeadlineExceeded) {
		words = append(words, "given up")
	}
	if e.Open {
		words = append(words, "it may have been taken up, ask by its key")
	}
	return strings.Join(words, ": ")
}

// Kind says whose move is next; empty where Reason is.
func (e *Error) Kind() fault.Kind {
	if e.Reason == fault.None {
		return ""
	}
	return e.Reason.Kind()
}

// Unwrap is the context's error where it ended the work, or what Bearer or Assertion said.
func (e *Error) Unwrap() error { return e.cause }

// again reports whether the same request may go better a moment later.
func (e *Error) again() bool {
	return e.cause == nil && (e.Kind() == fault.Busy || e.Kind() == fault.Unavailable) &&
		e.Reason != fault.HostRefused && e.Reason != fault.TLSFailed
}

// asError is err, which is of this package, with its type.
func asError(err error) *Error {
	e, _ := errors.AsType[*Error](err)
	return e
}
