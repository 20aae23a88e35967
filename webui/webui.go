// Package webui is the broker's page for people: who may act as whom, what happened,
// and what waits for a decision.
//
// Every address is one line of the table in [UI.routes]. Pages are whole documents made
// on the server; htmx takes the part that it swaps out of them, so that each works
// without scripts, too. What a page shows comes from the same packages that the API asks.
//
// What always holds:
//
//   - A page is shown to somebody who has signed in and whose caller's entry still has the
//     role that it needs: that is asked again with every request.
//   - Nobody can run a call from here. Who decides about one is a person that a provider
//     vouches for; an auditor's bearer reads and does nothing else.
//   - Whatever is read is in the audit before it is shown (auditlog).
//   - Text from outside is text: html/template escapes it, and what steers or cannot be
//     seen is spelled out (render.go). Nothing of it is in an address that is followed.
//   - Documents name no script, style, image or address of anybody else, and none that is
//     written in them; the browser is told to refuse what does (Content-Security-Policy).
//   - A request that changes something has to come from a page of this origin.
//
// This package keeps who has signed in in memory alone: a restart signs everybody out.
package webui

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"onbehalf.internal/broker/auditlog"
	"onbehalf.internal/broker/catalogue"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/grants"
	"onbehalf.internal/broker/identity"
	"onbehalf.internal/broker/ledger"
	"onbehalf.internal/broker/operation"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/process"
	"onbehalf.internal/broker/signin"
)

// Config is what the page works with; every field is needed.
type Config struct {
	Runner    *operation.Runner
	Policy    *policy.Holder
	Ledger    *ledger.Ledger
	Grants    *grants.Reader
	Identity  func() (ledger string, since time.Time)
	Catalogue *catalogue.Catalogue
	Auditors  *auditlog.Reader
	Ready     func() error // nil, or why the broker cannot run operations
	SignIn    *signin.Provider
	Origin    string // "http://127.0.0.1:8471": what browsers have in the address bar
	Version   string
	Log       *slog.Logger
	Now       func() time.Time
}

// A UI answers browsers.
type UI struct {
	Config
	sessions *sessions
	tries    *rate.Limiter // of bearers
	pages    pages
}

// New returns the page as a handler of /ui and what is below.
func New(c Config) http.Handler {
	u := &UI{Config: c, sessions: newSessions(c.Now), tries: rate.NewLimiter(5, 20), pages: parsePages()}
	mux := http.NewServeMux()
	for _, rt := range u.routes() {
		mux.HandleFunc(rt.address, func(w http.ResponseWriter, r *http.Request) { u.serve(rt, w, r) })
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		u.serve(route{handle: func(context.Context, *visit) (answer, error) {
			return answer{}, fault.New("webui.route", fault.UnknownRoute, "")
		}}, w, r)
	})
	mux.Handle("GET /ui/static/", static())
	return u.guard(mux)
}

// Route returns which of the addresses a request was for that New's handler has answered:
// a line of the table, or "other".
func Route(r *http.Request) string {
	_, path, _ := strings.Cut(r.Pattern, " ")
	return cmp.Or(strings.TrimSuffix(path, "{$}"), "other")
}

// openAccess marks an address that needs nobody, anyone one that every role may use.
const (
	openAccess identity.Role = ""
	anyone     identity.Role = "audit or approve"
)

type route struct {
	address string // as http.ServeMux has it
	role    identity.Role
	handle  func(context.Context, *visit) (answer, error)
}

func (u *UI) routes() []route {
	return []route{
		{"GET /ui", openAccess, moved("/ui/")},
		{"GET /ui/{$}", anyone, u.overview},
		{"GET /ui/grants", identity.Audit, u.grants},
		{"GET /ui/grants/explain", identity.Audit, u.explain},
		{"GET /ui/operations", identity.Audit, u.operations},
		{"GET /ui/operations/{id}", identity.Audit, u.operation},
		{"GET /ui/approvals", identity.Approve, u.approvals},
		{"POST /ui/approvals/{id}", identity.Approve, u.decide},
		{"GET /ui/catalogue", identity.Audit, u.catalogue},
		{"GET /ui/catalogue/{server}/{tool}", identity.Audit, u.tool},
		{"GET /ui/audit", identity.Audit, u.audit},
		{"POST /ui/audit/verify", identity.Audit, u.verify},
		{"GET /ui/audit/export", identity.Audit, u.export},
		{"GET /ui/sign-in", openAccess, u.signIn},
		{"POST /ui/sign-in", openAccess, u.showBearer},
		{"GET /ui/sign-in/provider", openAccess, u.begin},
		{"GET /ui/callback", openAccess, u.end},
		{"POST /ui/sign-out", anyone, u.signOut},
	}
}

// A visit is one request; its visitor is nobody where the address needs none.
type visit struct {
	http *http.Request
	visitor
}

// query is the one value of a name; the rest of a query that nobody asked for is
// not read.
func (v *visit) query(name string) string { return v.http.URL.Query().Get(name) }

// again is the address of the visit with another value in its query.
func (v *visit) again(name, value string) string {
	q := v.http.URL.Query()
	q.Set(name, value)
	return v.http.URL.Path + "?" + q.Encode()
}

// serve does, in this order: who it is, role, handler.
func (u *UI) serve(rt route, w http.ResponseWriter, r *http.Request) {
	v := &visit{http: r, visitor: u.sessions.visitor(r, u.Policy.Current().Directory)}
	ans, err := answer{}, v.admit(rt.role)
	if err == nil {
		ans, err = rt.handle(r.Context(), v)
	}
	if err != nil {
		ans = u.refusal(v, err)
	}
	u.write(w, v, ans)
}

func (v *visit) admit(role identity.Role) error {
	const op = "webui.admit"
	switch {
	case role == openAccess:
		return nil
	case v.nobody():
		return fault.New(op, fault.CallerUnknown, "")
	case role == anyone && (v.may(identity.Audit) || v.may(identity.Approve)), role != anyone && v.may(role):
		return nil
	}
	return fault.New(op, fault.RoleMissing, "this page needs the role "+string(role))
}

// guard stands before the table: hosts, other origins, panics, what every answer says.
func (u *UI) guard(next http.Handler) http.Handler {
	_, host, _ := strings.Cut(u.Origin, "://")
	hosts := []string{host}
	others := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "+
			"form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		v := &visit{http: r}
		defer func() {
			switch p := recover(); p {
			case nil:
			case http.ErrAbortHandler: // a download that was broken off
				panic(p)
			default:
				process.LogPanic(u.Log, p)
				u.write(w, v, u.refusal(v, fault.New("webui.guard", fault.InternalError, "")))
			}
		}()
		switch {
		case !slices.Contains(hosts, r.Host):
			u.write(w, v, u.refusal(v, fault.New("webui.guard", fault.HostNotAllowed, "the address must be "+u.Origin+"/ui/")))
		case others.Check(r) != nil:
			u.write(w, v, u.refusal(v, fault.New("webui.guard", fault.HostNotAllowed, "the request comes from another origin")))
		default:
			r.Body = http.MaxBytesReader(w, r.Body, maxForm)
			next.ServeHTTP(w, r)
		}
	})
}

// maxForm is what a form may weigh: a bearer, or a decision and why.
const maxForm = 8 << 10
