package store

import (
	"context"
	"database/sql"
	"fmt"
	"runtime"
	"slices"
	"time"

	"modernc.org/sqlite"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/fault"
)

// A request is one call of Commit or CommitLater.
type request struct {
	write   func(*Tx) error
	records []audit.Record
	later   bool  // it may wait for a request that may not
	err     error // of this request alone; it has been undone
	done    chan error
}

// Commit runs write, chains the records after it and makes both durable in one
// commit. write may be nil.
//
// An error of write is returned as it is, and nothing of this request is
// written. write runs on the writer's goroutine, one request at a time: keep it
// short, and do not commit from inside it, which would wait for itself. The
// records are read after it has returned, so it may complete them in the slice
// that was passed. A record without a time gets the store's.
//
// If ctx ends before the writer has taken the request, nothing is written and
// the error is store_unavailable. A request that was taken is waited for.
// After store_failed the request may or may not be on disk; see [Store.Err].
func (s *Store) Commit(ctx context.Context, write func(*Tx) error, records ...audit.Record) error {
	return s.request(ctx, &request{write: write, records: records, done: make(chan error, 1)})
}

// CommitLater is Commit for what nobody waits for: it joins the next commit
// that comes, and makes one of its own if none has come after [patience] or
// when the store is closed. It returns when that is done, like Commit.
func (s *Store) CommitLater(ctx context.Context, write func(*Tx) error, records ...audit.Record) error {
	return s.request(ctx, &request{write: write, records: records, later: true, done: make(chan error, 1)})
}

func (s *Store) request(ctx context.Context, r *request) error {
	const op = "store.Commit"
	if ctx.Err() != nil {
		return fault.New(op, fault.StoreUnavailable, "the request was withdrawn before it was taken")
	}
	select {
	case s.queue <- r:
		return <-r.done
	case <-ctx.Done():
		return fault.New(op, fault.StoreUnavailable, "the request was withdrawn before it was taken")
	case <-s.done:
		return fault.New(op, fault.StoreUnavailable, "the store is closed")
	}
}

// A Tx is the part of a commit that belongs to one request. It ends when the
// function that got it returns. It can neither commit nor roll back; statements
// are prepared once per text, so the text must not contain values.
type Tx struct{ w *writer }

// Exec runs a statement and returns how many rows it changed.
func (tx *Tx) Exec(query string, args ...any) (changed int64, err error) {
	stmt, err := tx.w.statement(query)
	if err != nil {
		return 0, Failure("store.Exec", err)
	}
	result, err := stmt.Exec(args...)
	if err != nil {
		return 0, Failure("store.Exec", err)
	}
	return result.RowsAffected()
}

// Scan reads the one row of a query into dest. found is false if there is none.
func (tx *Tx) Scan(dest []any, query string, args ...any) (found bool, err error) {
	stmt, err := tx.w.statement(query)
	if err != nil {
		return false, Failure("store.Scan", err)
	}
	err = stmt.QueryRow(args...).Scan(dest...)
	if err == sql.ErrNoRows {
		return false, nil
	}
	return err == nil, Failure("store.Scan", err)
}

const (
	batchLimit = 256                   // bounds how long the first of a batch waits for the last
	patience   = 50 * time.Millisecond // how long a CommitLater waits for a commit to join
)

// write is the writer's goroutine.
func (s *Store) write() {
	defer close(s.done)
	for open := true; open; {
		var batch []*request
		batch, open = s.collect()
		s.commit(batch)
	}
}

// collect takes one request that does not wait and what else is there by then:
// while the disk works, the next batch forms by itself, and no Commit ever
// waits for company. What may wait is taken at once, too, and joins it. open is
// false when the store is being closed.
func (s *Store) collect() (batch []*request, open bool) {
	var enough <-chan time.Time
	for {
		select {
		case r := <-s.queue:
			batch = append(batch, r)
			switch {
			case !r.later || len(batch) == batchLimit:
				return s.fillUp(batch), true
			case enough == nil:
				enough = time.After(patience)
			}
		case <-enough:
			return batch, true
		case <-s.closing:
			return batch, false
		}
	}
}

func (s *Store) fillUp(batch []*request) []*request {
	batch = s.drain(batch)
	runtime.Gosched() // the callers of the last batch are just about to come back
	return s.drain(batch)
}

func (s *Store) drain(batch []*request) []*request {
	for len(batch) < batchLimit {
		select {
		case r := <-s.queue:
			batch = append(batch, r)
		default:
			return batch
		}
	}
	return batch
}

// commit answers every request of the batch.
func (s *Store) commit(batch []*request) {
	if len(batch) == 0 {
		return
	}
	err := s.Err()
	if err == nil {
		if failure := s.writer.commit(batch); failure != nil {
			s.broken.Store(fault.New("store.Commit", fault.StoreFailed, resultCode(failure)))
			err = s.Err()
		} else {
			head := s.writer.head
			s.head.Store(&head)
		}
	}
	for _, r := range batch {
		if r.err == nil {
			r.err = err
		}
		r.done <- r.err
	}
}

// writer owns the only connection that writes. All but openWriter, migrate and
// close run on the writer's goroutine.
type writer struct {
	db       *sql.DB
	conn     *sql.Conn
	prepared map[string]*sql.Stmt
	head     audit.Head
	files    files
	now      func() time.Time
	tamper   func(Moment, []audit.Record) error
}

