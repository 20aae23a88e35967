package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/store"
)

// A Resolution is who said whether an operation in doubt ran, and why; its
// outcome says what they said.
type Resolution struct {
	By     string    `json:"by"`
	At     time.Time `json:"at"`
	Reason string    `json:"reason"`
}

// Resolve records what an admin has found out about an operation that has ended
// with ran = unknown: it is resolved_ran or, if ran is false, resolved_not_ran,
// which is safe to begin again. The word is about that attempt and all before it.
//
//   - Another attempt than the one that is named is never resolved: a word that
//     comes late, or twice, is not about what the admin has not seen.
//   - The same word again is repeated: it writes nothing, and what stands is
//     returned. A yes may follow a no until the next attempt begins, since it only
//     takes away; a no never follows a yes.
//   - What has a second run (SupersededBy) cannot be said to have not run: its key
//     would be a third.
//
// The operation is returned without its result. The error is a *fault.Error:
// operation_not_found; not_in_doubt, whose detail says what stands; or one of
// the store.
func (l *Ledger) Resolve(ctx context.Context, id string, attempt int, ran bool, word Resolution) (op Operation, repeated bool, err error) {
	word.At = store.TimeOf(store.Nanoseconds(word.At))
	records := make([]audit.Record, 1)
	err = l.store.Commit(ctx, func(tx *store.Tx) (err error) {
		if op, err = byID(tx, id); err != nil {
			return err
		}
		out := resolved(ran, op.Outcome.Cause)
		if op.Attempt == attempt && op.Outcome == out {
			return errKnown
		}
		if why := op.unresolvable(attempt, ran); why != "" {
			return fault.New("ledger.Resolve", fault.NotInDoubt, why)
		}
		op.Outcome, op.Resolution, op.Doubted = out, &word, false
		records[0] = l.recordOf(op, audit.Resolution)
		records[0].Time, records[0].Resolved = word.At, &audit.Resolved{By: word.By, Text: word.Reason}
		return move(tx, `UPDATE operations SET state = ?, ran = ?, evidence = ?, resolution = ?, doubted = 0 WHERE id = ?`,
			string(out.State), string(out.Ran), string(out.Evidence), resolutionColumn(op.Resolution), id)
	}, records...)
	switch {
	case err == nil:
		return l.dated(op), false, nil
	case errors.Is(err, errKnown):
		return l.dated(op), true, nil
	}
	return Operation{}, false, failure("ledger.Resolve", err)
}

// resolved is the outcome by a person's word. The cause stays what it was.
func resolved(ran bool, cause fault.Reason) fault.Outcome {
	if ran {
		return fault.Outcome{State: fault.ResolvedRan, Ran: fault.RanYes, Evidence: fault.EvidenceOperator, Cause: cause}
	}
	return fault.Outcome{State: fault.ResolvedNotRan, Ran: fault.RanNo, Evidence: fault.EvidenceOperator, Cause: cause}
}

// unresolvable says what stands and keeps the word from being taken; "" if
// nothing does.
func (o Operation) unresolvable(attempt int, ran bool) string {
	stands := fmt.Sprintf("attempt %d is %s, ran %s", o.Attempt, o.Outcome.State, o.Outcome.Ran)
	switch {
	case o.Attempt != attempt:
		return stands + "; the request is about another attempt, so look again"
	case o.Outcome.State.Open():
		return stands + ": it is still open"
	case o.Outcome.State == fault.ResolvedNotRan && ran:
		return ""
	case o.Outcome.State == fault.ResolvedRan:
		return stands + `: who was told so may have gone on from there; a real second run is a new request that supersedes it`
	case o.Outcome.Ran != fault.RanUnknown:
		return stands + ": it is not in doubt"
	case o.SupersededBy != "" && !ran:
		return stands + fmt.Sprintf(": it has been superseded by %q, and its key would be one more run", o.SupersededBy)
	}
	return ""
}

func byID(tx *store.Tx, id string) (Operation, error) {
	var r row
	found, err := tx.Scan(r.dest(), selectRows+`WHERE id = ?`, id)
	if err == nil && !found {
		err = fault.New("ledger.Resolve", fault.OperationNotFound, "")
	}
	if err != nil {
		return Operation{}, err
	}
	return r.operation()
}

func resolutionColumn(word *Resolution) string {
	if word == nil {
		return ""
	}
	text, err := json.Marshal(word)
	if err != nil {
		panic("broker: internal error: a resolution that is not JSON: " + err.Error())
	}
	return string(text)
}

// InDoubt returns what has ended with ran = unknown, of all callers, newest
// first, at most limit operations, without results.
func (l *Ledger) InDoubt(ctx context.Context, limit int) ([]Operation, error) {
	// The condition is that of the index operations_doubt.
	return l.all(ctx, "ledger.InDoubt", `WHERE ran = 'unknown' AND (state = 'unknown' OR state = 'rpc_error' OR state = 'expired')
		ORDER BY created DESC, id LIMIT ?`, max(limit, 0))
}
