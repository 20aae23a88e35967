package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/identity"
	"onbehalf.internal/broker/operation"
)

const (
	// heartbeat is how long a stream is silent at most: proxies cut what is silent
	// for a minute.
	heartbeat = 15 * time.Second
	// eventTime is how long a reader may take to take one event.
	eventTime = 15 * time.Second
)

// wantsStream reports whether the caller asked for server-sent events
// (https://html.spec.whatwg.org/multipage/server-sent-events.html).
func wantsStream(h http.Header) bool {
	return slices.ContainsFunc(strings.Split(strings.Join(h.Values("Accept"), ","), ","), func(media string) bool {
		media, _, _ = strings.Cut(media, ";")
		return strings.EqualFold(strings.TrimSpace(media), "text/event-stream")
	})
}

// progressEvent is the data of an event "progress".
type progressEvent struct {
	Progress float64 `json:"progress"`
	Total    float64 `json:"total,omitempty"`
	Message  string  `json:"message,omitempty"` // the server's own text, 1,024 bytes at most
}

// follow is the answer that tells of an operation while it runs:
//
//	event: operation   the operation as it stands, with its id; always the first
//	event: progress    what the server says meanwhile
//	: a comment        so that nothing on the way takes silence for the end
//	event: outcome     the body that the call would have had; always the last
//
// Of an operation that waits for a person the outcome is what the person says: where
// that is a yes the caller makes the call again.
//
// A stream that ends without an outcome says nothing about the operation.
func (a *API) follow(watch *operation.Watch, caller identity.Caller, actor identity.Actor, got operation.Answer, gone func(*operation.Watch)) answer {
	return answer{status: http.StatusOK, media: "text/event-stream", headers: map[string]string{
		"Location":          "/v1/operations/" + got.ID,
		"X-Accel-Buffering": "no",
	}, stream: func(ctx context.Context, s *events) {
		first := got
		first.Result = nil
		if !s.send("operation", a.operation(first).body) || !a.undecided(ctx, s, caller, actor, got) || !a.relay(ctx, s, a.begun(watch, caller, actor, got)) {
			if watch != nil && gone != nil {
				gone(watch)
			}
			return
		}
		if last, err := a.Runner.Get(ctx, caller, actor, got.ID); err == nil {
			s.send("outcome", a.operation(last).body)
		}
	}}
}

// undecided waits for a person's decision, where one is needed. It is false when the
// reader is gone, or the broker stops.
func (a *API) undecided(ctx context.Context, s *events, caller identity.Caller, actor identity.Actor, got operation.Answer) bool {
	for got.Outcome.State == fault.AwaitingApproval {
		beat, cancel := context.WithTimeout(ctx, a.heartbeat())
		decided := a.Runner.Decided(beat, caller, actor, got.ID)
		silent := beat.Err() != nil
		cancel()
		switch {
		case ctx.Err() != nil:
			return false
		case decided:
			return true
		case !silent || !s.comment():
			return false
		}
	}
	return true
}

// begun is watch, or where the operation has waited till now, the attempt that another
// request may have begun meanwhile: that request leaves for itself.
func (a *API) begun(watch *operation.Watch, caller identity.Caller, actor identity.Actor, got operation.Answer) *operation.Watch {
	if got.Outcome.State == fault.AwaitingApproval {
		return a.Runner.Watch(caller, actor, got)
	}
	return watch
}

// relay passes progress on until the operation has ended. It is false when the
// reader is gone.
func (a *API) relay(ctx context.Context, s *events, watch *operation.Watch) bool {
	for watch != nil {
		beat, cancel := context.WithTimeout(ctx, a.heartbeat())
		p, more := watch.Next(beat)
		silent := beat.Err() != nil
		cancel()
		switch {
		case ctx.Err() != nil:
			return false
		case more:
			data, _ := json.Marshal(progressEvent{p.Done, p.Total, p.Message})
			if !s.send("progress", data) {
				return false
			}
		case !silent:
			return true
		case !s.comment():
			return false
		}
	}
	return true
}

func (a *API) heartbeat() time.Duration {
	if a.Heartbeat > 0 {
		return a.Heartbeat
	}
	return heartbeat
}

// events writes a stream. After the first failure nothing more is written.
type events struct {
	w  http.ResponseWriter
	rc *http.ResponseController
}

// send writes one event. Data is JSON: a line break in it can only stand
// between its tokens, where a carriage return, which an event cannot carry, is
// left out.
func (s *events) send(event string, data []byte) bool {
	data = bytes.ReplaceAll(data, []byte("\r"), nil)
	return s.write(fmt.Sprintf("event: %s\ndata: %s\n\n", event, bytes.ReplaceAll(data, []byte("\n"), []byte("\ndata: "))))
}

func (s *events) comment() bool { return s.write(": working\n\n") }

func (s *events) write(text string) bool {
	s.rc.SetWriteDeadline(time.Now().Add(eventTime))
	_, err := s.w.Write([]byte(text))
	return err == nil && s.rc.Flush() == nil
}
