package brokertest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/httpapi"
	"onbehalf.internal/broker/internal/testhttp"
)

// A Call is a request to run a tool, as a gateway makes it.
type Call struct {
	Actor      string // asserted; default user:7
	Assertion  string // signed; in place of Actor, with Bearer of the portal
	Bearer     string // default: the gateway's
	Server     string // default records
	Tool       string // default whoami
	Arguments  any    // default {}
	Key        string // request_key; default: a new one
	Supersedes string // the id of the operation that this is the second run of
	Run        string // run_id
	Zone       string
	Wait       string
	Timeout    string
	Prefer     string
	Trace      http.Header // traceparent and tracestate
}

// An Answer is what the broker answered: an operation, or a problem.
type Answer struct {
	httpapi.Operation
	Status int
	Header http.Header
	Body   []byte

	Kind   fault.Kind // of a problem
	Reason fault.Reason
	Detail string
}

// LegNames are the legs in their order.
func (a Answer) LegNames() string {
	var names []string
	for _, l := range a.Legs {
		names = append(names, l.Name)
	}
	return strings.Join(names, " ")
}

// Call makes the call and fails t if no answer comes.
func (r *Rig) Call(t testing.TB, c Call) Answer {
	t.Helper()
	answer, err := r.Do(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// Do makes the call.
func (r *Rig) Do(ctx context.Context, c Call) (Answer, error) {
	body := map[string]any{"server": or(c.Server, "records"), "tool": or(c.Tool, "whoami"), "request_key": or(c.Key, rand.Text())}
	if c.Arguments != nil {
		body["arguments"] = c.Arguments
	}
	for name, value := range map[string]string{"supersedes": c.Supersedes, "run_id": c.Run, "zone": c.Zone, "wait": c.Wait, "timeout": c.Timeout} {
		if value != "" {
			body[name] = value
		}
	}
	raw, err := json.Marshal(body)
	if err != nil {
		return Answer{}, err
	}
	return r.request(ctx, "POST", "/v1/operations", c, raw)
}

// Get retrieves: path is "/v1/operations/{id}", "/v1/operations?request_key=…" and so on.
func (r *Rig) Get(t testing.TB, path string, as Call) Answer {
	t.Helper()
	answer, err := r.Look(t.Context(), path, as)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// Look is Get for those who have no test.
func (r *Rig) Look(ctx context.Context, path string, as Call) (Answer, error) {
	return r.request(ctx, "GET", path, as, nil)
}

// Cancel asks for the end of an operation.
func (r *Rig) Cancel(t testing.TB, id string, as Call) Answer {
	t.Helper()
	answer, err := r.request(t.Context(), "POST", "/v1/operations/"+id+"/cancel", as, nil)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// An AdminAnswer is what the broker answered to [Rig.Admin].
type AdminAnswer struct {
	Status int
	Body   []byte
	Reason fault.Reason // of a problem
	Detail string
}

// Admin makes a request as the caller "admin"; an empty body is none. into, if
// not nil, gets what a good answer says.
func (r *Rig) Admin(t testing.TB, method, path, body string, into any) AdminAnswer {
	t.Helper()
	return r.as(t, http.Header{"Authorization": {"Bearer " + r.AdminBearer()}}, method, path, body, into)
}

// Auditor looks as the caller "auditor", see [Rig.Admin].
func (r *Rig) Auditor(t testing.TB, path string, into any) AdminAnswer {
	t.Helper()
	return r.as(t, http.Header{"Authorization": {"Bearer " + r.AuditorBearer()}}, "GET", path, "", into)
}

// as makes a request with these headers.
func (r *Rig) as(t testing.TB, headers http.Header, method, path, body string, into any) AdminAnswer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, r.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = headers.Clone()
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	status, answer, err := exchange(req)
	if err != nil {
		t.Fatal(err)
	}
	var problem httpapi.Problem
	if status >= 400 {
		err = json.Unmarshal(answer, &problem)
	} else if into != nil {
		err = json.Unmarshal(answer, into)
	}
	if err != nil {
		t.Fatalf("%s %s: %d %s", method, path, status, answer)
	}
	return AdminAnswer{status, answer, problem.Reason, problem.Detail}
}

func (r *Rig) request(ctx context.Context, method, path string, c Call, body []byte) (Answer, error) {
	req, err := http.NewRequestWithContext(ctx, method, r.URL+path, bytes.NewReader(body))
	if err != nil {
		return Answer{}, err
	}
	maps.Copy(req.Header, c.Trace)
	req.Header.Set("Authorization", "Bearer "+or(c.Bearer, r.Bearer))
	if c.Assertion != "" {
		req.Header.Set("Broker-Actor-Assertion", c.Assertion)
	} else {
		req.Header.Set("Broker-Actor", or(c.Actor, "user:7"))
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.Prefer != "" {
		req.Header.Set("Prefer", c.Prefer)
	}
	res, err := testhttp.Client.Do(req)
	if err != nil {
		return Answer{}, err
	}
	defer res.Body.Close()
	answer := Answer{Status: res.StatusCode, Header: res.Header}
	if answer.Body, err = io.ReadAll(res.Body); err != nil {
		return Answer{}, err
	}
	var problem httpapi.Problem
	err = errors.Join(json.Unmarshal(answer.Body, &answer.Operation), json.Unmarshal(answer.Body, &problem))
	answer.Kind, answer.Reason, answer.Detail = problem.Kind, problem.Reason, problem.Detail
	return answer, err
}

func exchange(req *http.Request) (int, []byte, error) {
	res, err := testhttp.Client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return res.StatusCode, body, err
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
