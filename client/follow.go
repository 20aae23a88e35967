package client

import (
	"bufio"
	"context"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/strictjson"
)

// A Progress is what a tool says while it works.
type Progress struct {
	Done    float64 `json:"progress"`
	Total   float64 `json:"total"`   // 0: it does not say
	Message string  `json:"message"` // the server's own text, 1,024 bytes at most
}

// Follow is [Client.Wait] that also hears what the tool says meanwhile, if the call was
// made with Progress. progress is called between two reads and must not wait.
func (c *Client) Follow(ctx context.Context, actor, id string, progress func(Progress)) (*Operation, error) {
	q := request{method: http.MethodGet, path: "/v1/operations/" + url.PathEscape(id), actor: &actor}
	return c.until(ctx, func() (*Operation, *Error) {
		return c.listen(ctx, q, progress, func(op *Operation) bool { return op.ID == id })
	})
}

// listen makes a request whose answer is a stream of events (docs/api.md, Streams), and
// hears it to its outcome. Where it ends before that, the operation comes back as it
// stood at the beginning: it goes on, and is followed by its id.
func (c *Client) listen(ctx context.Context, q request, progress func(Progress), meant func(*Operation) bool) (*Operation, *Error) {
	bounded, cancel := context.WithCancel(ctx)
	defer cancel()
	alive := time.AfterFunc(q.waits+answerTime, cancel) // the broker says something every 15 s
	defer alive.Stop()
	q.accept = "text/event-stream"
	res, failed := c.do(ctx, bounded, q)
	if failed != nil {
		return nil, failed
	}
	defer res.Body.Close()
	if media, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")); res.StatusCode != http.StatusOK || media != "text/event-stream" {
		body, _ := io.ReadAll(io.LimitReader(res.Body, c.conf.MaxAnswer))
		return nil, problem(res, body)
	}
	var seen *Operation
	heard := func(event string, data []byte) (over bool) {
		switch event {
		case "progress":
			var p Progress
			if progress != nil && strictjson.DecodeKnown(data, maxLevels, &p) == nil {
				progress(p)
			}
		case "operation", "outcome":
			var op Operation
			if strictjson.DecodeKnown(data, maxLevels, &op) != nil {
				failed = &Error{Reason: fault.ReplyMalformed, unclear: true}
			} else if failed = op.answers(meant); failed == nil {
				seen = &op
			}
			asks := q.method == http.MethodPost && op.State == fault.AwaitingApproval // to wait for the person is Follow's
			return failed != nil || event == "outcome" || asks
		}
		return false
	}
	err := events(res.Body, c.conf.MaxAnswer, func() { alive.Reset(answerTime) }, heard)
	switch {
	case failed != nil:
		return nil, failed
	case err == bufio.ErrTooLong:
		return seen, &Error{Reason: fault.ReplyTooLarge, Detail: "the answer is larger than MaxAnswer", unclear: true}
	case seen != nil:
		return seen, nil
	}
	return nil, lost(ctx, err, true)
}

// events reads server-sent events as the broker writes them
// (https://html.spec.whatwg.org/multipage/server-sent-events.html): an event and its data,
// in lines of LF. It ends when heard says so, with the stream, or at an event of more
// than most bytes.
func events(stream io.Reader, most int64, line func(), heard func(event string, data []byte) (over bool)) error {
	lines := bufio.NewScanner(stream)
	lines.Buffer(nil, int(most)+len("data: "))
	var event string
	var data []string
	size := 0
	for lines.Scan() {
		line()
		field, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case lines.Text() == "":
			if heard(event, []byte(strings.Join(data, "\n"))) {
				return nil
			}
			event, data, size = "", nil, 0
		case field == "event":
			event = value
		case field == "data":
			if size += len(value) + 1; int64(size) > most {
				return bufio.ErrTooLong
			}
			data = append(data, value)
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return io.ErrUnexpectedEOF
}
