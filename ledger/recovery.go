package ledger

import (
	"context"
	"slices"
	"time"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/store"
)

// What a start asks. leftOpen is in the order of the index operations_live: in that of created
// alone, SQLite would read every operation there is.
const (
	leftOpen    = `WHERE ` + open + ` AND (state <> 'awaiting_approval' OR updated < ?) ORDER BY caller, created, id`
	leftPending = `WHERE hold = 'pending' ORDER BY created, id`
	doubtOpen   = `UPDATE operations SET doubted = 1 WHERE ` + open + ` AND updated < ?`
	leaveHolds  = `UPDATE operations SET hold = 'pending' WHERE hold = 'held'`
)

// Recover closes what an earlier process left open, in one commit: reserved
// becomes not_sent and sending becomes unknown, both by process_died. In a copy
// both become unknown, see vouched, and so does what waits for an approval there;
// elsewhere it goes on waiting. A hold that was not dropped becomes pending,
// and so does one that an open operation with a profile may have had; see Expire.
// Updated of what had ended stays. Call it before the first Begin.
//
// Each operation gets an outcome record; the recovery record before them, with
// the counts, is always written.
func (l *Ledger) Recover(ctx context.Context) (notSent, inDoubt int, err error) {
	const op = "ledger.Recover"
	_, since := l.store.Ledger()
	left, err := l.all(ctx, op, leftOpen, since.UnixNano())
	if err != nil {
		return 0, 0, err
	}
	counts := &audit.Recovered{}
	records := []audit.Record{{Time: l.now(), Kind: audit.Recovery, Recovered: counts}}
	for i := range left {
		left[i].Doubted = left[i].Doubted || left[i].Updated.Before(since)
		left[i].Outcome = left[i].Settled(leftBehind(left[i].Outcome.State))
		if left[i].Outcome.State == fault.NotSent {
			counts.NotSent++
		} else {
			counts.InDoubt++
		}
		records = append(records, l.recordOf(left[i], audit.Outcome))
	}
	err = l.store.Commit(ctx, func(tx *store.Tx) error {
		if _, err := tx.Exec(doubtOpen, since.UnixNano()); err != nil {
			return err
		}
		for _, o := range left {
			hold := o.Hold
			if hold == "" && o.Profile != "" {
				hold = HoldHeld
			}
			if err := l.end(tx, o.ID, o.Attempt, o.Outcome, asJSON(o.Legs), hold, l.now()); err != nil {
				return err
			}
		}
		holds, err := tx.Exec(leaveHolds)
		counts.Holds = int(holds)
		return err
	}, records...)
	if err != nil {
		return 0, 0, failure(op, err)
	}
	return counts.NotSent, counts.InDoubt, nil
}

// vouched is op as this ledger can vouch for it. What happened before the ledger
// began is told by a copy, and the original went on: a call that had not run by then
// may have run later.
func (l *Ledger) vouched(op Operation) Operation {
	_, since := l.store.Ledger()
	if op.Updated.Before(since) && op.Outcome.Retry() == fault.RetrySafe {
		op.Outcome = fault.Doubt(fault.NoRecord)
	}
	return op
}

// leftBehind is the outcome of an attempt whose process has died.
func leftBehind(state fault.State) fault.Outcome {
	if state != fault.Sending {
		return fault.NotSentBecause(fault.ProcessDied)
	}
	return fault.Doubt(fault.ProcessDied)
}

// Pending returns the operations whose holds nobody has seen go, oldest first. After
// Recover and before the first Begin, those are what earlier processes have left.
func (l *Ledger) Pending(ctx context.Context) ([]Operation, error) {
	return l.all(ctx, "ledger.Pending", leftPending)
}

// expireAtOnce is how many holds one commit of Expire settles: operations of others
// wait behind it.
const expireAtOnce = 64

// Expire says of what Pending returned that it ended with its epoch, as soon as the
// wait is over: by then Vault has no token that could read it. If ctx ends before, the
// next process begins anew.
func (l *Ledger) Expire(ctx context.Context, left []Operation, wait time.Duration) error {
	if len(left) == 0 {
		return nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return nil
	}
	for some := range slices.Chunk(left, expireAtOnce) {
		if err := l.expire(ctx, some); err != nil {
			return failure("ledger.Expire", err)
		}
	}
	return nil
}

func (l *Ledger) expire(ctx context.Context, left []Operation) error {
	var records []audit.Record
	for _, o := range left {
		records = append(records, goneRecord(l.recordOf(o, audit.Drop), o.ID, o.Attempt, HoldExpired))
	}
	return l.store.Commit(ctx, func(tx *store.Tx) error {
		for _, o := range left {
			if err := gone(tx, o.ID, o.Attempt, HoldExpired); err != nil {
				return err
			}
		}
		return nil
	}, records...)
}

// recordOf is what a record of this kind says of op, which this process has not run.
func (l *Ledger) recordOf(op Operation, kind audit.Kind) audit.Record {
	rec := audit.Record{
		Time: l.now(), Caller: op.Caller, Actor: op.Actor, RequestKey: audit.DigestOf(op.RequestKey),
		Server: op.Server, Tool: op.Tool, Arguments: op.Arguments,
	}
	return ended(named(rec, kind, op.ID, op.Attempt), op.Outcome)
}
