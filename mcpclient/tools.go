package mcpclient

import (
	"context"
	"slices"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/strictjson"
)

// What a server may list, counted while walking.
const (
	maxPages = 50
	maxTools = 500
)

// ListTools returns every tool of the server, byte for byte and in its order,
// or none. The outcome is succeeded with ran = no, or not_sent and why.
func (c *Conversation) ListTools(ctx context.Context, g Gate) (tools []strictjson.Raw, rep Report) {
	c.begin(g)
	defer c.end()
	defer func() {
		if recover() != nil {
			tools, rep = nil, c.report(ending{failure: fault.InternalError})
		}
	}()

	if e, ok := c.greet(ctx); !ok {
		return nil, c.report(e.beforehand())
	}
	tools, e := c.walk(ctx)
	if e.failure != fault.None {
		return nil, c.report(e)
	}
	rep = c.report(ending{sent: true, status: 200, accepted: true})
	return tools, rep
}

// walk follows the cursors until there is none. A list that does not end is an
// error, never a shorter list.
func (c *Conversation) walk(ctx context.Context) (tools []strictjson.Raw, _ ending) {
	var cursors []string
	var cursor *string
	for range maxPages {
		e := c.request(ctx, message{method: methodList, params: params{Cursor: cursor}})
		if e.result == nil || e.failure != fault.None || e.echoed {
			return nil, e.beforehand()
		}
		page, next, reason := readPage(e.result)
		tools = append(tools, page...)
		switch {
		case reason != fault.None:
			return nil, ending{failure: reason}
		case len(tools) > maxTools:
			return nil, ending{failure: fault.ReplyTooLarge}
		case next == nil:
			return tools, ending{}
		case slices.Contains(cursors, *next):
			return nil, ending{failure: fault.ReplyMalformed}
		}
		cursor, cursors = next, append(cursors, *next)
	}
	return nil, ending{failure: fault.ReplyTooLarge}
}

// readPage reads one result of tools/list. Absence of a cursor ends the list;
// "" is a cursor.
func readPage(result strictjson.Raw) (tools []strictjson.Raw, next *string, _ fault.Reason) {
	m, _ := strictjson.Members(result) // an object: parseReply has seen to it
	if reason := resultType(m); reason != fault.None {
		return nil, nil, reason
	}
	tools, ok := elements(m["tools"])
	if !ok || slices.ContainsFunc(tools, func(t strictjson.Raw) bool { return t[0] != '{' }) {
		return nil, nil, fault.ReplyMalformed
	}
	raw, more := m["nextCursor"]
	if !more {
		return tools, nil, fault.None
	}
	cursor, ok := text(raw)
	if !ok {
		return nil, nil, fault.ReplyMalformed
	}
	return tools, &cursor, fault.None
}
