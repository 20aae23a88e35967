package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"io"
	"os"
	"strings"
	"time"
)

// Who a ledger is hangs on a word that stands in the database and in the lock
// file. Every opening and every closing changes it, so a copy of the database
// from any other time comes with another one and becomes a new ledger. Beside
// the word the lock file has a mark:
//
//	<word> served   a broker has the file, or has died with it
//	<word> closed   a broker has closed it, and all of it is in the database file
//
// The word goes to the database first. If the process ends before it is in the
// lock file too, the next opening finds a new ledger: "absent" is never taken
// for "never sent".
const (
	markServed = "served"
	markClosed = "closed"
)

// An Opening is what was found when the file was opened.
type Opening struct {
	Clean  bool   // a broker has closed it, or it is new; else every page was checked
	Former string // the ledger that it was before this opening made it another; "": none
}

// Opening returns what was found when the file was opened.
func (s *Store) Opening() Opening { return s.opening }

// identify reads who this ledger is: another than before where the words differ,
// or where the file was not closed and its -wal, which then has the last
// commits, is gone.
func (s *Store) identify(ctx context.Context, there, wal bool) error {
	text, err := io.ReadAll(s.lock)
	if err != nil {
		return err
	}
	word, mark, _ := strings.Cut(string(text), " ") // a broker of before the marks wrote none
	s.id = newWord()
	if !there {
		s.opening.Clean = mark != markServed
		return nil
	}
	var since int64
	var former, last string
	row := s.writer.conn.QueryRowContext(ctx, `SELECT ledger, since, opening FROM meta`)
	switch err := row.Scan(&former, &since, &last); {
	case errors.Is(err, sql.ErrNoRows): // the process that made it died at once
		return nil
	case err != nil:
		return err
	case last == word && (mark != markServed || wal):
		s.id, s.since = former, time.Unix(0, since).UTC()
		s.opening.Clean = mark == markClosed
	default:
		s.opening.Former = former
	}
	return nil
}

// begin writes who this ledger is from now on.
func (s *Store) begin(ctx context.Context, now time.Time) error {
	if s.since.IsZero() {
		s.since = time.Unix(0, now.UnixNano()).UTC()
	}
	word := newWord()
	_, err := s.writer.conn.ExecContext(ctx,
		`INSERT INTO meta (one, ledger, since, opening) VALUES (1, ?, ?, ?)
		ON CONFLICT (one) DO UPDATE SET ledger = excluded.ledger, since = excluded.since, opening = excluded.opening`,
		s.id, s.since.UnixNano(), word)
	if err != nil {
		return err
	}
	return rewrite(s.lock, word+" "+markServed)
}

// part marks the file as closed, once all of it is in the database file. Where
// that cannot be (another program reads it just now, the disk is full), and after
// a commit that failed, it stays marked as served.
func (s *Store) part() error {
	if s.Err() != nil {
		return nil
	}
	s.read.Close() // what it returns, release returns
	word := newWord()
	if _, err := s.writer.conn.ExecContext(context.Background(), `UPDATE meta SET opening = ?`, word); err != nil {
		return err
	}
	if whole, err := s.writer.fold(); err != nil || !whole {
		return errors.Join(err, rewrite(s.lock, word+" "+markServed))
	}
	if err := rewrite(s.lock, word+" "+markClosed); err != nil {
		return err
	}
	return s.writer.keepLog(false)
}

// fold moves what is in -wal into the database file, all of it unless another
// program reads there; a stop does not wait for that.
func (w *writer) fold() (whole bool, err error) {
	if _, err := w.conn.ExecContext(context.Background(), `PRAGMA busy_timeout = 0`); err != nil {
		return false, err
	}
	var busy bool
	var pages, moved int
	err = w.conn.QueryRowContext(context.Background(), `PRAGMA wal_checkpoint(TRUNCATE)`).Scan(&busy, &pages, &moved)
	return !busy, err
}

func newWord() string { return strings.ToLower(rand.Text()) }

// rewrite writes over what is there, which a full disk allows.
func rewrite(f *os.File, text string) error {
	if _, err := f.WriteAt([]byte(text), 0); err != nil {
		return err
	}
	if err := f.Truncate(int64(len(text))); err != nil {
		return err
	}
	return f.Sync()
}
