package httpapi

import (
	"context"
	"net/http"
	"time"

	"onbehalf.internal/broker/doctor"
	"onbehalf.internal/broker/fault"
)

// An Examination is what a look at the broker and its surroundings has found.
type Examination struct {
	Findings []doctor.Finding `json:"findings"`
	Longest  int64            `json:"longest_ms"` // that a call may take
	Ledger   Ledger           `json:"ledger"`
}

// examine answers POST /v1/doctor. What was found is 200, whatever it is.
func (a *API) examine(ctx context.Context, r *request) (answer, error) {
	findings, err := a.Doctor.Examine(ctx, r.caller)
	if err != nil {
		return answer{}, err
	}
	return inJSON(http.StatusOK, Examination{findings, a.Policy.Current().Longest().Milliseconds(), a.ledger()}), nil
}

// patience answers GET /v1/doctor/patience, so late that who asked sees whether
// anything on the way gives up before.
func (a *API) patience(ctx context.Context, r *request) (answer, error) {
	var wait time.Duration
	err := readQuery(r.http.URL.RawQuery, param{"wait", func(text string) (err error) { wait, err = duration(text, maxTimeout); return err }})
	if err != nil {
		return answer{}, err
	}
	select {
	case <-time.After(wait):
		return inJSON(http.StatusOK, struct {
			Waited int64  `json:"waited_ms"`
			Ledger Ledger `json:"ledger"`
		}{wait.Milliseconds(), a.ledger()}), nil
	case <-ctx.Done():
		return answer{}, fault.New("httpapi.patience", fault.CallerGone, "")
	}
}
