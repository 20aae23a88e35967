package ledger

import (
	"encoding/json"
	"fmt"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/store"
)

// The statements that know the columns of an operation. Row, values and
// columns have one order.
const (
	columns = `id, caller, actor, request_key, jti, run_id, server, tool, fingerprint, arguments,
		attempt, state, ran, evidence, cause, deadline, created, updated,
		legs, hold, snapshot, grant_line, profile, audience, scopes, first_sent, supersedes, superseded_by,
		upstream, repeat_until, doubted, resolution, late`

	selectRows    = `SELECT ` + columns + `, NULL FROM operations `
	selectResults = `SELECT ` + columns + `, (SELECT body FROM results WHERE operation = id) FROM operations `

	putRow = `INSERT INTO operations (` + columns + `)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (id) DO UPDATE SET
			jti = excluded.jti, run_id = excluded.run_id, attempt = excluded.attempt,
			state = excluded.state, ran = excluded.ran, evidence = excluded.evidence, cause = excluded.cause,
			deadline = excluded.deadline, updated = excluded.updated, legs = excluded.legs, hold = excluded.hold,
			snapshot = excluded.snapshot, grant_line = excluded.grant_line, profile = excluded.profile,
			audience = excluded.audience, scopes = excluded.scopes, upstream = excluded.upstream, doubted = excluded.doubted,
			resolution = excluded.resolution, late = excluded.late`
)

// put writes op as a new row or as the next attempt of the row with its ID.
func put(tx *store.Tx, op Operation) error {
	if op.Attempt > 1 {
		if _, err := tx.Exec(`DELETE FROM results WHERE operation = ?`, op.ID); err != nil {
			return err
		}
	}
	_, err := tx.Exec(putRow,
		op.ID, op.Caller, op.Actor, op.RequestKey, op.JTI, op.RunID, op.Server, op.Tool, op.Fingerprint[:], op.Arguments[:],
		op.Attempt, string(op.Outcome.State), string(op.Outcome.Ran), string(op.Outcome.Evidence), string(op.Outcome.Cause),
		store.Nanoseconds(op.Deadline), store.Nanoseconds(op.Created), store.Nanoseconds(op.Updated),
		asJSON(op.Legs), op.Hold, op.Snapshot, op.Grant, op.Profile, op.Audience, asJSON(op.Scopes),
		store.Nanoseconds(op.FirstSent), op.Supersedes, op.SupersededBy, op.Upstream, store.Nanoseconds(op.RepeatUntil), op.Doubted, resolutionColumn(op.Resolution), op.Late)
	return err
}

func byKey(tx *store.Tx, op Operation) (known Operation, found bool, err error) {
	var id string // most keys are new, and one column is less to ask for than all
	if found, err = tx.Scan([]any{&id}, `SELECT id FROM operations WHERE caller = ? AND actor = ? AND request_key = ?`,
		op.Caller, op.Actor, op.RequestKey); !found {
		return Operation{}, false, err
	}
	var r row
	if found, err = tx.Scan(r.dest(), selectResults+`WHERE id = ?`, id); !found {
		return Operation{}, false, err
	}
	known, err = r.operation()
	return known, true, err
}

// A row is an operation as the database gives it.
type row struct {
	op                         Operation
	fingerprint, arguments     []byte
	deadline, created, updated int64
	firstSent, repeatUntil     int64
	legs, scopes, resolution   []byte
}

func (r *row) dest() []any {
	op := &r.op
	return []any{
		&op.ID, &op.Caller, &op.Actor, &op.RequestKey, &op.JTI, &op.RunID, &op.Server, &op.Tool, &r.fingerprint, &r.arguments,
		&op.Attempt, &op.Outcome.State, &op.Outcome.Ran, &op.Outcome.Evidence, &op.Outcome.Cause, &r.deadline, &r.created, &r.updated,
		&r.legs, &op.Hold, &op.Snapshot, &op.Grant, &op.Profile, &op.Audience, &r.scopes,
		&r.firstSent, &op.Supersedes, &op.SupersededBy, &op.Upstream, &r.repeatUntil, &op.Doubted, &r.resolution, &op.Late, &op.Result,
	}
}

func (r *row) operation() (Operation, error) {
	op := r.op
	if len(r.fingerprint) != len(op.Fingerprint) || len(r.arguments) != len(op.Arguments) {
		return Operation{}, fmt.Errorf("operation %q has a damaged digest", op.ID)
	}
	op.Fingerprint, op.Arguments = [32]byte(r.fingerprint), [32]byte(r.arguments)
	op.Deadline, op.Created, op.Updated = store.TimeOf(r.deadline), store.TimeOf(r.created), store.TimeOf(r.updated)
	op.FirstSent, op.RepeatUntil = store.TimeOf(r.firstSent), store.TimeOf(r.repeatUntil)
	if err := json.Unmarshal(r.legs, &op.Legs); err != nil {
		return Operation{}, err
	}
	if len(r.resolution) > 0 {
		if err := json.Unmarshal(r.resolution, &op.Resolution); err != nil {
			return Operation{}, err
		}
	}
	return op, json.Unmarshal(r.scopes, &op.Scopes)
}

// asJSON is the form of a list in one column.
func asJSON[T audit.Leg | string](list []T) string {
	b, err := json.Marshal(list)
	if err != nil {
		panic("broker: internal error: a list that is not JSON: " + err.Error())
	}
	return string(b)
}
