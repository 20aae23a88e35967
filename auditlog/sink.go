package auditlog

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/store"
)

// A Sink copies the audit to a file, each record as [audit.Exported] has it. Somebody
// may move the file away, or make it empty, at any time: the next one goes on where it
// ended. Its fields are those of the goroutine that runs it.
type Sink struct {
	SinkConfig
	at      audit.Head    // the last record that is surely in a file
	size    int64         // of that file then
	copied  atomic.Uint64 // at.Seq
	due     time.Time     // when it is tried again
	wait    time.Duration // how long after this failure
	trouble string        // what was said last
}

// SinkConfig is what a Sink needs from the world.
type SinkConfig struct {
	Store *store.Store
	Path  string
	Log   *slog.Logger
}

// NewSink returns a Sink that goes on where the last one ended: with the first record
// there is, where there was none.
func NewSink(ctx context.Context, c SinkConfig) (*Sink, error) {
	s := &Sink{SinkConfig: c}
	var err error
	if s.at, _, err = c.Store.Extent(ctx); err != nil {
		return nil, err
	}
	var hash []byte
	row := c.Store.Read().QueryRowContext(ctx, `SELECT seq, hash, size FROM copied WHERE seq >= ?`, int64(s.at.Seq))
	switch err := row.Scan(&s.at.Seq, &hash, &s.size); {
	case errors.Is(err, sql.ErrNoRows):
	case err != nil:
		return nil, store.Failure("auditlog.NewSink", err)
	default:
		copy(s.at.Hash[:], hash)
	}
	s.copied.Store(s.at.Seq)
	return s, nil
}

// Behind is how many records are not surely in the file. It may be called at any time.
func (s *Sink) Behind() uint64 {
	copied := s.copied.Load() // first: it may be of a commit that Head tells a moment later
	return max(s.Store.Head().Seq, copied) - copied
}

// Run copies what is new until ctx ends, and then what is left.
func (s *Sink) Run(ctx context.Context) {
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if time.Now().Before(s.due) {
				continue
			}
			if s.step(ctx) != nil {
				return
			}
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastBudget)
			defer cancel()
			s.step(last)
			return
		}
	}
}

// step copies all that is new. What fails is tried again, less and less often; a record
// that does not follow the one before it ends the copying.
func (s *Sink) step(ctx context.Context) error {
	more, err := true, error(nil)
	for more && err == nil {
		more, err = s.copy(ctx)
	}
	switch {
	case errors.Is(err, errChanged):
		s.Log.Error("audit was changed", "record", s.at.Seq+1, "copied", s.at.Seq)
		return err
	case err != nil && ctx.Err() != nil: // nothing is wrong but the time
		return nil
	case err != nil:
		s.wait = min(max(2*s.wait, look), pause)
		s.due = time.Now().Add(s.wait)
	default:
		s.wait = 0
	}
	s.say(err)
	return nil
}

// say logs when it begins not to work, or for another reason, and when it works again.
func (s *Sink) say(err error) {
	why := ""
	if err != nil {
		why = err.Error()
	}
	switch {
	case why == s.trouble:
	case why == "":
		s.Log.Info("sink written again", "copied", s.at.Seq)
	default:
		s.Log.Error("sink not written", "copied", s.at.Seq, "why", why)
	}
	s.trouble = why
}

// copy brings the next records to the file, and what is in it to the store. Where it
// ends between the two, the next one finds them there.
func (s *Sink) copy(ctx context.Context) (more bool, err error) {
	text, last, err := s.next(ctx)
	if err != nil || len(text) == 0 {
		return false, err
	}
	size, err := s.write(text)
	if err != nil {
		return false, err
	}
	err = s.Store.CommitLater(ctx, func(tx *store.Tx) error {
		_, err := tx.Exec(`INSERT INTO copied (one, seq, hash, size) VALUES (1, ?, ?, ?)
			ON CONFLICT (one) DO UPDATE SET seq = excluded.seq, hash = excluded.hash, size = excluded.size`, int64(last.Seq), last.Hash[:], size)
		return err
	})
	if err != nil {
		return false, err
	}
	more = last.Seq-s.at.Seq == many
	s.at, s.size = last, size
	s.copied.Store(last.Seq)
	return more, nil
}

// next returns the lines after the last one that was copied, as many as go in one
// write, and the head that they make.
func (s *Sink) next(ctx context.Context) (text []byte, last audit.Head, err error) {
	end := s.Store.Head()
	if last = s.at; end.Seq == last.Seq {
		return nil, last, nil
	}
	err = s.Store.Lines(ctx, s.at.Seq, many, func(_ uint64, line []byte, hash [32]byte) error {
		next, why := last.Follow(line, hash)
		if why != "" {
			return errChanged
		}
		last = next
		text = append(text, audit.Exported(line, hash)...)
		return nil
	})
	switch {
	case errors.Is(err, errChanged) && last != s.at: // after those that do follow
		err = nil
	case err == nil && last == s.at: // they are not there any more
		err = errChanged
	}
	return text, last, err
}

// write adds to the file what it does not have of a text, and returns how long it is
// up to the end of that.
func (s *Sink) write(text []byte) (size int64, err error) {
	f, info, err := openOurs(s.Path, os.O_RDWR)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	from, err := s.goesOn(f, info.Size(), text)
	if err != nil {
		return 0, err
	}
	have := min(info.Size()-from, int64(len(text)))
	if err := appendTo(f, info.Size(), text[have:]); err != nil {
		return 0, err
	}
	if from == 0 { // the file itself may be new
		err = syncFolder(s.Path)
	}
	return from + int64(len(text)), err
}

// goesOn returns where a text begins in the file: after what was written to it last, or
// at its beginning. From there on it must have nothing else, but it may have some of
// the text, or more than that: the process ended before the store knew.
func (s *Sink) goesOn(f *os.File, size int64, text []byte) (from int64, err error) {
	end := fmt.Appendf(nil, "%x\"}\n", s.at.Hash)
	last, err := part(f, size, s.size-int64(len(end)), len(end))
	if err != nil {
		return 0, err
	}
	if bytes.Equal(last, end) {
		from = s.size
	}
	have, err := part(f, size, from, len(text))
	if err == nil && !bytes.HasPrefix(text, have) {
		err = refuse(s.Path, fmt.Sprintf("is not as it was left after record %d; move it away, and a new one goes on from there", s.at.Seq))
	}
	return from, err
}

// part reads at most so many bytes of a file of a size.
func part(f *os.File, size, from int64, most int) ([]byte, error) {
	if from < 0 || from >= size {
		return nil, nil
	}
	b := make([]byte, min(size-from, int64(most)))
	_, err := f.ReadAt(b, from)
	if errors.Is(err, io.EOF) { // it was cut meanwhile
		err = io.ErrUnexpectedEOF
	}
	return b, err
}

// syncFolder brings the name of a file to disk.
func syncFolder(path string) error {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
