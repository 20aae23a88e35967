// Package store opens the database: one SQLite file under an exclusive lock.
//
// [Store.Commit] writes rows together with the audit records that speak of
// them. There is no other write, so what is not in the audit did not happen. What is
// written without a record decides nothing: when a server was last in contact, the
// signed heads of the audit itself, and how far it was copied.
//
// What always holds:
//
//   - When Commit returns nil, rows and records are on disk and survive the
//     end of the process and of the machine (WAL, synchronous=FULL). A commit into
//     files that were removed or replaced under us is one that failed.
//   - Records of all requests form one chain, see package audit. It begins with the
//     first record, or after the cut that a record of it speaks of.
//   - A request that fails undoes itself and nothing else.
//   - After a commit that failed nothing is written until the file has been
//     opened again: what a failed fsync has left on disk, nobody knows.
//   - One process has the file, once. The file is for its owner alone.
//   - A file that no broker has closed is read, every page of it, before anything
//     is written to it; one that is damaged is refused.
//   - A copy from another time, and a file whose last commits are gone with its
//     -wal, is another ledger.
//
// Beside the database at <path> lie <path>-wal and <path>-shm, which belong to
// it, and <path>.lock, which says who it is: see identity.go. Not to be told
// from the original is what was copied together with its lock file, and what was
// copied together with its -wal and put back after the broker that it was taken
// from has died.
//
// The schema, also that of the packages above, is in schema.go. This package
// knows nothing of what the rows mean.
package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"modernc.org/sqlite" // and the driver "sqlite"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/fault"
)

// Config is what a Store needs from the world.
type Config struct {
	Path string           // of the database; its folder must exist
	Now  func() time.Time // nil: time.Now

	// Tamper, if not nil, is for tests: the writer calls it for every request
	// at every [Moment], and an error fails the request as the moment says.
	// It sees the records of the request, if any, as they will be written.
	Tamper func(at Moment, records []audit.Record) error
}

// A Moment is where a test may break a commit.
type Moment int

const (
	Applying   Moment = iota // this request alone fails and is undone; the store goes on
	Committing               // the commit fails: nothing of it is on disk, the store has failed
	Committed                // the commit is on disk and is told as failed; the store has failed
)

// A Store is an open database.
type Store struct {
	lock    *os.File
	writer  *writer
	read    *sql.DB
	id      string
	since   time.Time
	opening Opening
	head    atomic.Pointer[audit.Head]
	broken  atomic.Pointer[fault.Error]

	queue   chan *request // unbuffered: what the writer has not taken, its sender can withdraw
	closing chan struct{}
	done    chan struct{} // the writer has ended
	once    sync.Once
}

// Open takes the file at c.Path, makes it if there is none, and brings its
// schema up to date. The error is for the operator who starts the broker.
func Open(ctx context.Context, c Config) (*Store, error) {
	if c.Now == nil {
		c.Now = time.Now
	}
	s := &Store{queue: make(chan *request), closing: make(chan struct{}), done: make(chan struct{})}
	if err := s.open(ctx, c); err != nil {
		s.release()
		return nil, fmt.Errorf("opening the store %q: %w", c.Path, explained(err))
	}
	head := s.writer.head
	s.head.Store(&head)
	go s.write()
	return s, nil
}

func (s *Store) open(ctx context.Context, c Config) (err error) {
	path, err := filepath.Abs(c.Path)
	if err != nil {
		return err
	}
	if err := localFile(filepath.Dir(path)); err != nil {
		return err
	}
	if s.lock, err = lockFile(path + ".lock"); err != nil {
		return err
	}
	wal, err := privateFiles(path)
	if err != nil {
		return err
	}
	if s.writer, err = openWriter(ctx, path, c); err != nil {
		return err
	}
	if err := s.examine(ctx, wal); err != nil {
		return err
	}
	if err := s.writer.migrate(ctx, c.Now()); err != nil {
		return err
	}
	if err := s.begin(ctx, c.Now()); err != nil {
		return err
	}
	if s.writer.files, err = filesOf(path); err != nil {
		return err
	}
	s.read, err = openReaders(ctx, path)
	return err
}

// examine looks at what is in the file before anything is written to it. A file
// that a broker has closed is believed but for the end of its audit; every page of
// any other is read.
func (s *Store) examine(ctx context.Context, wal bool) error {
	schema, err := s.writer.schema(ctx)
	if err != nil {
		return err
	}
	if err := s.identify(ctx, schema > 0, wal); err != nil {
		return err
	}
	if !s.opening.Clean {
		if err := s.writer.intact(ctx); err != nil {
			return err
		}
	}
	if schema > 0 {
		s.writer.head, err = s.writer.chain(ctx, s.opening.tail())
	}
	return err
}

// lockFile takes the lock. It ends with the process, however that ends.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = errors.New("another broker has it open")
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// unlock gives the lock up. Closing alone leaves it with a child process that has begun
// and not yet become its own program: until then it has every open file of ours.
func unlock(f *os.File) error {
	return errors.Join(syscall.Flock(int(f.Fd()), syscall.LOCK_UN), f.Close())
}

