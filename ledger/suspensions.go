package ledger

import (
	"context"
	"time"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/store"
)

// Suspend makes a suspension durable. It takes effect in [policy.Holder.Suspend],
// which calls this first.
func (l *Ledger) Suspend(ctx context.Context, s policy.Suspension) error {
	err := l.store.Commit(ctx, func(tx *store.Tx) error {
		_, err := tx.Exec(`INSERT INTO suspensions (id, sort, name, reason, suspended_by, since, until, lifted, lifted_by, lifted_reason)
			VALUES (?, ?, ?, ?, ?, ?, ?, 0, '', '')`,
			s.ID, s.Target.Sort, s.Target.Name, s.Reason, s.By, store.Nanoseconds(s.Since), store.Nanoseconds(s.Until))
		return err
	}, suspension(audit.Suspension, s, s.By, s.Reason, s.Since))
	return store.Failure("ledger.Suspend", err)
}

// Lift makes the end of a suspension durable: by whom, why and when.
func (l *Ledger) Lift(ctx context.Context, s policy.Suspension, by, reason string, at time.Time) error {
	err := l.store.Commit(ctx, func(tx *store.Tx) error {
		return move(tx, `UPDATE suspensions SET lifted = ?, lifted_by = ?, lifted_reason = ? WHERE id = ? AND lifted = 0`,
			store.Nanoseconds(at), by, reason, s.ID)
	}, suspension(audit.Lifting, s, by, reason, at))
	return failure("ledger.Lift", err)
}

// suspension is the record of one, by whom and why.
func suspension(kind audit.Kind, s policy.Suspension, by, text string, at time.Time) audit.Record {
	rec := audit.Record{Kind: kind, Time: at, Caller: by, Suspended: &audit.Suspended{ID: s.ID, Until: store.TimeOf(store.Nanoseconds(s.Until)), Text: text}}
	switch s.Target.Sort {
	case "actor":
		rec.Actor = s.Target.Name
	case "server":
		rec.Server = s.Target.Name
	case "profile":
		rec.Profile = s.Target.Name
	}
	return rec
}

// Suspensions returns those that were not lifted and are not over by then, the
// oldest first.
func (l *Ledger) Suspensions(ctx context.Context, then time.Time) ([]policy.Suspension, error) {
	list, err := l.suspensions(ctx, then)
	return list, store.Failure("ledger.Suspensions", err)
}

func (l *Ledger) suspensions(ctx context.Context, then time.Time) ([]policy.Suspension, error) {
	rows, err := l.store.Read().QueryContext(ctx, `SELECT id, sort, name, reason, suspended_by, since, until FROM suspensions
		WHERE lifted = 0 AND (until = 0 OR until > ?) ORDER BY since, id`, then.UnixNano())
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	list := []policy.Suspension{}
	for rows.Next() {
		var s policy.Suspension
		var since, until int64
		if err := rows.Scan(&s.ID, &s.Target.Sort, &s.Target.Name, &s.Reason, &s.By, &since, &until); err != nil {
			return nil, err
		}
		s.Since, s.Until = store.TimeOf(since), store.TimeOf(until)
		list = append(list, s)
	}
	return list, rows.Err()
}
