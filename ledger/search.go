package ledger

import (
	"context"
	"errors"
	"math"
	"regexp"
	"strconv"
	"time"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/store"
)

// A Search is what an auditor looks for, over all callers and actors. An empty field
// lets everything through. Times are those of when an operation was first begun:
// from Since on, and before Until. State is as it is stored: what a copy cannot vouch
// for is told as unknown.
type Search struct {
	ID, RequestKey, Caller, Actor, Server, Tool string
	State                                       fault.State
	Since, Until                                time.Time
}

// A Place is where a page of a search ends; the zero Place is before the first page.
type Place struct {
	Created time.Time
	ID      string
}

// Words writes a place so that [ParsePlace] reads it.
func (p Place) Words() string { return strconv.FormatInt(p.Created.UnixNano(), 10) + "." + p.ID }

var placeWords = regexp.MustCompile(`^([1-9][0-9]{0,18})\.([a-z2-7]{26})$`)

// ParsePlace reads a place.
func ParsePlace(text string) (Place, error) {
	if words := placeWords.FindStringSubmatch(text); words != nil {
		if at, err := strconv.ParseInt(words[1], 10, 64); err == nil {
			return Place{Created: store.TimeOf(at), ID: words[2]}, nil
		}
	}
	return Place{}, errors.New("it is no place where a page ends")
}

// lookAt is how many operations one page of a search is made from at most: what no
// index serves cannot keep a reader busy.
const lookAt = 5000

// Search returns the operations that s lets through after a place, newest first, at most
// limit, without results. It may have none though there are more: as long as next is
// not the zero Place.
func (l *Ledger) Search(ctx context.Context, s Search, after Place, limit int) (found []Operation, next Place, err error) {
	where, args := s.way()
	looked := 0
	var last Place
	found = []Operation{}
	err = l.each(ctx, selectRows+where+inOrder, append(args, s.inOrder(after)...), func(r *row) (bool, error) {
		if len(found) == limit {
			next = last
			return false, nil
		}
		if last = (Place{store.TimeOf(r.created), r.op.ID}); s.lets(r.op) {
			op, err := r.operation()
			if err != nil {
				return false, err
			}
			found = append(found, l.dated(l.vouched(op)))
		}
		if looked++; looked == lookAt {
			next = last
		}
		return true, nil
	})
	return found, next, store.Failure("ledger.Search", err)
}

// inOrder is the part of a search that is the same for all; its order is that of each
// index below.
const inOrder = ` AND created BETWEEN ? AND ? AND NOT (created = ? AND id <= ?) ORDER BY created DESC, id LIMIT ?`

func (s Search) inOrder(after Place) []any {
	newest := int64(math.MaxInt64)
	if !s.Until.IsZero() {
		newest = s.Until.UnixNano() - 1
	}
	if !after.Created.IsZero() {
		newest = min(newest, after.Created.UnixNano())
	}
	return []any{store.Nanoseconds(s.Since), newest, store.Nanoseconds(after.Created), after.ID, lookAt}
}

// failed selects by the index operations_failed, open by operations_live. The other
// states are frequent: they are met on the way through the newest.
const failed = `state IN ('tool_error', 'rpc_error', 'refused', 'not_sent', 'unknown', 'resolved_ran', 'resolved_not_ran')`

// way is how the operations are found that lets looks at: by the index that leaves the
// fewest.
func (s Search) way() (where string, args []any) {
	switch {
	case s.ID != "": // the table's own
		return `WHERE id = ?`, []any{s.ID}
	case s.RequestKey != "": // operations_key
		return `WHERE request_key = ?`, []any{s.RequestKey}
	case s.Actor != "" && s.Caller != "": // operations_list
		return `WHERE caller = ? AND actor = ?`, []any{s.Caller, s.Actor}
	case s.Actor != "": // operations_actor
		return `WHERE actor = ?`, []any{s.Actor}
	case s.Server != "" && s.Tool != "": // operations_server, which has the tool
		return `WHERE server = ? AND tool = ?`, []any{s.Server, s.Tool}
	case s.Server != "": // operations_server
		return `WHERE server = ?`, []any{s.Server}
	case s.State.Open(): // operations_live: there are few
		return `WHERE id IN (SELECT id FROM operations WHERE ` + open + `) AND state = ?`, []any{string(s.State)}
	case s.State != "" && s.State != fault.Succeeded && s.State != fault.Expired: // operations_failed
		return `WHERE ` + failed + ` AND state = ?`, []any{string(s.State)}
	}
	return `WHERE TRUE`, nil // operations_age
}

func (s Search) lets(op Operation) bool {
	for _, field := range [...][2]string{{s.ID, op.ID}, {s.RequestKey, op.RequestKey}, {s.Caller, op.Caller}, {s.Actor, op.Actor},
		{s.Server, op.Server}, {s.Tool, op.Tool}, {string(s.State), string(op.Outcome.State)}} {
		if field[0] != "" && field[0] != field[1] {
			return false
		}
	}
	return true
}
