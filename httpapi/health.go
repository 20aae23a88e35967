package httpapi

import (
	"context"
	"encoding/json"
	"net/http"

	"onbehalf.internal/broker/fault"
)

// healthz says that the process answers.
func (a *API) healthz(context.Context, *request) (answer, error) {
	return answer{status: http.StatusOK, media: "application/json", body: []byte(`{"status":"ok"}`)}, nil
}

// readyz says whether an operation could run now, and if not, why.
func (a *API) readyz(context.Context, *request) (answer, error) {
	err := a.Ready()
	if err == nil {
		return answer{status: http.StatusOK, media: "application/json", body: []byte(`{"status":"ready"}`)}, nil
	}
	body, _ := json.Marshal(map[string]string{"status": "not_ready", "reason": string(fault.ReasonOf(err))})
	return answer{status: http.StatusServiceUnavailable, media: "application/json", body: body}, nil
}
