package client

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"onbehalf.internal/broker/fault"
)

// Get is the operation with this id: the answer that the call would have had. err == nil
// says that the operation was found, however it stands.
func (c *Client) Get(ctx context.Context, actor, id string) (*Operation, error) {
	op, failed := c.patiently(ctx, func() (*Operation, *Error) { return c.get(ctx, actor, id) })
	return op, errorOrNil(failed)
}

// ByKey is Get by the call's own request key. firstSent is when that was first sent; it may
// be zero for a UUIDv7, which says so itself. Where there is none the error's
// NeverSent is the broker's proof that nothing was begun; without it nobody knows.
func (c *Client) ByKey(ctx context.Context, actor, key string, firstSent time.Time) (*Operation, error) {
	op, failed := c.patiently(ctx, func() (*Operation, *Error) { return c.byKey(ctx, actor, key, firstSent) })
	return op, errorOrNil(failed)
}

// List is what this caller did for actor in the last seven days, newest first, at most
// 100, without results.
func (c *Client) List(ctx context.Context, actor string) ([]Operation, error) {
	return c.list(ctx, "/v1/operations", &actor)
}

// Open is what this caller has open, for whomever, without results: what a program looks
// at that has lost its keys.
func (c *Client) Open(ctx context.Context) ([]Operation, error) {
	return c.list(ctx, "/v1/operations?state=open", nil)
}

// Cancel asks the operation to end now. The answer is how it stands: a cancel is a
// request, not a result.
func (c *Client) Cancel(ctx context.Context, actor, id string) (*Operation, error) {
	op, failed := c.patiently(ctx, func() (*Operation, *Error) {
		return c.operation(ctx, request{method: http.MethodPost, path: "/v1/operations/" + url.PathEscape(id) + "/cancel", actor: &actor},
			func(op *Operation) bool { return op.ID == id })
	})
	return op, errorOrNil(failed)
}

// Wait asks until the operation has ended or, where it waits for a person, until that
// person has decided: approved, Run with the same Key makes the call.
func (c *Client) Wait(ctx context.Context, actor, id string) (*Operation, error) {
	return c.until(ctx, func() (*Operation, *Error) { return c.get(ctx, actor, id) })
}

// until asks until there is nothing to wait for.
func (c *Client) until(ctx context.Context, ask func() (*Operation, *Error)) (*Operation, error) {
	for n := 0; ; n++ {
		op, failed := c.patiently(ctx, ask)
		if failed != nil || !op.waits() {
			return op, errorOrNil(failed)
		}
		if !pause(ctx, n, 0) {
			return op, &Error{Operation: op, Key: op.RequestKey, FirstSent: op.FirstSent, cause: ctx.Err()}
		}
	}
}

// patiently asks what may be asked any number of times, since it begins nothing.
func (c *Client) patiently(ctx context.Context, ask func() (*Operation, *Error)) (*Operation, *Error) {
	for n := 0; ; n++ {
		op, failed := ask()
		if failed == nil || n+1 >= c.conf.Tries || !failed.unclear && !failed.again() || failed.Reason == fault.ReplyTooLarge {
			return op, failed
		}
		if !pause(ctx, n, failed.after) {
			return nil, failed.ended(ctx)
		}
	}
}

func (c *Client) get(ctx context.Context, actor, id string) (*Operation, *Error) {
	return c.operation(ctx, request{method: http.MethodGet, path: "/v1/operations/" + url.PathEscape(id), actor: &actor},
		func(op *Operation) bool { return op.ID == id })
}

func (c *Client) byKey(ctx context.Context, actor, key string, firstSent time.Time) (*Operation, *Error) {
	query := url.Values{"request_key": {key}}
	if !firstSent.IsZero() {
		query.Set("first_sent", firstSent.UTC().Format(time.RFC3339Nano))
	}
	return c.operation(ctx, request{method: http.MethodGet, path: "/v1/operations?" + query.Encode(), actor: &actor},
		func(op *Operation) bool { return op.RequestKey == key })
}

// operation makes a request whose answer is one operation, the one that is meant.
func (c *Client) operation(ctx context.Context, q request, meant func(*Operation) bool) (*Operation, *Error) {
	var op Operation
	status, failed := c.exchange(ctx, q, &op)
	if failed == nil && op.State.Open() != (status == http.StatusAccepted) {
		failed = &Error{Reason: fault.ReplyMalformed, unclear: true}
	}
	if failed == nil {
		failed = op.answers(meant)
	}
	if failed != nil {
		return nil, failed
	}
	return &op, nil
}

// answers holds an operation to its words, and to the one that is meant.
func (op *Operation) answers(meant func(*Operation) bool) *Error {
	switch {
	case op.check() != nil:
		return &Error{Reason: fault.ReplyMalformed, unclear: true}
	case !meant(op):
		return &Error{Reason: fault.ReplyMismatched, unclear: true}
	}
	return nil
}

func (c *Client) list(ctx context.Context, path string, actor *string) ([]Operation, error) {
	var list struct {
		Operations []Operation `json:"operations"`
	}
	_, failed := c.patiently(ctx, func() (*Operation, *Error) {
		list.Operations = nil
		_, failed := c.exchange(ctx, request{method: http.MethodGet, path: path, actor: actor}, &list)
		for i := range list.Operations {
			if failed == nil && list.Operations[i].check() != nil {
				failed = &Error{Reason: fault.ReplyMalformed, unclear: true}
			}
		}
		return nil, failed
	})
	if failed != nil {
		return nil, failed
	}
	return list.Operations, nil
}
