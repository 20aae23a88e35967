package mcpclient

import (
	"context"
	"slices"
	"time"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/strictjson"
)

// A Listing is what a server offers.
type Listing struct {
	Tools   []strictjson.Raw // byte for byte, in the server's order; an entry may be anything
	Invalid []string         // names of tools left out because of an "x-mcp-header" that the specification does not allow; modern servers only
	TTL     time.Duration    // how long the server says that it holds; the shortest of its pages
	Public  bool             // every page may be shown to others, too
}

// ListTools returns every tool of the server, or none. The outcome is succeeded
// with ran = no, or not_sent and why. progress, if not nil, hears of every page how
// many there were, and how many tools on them.
func (c *Conversation) ListTools(ctx context.Context, g Gate, progress func(pages, tools int)) (l Listing, rep Report) {
	c.begin(g, Call{Idle: c.server.Idle})
	defer c.end()
	defer func() {
		if recover() != nil {
			l, rep = Listing{}, c.report(ending{failure: fault.InternalError})
		}
	}()

	if e, ok := c.greet(ctx); !ok {
		return Listing{}, c.report(e.beforehand())
	}
	l, e := c.walk(ctx, progress)
	if e.failure != fault.None {
		return Listing{}, c.report(e)
	}
	return l, c.report(ending{sent: true, status: 200, accepted: true})
}

// walk follows the cursors until there is none. A list that does not end is an
// error, never a shorter list.
func (c *Conversation) walk(ctx context.Context, progress func(pages, tools int)) (l Listing, _ ending) {
	var cursors []string
	var cursor *string
	names := map[string]bool{}
	for range c.limits.Pages {
		e := c.request(ctx, message{method: methodList, params: params{Cursor: cursor}})
		if e.result == nil || e.failure != fault.None || e.echoed {
			return Listing{}, e.beforehand()
		}
		page, next, reason := c.readPage(e.result)
		l.add(c, page, names, cursor == nil)
		count := len(l.Tools) + len(l.Invalid)
		if progress != nil {
			progress(len(cursors)+1, count)
		}
		switch {
		case reason != fault.None:
			return Listing{}, ending{failure: reason}
		case count > c.limits.Tools:
			return Listing{}, ending{failure: fault.ReplyTooLarge}
		case next == nil:
			return l, ending{}
		case len(*next) > c.limits.Cursor:
			return Listing{}, ending{failure: fault.ReplyTooLarge}
		case slices.Contains(cursors, *next):
			return Listing{}, ending{failure: fault.ReplyMalformed}
		}
		cursor, cursors = next, append(cursors, *next)
	}
	return Listing{}, ending{failure: fault.ReplyTooLarge}
}

// add takes a page into l. What the page says of headers holds for it alone, and of
// two tools with one name it holds for the first.
func (l *Listing) add(c *Conversation, page Listing, names map[string]bool, first bool) {
	for _, tool := range page.Tools {
		name, found, ok := toolMirrors(tool)
		known := name == "" || names[name]
		names[name] = true
		switch {
		case known || c.speaks.era != policy.EraModern:
		case !ok:
			l.Invalid = append(l.Invalid, name)
			continue
		default:
			c.learn(name, found, page)
		}
		l.Tools = append(l.Tools, tool)
	}
	if first {
		l.TTL, l.Public = page.TTL, page.Public
	}
	l.TTL, l.Public = min(l.TTL, page.TTL), l.Public && page.Public
}

// readPage reads one result of tools/list. Absence of a cursor ends the list;
// "" is a cursor.
func (c *Conversation) readPage(result strictjson.Raw) (page Listing, next *string, _ fault.Reason) {
	m := strictjson.Parts(result)
	if reason := resultType(m); reason != fault.None {
		return Listing{}, nil, reason
	}
	tools, ok := elements(m["tools"])
	if !ok {
		return Listing{}, nil, fault.ReplyMalformed
	}
	page = Listing{Tools: tools, Public: string(m["cacheScope"]) == `"public"`}
	if ms, ok := number(m["ttlMs"]); ok && ms > 0 {
		page.TTL = time.Duration(min(ms, float64(maxMirrorTTL/time.Millisecond))) * time.Millisecond
	}
	raw, more := m["nextCursor"]
	if !more {
		return page, nil, fault.None
	}
	cursor, ok := text(raw)
	if !ok {
		return Listing{}, nil, fault.ReplyMalformed
	}
	return page, &cursor, fault.None
}
