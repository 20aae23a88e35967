package auditlog

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"time"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/store"
)

const (
	pruneEvery = time.Hour
	pruneChunk = 200                   // rows; bounds how long a commit of somebody else waits
	prunePause = 25 * time.Millisecond // between two chunks: writers come first
)

// A Pruner takes records from the store that are in the sink's file and old: up to the
// newest signed head that is as old as that. It keeps this head and those after it.
type Pruner struct {
	Store *store.Store
	Keep  time.Duration
	Now   func() time.Time
	Log   *slog.Logger
}

// Run prunes until ctx ends.
func (p *Pruner) Run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := p.prune(ctx); err != nil && ctx.Err() == nil {
			p.Log.Warn("audit not pruned", "reason", string(fault.ReasonOf(err)))
		}
		select {
		case <-time.After(pruneEvery):
		case <-ctx.Done():
		}
	}
}

// prune moves the cut, and clears what is before it, also what an earlier process left.
func (p *Pruner) prune(ctx context.Context) error {
	err := p.cut(ctx)
	for more := true; more && err == nil; {
		if more, err = p.clear(ctx); more {
			select {
			case <-time.After(prunePause):
			case <-ctx.Done():
			}
		}
	}
	return err
}

// cut moves the cut where there is a head for it.
func (p *Pruner) cut(ctx context.Context) error {
	const op = "auditlog.Prune"
	now := p.Now()
	before, _, err := p.Store.Extent(ctx)
	if err != nil {
		return err
	}
	var to audit.Head
	var hash, root []byte
	pruned := &audit.Pruned{From: before.Seq + 1}
	row := p.Store.Read().QueryRowContext(ctx, `SELECT size, hash, root, tree, checkpoint FROM heads
		WHERE time < ? AND size > ? AND size <= (SELECT seq FROM copied) ORDER BY time DESC LIMIT 1`, now.Add(-p.Keep).UnixNano(), int64(before.Seq))
	switch err := row.Scan(&to.Seq, &hash, &root, &pruned.Tree, &pruned.Head); {
	case errors.Is(err, sql.ErrNoRows):
		return nil
	case err != nil:
		return store.Failure(op, err)
	}
	copy(to.Hash[:], hash)
	pruned.To = to.Place()
	tree, err := audit.TreeOf(to.Seq, pruned.Tree)
	if made := tree.Root(); err != nil || string(made[:]) != string(root) {
		return fault.New(op, fault.StoreFailed, "the tree of a head is damaged")
	}
	err = p.Store.Commit(ctx, func(tx *store.Tx) error { return tx.Prune(to) }, audit.Record{Kind: audit.Retention, Time: now, Pruned: pruned})
	if err == nil {
		p.Log.Info("audit pruned", "from", pruned.From, "to", to.Seq)
	}
	return err
}

// clear deletes some of the records and heads before the cut.
func (p *Pruner) clear(ctx context.Context) (more bool, err error) {
	err = p.Store.CommitLater(ctx, func(tx *store.Tx) error {
		records, err := tx.Clear(pruneChunk)
		if err != nil {
			return err
		}
		heads, err := tx.Exec(`DELETE FROM heads WHERE size IN (SELECT size FROM heads WHERE size < (SELECT seq FROM cut) ORDER BY size LIMIT ?)`, pruneChunk)
		more = records == pruneChunk || heads == pruneChunk
		return err
	})
	return more && err == nil, err
}