// privateFiles makes the database file before SQLite does, which would take the
// umask for its mode and give -wal and -shm the same. wal says whether there is
// a write-ahead log with something in it. One without its database is refused:
// SQLite would remove it, and with it the last commits.
func privateFiles(path string) (wal bool, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return false, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return false, err
	}
	if mode := info.Mode(); !mode.IsRegular() || mode.Perm()&0o077 != 0 {
		return false, fmt.Errorf("its mode is %v; it must be a plain file for its owner alone: chmod 600", mode)
	}
	log, err := os.Stat(path + "-wal")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	wal = err == nil && log.Size() > 0
	if wal && info.Size() == 0 {
		return false, errors.New("its -wal is there and it is not: bring it back, or move the -wal away, too, to begin a new ledger")
	}
	return wal, nil
}

// dsn names the file at path. busy_timeout is for other programs that read the
// file, a backup say; ours never wait for each other.
func dsn(path, options string) string {
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?_busy_timeout=5000&_dqs=0&_defensive=1&" + options
}

const readers = 4 // connections; a read takes well below a millisecond

func openReaders(ctx context.Context, path string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", dsn(path, "mode=ro&_query_only=1"))
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(readers)
	db.SetMaxIdleConns(readers)
	return db, db.PingContext(ctx)
}

// Ledger returns the identity of what is in the file and when it began. The
// absence of a row means something only within one ledger.
func (s *Store) Ledger() (id string, since time.Time) { return s.id, s.since }

// Head returns the head of the audit's chain, of what Commit has acknowledged at
// least.
func (s *Store) Head() audit.Head { return *s.head.Load() }

// Read returns the connections for reading; they cannot write. What Commit has
// acknowledged, a read that starts afterwards sees.
func (s *Store) Read() *sql.DB { return s.read }

// Err returns nil, or why nothing is written any more: a *fault.Error with
// store_failed. It stays until the file is opened again.
func (s *Store) Err() error {
	if err := s.broken.Load(); err != nil {
		return err
	}
	return nil
}

// Lines gives each the audit records after a number as they are stored, in their
// order, at most so many. A line is good until each returns. An error of each is
// returned as it is.
func (s *Store) Lines(ctx context.Context, after uint64, most int, each func(seq uint64, line []byte, hash [32]byte) error) error {
	const op = "store.Lines"
	rows, err := s.read.QueryContext(ctx, `SELECT seq, line, hash FROM audit WHERE seq > ? AND seq > (SELECT COALESCE(MAX(seq), 0) FROM cut) ORDER BY seq LIMIT ?`,
		int64(min(after, math.MaxInt64)), most)
	if err != nil {
		return Failure(op, err)
	}
	defer rows.Close()
	for rows.Next() {
		var seq int64
		var line, hash sql.RawBytes
		if err := rows.Scan(&seq, &line, &hash); err != nil {
			return Failure(op, err)
		}
		if len(line) == 0 || len(hash) != len(audit.Head{}.Hash) {
			return fault.New(op, fault.StoreFailed, "an audit record is damaged")
		}
		if err := each(uint64(seq), line, [32]byte(hash)); err != nil {
			return err
		}
	}
	return Failure(op, rows.Err())
}

// Export writes every audit record as a line that audit.Verify reads, all from
// one moment. An error of w is returned as it is.
func (s *Store) Export(ctx context.Context, w io.Writer) error {
	return s.Lines(ctx, 0, math.MaxInt, func(_ uint64, line []byte, hash [32]byte) error {
		_, err := w.Write(audit.Exported(line, hash))
		return err
	})
}

// Close waits for the commits that the writer has taken, refuses the others
// and gives the file back.
func (s *Store) Close() (err error) {
	s.once.Do(func() {
		close(s.closing)
		<-s.done
		err = errors.Join(s.part(), s.release())
	})
	return err
}

func (s *Store) release() error {
	var errs []error
	if s.read != nil {
		errs = append(errs, s.read.Close())
	}
	if s.writer != nil {
		errs = append(errs, s.writer.close())
	}
	if s.lock != nil { // last: until then nobody else may open the file
		errs = append(errs, unlock(s.lock))
	}
	return errors.Join(errs...)
}

// Failure returns an error of the database as a *fault.Error without the
// database's text. It returns nil, and an error that is a fault already, as
// they are. A wait that the context ended is store_unavailable: the question
// was not answered, and nothing else is wrong.
func Failure(op string, err error) error {
	known := (*fault.Error)(nil)
	switch {
	case err == nil || errors.As(err, &known):
		return err
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fault.New(op, fault.StoreUnavailable, "the wait for an answer was ended")
	}
	return fault.New(op, fault.StoreFailed, resultCode(err))
}

// resultCode names the failure by a number (https://sqlite.org/rescode.html), or says
// that it is not SQLite's.
func resultCode(err error) string {
	if code := (*sqlite.Error)(nil); errors.As(err, &code) {
		return fmt.Sprintf("SQLite result code %d", code.Code())
	}
	if errors.Is(err, errTaken) {
		return errTaken.Error()
	}
	return ""
}
