package httpapi

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"time"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/strictjson"
)

const (
	// maxReasonBody has room for the longest reason in escapes.
	maxReasonBody = 8 << 10
	// maxUntil is how far ahead an until may lie; what lasts longer needs none.
	maxUntil = 10 * 365 * 24 * time.Hour
)

// suspensionBody is the body of POST /v1/suspensions.
type suspensionBody struct {
	Actor   *string `json:"actor"`
	Server  *string `json:"server"`
	Profile *string `json:"profile"`
	Reason  string  `json:"reason"`
	Until   *string `json:"until"` // RFC 3339
}

// suspend answers POST /v1/suspensions: 201, or 200 where the same stands
// already. When it answers, no leg is checked against anything older any more.
func (a *API) suspend(ctx context.Context, r *request) (answer, error) {
	s, err := readSuspension(r.body, r.received)
	if err != nil {
		return answer{}, err
	}
	s.ID, s.By = strings.ToLower(rand.Text()), r.caller.ID()
	s, repeated, err := a.Policy.Suspend(s, func() error { return a.Rows.Suspend(ctx, s) })
	if err != nil {
		return answer{}, err
	}
	if repeated {
		return a.suspension(http.StatusOK, a.shownSuspension(s)), nil
	}
	a.Log.Warn("suspended", "suspension", s.ID, "target", s.Target.String(), "by", s.By)
	return a.suspension(http.StatusCreated, a.shownSuspension(s)), nil
}

// readSuspension reads the body strictly: the first thing wrong is named.
func readSuspension(body []byte, now time.Time) (policy.Suspension, error) {
	bad := func(detail string) (policy.Suspension, error) {
		return policy.Suspension{}, fault.New("httpapi.readSuspension", fault.MalformedRequest, detail)
	}
	var b suspensionBody
	if err := strictjson.Decode(body, &b); err != nil {
		return bad(err.Error())
	}
	var targets []policy.Target
	for _, t := range []struct {
		sort string
		name *string
	}{{"actor", b.Actor}, {"server", b.Server}, {"profile", b.Profile}} {
		if t.name != nil {
			targets = append(targets, policy.Target{Sort: t.sort, Name: *t.name})
		}
	}
	if len(targets) != 1 {
		return bad("exactly one of actor, server and profile is needed; for more, make a request for each")
	}
	s := policy.Suspension{Target: targets[0], Reason: b.Reason, Since: now}
	if what := s.Target.Problem(); what != "" {
		return bad(s.Target.Sort + ": " + what)
	}
	if what := policy.ReasonProblem(s.Reason); what != "" {
		return bad("reason: " + what + "; it says why, to those who will ask")
	}
	if b.Until == nil {
		return s, nil
	}
	var err error
	s.Until, err = time.Parse(time.RFC3339, *b.Until)
	if err != nil || !s.Until.After(now) || s.Until.Sub(now) > maxUntil {
		return bad(`until: a time to come such as "2027-01-31T12:00:00Z", within ten years; without it the suspension stands until it is lifted`)
	}
	s.Until = s.Until.UTC()
	return s, nil
}

// suspensions answers GET /v1/suspensions: those that stand, the oldest first.
func (a *API) suspensions(_ context.Context, r *request) (answer, error) {
	if r.http.URL.RawQuery != "" {
		return answer{}, fault.New("httpapi.suspensions", fault.MalformedRequest, "this address takes no query")
	}
	list := struct {
		Suspensions []Suspension `json:"suspensions"`
		Ledger      Ledger       `json:"ledger"`
	}{[]Suspension{}, a.ledger()}
	for _, s := range a.Policy.Current().Suspensions(r.received) {
		list.Suspensions = append(list.Suspensions, a.shownSuspension(s))
	}
	body, _ := json.Marshal(list)
	return answer{status: http.StatusOK, media: "application/json", body: body}, nil
}

// lift answers DELETE /v1/suspensions/{id}?reason=… with the suspension that it
// has ended. The reason is in the query because a body of DELETE gets lost on
// the way (RFC 9110 §9.3.5).
func (a *API) lift(ctx context.Context, r *request) (answer, error) {
	query, err := url.ParseQuery(r.http.URL.RawQuery)
	reason := query.Get("reason")
	if err != nil || len(query) != 1 || len(query["reason"]) != 1 {
		return answer{}, fault.New("httpapi.lift", fault.MalformedRequest, "the query is reason=…, once: why it is lifted")
	}
	if what := policy.ReasonProblem(reason); what != "" {
		return answer{}, fault.New("httpapi.lift", fault.MalformedRequest, "reason: "+what)
	}
	at := r.received.UTC()
	s, others, err := a.Policy.Lift(r.param("id"), at, func(s policy.Suspension) error {
		return a.Rows.Lift(ctx, s, r.caller.ID(), reason, at)
	})
	if err != nil {
		return answer{}, err
	}
	a.Log.Warn("suspension lifted", "suspension", s.ID, "target", s.Target.String(), "by", r.caller.ID(), "others", others)
	shown := a.shownSuspension(s)
	shown.Lifted, shown.Others = &at, &others
	return a.suspension(http.StatusOK, shown), nil
}

// A Suspension is a suspension as the API shows it. One of Actor, Server and
// Profile is set.
type Suspension struct {
	ID      string     `json:"id"`
	Actor   string     `json:"actor,omitempty"`
	Server  string     `json:"server,omitempty"`
	Profile string     `json:"profile,omitempty"`
	Reason  string     `json:"reason"`
	By      string     `json:"by"`
	Since   time.Time  `json:"since"`
	Until   *time.Time `json:"until,omitempty"`
	Known   bool       `json:"known"`
	Lifted  *time.Time `json:"lifted,omitempty"` // when it was lifted: in the answer to that
	Others  *int       `json:"others,omitempty"` // how many more stop the same: in the answer to that
	Ledger  *Ledger    `json:"ledger,omitempty"`
}

func (a *API) shownSuspension(s policy.Suspension) Suspension {
	shown := Suspension{ID: s.ID, Reason: s.Reason, By: s.By, Since: s.Since.UTC(), Known: a.Policy.Current().Knows(s.Target)}
	switch s.Target.Sort {
	case "actor":
		shown.Actor = s.Target.Name
	case "server":
		shown.Server = s.Target.Name
	case "profile":
		shown.Profile = s.Target.Name
	}
	if !s.Until.IsZero() {
		shown.Until = &s.Until
	}
	return shown
}

// suspension is the answer for one suspension.
func (a *API) suspension(status int, s Suspension) answer {
	id := a.ledger()
	s.Ledger = &id
	body, _ := json.Marshal(s)
	return answer{status: status, media: "application/json", body: body}
}
