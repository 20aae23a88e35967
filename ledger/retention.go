package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/store"
)

// Retention is how long the ledger keeps what has ended, counted from when an
// operation was first begun.
type Retention struct {
	Results time.Duration // then the result is gone and its operation is "expired"; 0: 7 days
	Keys    time.Duration // then the operation is gone, and its key is too old to run; 0: 30 days
}

const day = 24 * time.Hour

func (r Retention) orDefault() Retention {
	return Retention{cmp.Or(r.Results, 7*day), cmp.Or(r.Keys, 30*day)}
}

// dated says on op how long it is kept.
func (l *Ledger) dated(op Operation) Operation {
	op.ResultExpires, op.KeyExpires = op.Created.Add(l.conf.Keep.Results), op.Created.Add(l.conf.Keep.Keys)
	return op
}

// Remembers reports whether the absence of a key that was first sent at that
// time proves that it never ran: the ledger is as old as the key, and has
// forgotten nothing since. Of a key without a time it proves nothing.
func (l *Ledger) Remembers(firstSent time.Time) bool {
	_, since := l.store.Ledger()
	return !firstSent.IsZero() && !firstSent.Before(since.Truncate(time.Millisecond)) && firstSent.After(l.now().Add(-l.conf.Keep.Keys))
}

// secondRun looks at what only a new key can be: the first of its name, or the
// second run of an operation that it names.
func (l *Ledger) secondRun(tx *store.Tx, op Operation) error {
	if !op.FirstSent.IsZero() && !l.Remembers(op.FirstSent) {
		return fault.New("ledger.Begin", fault.NoRecord,
			"the key was first sent before this ledger's memory begins, so it may have run: look at the server, then use a new key")
	}
	if op.Supersedes == "" {
		return nil
	}
	refuse := func(format string, args ...any) error {
		return fault.New("ledger.Begin", fault.RequestKeyConflict, "supersedes: "+fmt.Sprintf(format, args...))
	}
	var r row
	found, err := tx.Scan(r.dest(), selectRows+`WHERE id = ? AND caller = ? AND actor = ?`, op.Supersedes, op.Caller, op.Actor)
	old, malformed := r.operation()
	switch retry := l.vouched(old).Retry(l.now()); {
	case err != nil:
		return err
	case found && malformed != nil:
		return malformed
	case !found:
		return fault.New("ledger.Begin", fault.OperationNotFound, "supersedes: not there, or not yours")
	case old.Server != op.Server || old.Tool != op.Tool:
		return refuse("it called another tool")
	case retry == fault.RetryWait:
		return refuse("it is still open; wait for it, or cancel it")
	case retry == fault.RetrySafe:
		return refuse("it did not run; send its own key again")
	case old.SupersededBy != "":
		return refuse("it has been superseded already, by %q", old.SupersededBy)
	}
	_, err = tx.Exec(`UPDATE operations SET superseded_by = ? WHERE id = ?`, op.ID, old.ID)
	return err
}

// sweepChunk bounds how long a commit of somebody else waits for a sweep.
const sweepChunk = 50

// errSwept undoes a sweep that found nothing.
var errSwept = errors.New("nothing has aged out")

// Sweep removes at most [sweepChunk] results and as many operations that have
// been kept long enough, in one commit, and reports whether there may be more.
// What is still open stays, however old it is; what has waited too long for an
// approval is ended before.
func (l *Ledger) Sweep(ctx context.Context) (more bool, err error) {
	lapsing, err := l.lapse(ctx)
	if err != nil {
		return false, err
	}
	swept := &audit.Swept{}
	err = l.store.Commit(ctx, func(tx *store.Tx) (err error) {
		if swept.Results, err = l.sweepResults(tx); err != nil {
			return err
		}
		if swept.Operations, err = l.sweepOperations(tx); err == nil && *swept == (audit.Swept{}) {
			err = errSwept
		}
		return err
	}, audit.Record{Kind: audit.Retention, Time: l.now(), Swept: swept})
	if errors.Is(err, errSwept) {
		return lapsing, nil
	}
	return lapsing || swept.Results == sweepChunk || swept.Operations == sweepChunk, failure("ledger.Sweep", err)
}

func (l *Ledger) sweepResults(tx *store.Tx) (int, error) {
	const old = `SELECT operation FROM results WHERE created < ? ORDER BY created LIMIT ?`
	before := l.now().Add(-l.conf.Keep.Results).UnixNano()
	// What an admin has said stays: "expired" would turn its advice into another.
	if _, err := tx.Exec(`UPDATE operations SET state = 'expired'
		WHERE state NOT IN ('resolved_ran', 'resolved_not_ran') AND id IN (`+old+`)`, before, sweepChunk); err != nil {
		return 0, err
	}
	gone, err := tx.Exec(`DELETE FROM results WHERE operation IN (`+old+`)`, before, sweepChunk)
	return int(gone), err
}

func (l *Ledger) sweepOperations(tx *store.Tx) (int, error) {
	const old = `SELECT id FROM operations WHERE created < ? AND NOT (` + open + `) ORDER BY created LIMIT ?`
	before := l.now().Add(-l.conf.Keep.Keys).UnixNano()
	for _, table := range []string{"results", "approvals"} {
		if _, err := tx.Exec(`DELETE FROM `+table+` WHERE operation IN (`+old+`)`, before, sweepChunk); err != nil {
			return 0, err
		}
	}
	gone, err := tx.Exec(`DELETE FROM operations WHERE id IN (`+old+`)`, before, sweepChunk)
	return int(gone), err
}
