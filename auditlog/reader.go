package auditlog

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/store"
)

// A Filter lets some records through; the zero Filter all. Times are those of the
// records: from Since on, and before Until.
type Filter struct {
	Since, Until     time.Time
	Actor, Operation string
	Server, Tool     string
}

// An Auditor is who reads: a caller, and the person who has signed in through it, if
// one has.
type Auditor struct{ Caller, Person string }

// A View is what auditors read besides the audit itself.
type View string

const (
	Servers    View = "servers"
	Grants     View = "grants"
	Operations View = "operations"
	Approvals  View = "approvals"
	Catalogue  View = "catalogue"
)

// A Page is a part of the audit.
type Page struct {
	Lines []byte // as audit.Exported has them
	First uint64 // the first record there is; more than 1 where those before it were pruned
	Next  uint64 // the last record that was looked at: what the next page comes after
	Head  uint64 // the newest record
}

const (
	MostRecords = 10_000  // of a page
	lookAt      = 10_000  // records that one page is made from, whatever the filter lets through
	mostBytes   = 4 << 20 // of a page, but for its last record
	readingTime = 10 * time.Minute
	mostOpen    = 64 // readings; with one more, all begin anew
)

// A Reader gives records to auditors, and records that it does: a reading is one
// record, up to the newest one there was when it began, and its further pages none.
// What else they read is shown by others, who ask [Reader.Look] before.
type Reader struct {
	store *store.Store
	now   func() time.Time

	mu   sync.Mutex
	open map[reading]extent // :: who reads what → what of it was recorded
}

type reading struct {
	Auditor
	View
	Filter
}

// An extent is what of a reading stands in the audit.
type extent struct {
	from, to uint64
	until    time.Time
}

// NewReader returns a Reader of s.
func NewReader(s *store.Store, now func() time.Time) *Reader {
	return &Reader{store: s, now: now, open: map[reading]extent{}}
}

// errMissing ends a page.
var errMissing = errors.New("the next record is not there")

// Page returns the records after a number that the filter lets through, most of them
// at most; those after the cut where that comes later. It may have none though there
// are more: as long as Next is not Head.
func (r *Reader) Page(ctx context.Context, who Auditor, after uint64, most int, f Filter) (Page, error) {
	cut, last, err := r.store.Extent(ctx)
	if err != nil {
		return Page{}, err
	}
	after = max(after, cut.Seq)
	p := Page{First: cut.Seq + 1, Next: after, Head: last}
	var out bytes.Buffer
	own := true // all that was looked at are records of this auditor's readings
	end := min(p.Head, after+lookAt)
	for found := 0; p.Next < end && found < most && out.Len() < mostBytes; {
		before := p.Next
		err := r.store.Lines(ctx, p.Next, int(min(many, end-p.Next, uint64(most-found))), func(seq uint64, line []byte, hash [32]byte) error {
			if seq != p.Next+1 {
				return errMissing
			}
			p.Next++
			what := metaOf(line)
			own = own && what.Kind == audit.Read && what.Caller == who.Caller && what.Reading.Person == who.Person
			if f.lets(what) {
				found++
				out.Write(audit.Exported(line, hash))
			}
			return nil
		})
		if err == nil && p.Next == before || errors.Is(err, errMissing) {
			err = r.missing(ctx, p.Next)
		}
		if err != nil {
			return Page{}, err
		}
	}
	p.Lines = out.Bytes()
	if own {
		return p, nil
	}
	if err := r.record(ctx, reading{who, "", f}, after+1, p.Next, p.Head); err != nil {
		return Page{}, err
	}
	return p, nil
}

// missing says why there is no record after this one.
func (r *Reader) missing(ctx context.Context, after uint64) error {
	const op = "auditlog.Page"
	cut, _, err := r.store.Extent(ctx)
	switch {
	case err != nil:
		return err
	case cut.Seq > after:
		return fault.New(op, fault.StoreUnavailable, "the records were pruned meanwhile; ask again")
	}
	return fault.New(op, fault.StoreFailed, fmt.Sprintf("record %d of the audit is missing", after+1))
}

// meta is what the filters look at.
type meta struct {
	Time             time.Time
	Kind             audit.Kind
	Caller           string
	Actor, Operation string
	Server, Tool     string
	Reading          struct{ Person string }
}

func metaOf(line []byte) (m meta) {
	_ = json.Unmarshal(line, &m) // a line that is none matches no filter; verify finds it
	return m
}

func (f Filter) lets(m meta) bool {
	return (f.Actor == "" || f.Actor == m.Actor) &&
		(f.Operation == "" || f.Operation == m.Operation) &&
		(f.Server == "" || f.Server == m.Server) &&
		(f.Tool == "" || f.Tool == m.Tool) &&
		(f.Since.IsZero() || !m.Time.Before(f.Since)) &&
		(f.Until.IsZero() || m.Time.Before(f.Until))
}

// Look records that somebody is let read a view, or the part of it that a filter lets
// through: before it is shown, and once in ten minutes.
func (r *Reader) Look(ctx context.Context, who Auditor, v View, f Filter) error {
	return r.record(ctx, reading{who, v, f}, 0, 0, 0)
}

// record writes that a reading begins, unless that stands in the audit: from one
// record to another, and as far as there are records now.
func (r *Reader) record(ctx context.Context, what reading, from, to, head uint64) error {
	r.mu.Lock()
	known := r.open[what]
	r.mu.Unlock()
	now := r.now()
	if now.Before(known.until) && known.from <= from && to <= known.to {
		return nil
	}
	err := r.store.Commit(ctx, nil, audit.Record{Kind: audit.Read, Time: now, Caller: what.Caller,
		Reading: &audit.Reading{Person: what.Person, View: string(what.View), From: from, To: head, Since: what.Since, Until: what.Until,
			Actor: what.Actor, Operation: what.Operation, Server: what.Server, Tool: what.Tool}})
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.open) >= mostOpen {
		clear(r.open)
	}
	r.open[what] = extent{from, head, now.Add(readingTime)}
	return nil
}

// A Head is the end of the chain, and the newest signed head where there is one.
type Head struct {
	Chain      audit.Head
	Signed     uint64 // records that the newest signed head speaks of; 0: there is none
	At         time.Time
	Checkpoint string
}

// Head returns the head of the audit.
func (r *Reader) Head(ctx context.Context) (Head, error) {
	h := Head{Chain: r.store.Head()}
	var at int64
	row := r.store.Read().QueryRowContext(ctx, `SELECT size, time, checkpoint FROM heads ORDER BY size DESC LIMIT 1`)
	switch err := row.Scan(&h.Signed, &at, &h.Checkpoint); {
	case errors.Is(err, sql.ErrNoRows):
		return h, nil
	case err != nil:
		return Head{}, store.Failure("auditlog.Head", err)
	}
	h.At = store.TimeOf(at)
	return h, nil
}
