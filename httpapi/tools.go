package httpapi

import (
	"context"
	"net/http"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/operation"
	"onbehalf.internal/broker/policy"
)

// A Tool is what an actor may be offered, and how a gateway calls it.
type Tool = operation.Tool

// tools answers GET /v1/tools.
func (a *API) tools(ctx context.Context, r *request) (answer, error) {
	actor, err := a.actor(r)
	if err != nil {
		return answer{}, err
	}
	if r.http.URL.RawQuery != "" {
		return answer{}, fault.New("httpapi.tools", fault.MalformedRequest, "this address takes no query")
	}
	tools, err := a.Runner.Offered(ctx, r.caller, actor, a.Policy.Current().Servers(), policy.LocalName)
	if err != nil {
		return answer{}, err
	}
	return inJSON(http.StatusOK, struct {
		Tools  []Tool `json:"tools"`
		Ledger Ledger `json:"ledger"`
	}{tools, a.ledger()}), nil
}
