package httpapi

import (
	"context"
	"encoding/json"
	"net/http"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/ledger"
	"onbehalf.internal/broker/operation"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/strictjson"
)

// resolveBody is the body of POST /v1/operations/{id}/resolve.
type resolveBody struct {
	Ran     string `json:"ran"` // yes or no
	Reason  string `json:"reason"`
	Attempt int    `json:"attempt"` // which one was looked at; default 1
}

// resolve answers POST /v1/operations/{id}/resolve with the operation as it
// stands then, without its result: that is for its caller and actor alone.
func (a *API) resolve(ctx context.Context, r *request) (answer, error) {
	b, err := readResolve(r.body)
	if err != nil {
		return answer{}, err
	}
	op, repeated, err := a.Runner.Resolve(ctx, r.caller, r.param("id"), b.Attempt, b.Ran == "yes", b.Reason)
	if err != nil {
		return answer{}, err
	}
	if !repeated {
		a.Log.Warn("resolved", "operation", op.ID, "attempt", op.Attempt, "state", string(op.Outcome.State), "by", r.caller.ID())
	}
	id, shown := a.ledger(), a.shownToAll(op)
	shown.Ledger = &id
	body, _ := json.Marshal(shown)
	return answer{status: http.StatusOK, media: "application/json", body: body}, nil
}

// readResolve reads the body strictly: the first thing wrong is named.
func readResolve(body []byte) (resolveBody, error) {
	bad := func(detail string) (resolveBody, error) {
		return resolveBody{}, fault.New("httpapi.readResolve", fault.MalformedRequest, detail)
	}
	b := resolveBody{Attempt: 1}
	if err := strictjson.Decode(body, &b); err != nil {
		return bad(err.Error())
	}
	switch what := policy.ReasonProblem(b.Reason); {
	case b.Ran != "yes" && b.Ran != "no":
		return bad(`ran: "yes" or "no", as you have found out`)
	case b.Attempt < 1:
		return bad("attempt: the number of the attempt that you have looked at, from 1")
	case what != "":
		return bad("reason: " + what + "; it says what shows it, to the operation's caller, too")
	}
	return b, nil
}

// doubts answers GET /v1/doubts: what waits for a person who finds out.
func (a *API) doubts(ctx context.Context, r *request) (answer, error) {
	if r.http.URL.RawQuery != "" {
		return answer{}, fault.New("httpapi.doubts", fault.MalformedRequest, "this address takes no query")
	}
	jobs, err := a.Runner.InDoubt(ctx, listLimit)
	if err != nil {
		return answer{}, err
	}
	list := struct {
		Operations []Operation `json:"operations"`
		Limit      int         `json:"limit"`
		Ledger     Ledger      `json:"ledger"`
	}{[]Operation{}, listLimit, a.ledger()}
	for _, job := range jobs {
		list.Operations = append(list.Operations, a.shownToAll(job))
	}
	body, _ := json.Marshal(list)
	return answer{status: http.StatusOK, media: "application/json", body: body}, nil
}

// shownToAll is op as those see it who see the operations of all callers.
func (a *API) shownToAll(op ledger.Operation) Operation {
	b := shown(operation.Answer{Operation: op}, a.Now())
	b.Caller = op.Caller
	return b
}