// openWriter opens it. What SQLite keeps to undo a savepoint stays in memory: in a file
// it would be rows outside of ours, and at 64 callers more bytes than the log.
func openWriter(ctx context.Context, path string, c Config) (*writer, error) {
	db, err := sql.Open("sqlite", dsn(path, "_journal_mode=WAL&_synchronous=FULL&_foreign_keys=1&_txlock=immediate&_pragma=temp_store(2)"))
	if err != nil {
		return nil, err
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		db.Close()
		return nil, err
	}
	w := &writer{db: db, conn: conn, prepared: map[string]*sql.Stmt{}, now: c.Now, tamper: c.Tamper}
	err = w.check(ctx)
	if err == nil {
		err = w.keepLog(true)
	}
	if err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

// check refuses a library or a file that cannot keep the promises above.
func (w *writer) check(ctx context.Context) error {
	var version, journal string
	var synchronous int
	for query, dest := range map[string]any{
		`SELECT sqlite_version()`: &version,
		`PRAGMA journal_mode`:     &journal,
		`PRAGMA synchronous`:      &synchronous,
	} {
		if err := w.conn.QueryRowContext(ctx, query).Scan(dest); err != nil {
			return err
		}
	}
	return suitable(version, journal, synchronous)
}

// suitable: before 3.51.3 SQLite could lose commits when it reset the WAL
// (https://sqlite.org/wal.html#walresetbug).
func suitable(version, journal string, synchronous int) error {
	var v [3]int
	if n, _ := fmt.Sscanf(version, "%d.%d.%d", &v[0], &v[1], &v[2]); n < 2 || slices.Compare(v[:], []int{3, 51, 3}) < 0 {
		return fmt.Errorf("SQLite %q is too old: 3.51.3 or newer is needed", version)
	}
	if journal != "wal" {
		return fmt.Errorf("its journal mode is %q: this file system does not carry a write-ahead log", journal)
	}
	if synchronous < 2 {
		return fmt.Errorf("synchronous is %d: commits would not be durable", synchronous)
	}
	return nil
}

// keepLog keeps SQLite from removing -wal when the file is closed. A file that no
// broker has closed well keeps it for the next one to see, see [Store.identify].
func (w *writer) keepLog(keep bool) error {
	mode := 0
	if keep {
		mode = 1
	}
	return w.conn.Raw(func(c any) error {
		_, err := c.(sqlite.FileControl).FileControlPersistWAL("main", mode)
		return err
	})
}

func (w *writer) close() error {
	for _, stmt := range w.prepared {
		stmt.Close()
	}
	w.conn.Close()
	return w.db.Close()
}

// commit writes the batch. The error, if any, is one of the whole batch.
func (w *writer) commit(batch []*request) error {
	head, err := w.apply(batch)
	if err != nil {
		_ = w.exec(`ROLLBACK`) // SQLite may have done so already; nothing is written afterwards in either case
		return err
	}
	w.head = head
	if err := w.files.still(); err != nil {
		return err
	}
	return w.interfere(Committed, batch)
}

// apply writes the rows of each request, and the records of all after them: what has to be
// kept to undo a request is less then, and no record can fail for itself.
func (w *writer) apply(batch []*request) (head audit.Head, err error) {
	if err := w.exec(`BEGIN IMMEDIATE`); err != nil {
		return head, err
	}
	for _, r := range batch {
		if err := w.applyOne(r); err != nil {
			return head, err
		}
	}
	if head, err = w.record(batch); err != nil {
		return head, err
	}
	if err := w.interfere(Committing, batch); err != nil {
		return head, err
	}
	return head, w.exec(`COMMIT`)
}

// applyOne writes the rows of one request inside a savepoint. What it returns ends the batch.
func (w *writer) applyOne(r *request) error {
	if err := w.exec(`SAVEPOINT request`); err != nil {
		return err
	}
	if r.err = w.fill(r); r.err != nil {
		if err := w.exec(`ROLLBACK TO request`); err != nil {
			return err
		}
	}
	return w.exec(`RELEASE request`)
}

func (w *writer) fill(r *request) error {
	const op = "store.Commit"
	if r.write != nil {
		if err := r.write(&Tx{w}); err != nil {
			return err
		}
	}
	for _, rec := range r.records {
		if !rec.Kind.Known() {
			return fault.New(op, fault.InternalError, fmt.Sprintf("no kind of record is called %q", rec.Kind))
		}
	}
	return Failure(op, w.interfere(Applying, []*request{r}))
}

// record chains the records of the requests that were not undone.
func (w *writer) record(batch []*request) (head audit.Head, err error) {
	head = w.head
	for _, r := range batch {
		if r.err != nil {
			continue
		}
		for _, rec := range r.records {
			if head, err = w.insert(rec, head); err != nil {
				return head, err
			}
		}
	}
	return head, nil
}

func (w *writer) insert(rec audit.Record, head audit.Head) (audit.Head, error) {
	if rec.Time.IsZero() {
		rec.Time = w.now()
	}
	line, next := head.Next(rec)
	err := w.exec(`INSERT INTO audit (seq, time, kind, operation, line, hash) VALUES (?, ?, ?, ?, ?, ?)`,
		int64(next.Seq), rec.Time.UnixNano(), string(rec.Kind), rec.Operation, string(line), next.Hash[:])
	return next, err
}

// interfere lets a test fail the requests at a moment.
func (w *writer) interfere(at Moment, batch []*request) error {
	if w.tamper == nil {
		return nil
	}
	for _, r := range batch {
		if r.err != nil {
			continue
		}
		if err := w.tamper(at, r.records); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) exec(query string, args ...any) error {
	stmt, err := w.statement(query)
	if err == nil {
		_, err = stmt.Exec(args...)
	}
	return err
}

// statement returns the prepared form of a query: preparing costs more than
// running it.
func (w *writer) statement(query string) (*sql.Stmt, error) {
	if stmt := w.prepared[query]; stmt != nil {
		return stmt, nil
	}
	stmt, err := w.conn.PrepareContext(context.Background(), query)
	if err == nil {
		w.prepared[query] = stmt
	}
	return stmt, err
}
