package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"time"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/ledger"
	"onbehalf.internal/broker/operation"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/strictjson"
)

// maxListedArguments is how many bytes of arguments one list has; what does not fit is
// in the next one, when something of this has been decided.
const maxListedArguments = 4 << 20

// An Approval is what a call waits for as its own caller sees it.
type Approval struct {
	Digest   string     `json:"digest"`
	Expires  time.Time  `json:"expires"`
	Decision string     `json:"decision,omitempty"` // approved, denied
	Approver string     `json:"approver,omitempty"`
	Reason   string     `json:"reason,omitempty"` // the approver's own words
	Decided  *time.Time `json:"decided,omitempty"`
}

// shownApproval is nil where the operation neither waits for an approval nor ended
// for want of one.
func shownApproval(op ledger.Operation) *Approval {
	if op.Approval == nil || op.Outcome.State != fault.AwaitingApproval && op.Outcome.Cause != fault.ApprovalDenied && op.Outcome.Cause != fault.ApprovalExpired {
		return nil
	}
	a := op.Approval
	shown := &Approval{Digest: operation.CallDigest(a.Digest).String(), Expires: a.Expires.UTC(), Decision: a.Decision, Approver: a.Approver.Subject, Reason: a.Reason}
	if !a.Decided.IsZero() {
		shown.Decided = &a.Decided
	}
	return shown
}

// A Pending is a call that waits for a person, or has been decided about, as an
// approver sees it.
type Pending struct {
	ID        string    `json:"id"` // of the operation
	Caller    string    `json:"caller"`
	Actor     string    `json:"actor"`
	Server    string    `json:"server"`
	Tool      string    `json:"tool"`
	Pin       string    `json:"pin,omitempty"` // of the tool's definition; none where it was never imported
	Requested time.Time `json:"requested"`
	Approval

	// Of one that was decided.
	Issuer   string  `json:"issuer,omitempty"` // who vouches for the approver
	By       string  `json:"by,omitempty"`     // the caller that brought the approver
	Repeated bool    `json:"repeated,omitempty"`
	Ledger   *Ledger `json:"ledger,omitempty"`

	Withheld  fault.Reason    `json:"withheld,omitempty"`  // why there are no arguments
	Arguments json.RawMessage `json:"arguments,omitempty"` // the caller's own bytes: spliced in, never encoded
}

func shownPending(op ledger.Operation) Pending {
	a := op.Approval
	p := Pending{ID: op.ID, Caller: op.Caller, Actor: op.Actor, Server: op.Server, Tool: op.Tool, Pin: a.Pin, Requested: a.Requested.UTC(),
		Issuer: a.Approver.Issuer, By: a.Approver.By, Withheld: a.Closed}
	p.Approval = Approval{Digest: operation.CallDigest(a.Digest).String(), Expires: a.Expires.UTC(), Decision: a.Decision, Approver: a.Approver.Subject, Reason: a.Reason}
	if !a.Decided.IsZero() {
		p.Decided = &a.Decided
	}
	return p
}

// approvals answers GET /v1/approvals: what waits for a person, the oldest first.
func (a *API) approvals(ctx context.Context, r *request) (answer, error) {
	if r.http.URL.RawQuery != "" {
		return answer{}, fault.New("httpapi.approvals", fault.MalformedRequest, "this address takes no query")
	}
	waiting, err := a.Runner.Awaiting(ctx, listLimit, maxListedArguments)
	if err != nil {
		return answer{}, err
	}
	var list [][]byte
	for _, op := range waiting {
		one, _ := json.Marshal(shownPending(op))
		list = append(list, splice(one, "arguments", op.Approval.Arguments))
	}
	rest, _ := json.Marshal(struct {
		Limit  int    `json:"limit"`
		Ledger Ledger `json:"ledger"`
	}{listLimit, a.ledger()})
	body := splice(rest, "approvals", append(append([]byte("["), bytes.Join(list, []byte(","))...), ']'))
	return answer{status: http.StatusOK, media: "application/json", body: body}, nil
}

// splice puts bytes that are JSON already into an object that is not empty, as its
// last member; nil leaves it as it is.
func splice(object []byte, member string, value []byte) []byte {
	if value == nil {
		return object
	}
	object = append(object[:len(object)-1], `,"`+member+`":`...)
	return append(append(object, value...), '}')
}

// decisionBody is the body of POST /v1/approvals/{id}.
type decisionBody struct {
	Decision string `json:"decision"` // approve or deny
	Digest   string `json:"digest"`   // of the call that was looked at
	Reason   string `json:"reason"`
}

// decide answers POST /v1/approvals/{id}. Approving begins nothing: the operation's
// caller repeats its key.
func (a *API) decide(ctx context.Context, r *request) (answer, error) {
	who, err := a.Policy.Current().Directory.Approver(r.caller, r.http.Header)
	if err != nil {
		return answer{}, err
	}
	b, seen, err := readDecision(r.body)
	if err != nil {
		return answer{}, err
	}
	op, repeated, err := a.Runner.Decide(ctx, r.caller, who, r.param("id"), seen, b.Decision == "approve", b.Reason)
	if err != nil {
		return answer{}, err
	}
	id, shown := a.ledger(), shownPending(op)
	shown.Ledger, shown.Repeated = &id, repeated
	body, _ := json.Marshal(shown)
	return answer{status: http.StatusOK, media: "application/json", body: body}, nil
}

// readDecision reads the body strictly: the first thing wrong is named.
func readDecision(body []byte) (decisionBody, operation.CallDigest, error) {
	bad := func(detail string) (decisionBody, operation.CallDigest, error) {
		return decisionBody{}, operation.CallDigest{}, fault.New("httpapi.readDecision", fault.MalformedRequest, detail)
	}
	var b decisionBody
	if err := strictjson.Decode(body, &b); err != nil {
		return bad(err.Error())
	}
	seen, ok := operation.ParseCallDigest(b.Digest)
	switch what := policy.ReasonProblem(b.Reason); {
	case b.Decision != "approve" && b.Decision != "deny":
		return bad(`decision: "approve" or "deny"`)
	case !ok:
		return bad(`digest: "sha256:" and 64 digits of lower-case hex, of the call that you have looked at`)
	case what != "" && (b.Decision == "deny" || b.Reason != ""):
		return bad("reason: " + what + "; it says why, to the operation's caller, too")
	}
	return b, seen, nil
}
