package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"onbehalf.internal/broker/fault"
)

// An answer is what goes back: written in one place, after everything is decided.
type answer struct {
	status  int
	media   string
	headers map[string]string
	body    []byte
	stream  func(context.Context, *events) // in place of body
}

func (ans answer) write(ctx context.Context, w http.ResponseWriter) {
	h := w.Header()
	for k, v := range ans.headers {
		h.Set(k, v)
	}
	h.Set("Content-Type", ans.media)
	if ans.stream == nil {
		h.Set("Content-Length", strconv.Itoa(len(ans.body)))
	}
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(ans.status)
	if ans.stream != nil {
		ans.stream(ctx, &events{w, http.NewResponseController(w)})
		return
	}
	w.Write(ans.body)
}

// A Ledger says from which ledger an answer comes: the absence of a key means
// something only from the same one.
type Ledger struct {
	ID    string    `json:"id"`
	Since time.Time `json:"since"`
}

func (a *API) ledger() Ledger {
	id, since := a.Ledger()
	return Ledger{id, since.UTC()}
}

// A Problem is RFC 9457 with our members: a request that began nothing.
type Problem struct {
	Title  string       `json:"title"`
	Status int          `json:"status"`
	Kind   fault.Kind   `json:"kind"`
	Reason fault.Reason `json:"reason"`
	Detail string       `json:"detail,omitempty"`
	Ledger Ledger       `json:"ledger"`

	// Of a request key that is not there: whether that proves that it was never
	// sent. False means that nothing is known of it.
	NeverSent *bool `json:"never_sent,omitempty"`
}

// problem is the only way an error leaves. What nobody classified is internal
// and leaves without its text.
func (a *API) problem(err error) answer { return a.problemAnd(err, nil) }

// problemAnd lets more say what else the problem has to tell.
func (a *API) problemAnd(err error, more func(*Problem)) answer {
	var e *fault.Error
	if !errors.As(err, &e) || !e.Reason.Known() {
		a.Log.Error("unclassified error", "type", typeOf(err))
		e = fault.New("httpapi", fault.InternalError, "")
	}
	status := fault.Status(e.Reason)
	ans := answer{status: status, media: "application/problem+json", headers: map[string]string{}}
	p := Problem{
		Title: strings.ReplaceAll(string(e.Reason), "_", " "), Status: status,
		Kind: e.Kind(), Reason: e.Reason, Detail: e.Detail, Ledger: a.ledger(),
	}
	if more != nil {
		more(&p)
	}
	ans.body, _ = json.Marshal(p)
	switch status {
	case http.StatusUnauthorized:
		ans.headers["WWW-Authenticate"] = "Bearer"
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		ans.headers["Retry-After"] = "1"
	}
	return ans
}

// routeError answers for the router.
func (a *API) routeError(err error, c echo.Context) {
	reason := fault.InternalError
	var he *echo.HTTPError
	if errors.As(err, &he) {
		switch he.Code {
		case http.StatusNotFound:
			reason = fault.UnknownRoute
		case http.StatusMethodNotAllowed:
			reason = fault.MethodNotAllowed
		}
	}
	a.unrouted(c.Response(), c.Request(), reason)
}

// unrouted answers a request that no line of the table takes. Which addresses
// there are is told to known callers alone.
func (a *API) unrouted(w http.ResponseWriter, r *http.Request, reason fault.Reason) {
	if _, err := a.Policy.Current().Directory.Caller(r.Header); err != nil {
		reason = fault.CallerUnknown
	}
	ans := a.problem(fault.New("httpapi.route", reason, ""))
	a.Metrics.request("other", ans.status)
	ans.write(r.Context(), w)
}

func tooLarge(err error) bool {
	var e *http.MaxBytesError
	return errors.As(err, &e)
}

func typeOf(v any) string { return fmt.Sprintf("%T", v) }
