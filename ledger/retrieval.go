package ledger

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/store"
)

// Find returns the operation with this request key, with its result.
func (l *Ledger) Find(ctx context.Context, caller, actor, key string) (op Operation, found bool, err error) {
	return l.one(ctx, "ledger.Find", `WHERE caller = ? AND actor = ? AND request_key = ?`, caller, actor, key)
}

// Get returns the operation with this ID, with its result. The error is
// operation_not_found if there is none, or none of this caller for this actor.
func (l *Ledger) Get(ctx context.Context, caller, actor, id string) (Operation, error) {
	const op = "ledger.Get"
	got, found, err := l.one(ctx, op, `WHERE id = ? AND caller = ? AND actor = ?`, id, caller, actor)
	if err == nil && !found {
		err = fault.New(op, fault.OperationNotFound, "")
	}
	return got, err
}

// List returns what this caller did for this actor since then, newest first, at
// most limit operations, without results.
func (l *Ledger) List(ctx context.Context, caller, actor string, since time.Time, limit int) ([]Operation, error) {
	return l.all(ctx, "ledger.List", `WHERE caller = ? AND actor = ? AND created >= ? ORDER BY created DESC, id LIMIT ?`,
		caller, actor, store.Nanoseconds(since), max(limit, 0))
}

// Open returns this caller's open operations over all actors, oldest first,
// without results.
func (l *Ledger) Open(ctx context.Context, caller string) ([]Operation, error) {
	return l.all(ctx, "ledger.Open", `WHERE caller = ? AND `+open+` ORDER BY created, id`, caller)
}

// open selects by the index operations_live, whose condition it repeats a part of.
const open = `(state = 'awaiting_approval' OR state = 'reserved' OR state = 'sending')`

func (l *Ledger) one(ctx context.Context, op, where string, args ...any) (Operation, bool, error) {
	list, err := l.query(ctx, selectResults+where, args...)
	if err != nil || len(list) == 0 {
		return Operation{}, false, store.Failure(op, err)
	}
	got, err := l.asked(ctx, l.opened(ctx, list[0]))
	return got, err == nil, store.Failure(op, err)
}

func (l *Ledger) all(ctx context.Context, op, where string, args ...any) ([]Operation, error) {
	list, err := l.query(ctx, selectRows+where, args...)
	return list, store.Failure(op, err)
}

func (l *Ledger) query(ctx context.Context, query string, args ...any) ([]Operation, error) {
	list := []Operation{}
	err := l.each(ctx, query, args, func(r *row) (bool, error) {
		op, err := r.operation()
		list = append(list, l.dated(l.vouched(op)))
		return true, err
	})
	return list, err
}

// each gives do the rows of a query as long as it wants more.
func (l *Ledger) each(ctx context.Context, query string, args []any, do func(*row) (more bool, err error)) error {
	stmt, err := l.statement(query)
	if err != nil {
		return err
	}
	rows, err := stmt.QueryContext(ctx, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var r row
		if err := rows.Scan(r.dest()...); err != nil {
			return err
		}
		if more, err := do(&r); err != nil || !more {
			return err
		}
	}
	return rows.Err()
}

// opened has the result as it was. One that was changed in the file is closed
// like one whose key is gone: nobody can say what it was. Where Vault was not there
// to unwrap its data key it may be opened another time, so its reason is told.
//
// It may ask Vault and belongs neither into a transaction nor between rows.
func (l *Ledger) opened(ctx context.Context, op Operation) Operation {
	if op.Result == nil {
		return op
	}
	op.Result, op.Closed = l.unsealed(ctx, op.Result, op.ID)
	return op
}

func (l *Ledger) unsealed(ctx context.Context, sealed []byte, about string) ([]byte, fault.Reason) {
	body, err := l.conf.Box.Open(ctx, sealed, about)
	away := (*fault.Error)(nil)
	switch {
	case err == nil:
		return body, fault.None
	case errors.As(err, &away):
		return nil, away.Reason
	}
	return nil, fault.ResultClosed
}

// statement returns the prepared form of one of the queries above: preparing
// costs more than running. It ends with the store.
func (l *Ledger) statement(query string) (*sql.Stmt, error) {
	if stmt, ok := l.reads.Load(query); ok {
		return stmt.(*sql.Stmt), nil
	}
	stmt, err := l.store.Read().Prepare(query)
	if err != nil {
		return nil, err
	}
	kept, raced := l.reads.LoadOrStore(query, stmt)
	if raced {
		stmt.Close()
	}
	return kept.(*sql.Stmt), nil
}
