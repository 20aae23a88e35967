package client

import (
	"cmp"
	"context"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/strictjson"
)

const (
	// maxLevels is how deep an answer may be nested: what the broker takes of a server at
	// most, and the members around it.
	maxLevels = 260
	// answerTime is how long an answer may take that waits for nothing.
	answerTime = 30 * time.Second
)

// A request is one request for actor; nobody's where it is nil.
type request struct {
	method, path string
	actor        *string
	body         []byte
	waits        time.Duration // how long the broker may wait before it answers
	accept       string        // empty: JSON
}

// exchange makes q once and reads the answer into out: 200 or 202, or an error.
func (c *Client) exchange(ctx context.Context, q request, out any) (status int, failed *Error) {
	bounded, cancel := context.WithTimeout(ctx, q.waits+answerTime)
	defer cancel()
	res, failed := c.do(ctx, bounded, q)
	if failed != nil {
		return 0, failed
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, c.conf.MaxAnswer+1))
	switch {
	case err != nil:
		return 0, lost(ctx, err, true)
	case int64(len(body)) > c.conf.MaxAnswer:
		return 0, &Error{Reason: fault.ReplyTooLarge, Detail: "the answer is larger than MaxAnswer", unclear: true}
	case res.StatusCode != http.StatusOK && res.StatusCode != http.StatusAccepted:
		return 0, problem(res, body)
	case strictjson.DecodeKnown(body, maxLevels, out) != nil:
		return 0, &Error{Reason: fault.ReplyMalformed, unclear: true}
	}
	return res.StatusCode, nil
}

// do makes q once. bounded is ctx with an end of the request's own.
func (c *Client) do(ctx, bounded context.Context, q request) (*http.Response, *Error) {
	header, failed := c.headers(ctx, q)
	if failed != nil {
		return nil, failed
	}
	req, err := http.NewRequestWithContext(bounded, q.method, c.base+q.path, strings.NewReader(string(q.body)))
	if err != nil {
		return nil, &Error{Reason: fault.MalformedRequest, Detail: "the address cannot be used"}
	}
	req.Header = header
	res, err := c.http.Do(req)
	if err != nil {
		return nil, lost(ctx, err, false)
	}
	return res, nil
}

// headers are what q carries, the secrets among them.
func (c *Client) headers(ctx context.Context, q request) (http.Header, *Error) {
	bearer, err := c.conf.Bearer(ctx)
	if err != nil {
		return nil, &Error{Reason: fault.CallerUnknown, Detail: "Config.Bearer has none", cause: err}
	}
	h := http.Header{"Accept": {cmp.Or(q.accept, "application/json")}, "Authorization": {"Bearer " + bearer}}
	if q.body != nil {
		h.Set("Content-Type", "application/json")
	}
	switch {
	case q.actor == nil:
	case c.conf.Assertion == nil:
		h.Set("Broker-Actor", *q.actor)
	default:
		assertion, err := c.conf.Assertion(ctx, *q.actor)
		if err != nil {
			return nil, &Error{Reason: fault.ActorMissing, Detail: "Config.Assertion has none", cause: err}
		}
		h.Set("Broker-Actor-Assertion", assertion)
	}
	return h, nil
}

// unsent are the reasons for which package egress has written nothing.
var unsent = []fault.Reason{fault.ConnectFailed, fault.TLSFailed, fault.HostRefused, fault.BudgetSpent, fault.InternalError}

// lost is the error of an exchange that broke: answered says that an answer had begun.
func lost(ctx context.Context, err error, answered bool) *Error {
	e := &Error{Reason: fault.ReasonOf(err)}
	e.unclear = answered || !slices.Contains(unsent, e.Reason)
	if fault.Ended(ctx, fault.WallClock) != fault.None {
		e.cause = cmp.Or(ctx.Err(), context.DeadlineExceeded)
	}
	return e
}

// problem is what an answer says that is no operation. It is believed if it reads as
// the broker's own; whatever stands between has its own 502, 503 and 429.
func problem(res *http.Response, body []byte) *Error {
	var p struct {
		Status    int          `json:"status"`
		Kind      fault.Kind   `json:"kind"`
		Reason    fault.Reason `json:"reason"`
		Detail    string       `json:"detail"`
		NeverSent bool         `json:"never_sent"`
	}
	if res.Header.Get("Content-Type") != "application/problem+json" || strictjson.DecodeKnown(body, maxLevels, &p) != nil ||
		p.Status != res.StatusCode || p.Status != fault.Status(p.Reason) || p.Kind != p.Reason.Kind() || !p.Reason.Known() {
		return &Error{Reason: fault.Intermediary, Detail: "status " + strconv.Itoa(res.StatusCode), unclear: true}
	}
	after, _ := strconv.Atoi(res.Header.Get("Retry-After"))
	return &Error{Reason: p.Reason, Detail: p.Detail, Status: p.Status, NeverSent: p.NeverSent && p.Reason == fault.OperationNotFound,
		unclear: p.Reason == fault.StoreFailed, // it may be on disk
		after:   time.Duration(max(0, min(after, 3600))) * time.Second}
}

// ended says in an error that ctx is over, whatever was seen before.
func (e *Error) ended(ctx context.Context) *Error {
	told := *e
	told.cause = ctx.Err()
	return &told
}

// errorOrNil keeps a nil *Error from becoming an error that is not nil.
func errorOrNil(e *Error) error {
	if e == nil {
		return nil
	}
	return e
}
