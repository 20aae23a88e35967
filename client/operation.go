package client

import (
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"time"

	"onbehalf.internal/broker/fault"
)

// An Operation is one call as the broker shows it; docs/api.md says what each member
// means. State, Ran, Evidence, Retry and Cause are words of docs/outcomes.md, and
// constants of package fault.
type Operation struct {
	ID       string         `json:"id"`
	State    fault.State    `json:"state"`
	Ran      fault.Ran      `json:"ran"`
	Evidence fault.Evidence `json:"evidence"`
	Retry    fault.Retry    `json:"retry"` // what to do next depends on this alone
	Cause    fault.Reason   `json:"cause"`

	Late        bool      `json:"late"`
	DrainsUntil time.Time `json:"drains_until"`

	LookWith   *Look       `json:"look_with"`
	Resolution *Resolution `json:"resolution"`
	Approval   *Approval   `json:"approval"`

	Server       string       `json:"server"`
	Tool         string       `json:"tool"`
	Actor        string       `json:"actor"`
	RequestKey   string       `json:"request_key"`
	RunID        string       `json:"run_id"`
	FirstSent    time.Time    `json:"first_sent"`
	Supersedes   string       `json:"supersedes"`
	SupersededBy string       `json:"superseded_by"`
	Attempt      int          `json:"attempt"`
	Hold         string       `json:"hold"`
	Durability   string       `json:"durability"`
	Withheld     fault.Reason `json:"withheld"` // why Result is not here, though there is one
	Legs         []Leg        `json:"legs"`
	Created      time.Time    `json:"created"`
	Updated      time.Time    `json:"updated"`
	Deadline     time.Time    `json:"deadline"`

	ResultExpires time.Time `json:"result_expires_at"`
	KeyExpires    time.Time `json:"key_expires_at"`

	Text   string          `json:"text"`   // Result for a model that reads nothing else
	Result json.RawMessage `json:"result"` // the server's own bytes
	Err    json.RawMessage `json:"error"`  // the JSON-RPC error, of rpc_error
}

// A Look is the server's own tool that says what became of a call.
type Look struct {
	Tool      string            `json:"tool"`
	Arguments map[string]string `json:"arguments"`
}

// A Resolution is what an admin has found out.
type Resolution struct {
	By     string    `json:"by"`
	At     time.Time `json:"at"`
	Reason string    `json:"reason"`
}

// An Approval is what a person is asked, and has said.
type Approval struct {
	Digest   string    `json:"digest"`
	Expires  time.Time `json:"expires"`
	Decision string    `json:"decision"` // approved, denied; empty until then
	Approver string    `json:"approver"`
	Reason   string    `json:"reason"`
	Decided  time.Time `json:"decided"`
}

// A Leg is one HTTP exchange inside an operation.
type Leg struct {
	Name   string       `json:"leg"`
	Budget float64      `json:"budget_ms"`
	Took   float64      `json:"ms"`
	Reason fault.Reason `json:"reason"`
}

// waits reports whether there is nothing to do for op but to ask again later.
func (op *Operation) waits() bool {
	return op.State.Open() && (op.State != fault.AwaitingApproval || op.Approval == nil || op.Approval.Decision == "")
}

var id = regexp.MustCompile(`^[a-z2-7]{26}$`)

// check holds an answer to the words that a decision depends on: a state, ran or retry that
// this program does not know says nothing to it.
func (op *Operation) check() error {
	known := slices.ContainsFunc(fault.Advices(), func(a fault.Advice) bool { return a.State == op.State })
	switch {
	case !id.MatchString(op.ID), op.RequestKey == "", !known,
		!slices.Contains([]fault.Ran{fault.RanNo, fault.RanYes, fault.RanUnknown}, op.Ran),
		!slices.Contains([]fault.Retry{fault.RetrySafe, fault.RetryWait, fault.RetryReadTheError, fault.RetryNever, fault.RetryLookFirst}, op.Retry):
		return errors.New("words that are none of ours")
	case op.State.Open() != (op.Retry == fault.RetryWait), op.Retry == fault.RetrySafe && op.Ran == fault.RanYes:
		return errors.New("words that do not go together")
	}
	return nil
}
