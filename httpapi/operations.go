package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/ledger"
	"onbehalf.internal/broker/mcpclient"
	"onbehalf.internal/broker/operation"
	"onbehalf.internal/broker/strictjson"
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
	RunID      string         `json:"run_id"`
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
	req.Caller, req.Actor, req.Received = r.caller, actor, r.received
	got, err := a.Runner.Run(ctx, req)
	if err != nil {
		return answer{}, err
	}
	return a.operation(got), nil
}

var (
	name = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,128}$`)
	key  = regexp.MustCompile(`^[!-~]{1,255}$`)
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
	timeout, err1 := duration(b.Timeout, 0)
	wait, err2 := duration(b.Wait, maxTimeout)
	switch {
	case !name.MatchString(b.Server):
		return bad("server: 1 to 128 of letters, digits and _.-")
	case !name.MatchString(b.Tool):
		return bad("tool: 1 to 128 of letters, digits and _.-, the server's own name of it")
	case !strings.HasPrefix(strings.TrimLeft(string(b.Arguments), " \t\r\n"), "{"):
		return bad("arguments: must be an object")
	case !key.MatchString(b.RequestKey):
		return bad("request_key: 1 to 255 visible ASCII characters, new for each new request; a UUIDv7 is advised")
	case b.RunID != "" && !key.MatchString(b.RunID):
		return bad("run_id: 1 to 255 visible ASCII characters")
	case err1 != nil || b.Timeout != "" && timeout <= 0:
		return bad(`timeout: a duration such as "20s", up to 1h; it may only shorten`)
	case err2 != nil:
		return bad(`wait: a duration such as "5s" or "0s", up to 1h`)
	}
	if slices.Contains(preferences(r.http.Header), "respond-async") {
		wait = 0
	}
	return operation.Request{Server: b.Server, Tool: b.Tool, Arguments: b.Arguments, RequestKey: b.RequestKey, RunID: b.RunID,
		Timeout: timeout, Wait: wait}, nil
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
	if err != nil {
		return answer{}, err
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
	query, err := url.ParseQuery(r.http.URL.RawQuery)
	for k, v := range query {
		if len(v) != 1 || k != "request_key" && k != "state" {
			err = fault.New("httpapi.list", fault.MalformedRequest, "the query is request_key=… or state=open, once")
		}
	}
	if err != nil || len(query) > 1 {
		return answer{}, fault.New("httpapi.list", fault.MalformedRequest, "the query is request_key=… or state=open, once")
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
		got, err := a.Runner.GetByKey(ctx, r.caller, actor, k[0])
		if err != nil {
			return answer{}, err
		}
		return a.operation(got), nil
	}
	jobs, err := a.Runner.List(ctx, r.caller, actor, a.Now().Add(-listWindow), listLimit)
	return a.operations(jobs), err
}

// An Operation is an operation as its caller sees it. Clients decode an answer
// into one, and a problem into a [Problem].
type Operation struct {
	ID         string         `json:"id"`
	State      fault.State    `json:"state"`
	Ran        fault.Ran      `json:"ran"`
	Evidence   fault.Evidence `json:"evidence"`
	Retry      fault.Retry    `json:"retry"`
	Cause      fault.Reason   `json:"cause,omitempty"`
	Server     string         `json:"server"`
	Tool       string         `json:"tool"`
	Actor      string         `json:"actor"`
	RequestKey string         `json:"request_key"`
	RunID      string         `json:"run_id,omitempty"`
	Attempt    int            `json:"attempt"`
	Hold       string         `json:"hold,omitempty"`
	Durability string         `json:"durability"`
	Withheld   fault.Reason   `json:"withheld,omitempty"`
	Legs       []audit.Leg    `json:"legs"`
	Created    time.Time      `json:"created"`
	Updated    time.Time      `json:"updated"`
	Deadline   time.Time      `json:"deadline"`
	Ledger     *Ledger        `json:"ledger,omitempty"`
	Text       string         `json:"text,omitempty"` // Result as plain text, see mcpclient.Text

	// The server's own bytes: they are spliced into an answer, never encoded.
	Result json.RawMessage `json:"result,omitempty"`
	Error  json.RawMessage `json:"error,omitempty"` // for rpc_error
}

func shown(a operation.Answer) Operation {
	o := a.Outcome
	b := Operation{
		ID: a.ID, State: o.State, Ran: o.Ran, Evidence: o.Evidence, Retry: o.Retry(), Cause: o.Cause,
		Server: a.Server, Tool: a.Tool, Actor: a.Actor, RequestKey: a.RequestKey, RunID: a.RunID, Attempt: a.Attempt,
		Hold: a.Hold, Durability: "durable", Withheld: a.Withheld, Legs: append([]audit.Leg{}, a.Legs...),
		Created: a.Created.UTC(), Updated: a.Updated.UTC(), Deadline: a.Deadline.UTC(),
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
	b := shown(got)
	id := a.ledger()
	b.Ledger = &id
	if b.State != fault.RPCError {
		b.Text = mcpclient.Text(got.Result)
	}
	body, _ := json.Marshal(b)
	if got.Result != nil {
		member := "result"
		if b.State == fault.RPCError {
			member = "error"
		}
		body = append(body[:len(body)-1], `,"`+member+`":`...)
		body = append(append(body, got.Result...), '}')
	}
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
		list.Operations = append(list.Operations, shown(operation.Answer{Operation: job}))
	}
	body, _ := json.Marshal(list)
	return answer{status: http.StatusOK, media: "application/json", body: body}
}
