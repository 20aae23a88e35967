package client

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/google/uuid"

	"onbehalf.internal/broker/fault"
)

// patience is how long one request waits for the end of a call; a longer call is
// followed by its id. A connection that hangs is noticed after it and the time of an answer.
const patience = 30 * time.Second

// A Call is one step that is to run once.
type Call struct {
	Actor     string // on whose behalf
	Server    string
	Tool      string // the server's own name of it
	Arguments any    // what encoding/json makes an object of; nil: {}

	// Key names the step; empty: a new UUIDv7. Whoever may crash and come back keeps its own.
	// FirstSent is when Key was first sent; zero: now for a new one, else what a UUIDv7 says.
	Key       string
	FirstSent time.Time

	RunID      string
	Supersedes string        // the id of the operation that this is to be the second run of
	Zone       string        // less trust than the caller has
	Timeout    time.Duration // shortens the operation's budget

	// Progress, if not nil, is called with what the tool says while it works, between
	// two reads: it must not wait.
	Progress func(Progress)
}

// Run makes the call and returns when the tool has answered. Every other end is an
// [*Error], and where ctx ends first its Key and Open say how to go on.
//
// A call that has to be approved is an error whose Operation is awaiting_approval: see
// [Client.Wait]. Of a tool that failed, Operation.Result says why.
func (c *Client) Run(ctx context.Context, call Call) (*Operation, error) {
	r, failed := c.begin(call)
	if failed != nil {
		return nil, failed
	}
	step := r.send
	for n := 0; ; n++ {
		op, failed := step(ctx)
		r.note(op, failed)
		move := next(op, failed)
		if move == tell || n+1 >= c.conf.Tries {
			return r.told(op, failed)
		}
		if !pause(ctx, n, r.after) {
			return r.told(op, r.failure(op, failed).ended(ctx))
		}
		switch move {
		case send:
			step = r.send
		case ask:
			step = r.ask
		case follow:
			step = r.follow
		}
	}
}

// An action is what Run does next.
type action int

const (
	tell   action = iota // it is over, or the next move is somebody else's
	again                // the same request
	send                 // the key again
	ask                  // by the key, whether it was taken up
	follow               // by the id, until it has ended
)

// next is all there is of retry logic. The broker's retry decides, and of what is safe
// only that is repeated at once which may go better then: where a person or a counterpart
// has said no, or the caller itself, the cause has to be mended first.
func next(op *Operation, failed *Error) action {
	switch {
	case failed == nil && op.waits() && op.State != fault.AwaitingApproval:
		return follow
	case failed == nil && op.Retry == fault.RetrySafe && passes(op.Cause):
		return send
	case failed == nil, failed.Reason == fault.ReplyTooLarge:
		return tell
	case failed.unclear:
		return ask
	case failed.NeverSent:
		return send
	case failed.again():
		return again
	}
	return tell
}

// passes reports whether a cause goes by without anybody's doing.
func passes(cause fault.Reason) bool {
	switch cause.Kind() {
	case fault.Busy, fault.Unavailable, fault.Unknown:
		return true
	case fault.Spent:
		return cause != fault.CallerCancelled && cause != fault.CallerGone
	}
	return false
}

// A run is one call on its way.
type run struct {
	c    *Client
	call Call
	body []byte // the same bytes for every try

	seen  *Operation    // as it was last seen
	open  bool          // nobody knows whether the key was taken up
	after time.Duration // how long the broker wants to be left alone
}

// begin gives the call its key, before anything leaves.
func (c *Client) begin(call Call) (*run, *Error) {
	if call.Key == "" {
		call.Key, call.FirstSent = uuid.Must(uuid.NewV7()).String(), time.Now().Truncate(time.Millisecond)
	}
	body := struct {
		Server     string    `json:"server"`
		Tool       string    `json:"tool"`
		Arguments  any       `json:"arguments,omitempty"`
		RequestKey string    `json:"request_key"`
		FirstSent  time.Time `json:"first_sent,omitzero"`
		RunID      string    `json:"run_id,omitempty"`
		Supersedes string    `json:"supersedes,omitempty"`
		Zone       string    `json:"zone,omitempty"`
		Timeout    string    `json:"timeout,omitempty"`
		Wait       string    `json:"wait"`
	}{call.Server, call.Tool, call.Arguments, call.Key, call.FirstSent.UTC(), call.RunID, call.Supersedes, call.Zone, "", patience.String()}
	if call.Timeout != 0 {
		body.Timeout = call.Timeout.String()
	}
	raw, err := json.Marshal(body)
	if err != nil {
		return nil, &Error{Reason: fault.MalformedRequest, Detail: "Arguments cannot be written as JSON", Key: call.Key, cause: err}
	}
	return &run{c: c, call: call, body: raw}, nil
}

func (r *run) send(ctx context.Context) (*Operation, *Error) {
	q := request{method: http.MethodPost, path: "/v1/operations", actor: &r.call.Actor, body: r.body, waits: patience}
	var op *Operation
	var failed *Error
	if r.call.Progress != nil {
		op, failed = r.c.listen(ctx, q, r.call.Progress, r.meant)
	} else {
		op, failed = r.c.operation(ctx, q, r.meant)
	}
	r.open = r.open || failed != nil && failed.unclear
	return op, failed
}

func (r *run) ask(ctx context.Context) (*Operation, *Error) {
	op, failed := r.c.byKey(ctx, r.call.Actor, r.call.Key, r.call.FirstSent)
	if failed == nil && !r.meant(op) {
		return nil, &Error{Reason: fault.RequestKeyConflict, Detail: "the key belongs to a call of another tool"}
	}
	return op, failed
}

func (r *run) follow(ctx context.Context) (*Operation, *Error) {
	if r.call.Progress != nil {
		op, err := r.c.Follow(ctx, r.call.Actor, r.seen.ID, r.call.Progress)
		return op, asError(err)
	}
	op, err := r.c.Wait(ctx, r.call.Actor, r.seen.ID)
	return op, asError(err)
}

// meant reports whether op is this very call.
func (r *run) meant(op *Operation) bool {
	return op.RequestKey == r.call.Key && op.Server == r.call.Server && op.Tool == r.call.Tool
}

// note keeps what a step has shown.
func (r *run) note(op *Operation, failed *Error) {
	r.after = 0
	if op != nil {
		r.seen, r.open = op, false
	} else {
		r.after, r.open = failed.after, r.open && !failed.NeverSent
	}
}

// told is what Run returns.
func (r *run) told(op *Operation, failed *Error) (*Operation, error) {
	if failed == nil && op.State == fault.Succeeded && len(op.Result) > 0 {
		return op, nil
	}
	e := r.failure(op, failed)
	e.Operation, e.Key, e.FirstSent, e.Open = r.seen, r.call.Key, r.call.FirstSent, r.open
	return r.seen, e
}

// failure is failed, or what an operation says that has no result.
func (r *run) failure(op *Operation, failed *Error) *Error {
	if failed != nil {
		return failed
	}
	return &Error{Reason: cmp.Or(op.Withheld, op.Cause)}
}
