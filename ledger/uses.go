package ledger

import (
	"context"
	"time"

	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/store"
)

// A Use is how often a grant let an operation begin, each attempt counted, and when it
// did so last. It is counted in the commit that begins the operation, in rows that no
// sweep removes: operations are forgotten long before a review asks what is unused.
type Use struct {
	Count int
	Last  time.Time
}

// Uses returns the uses, for tools that the filter names, of the actors from first to last; last
// itself too. What it does not return was never used since then: a copy knows nothing of what its
// original went on to do, and a file of before uses were counted nothing of that time.
func (l *Ledger) Uses(ctx context.Context, f policy.Filter, first, last string) (uses map[policy.RowID]Use, since time.Time, err error) {
	uses = map[policy.RowID]Use{}
	if since, err = l.counted(ctx); err == nil {
		err = l.uses(ctx, uses, f, first, last)
	}
	return uses, since, store.Failure("ledger.Uses", err)
}

func (l *Ledger) counted(ctx context.Context) (since time.Time, err error) {
	var applied int64
	err = l.store.Read().QueryRowContext(ctx, `SELECT applied FROM migrations WHERE number = ?`, store.CountsUses).Scan(&applied)
	if _, since = l.store.Ledger(); applied > since.UnixNano() {
		since = store.TimeOf(applied)
	}
	return since, err
}

func (l *Ledger) uses(ctx context.Context, uses map[policy.RowID]Use, f policy.Filter, first, last string) error {
	stmt, err := l.statement(`SELECT actor, profile, server, tool, uses, last FROM uses WHERE actor BETWEEN ? AND ?
		AND (? = '' OR profile = ?) AND (? = '' OR server = ?) AND (? = '' OR tool = ?)`)
	if err != nil {
		return err
	}
	rows, err := stmt.QueryContext(ctx, first, last, f.Profile, f.Profile, f.Server, f.Server, f.Tool, f.Tool)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var g policy.RowID
		var u Use
		var at int64
		if err := rows.Scan(&g.Actor, &g.Profile, &g.Server, &g.Tool, &u.Count, &at); err != nil {
			return err
		}
		u.Last = store.TimeOf(at)
		uses[g] = u
	}
	return rows.Err()
}

// use counts that op's grant has let it begin. A server of mode legacy asks for none.
func use(tx *store.Tx, op Operation) error {
	if op.Profile == "" {
		return nil
	}
	_, err := tx.Exec(`INSERT INTO uses (actor, profile, server, tool, uses, last) VALUES (?, ?, ?, ?, 1, ?)
		ON CONFLICT (actor, profile, server, tool) DO UPDATE SET uses = uses.uses + 1, last = excluded.last`,
		op.Actor, op.Profile, op.Server, op.Tool, store.Nanoseconds(op.Updated))
	return err
}
