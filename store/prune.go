package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/fault"
)

// The records up to the cut are gone for all who read, from the commit on that moves
// it. Their rows go afterwards, some at a time.

// Extent says which records there are: those after a head, which is zero where
// nothing was ever pruned, up to the last one.
func (s *Store) Extent(ctx context.Context) (before audit.Head, last uint64, err error) {
	var hash []byte
	row := s.read.QueryRowContext(ctx, `SELECT COALESCE((SELECT seq FROM cut), 0), (SELECT hash FROM cut), COALESCE(MAX(seq), 0) FROM audit`)
	if err := row.Scan(&before.Seq, &hash, &last); err != nil {
		return before, 0, Failure("store.Extent", err)
	}
	copy(before.Hash[:], hash)
	return before, last, nil
}

// Prune moves the cut to a head, which must be one of this chain. It is for a commit
// whose record says so.
func (tx *Tx) Prune(to audit.Head) error {
	const op = "store.Prune"
	var n int
	_, err := tx.Scan([]any{&n}, `SELECT COUNT(*) FROM audit WHERE seq = ? AND hash = ? AND seq > (SELECT COALESCE(MAX(seq), 0) FROM cut)`, int64(to.Seq), to.Hash[:])
	if err == nil && n != 1 {
		err = fault.New(op, fault.InternalError, fmt.Sprintf("record %d is not there, or is another", to.Seq))
	}
	if err == nil {
		_, err = tx.Exec(`INSERT INTO cut (one, seq, hash) VALUES (1, ?, ?)
			ON CONFLICT (one) DO UPDATE SET seq = excluded.seq, hash = excluded.hash`, int64(to.Seq), to.Hash[:])
	}
	return err
}

// Clear deletes at most so many records that were pruned, and returns how many.
func (tx *Tx) Clear(most int) (gone int, err error) {
	n, err := tx.Exec(`DELETE FROM audit WHERE seq IN (SELECT seq FROM audit WHERE seq <= (SELECT seq FROM cut) ORDER BY seq LIMIT ?)`, most)
	return int(n), err
}

// cut is the head before the first record, also in a file of before there was one.
func (w *writer) cut(ctx context.Context) (h audit.Head, err error) {
	var there bool
	if err := w.conn.QueryRowContext(ctx, `SELECT COUNT(*) FROM sqlite_schema WHERE name = 'cut'`).Scan(&there); err != nil || !there {
		return h, err
	}
	var hash []byte
	err = w.conn.QueryRowContext(ctx, `SELECT seq, hash FROM cut`).Scan(&h.Seq, &hash)
	if errors.Is(err, sql.ErrNoRows) {
		return h, nil
	}
	copy(h.Hash[:], hash)
	return h, err
}
