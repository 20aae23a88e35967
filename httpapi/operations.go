package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/identity"
	"onbehalf.internal/broker/ledger"
	"onbehalf.internal/broker/mcpclient"
	"onbehalf.internal/broker/operation"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/strictjson"
	"onbehalf.internal/broker/trace"
)

const (
	// maxTimeout is the longest timeout or wait that can be asked for.
	maxTimeout = time.Hour
	// answerSlack is how long an answer may take after its operation ended:
	// the last commits, the drop, the write.
	answerSlack = 30 * time.Second
	// listWindow and listLimit bound a list; both are stated in the answer.
	listWindow = 7 * 24 * time.Hour
	listLimit  = 100
)

// callBody is the body of POST /v1/operations.
type callBody struct {
	Server     string         `json:"server"`
	Tool       string         `json:"tool"`
	Arguments  strictjson.Raw `json:"arguments"`
	RequestKey string         `json:"request_key"`
	FirstSent  string         `json:"first_sent"` // RFC 3339; default: the time in a UUIDv7
	Supersedes string         `json:"supersedes"` // the id of the operation that this is to be the second run of
	RunID      string         `json:"run_id"`
	Zone       string         `json:"zone"`    // less trust than the caller has
	Wait       string         `json:"wait"`    // "5s": how long to wait for the end; default: until it ends
	Timeout    string         `json:"timeout"` // "10s": may only shorten
}

// run answers POST /v1/operations.
func (a *API) run(ctx context.Context, r *request) (answer, error) {
	actor, err := a.actor(r)
	if err != nil {
		return answer{}, err
	}
	req, err := readCall(r)
	if err != nil {
		return answer{}, err
	}
	req.Caller, req.Actor, req.Received, req.Trace = r.caller, actor, r.received, trace.Parse(r.http.Header)
	if wantsStream(r.http.Header) {
		req.Wait, req.Progress = 0, true
	}
	got, err := a.Runner.Run(ctx, req)
	return a.told(r, actor, got, err, (*operation.Watch).Leave)
}

