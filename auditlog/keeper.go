// Package auditlog shows that the audit is whole, and lets it be read.
//
// A [Keeper] signs heads of it: checkpoints of the Merkle tree over its records,
// one when 1,000 are new, one a minute after the last if there is anything new, and
// one at the end. A [Reader] gives its records to auditors. A [Sink] copies all of them
// to a file, and a [Pruner] takes those from the store that are old.
//
// What always holds:
//
//   - A head is signed only of records that follow each other up to the head that
//     the store's writer has in memory. After a record that does not, nothing is
//     signed or copied any more.
//   - A head is in the store before it goes to its second place.
//   - A record is in the sink's file, and that on disk, before the store's word that it
//     is; where the process ends between the two, it may be copied once more.
//   - A file that is not as the sink left it is not written to.
//   - Records are pruned up to a signed head, after they were copied, by a commit with a
//     record that says so.
//   - No operation waits for any of it, and none is refused for the want of it.
//   - No record leaves a Reader before the record that says who reads it is on disk.
//
// This package does not know what the records say, but for the filters of a reader.
package auditlog

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"golang.org/x/mod/sumdb/note"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/store"
)

const (
	many       = 1000 // new records that are worth a head at once
	pause      = time.Minute
	look       = time.Second // how soon new records are taken into the tree
	lastBudget = time.Second // of the last head
)

// Config is what a Keeper needs from the world.
type Config struct {
	Store  *store.Store
	Key    note.Signer
	Second func(head []byte) error // where heads are kept besides; nil: nowhere
	Now    func() time.Time
	Log    *slog.Logger
}

// A Keeper signs heads. Its fields are those of the goroutine that runs it.
type Keeper struct {
	Config
	at     audit.Head // of the chain, as far as the tree goes
	tree   audit.Tree
	signed uint64    // records that the newest head speaks of
	unsent []byte    // the newest head, while it is not at its second place
	due    time.Time // when a head is signed, however little is new, or tried again
	failed bool      // the last attempt
}

// NewKeeper returns a Keeper that goes on from the newest head of the store.
func NewKeeper(ctx context.Context, c Config) (*Keeper, error) {
	k := &Keeper{Config: c, due: time.Now().Add(pause)}
	return k, store.Failure("auditlog.NewKeeper", k.load(ctx))
}

// load goes on from the newest head whose tree makes its root. Where there is none,
// the tree is built from the first record on; and where that was pruned, it cannot
// be: then the audit was changed.
func (k *Keeper) load(ctx context.Context) error {
	rows, err := k.Store.Read().QueryContext(ctx, `SELECT size, hash, root, tree FROM heads ORDER BY size DESC`)
	if err != nil {
		return err
	}
	defer rows.Close()
	for first := true; rows.Next(); first = false {
		var size uint64
		var hash, root, full []byte
		if err := rows.Scan(&size, &hash, &root, &full); err != nil {
			return err
		}
		if first { // of so many there is one already
			k.signed = size
		}
		tree, err := audit.TreeOf(size, full)
		if made := tree.Root(); err == nil && len(hash) == len(k.at.Hash) && string(root) == string(made[:]) {
			k.at, k.tree = audit.Head{Seq: size, Hash: [32]byte(hash)}, tree
			return nil
		}
	}
	return rows.Err()
}

// Run signs heads until ctx ends, and then the last one.
func (k *Keeper) Run(ctx context.Context) {
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if k.step(ctx, false) != nil {
				return
			}
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastBudget)
			defer cancel()
			k.step(last, true)
			return
		}
	}
}

// errChanged ends the signing.
var errChanged = errors.New("the audit was changed")

// step takes what is new into the tree and signs it if it is time.
func (k *Keeper) step(ctx context.Context, last bool) error {
	switch err := k.grow(ctx); {
	case errors.Is(err, errChanged):
		k.Log.Error("audit was changed", "record", k.at.Seq+1, "signed", k.signed)
		return err
	case err != nil && ctx.Err() == nil && time.Now().After(k.due):
		k.due = time.Now().Add(pause)
		k.Log.Error("head not signed", "reason", string(fault.ReasonOf(err)))
		return nil
	case err != nil:
		return nil
	}
	fresh := k.at.Seq - k.signed
	now := last || !time.Now().Before(k.due) || fresh >= many && !k.failed
	if !now || fresh == 0 && k.unsent == nil {
		return nil
	}
	k.due, k.failed = time.Now().Add(pause), false
	if fresh > 0 {
		k.sign(ctx)
	}
	k.send()
	return nil
}

// grow takes the records that are new into the tree, as they are on disk: if
// somebody has changed one since it was written, it does not follow.
func (k *Keeper) grow(ctx context.Context) error {
	end := k.Store.Head()
	for k.at.Seq < end.Seq {
		before := k.at
		err := k.Store.Lines(ctx, k.at.Seq, int(min(many, end.Seq-k.at.Seq)), func(_ uint64, line []byte, hash [32]byte) error {
			next, why := k.at.Follow(line, hash)
			if why != "" {
				return errChanged
			}
			k.tree.Add(line)
			k.at = next
			return nil
		})
		if err == nil && k.at == before { // they are not there any more
			err = errChanged
		}
		if err != nil {
			return err
		}
	}
	if k.at != end || end.Seq < k.signed {
		return errChanged
	}
	return nil
}

// sign writes a head of all that is in the tree to the store.
func (k *Keeper) sign(ctx context.Context) {
	id, _ := k.Store.Ledger()
	c := audit.Checkpoint{Origin: audit.Origin(id), Size: k.tree.Size(), Root: k.tree.Root()}
	head, err := c.Sign(k.Key)
	if err == nil {
		err = k.Store.CommitLater(ctx, func(tx *store.Tx) error {
			_, err := tx.Exec(`INSERT INTO heads (size, time, hash, root, tree, checkpoint) VALUES (?, ?, ?, ?, ?, ?)`,
				int64(c.Size), k.Now().UnixNano(), k.at.Hash[:], c.Root[:], k.tree.Bytes(), string(head))
			return err
		})
	}
	if err != nil {
		k.failed = true
		k.Log.Error("head not signed", "reason", string(fault.ReasonOf(err)))
		return
	}
	k.signed, k.unsent = c.Size, head
}

// send brings the newest head to its second place. One that cannot be brought there
// is tried again with the next one, or in a minute.
func (k *Keeper) send() {
	if k.unsent == nil {
		return
	}
	if k.Second != nil {
		if err := k.Second(append(k.unsent, '\n')); err != nil {
			k.failed = true
			k.Log.Error("head not at its second place", "records", k.signed, "why", err.Error())
			return
		}
	}
	k.unsent = nil
}
