package ledger

import (
	"context"
	"database/sql"
	"errors"
	"math"
	"regexp"
	"strconv"
	"strings"
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

// lookAt is how many operations one page of a search is made from: what no index serves
// cannot keep a reader busy.
const lookAt = 20_000

// Search returns the operations that s lets through after a place, newest first, at most
// limit, without results. It may have none though there are more: as long as next is
// not the zero Place.
func (l *Ledger) Search(ctx context.Context, s Search, after Place, limit int) (found []Operation, next Place, err error) {
	found, next, err = l.search(ctx, s, after, limit, lookAt)
	return found, next, store.Failure("ledger.Search", err)
}

func (l *Ledger) search(ctx context.Context, s Search, after Place, limit, look int) (found []Operation, next Place, err error) {
	where, args := s.way()
	first, last := s.times(after)
	more, err := l.oldest(ctx, &first, where, append(args, first, last, look-1)...)
	if err != nil {
		return nil, Place{}, err
	}
	args = append(args, first, last, store.Nanoseconds(after.Created), after.ID)
	for _, field := range [...]string{s.RequestKey, s.Caller, s.Actor, s.Server, s.Tool, string(s.State)} {
		args = append(args, field, field)
	}
	found, err = l.query(ctx, selectRows+where+between+filtered, append(args, limit+1)...)
	switch {
	case len(found) > limit:
		found = found[:limit]
		next = Place{found[limit-1].Created, found[limit-1].ID}
	case more:
		next = Place{store.TimeOf(first - 1), beforeAll}
	}
	return found, next, err
}

// beforeAll is an id that all are after.
var beforeAll = strings.Repeat("2", 26)

// between, and the order after it, are those of each index below.
const (
	between  = ` AND created BETWEEN ? AND ?`
	oldest   = between + ` ORDER BY created DESC LIMIT 1 OFFSET ?`
	filtered = ` AND NOT (created = ? AND id <= ?) AND (? = '' OR request_key = ?) AND (? = '' OR caller = ?) AND (? = '' OR actor = ?)
		AND (? = '' OR server = ?) AND (? = '' OR tool = ?) AND (? = '' OR state = ?) ORDER BY created DESC, id LIMIT ?`
)

// oldest sets first to where a page ends that looks at so many operations, if there may
// be more.
func (l *Ledger) oldest(ctx context.Context, first *int64, where string, args ...any) (more bool, err error) {
	stmt, err := l.statement(`SELECT created FROM operations ` + where + oldest)
	if err != nil {
		return false, err
	}
	err = stmt.QueryRowContext(ctx, args...).Scan(first)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return true, err
}

// times are those of the oldest and of the newest operation that there can be after a place.
func (s Search) times(after Place) (first, last int64) {
	last = math.MaxInt64
	if !s.Until.IsZero() {
		last = s.Until.UnixNano() - 1
	}
	if !after.Created.IsZero() {
		last = min(last, after.Created.UnixNano())
	}
	return store.Nanoseconds(s.Since), last
}

// failed selects by the index operations_failed, open by operations_live. The other
// states are frequent: they are met on the way through the newest.
const failed = `(state = 'tool_error' OR state = 'rpc_error' OR state = 'refused' OR state = 'not_sent'
	OR state = 'unknown' OR state = 'resolved_ran' OR state = 'resolved_not_ran')`

// way is how the operations are found that a page looks at: by the index that leaves the
// fewest.
func (s Search) way() (where string, args []any) {
	switch {
	case s.ID != "": // the table's own
		return `WHERE id = ?`, []any{s.ID}
	case s.RequestKey != "": // operations_key
		return `WHERE request_key = ?`, []any{s.RequestKey}
	case s.Actor != "": // operations_actor, which has the caller
		return `WHERE actor = ?`, []any{s.Actor}
	case s.State.Open(): // operations_live: there are few
		return `WHERE id IN (SELECT id FROM operations WHERE ` + open + `) AND state = ?`, []any{string(s.State)}
	case s.State != "" && s.State != fault.Succeeded && s.State != fault.Expired: // operations_failed
		return `WHERE ` + failed + ` AND state = ?`, []any{string(s.State)}
	}
	return `WHERE TRUE`, nil // operations_age
}
