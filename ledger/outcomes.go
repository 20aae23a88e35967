package ledger

import (
	"context"
	"time"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/store"
)

// A Count is how many operations are in a state.
type Count struct {
	State      fault.State
	Operations int
}

// Outcomes counts the operations of all callers that were first begun since then: the
// states that there are, in the order of [fault.Advices].
func (l *Ledger) Outcomes(ctx context.Context, since time.Time) ([]Count, error) {
	found, err := l.outcomes(ctx, since)
	if err != nil {
		return nil, store.Failure("ledger.Outcomes", err)
	}
	var counts []Count
	for _, a := range fault.Advices() {
		if n := found[a.State]; n > 0 {
			counts = append(counts, Count{a.State, n})
		}
	}
	return counts, nil
}

func (l *Ledger) outcomes(ctx context.Context, since time.Time) (map[fault.State]int, error) {
	rows, err := l.store.Read().QueryContext(ctx, `SELECT state, COUNT(*) FROM operations WHERE created >= ? GROUP BY state`, store.Nanoseconds(since))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	found := map[fault.State]int{}
	for rows.Next() {
		var state fault.State
		var n int
		if err := rows.Scan(&state, &n); err != nil {
			return nil, err
		}
		found[state] = n
	}
	return found, rows.Err()
}
