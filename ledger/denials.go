package ledger

import (
	"context"
	"strings"
	"sync"
	"time"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/store"
)

// Deny records that a request was refused. The first of equal denials (caller,
// actor, server, tool, reason) is durable on return. Those that follow within
// a minute are counted in memory; one record with their number is written by
// the first Deny or Flush after the minute.
func (l *Ledger) Deny(ctx context.Context, rec audit.Record) error {
	rec.Kind = audit.Denial
	return l.writeDenials(ctx, "ledger.Deny", l.denials.admit(rec, l.now()))
}

// Flush writes what Deny has counted. Call it at the end, and now and then.
func (l *Ledger) Flush(ctx context.Context) error {
	return l.writeDenials(ctx, "ledger.Flush", l.denials.take(l.now(), l.now()))
}

func (l *Ledger) writeDenials(ctx context.Context, op string, records []audit.Record) error {
	if len(records) == 0 {
		return nil
	}
	err := l.store.Commit(ctx, nil, records...)
	if err != nil {
		l.denials.putBack(records)
	}
	return store.Failure(op, err)
}

const (
	denialWindow = time.Minute
	denialLimit  = 1024 // refusals remembered at a time; what is beyond is written one by one
	nameLimit    = 256  // bytes of a name; package audit shows no more of it
)

// denials counts equal denials.
type denials struct {
	mu      sync.Mutex // held for map work only, never across a commit
	windows map[refusal]*window
}

type refusal struct {
	caller, actor, server, tool string
	reason                      fault.Reason
}

// A window begins with a denial that was written; more were not.
type window struct {
	since time.Time
	more  int
}

func refusalOf(rec audit.Record) refusal {
	return refusal{rec.Caller, bounded(rec.Actor), bounded(rec.Server), bounded(rec.Tool), rec.Reason}
}

// bounded keeps the start of a name and nothing of the request it came in.
func bounded(name string) string { return strings.Clone(name[:min(len(name), nameLimit)]) }

// admit returns what has to be written now: windows that have ended, and rec
// if it is the first of its kind.
func (d *denials) admit(rec audit.Record, now time.Time) []audit.Record {
	records := d.take(now, now.Add(-denialWindow))
	d.mu.Lock()
	defer d.mu.Unlock()
	key := refusalOf(rec)
	if w := d.windows[key]; w != nil {
		w.more++
		return records
	}
	if len(d.windows) < denialLimit {
		d.windows[key] = &window{since: now}
	}
	return append(records, rec)
}

// take ends the windows that began at or before then and returns a record for
// each that has counted something.
func (d *denials) take(now, then time.Time) (records []audit.Record) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for key, w := range d.windows {
		if w.since.After(then) {
			continue
		}
		delete(d.windows, key)
		if w.more > 0 {
			records = append(records, audit.Record{
				Time: now, Kind: audit.Denial, Caller: key.caller, Actor: key.actor,
				Server: key.server, Tool: key.tool, Reason: key.reason, Count: w.more,
			})
		}
	}
	return records
}

// putBack takes records that were not written: counts are kept, and the next
// equal denial is a first one again.
func (d *denials) putBack(records []audit.Record) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, rec := range records {
		key := refusalOf(rec)
		w := d.windows[key]
		if w == nil {
			w = &window{}
			d.windows[key] = w
		}
		w.since = time.Time{} // has ended long ago
		w.more += rec.Count
	}
}
