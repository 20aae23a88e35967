// Package httpapi is the broker's HTTP face.
//
// Every address is one line of the table in [API.routes]: method, path, body limit, role,
// handler. A handler gets a [request] and so cannot run for a caller that was
// not authenticated; an address that needs none says openAccess.
//
// What always holds:
//
//   - A 4xx or 5xx speaks of this HTTP request only: nothing new was begun by
//     it. An operation that exists is answered 200 (ended) or 202 (open), with
//     Broker-Outcome, so that nothing on the way repeats a call because of our
//     status.
//   - Errors are application/problem+json (RFC 9457) with a kind and a reason
//     of package fault; never a text from upstream.
//   - Who acts is never read from a body, a query or any header but those of
//     package identity. Unknown members, duplicate ones, a second JSON value,
//     another content type and any content coding are refused.
//   - Echo's types stay in this package; its Bind, Recover and request id are
//     not used.
package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"onbehalf.internal/broker/auditlog"
	"onbehalf.internal/broker/catalogue"
	"onbehalf.internal/broker/doctor"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/grants"
	"onbehalf.internal/broker/identity"
	"onbehalf.internal/broker/ledger"
	"onbehalf.internal/broker/operation"
	"onbehalf.internal/broker/policy"
)

// Config is what the API works with; every field is needed but the last.
type Config struct {
	Runner    *operation.Runner
	Policy    *policy.Holder
	Ledger    func() (id string, since time.Time)
	Rows      *ledger.Ledger // where suspensions are made durable, and operations are looked for
	Grants    *grants.Reader
	Doctor    *doctor.Doctor
	Catalogue *catalogue.Catalogue
	Auditors  *auditlog.Reader
	Ready     func() error // nil, or why the broker cannot run operations
	Hosts     []string     // what a Host header may say; empty: a Unix socket, anything
	Metrics   *Metrics
	Log       *slog.Logger
	Now       func() time.Time

	Heartbeat time.Duration // how long a stream is silent at most; 0: 15 s
}

// An API answers HTTP requests.
type API struct {
	Config
	rates operation.Rates
}

// New returns the API as a handler.
func New(c Config) http.Handler {
	a := &API{Config: c}
	e := echo.New()
	e.HTTPErrorHandler = a.routeError
	for _, rt := range a.routes() {
		e.Add(rt.method, rt.path, func(c echo.Context) error {
			a.serve(rt, c.Response(), c.Request(), c.Param)
			return nil
		})
	}
	return a.guard(e)
}

// openAccess marks an address that needs no caller, adminOrAudit one that either
// role may use.
const (
	openAccess   identity.Role = ""
	adminOrAudit identity.Role = "admin or audit"
)

func may(c identity.Caller, r identity.Role) bool {
	if r == adminOrAudit {
		return c.Has(identity.Admin) || c.Has(identity.Audit)
	}
	return c.Has(r)
}

type route struct {
	method, path string
	maxBody      int64 // bytes; 0: no body
	role         identity.Role
	handle       func(context.Context, *request) (answer, error)
}

func (a *API) routes() []route {
	return []route{
		{"POST", "/v1/operations", maxOperationBody, identity.Operate, a.run},
		{"GET", "/v1/operations", 0, identity.Operate, a.list},
		{"GET", "/v1/operations/:id", 0, identity.Operate, a.get},
		{"POST", "/v1/operations/:id/cancel", 0, identity.Operate, a.cancel},
		{"POST", "/v1/operations/:id/resolve", maxReasonBody, identity.Admin, a.resolve},
		{"GET", "/v1/tools", 0, identity.Operate, a.tools},
		{"GET", "/v1/servers", 0, adminOrAudit, a.servers},
		{"GET", "/v1/servers/:id/tools", 0, adminOrAudit, a.serverTools},
		{"POST", "/v1/servers/:id/import", 0, identity.Admin, a.importServer},
		{"POST", "/v1/servers/:id/probe", 0, identity.Admin, a.probe},
		{"POST", "/v1/doctor", 0, identity.Admin, a.examine},
		{"GET", "/v1/doctor/patience", 0, identity.Admin, a.patience},
		{"GET", "/v1/doubts", 0, adminOrAudit, a.doubts},
		{"POST", "/v1/suspensions", maxReasonBody, identity.Admin, a.suspend},
		{"GET", "/v1/suspensions", 0, adminOrAudit, a.suspensions},
		{"DELETE", "/v1/suspensions/:id", 0, identity.Admin, a.lift},
		{"GET", "/v1/approvals", 0, identity.Approve, a.approvals},
		{"POST", "/v1/approvals/:id", maxReasonBody, identity.Approve, a.decide},
		{"GET", "/v1/grants", 0, identity.Audit, a.grants},
		{"GET", "/v1/grants/who-can", 0, identity.Audit, a.whoCan},
		{"GET", "/v1/grants/explain", 0, identity.Audit, a.explain},
		{"GET", "/v1/grants/unused", 0, identity.Audit, a.unused},
		{"GET", "/v1/grants/expiring", 0, identity.Audit, a.expiring},
		{"GET", "/v1/grants/orphaned", 0, identity.Audit, a.orphaned},
		{"GET", "/v1/audit", 0, identity.Audit, a.audit},
		{"GET", "/v1/audit/operations", 0, identity.Audit, a.search},
		{"GET", "/v1/audit/head", 0, identity.Audit, a.auditHead},
		{"GET", "/healthz", 0, openAccess, a.healthz},
		{"HEAD", "/healthz", 0, openAccess, a.healthz},
		{"GET", "/readyz", 0, openAccess, a.readyz},
		{"HEAD", "/readyz", 0, openAccess, a.readyz},
	}
}

// A request is an authenticated request; its Caller is zero only for openAccess.
type request struct {
	http     *http.Request
	received time.Time
	caller   identity.Caller
	body     []byte
	param    func(string) string
}

// actor reads for whom the request is made.
func (a *API) actor(r *request) (identity.Actor, error) {
	return a.Policy.Current().Directory.Actor(r.caller, r.http.Header)
}

// serve does, in this order: caller, role, rate, body, handler.
func (a *API) serve(rt route, w http.ResponseWriter, hr *http.Request, param func(string) string) {
	r := &request{http: hr, received: a.Now(), param: param}
	ans, err := a.admit(rt, w, r)
	if err == nil {
		ans, err = rt.handle(hr.Context(), r)
	}
	if err != nil {
		ans = a.problem(err)
	}
	a.Metrics.request(rt.path, ans.status)
	ans.write(hr.Context(), w)
}

func (a *API) admit(rt route, w http.ResponseWriter, r *request) (answer, error) {
	if rt.role != openAccess {
		caller, err := a.Policy.Current().Directory.Caller(r.http.Header)
		if err != nil {
			return answer{}, err
		}
		if !may(caller, rt.role) {
			return answer{}, fault.New("httpapi.admit", fault.RoleMissing, "this address needs the role "+string(rt.role))
		}
		if !a.rates.Allow(caller.ID(), r.received) {
			return answer{}, fault.New("httpapi.admit", fault.RateLimited, "too many requests of this caller")
		}
		r.caller = caller
	}
	var err error
	r.body, err = readBody(w, r.http, rt.maxBody)
	return answer{}, err
}
