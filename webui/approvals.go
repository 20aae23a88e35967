package webui

import (
	"context"
	"net/http"

	"onbehalf.internal/broker/auditlog"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/ledger"
	"onbehalf.internal/broker/operation"
	"onbehalf.internal/broker/policy"
)

const (
	approvalsShown    = 50
	mostArgumentBytes = 1 << 20 // of one page; what does not fit is there when something of it has been decided
)

type approvalsPage struct {
	Waiting []waiting
	More    bool
	Said    string // of the decision that was just made
	Problem string
}

// waiting is a call that waits for a person.
type waiting struct {
	ledger.Operation
	Digest string
	Own    bool // it is the visitor's own call: somebody else decides
}

// approvals shows the very calls that wait, the oldest first.
func (u *UI) approvals(ctx context.Context, v *visit) (answer, error) {
	return u.waiting(ctx, v, approvalsPage{}, http.StatusOK)
}

func (u *UI) waiting(ctx context.Context, v *visit, p approvalsPage, status int) (answer, error) {
	if err := u.Auditors.Look(ctx, v.auditor(), auditlog.Approvals, auditlog.Filter{}); err != nil {
		return answer{}, err
	}
	list, err := u.Runner.Awaiting(ctx, approvalsShown, mostArgumentBytes)
	if err != nil {
		return answer{}, err
	}
	for _, op := range list {
		p.Waiting = append(p.Waiting, waiting{op, operation.CallDigest(op.Approval.Digest).String(), op.Actor == v.person.String()})
	}
	p.More = len(list) == approvalsShown
	return answer{status: status, page: "approvals", title: "Approvals", model: p}, nil
}

// decide takes a person's word about the call that it has seen.
func (u *UI) decide(ctx context.Context, v *visit) (answer, error) {
	const op = "webui.decide"
	who, ok := v.person.Approver()
	if !ok {
		return answer{}, fault.New(op, fault.ApproverNotAllowed, "only a person who has signed in decides")
	}
	said, reason := v.http.PostFormValue("decision"), v.http.PostFormValue("reason")
	seen, ok := operation.ParseCallDigest(v.http.PostFormValue("digest"))
	if !ok || said != "approve" && said != "deny" {
		return answer{}, fault.New(op, fault.MalformedRequest, "a decision about the call that is shown")
	}
	if what := policy.ReasonProblem(reason); what != "" && (said == "deny" || reason != "") {
		return u.waiting(ctx, v, approvalsPage{Problem: "Nothing is decided. The reason " + what + ": the caller reads it."}, http.StatusBadRequest)
	}
	job, repeated, err := u.Runner.Decide(ctx, v.caller, who, v.http.PathValue("id"), seen, said == "approve", reason)
	switch {
	case err != nil:
		return u.waiting(ctx, v, approvalsPage{Problem: "Nothing is decided: " + told(err) + "."}, fault.Status(fault.ReasonOf(err)))
	case repeated:
		return u.waiting(ctx, v, approvalsPage{Said: "You have said so before."}, http.StatusOK)
	}
	return u.waiting(ctx, v, approvalsPage{Said: "The call of " + job.Tool + " for " + job.Actor + " is " + job.Approval.Decision +
		". Nothing has begun: the caller repeats its request."}, http.StatusOK)
}
