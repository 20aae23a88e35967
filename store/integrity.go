package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"onbehalf.internal/broker/audit"
)

// How many records at the end of the audit an opening checks. All of them take
// many seconds in a large file, so that is for copies, which somebody has put there.
const (
	closedTail = 256
	servedTail = 10_000 // more than a -wal of the usual size, 1,000 pages, can hold
)

func (o Opening) tail() int {
	switch {
	case o.Clean:
		return closedTail
	case o.Former == "":
		return servedTail
	}
	return math.MaxInt32
}

// A damage is what cannot be mended by starting again.
type damage string

func (d damage) Error() string {
	return string(d) + "; restore a copy, or move it, -wal, -shm and .lock away: a new ledger then begins, and every key of before is no_record"
}

// intact reads all of the file, but not whether its indexes agree with its
// tables, which would take many times as long.
func (w *writer) intact(ctx context.Context) error {
	var found string
	if err := w.conn.QueryRowContext(ctx, `PRAGMA quick_check(1)`).Scan(&found); err != nil {
		return err
	}
	if found != "ok" {
		return damage("it is damaged: SQLite's quick_check finds a page that is not as it was written")
	}
	return nil
}

// chain reads the last records of the audit and returns its head.
func (w *writer) chain(ctx context.Context, last int) (head audit.Head, err error) {
	if head, err = w.before(ctx, last); err != nil {
		return head, err
	}
	rows, err := w.conn.QueryContext(ctx, `SELECT line, hash FROM audit WHERE seq > ? ORDER BY seq`, int64(head.Seq))
	if err != nil {
		return head, err
	}
	defer rows.Close()
	for rows.Next() {
		var line, hash sql.RawBytes
		if err := rows.Scan(&line, &hash); err != nil {
			return head, err
		}
		if head, err = follow(head, line, hash); err != nil {
			return head, err
		}
	}
	return head, rows.Err()
}

// before is the head before the last records, as it stands there; the cut where there
// are no more than those.
func (w *writer) before(ctx context.Context, last int) (audit.Head, error) {
	cut, err := w.cut(ctx)
	if err != nil {
		return cut, err
	}
	var seq int64
	var hash []byte
	row := w.conn.QueryRowContext(ctx, `SELECT seq, hash FROM audit WHERE seq > ? ORDER BY seq DESC LIMIT 1 OFFSET ?`, int64(cut.Seq), last)
	err = row.Scan(&seq, &hash)
	if errors.Is(err, sql.ErrNoRows) {
		return cut, nil
	}
	if err == nil && len(hash) != len(audit.Head{}.Hash) {
		err = damage(fmt.Sprintf("its audit was changed: record %d has no hash", seq))
	}
	if err != nil {
		return audit.Head{}, err
	}
	return audit.Head{Seq: uint64(seq), Hash: [32]byte(hash)}, nil
}

func follow(head audit.Head, line, hash []byte) (audit.Head, error) {
	why := "has no hash"
	if len(hash) == len(head.Hash) {
		var next audit.Head
		if next, why = head.Follow(line, [32]byte(hash)); why == "" {
			return next, nil
		}
	}
	return head, damage(fmt.Sprintf("its audit was changed: record %d %s", head.Seq+1, why))
}

// explained says in our words what an error of SQLite means for the file that
// is being opened, and what to do.
func explained(err error) error {
	foreign := (*sqlite.Error)(nil)
	if !errors.As(err, &foreign) {
		return err
	}
	why := map[int]error{
		sqlite3.SQLITE_NOTADB:   damage("it is not a database"),
		sqlite3.SQLITE_CORRUPT:  damage("it is damaged"),
		sqlite3.SQLITE_FULL:     errors.New("the disk is full: free space and start again"),
		sqlite3.SQLITE_IOERR:    errors.New("the disk does not read or write it: mend that and start again"),
		sqlite3.SQLITE_READONLY: errors.New("it, its -wal or its folder cannot be written: the broker's user needs that"),
		sqlite3.SQLITE_CANTOPEN: errors.New("it, its -wal or its folder cannot be opened: the broker's user needs that"),
		sqlite3.SQLITE_BUSY:     errors.New("another program is writing to it: end that and start again"),
	}[foreign.Code()&0xff]
	if why == nil {
		return err
	}
	return fmt.Errorf("%w (%s)", why, resultCode(err))
}
