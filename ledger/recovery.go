package ledger

import (
	"context"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/store"
)

// Recover closes what an earlier process left open, in one commit: reserved
// becomes not_sent and sending becomes unknown, both by process_died. A hold
// that was not dropped becomes pending, and so does one that an open operation
// with a profile may have had. Call it before the first Begin.
//
// Each operation gets an outcome record; the recovery record before them, with
// the counts, is always written.
func (l *Ledger) Recover(ctx context.Context) (notSent, inDoubt int, err error) {
	const op = "ledger.Recover"
	left, err := l.all(ctx, op, `WHERE `+open+` AND state <> 'awaiting_approval' ORDER BY created, id`)
	if err != nil {
		return 0, 0, err
	}
	counts := &audit.Recovered{}
	records := []audit.Record{{Time: l.now(), Kind: audit.Recovery, Recovered: counts}}
	for i := range left {
		left[i].Outcome = left[i].Settled(leftBehind(left[i].Outcome.State))
		if left[i].Outcome.State == fault.NotSent {
			counts.NotSent++
		} else {
			counts.InDoubt++
		}
		records = append(records, l.outcomeOf(left[i]))
	}
	err = l.store.Commit(ctx, func(tx *store.Tx) error {
		for _, o := range left {
			hold := o.Hold
			if hold == "" && o.Profile != "" {
				hold = HoldHeld
			}
			if err := l.end(tx, o.ID, o.Attempt, o.Outcome, o.Legs, hold, l.now()); err != nil {
				return err
			}
		}
		holds, err := tx.Exec(`UPDATE operations SET hold = 'pending', updated = ? WHERE hold = 'held'`, l.now().UnixNano())
		counts.Holds = int(holds)
		return err
	}, records...)
	if err != nil {
		return 0, 0, failure(op, err)
	}
	return counts.NotSent, counts.InDoubt, nil
}

// leftBehind is the outcome of an attempt whose process has died.
func leftBehind(state fault.State) fault.Outcome {
	if state == fault.Reserved {
		return fault.NotSentBecause(fault.ProcessDied)
	}
	return fault.Doubt(fault.ProcessDied)
}

func (l *Ledger) outcomeOf(op Operation) audit.Record {
	rec := audit.Record{
		Time: l.now(), Caller: op.Caller, Actor: op.Actor, RequestKey: audit.DigestOf(op.RequestKey),
		Server: op.Server, Tool: op.Tool, Arguments: op.Arguments,
	}
	return ended(named(rec, audit.Outcome, op.ID, op.Attempt), op.Outcome)
}