var (
	name = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,128}$`)
	id   = regexp.MustCompile(`^[a-z2-7]{26}$`)
)

// readCall reads the body strictly: the first thing wrong is named.
func readCall(r *request) (operation.Request, error) {
	bad := func(detail string) (operation.Request, error) {
		return operation.Request{}, fault.New("httpapi.readCall", fault.MalformedRequest, detail)
	}
	var b callBody
	if err := strictjson.Decode(r.body, &b); err != nil {
		return bad(err.Error())
	}
	if len(b.Arguments) == 0 {
		b.Arguments = strictjson.Raw("{}")
	}
	firstSent, err0 := operation.FirstSent(b.FirstSent, b.RequestKey, r.received)
	zone, known := policy.ParseZone(b.Zone)
	timeout, err1 := duration(b.Timeout, 0)
	wait, err2 := duration(b.Wait, maxTimeout)
	switch {
	case !name.MatchString(b.Server):
		return bad("server: 1 to 128 of letters, digits and _.-")
	case !name.MatchString(b.Tool):
		return bad("tool: 1 to 128 of letters, digits and _.-, the server's own name of it")
	case !strings.HasPrefix(strings.TrimLeft(string(b.Arguments), " \t\r\n"), "{"):
		return bad("arguments: must be an object")
	case !operation.ValidKey(b.RequestKey):
		return bad("request_key: 1 to 255 visible ASCII characters, new for each new request; a UUIDv7 is advised")
	case err0 != nil:
		return bad(err0.Error())
	case b.Supersedes != "" && !id.MatchString(b.Supersedes):
		return bad("supersedes: the id of an operation, 26 of a-z and 2-7")
	case b.RunID != "" && !operation.ValidKey(b.RunID):
		return bad("run_id: 1 to 255 visible ASCII characters")
	case !known:
		return bad("zone: one of " + strings.Join(policy.Zones(), ", ") + "; it can only be stricter than the caller's")
	case err1 != nil || b.Timeout != "" && timeout <= 0:
		return bad(`timeout: a duration such as "20s", up to 1h; it may only shorten`)
	case err2 != nil:
		return bad(`wait: a duration such as "5s" or "0s", up to 1h`)
	}
	if slices.Contains(preferences(r.http.Header), "respond-async") {
		wait = 0
	}
	return operation.Request{Server: b.Server, Tool: b.Tool, Arguments: b.Arguments, RequestKey: b.RequestKey, RunID: b.RunID, Zone: zone,
		FirstSent: firstSent, Supersedes: b.Supersedes, Timeout: timeout, Wait: wait}, nil
}

func duration(s string, absent time.Duration) (time.Duration, error) {
	if s == "" {
		return absent, nil
	}
	d, err := time.ParseDuration(s)
	if err == nil && (d < 0 || d > maxTimeout) {
		err = fault.New("httpapi.duration", fault.MalformedRequest, "out of range")
	}
	return d, err
}

// preferences are the tokens of Prefer (RFC 7240).
func preferences(h http.Header) (list []string) {
	for _, line := range h.Values("Prefer") {
		for p := range strings.SplitSeq(line, ",") {
			list = append(list, strings.ToLower(strings.TrimSpace(p)))
		}
	}
	return list
}

// get answers GET /v1/operations/{id}: the body the call would have had.
func (a *API) get(ctx context.Context, r *request) (answer, error) {
	actor, err := a.actor(r)
	if err != nil {
		return answer{}, err
	}
	got, err := a.Runner.Get(ctx, r.caller, actor, r.param("id"))
	return a.told(r, actor, got, err, nil)
}

// told is one operation in the form that was asked for. gone, if not nil, is called
// when the reader of a stream has gone before its end.
func (a *API) told(r *request, actor identity.Actor, got operation.Answer, err error, gone func(*operation.Watch)) (answer, error) {
	switch {
	case err != nil:
		return answer{}, err
	case wantsStream(r.http.Header):
		return a.follow(a.Runner.Watch(r.caller, actor, got), r.caller, actor, got, gone), nil
	}
	return a.operation(got), nil
}

// cancel answers POST /v1/operations/{id}/cancel with the operation as it stands.
func (a *API) cancel(ctx context.Context, r *request) (answer, error) {
	actor, err := a.actor(r)
	if err != nil {
		return answer{}, err
	}
	got, err := a.Runner.Cancel(ctx, r.caller, actor, r.param("id"))
	if err != nil {
		return answer{}, err
	}
	return a.operation(got), nil
}

// list answers GET /v1/operations in its three forms: ?request_key=, the list
// of this caller for this actor, and ?state=open for this caller's open
// operations over all actors.
func (a *API) list(ctx context.Context, r *request) (answer, error) {
	query, err := listQuery(r.http.URL.RawQuery)
	if err != nil {
		return answer{}, err
	}
	if state, ok := query["state"]; ok {
		if state[0] != "open" {
			return answer{}, fault.New("httpapi.list", fault.MalformedRequest, "state: only open can be asked for")
		}
		jobs, err := a.Runner.Open(ctx, r.caller)
		return a.operations(jobs), err
	}
	actor, err := a.actor(r)
	if err != nil {
		return answer{}, err
	}
	if k, ok := query["request_key"]; ok {
		return a.byKey(ctx, r, actor, k[0], query.Get("first_sent"))
	}
	jobs, err := a.Runner.List(ctx, r.caller, actor, a.Now().Add(-listWindow), listLimit)
	return a.operations(jobs), err
}

// listQuery reads the query: nothing, state, or request_key with or without first_sent.
func listQuery(raw string) (url.Values, error) {
	query, err := url.ParseQuery(raw)
	for k, v := range query {
		if len(v) != 1 || k != "request_key" && k != "state" && (k != "first_sent" || !query.Has("request_key")) {
			err = errors.New("another query")
		}
	}
	if err != nil || query.Has("state") && len(query) > 1 {
		return nil, fault.New("httpapi.list", fault.MalformedRequest, "the query is request_key=… (with first_sent=…, if you like) or state=open, once")
	}
	return query, nil
}

// byKey answers for the caller's own key. Where there is none, the problem says
// whether that proves anything.
func (a *API) byKey(ctx context.Context, r *request, actor identity.Actor, key, said string) (answer, error) {
	first, err := operation.FirstSent(said, key, r.received)
	if err != nil {
		return answer{}, fault.New("httpapi.list", fault.MalformedRequest, err.Error())
	}
	got, err := a.Runner.GetByKey(ctx, r.caller, actor, key)
	switch {
	case fault.ReasonOf(err) == fault.OperationNotFound:
		return a.problemAnd(err, func(p *Problem) { p.NeverSent = new(a.Runner.NeverSent(first)) }), nil
	case err != nil:
		return answer{}, err
	}
	return a.operation(got), nil
}

// An Operation is an operation as its caller sees it. Clients decode an answer
// into one, and a problem into a [Problem].
type Operation struct {
	ID       string         `json:"id"`
	State    fault.State    `json:"state"`
	Ran      fault.Ran      `json:"ran"`
	Evidence fault.Evidence `json:"evidence"`
	Retry    fault.Retry    `json:"retry"`
	Cause    fault.Reason   `json:"cause,omitempty"`

	Late        bool      `json:"late,omitempty"`        // the answer came after the operation was cut off
	DrainsUntil time.Time `json:"drains_until,omitzero"` // until then it may still come

	LookWith   *operation.Look    `json:"look_with,omitempty"`  // the server's own tool that says what became of it
	Resolution *ledger.Resolution `json:"resolution,omitempty"` // who said that it ran, or did not, and why
	Approval   *Approval          `json:"approval,omitempty"`   // what it waits for, or did not get

	Server     string       `json:"server"`
	Tool       string       `json:"tool"`
	Caller     string       `json:"caller,omitempty"` // to those who see the operations of all callers
	Actor      string       `json:"actor"`
	RequestKey string       `json:"request_key"`
	RunID      string       `json:"run_id,omitempty"`
	FirstSent  time.Time    `json:"first_sent,omitzero"`
	Supersedes string       `json:"supersedes,omitempty"`
	Superseded string       `json:"superseded_by,omitempty"`
	Attempt    int          `json:"attempt"`
	Hold       string       `json:"hold,omitempty"`
	Durability string       `json:"durability"`
	Withheld   fault.Reason `json:"withheld,omitempty"`
	Legs       []audit.Leg  `json:"legs"`
	Created    time.Time    `json:"created"`
	Updated    time.Time    `json:"updated"`
	Deadline   time.Time    `json:"deadline"`

	// Until when the result, and then the operation with its key, is kept.
	ResultExpires time.Time `json:"result_expires_at"`
	KeyExpires    time.Time `json:"key_expires_at"`

	Ledger *Ledger `json:"ledger,omitempty"`
	Text   string  `json:"text,omitempty"` // Result as plain text, see mcpclient.Text

	// The server's own bytes: they are spliced into an answer, never encoded.
	Result json.RawMessage `json:"result,omitempty"`
	Error  json.RawMessage `json:"error,omitempty"` // for rpc_error
}

func shown(a operation.Answer, at time.Time) Operation {
	o := a.Outcome
	b := Operation{
		ID: a.ID, State: o.State, Ran: o.Ran, Evidence: o.Evidence, Retry: a.Operation.Retry(at), Cause: o.Cause, LookWith: a.Look, Resolution: a.Resolution, Approval: shownApproval(a.Operation),
		Server: a.Server, Tool: a.Tool, Actor: a.Actor, RequestKey: a.RequestKey, RunID: a.RunID, Attempt: a.Attempt,
		Hold: a.Hold, Durability: "durable", Withheld: a.Withheld, Legs: append([]audit.Leg{}, a.Legs...),
		FirstSent: a.FirstSent, Supersedes: a.Supersedes, Superseded: a.SupersededBy, Late: a.Late, DrainsUntil: a.DrainsUntil.UTC(),
		Created: a.Created.UTC(), Updated: a.Updated.UTC(), Deadline: a.Deadline.UTC(),
		ResultExpires: a.ResultExpires.UTC(), KeyExpires: a.KeyExpires.UTC(),
	}
	if a.Volatile {
		b.Durability = "volatile"
	}
	return b
}

// operation is the answer for one operation: 200 when it ended, 202 while it
// runs. The result's bytes are the server's own, so they are spliced in and
// not encoded again.
func (a *API) operation(got operation.Answer) answer {
	b := shown(got, a.Now())
	id := a.ledger()
	b.Ledger = &id
	// Of what was in doubt, only an rpc_error had a body.
	isError := b.State == fault.RPCError || b.Resolution != nil
	if !isError {
		b.Text = mcpclient.Text(got.Result)
	}
	body, _ := json.Marshal(b)
	member := "result"
	if isError {
		member = "error"
	}
	body = splice(body, member, got.Result)
	ans := answer{status: http.StatusOK, media: "application/json", body: body, headers: map[string]string{
		"Broker-Outcome": string(b.State) + "; retry=" + string(b.Retry),
		"Location":       "/v1/operations/" + b.ID,
	}}
	if b.State.Open() {
		ans.status = http.StatusAccepted
	}
	if got.Replayed {
		ans.headers["Broker-Replayed"] = "true"
	}
	return ans
}

// operations is the answer for a list; an empty one is a normal answer.
func (a *API) operations(jobs []ledger.Operation) answer {
	list := struct {
		Operations []Operation `json:"operations"`
		Window     string      `json:"window"`
		Limit      int         `json:"limit"`
		Ledger     Ledger      `json:"ledger"`
	}{[]Operation{}, "168h", listLimit, a.ledger()}
	for _, job := range jobs {
		list.Operations = append(list.Operations, shown(operation.Answer{Operation: job}, a.Now()))
	}
	body, _ := json.Marshal(list)
	return answer{status: http.StatusOK, media: "application/json", body: body}
}
