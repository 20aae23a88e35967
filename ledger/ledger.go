// Package ledger remembers what was begun, what was sent and how it ended, so
// that a repeated request never makes a server act twice.
//
// One operation moves along these arrows and never back:
//
//	(new) → awaiting_approval → reserved, or not_sent
//	(new) → reserved → sending → succeeded, tool_error, rpc_error, unknown
//	         ↑    ↓       ↓                              ↓          ↓
//	         ←  not_sent, refused                     resolved_ran, resolved_not_ran
//	         ←                                                      ↓
//
// and once more from unknown to succeeded, tool_error or rpc_error, where the answer
// came late.
//
// "sending" is written before the first byte of tools/call leaves. From
// "reserved" an operation ends only with ran = no, so whatever ran had
// "sending" on disk first. Only an outcome whose advice is "safe" may be begun
// again: the same operation, its next attempt. An admin resolves what is in
// doubt, see [Ledger.Resolve]. [Ledger.Recover] closes what a
// dead process left: reserved becomes not_sent and sending becomes unknown.
//
// What always holds:
//
//   - When a method that takes a record returns nil, the row and the record
//     are on disk, in one commit.
//   - Of any number of Begins with one key, exactly one starts an attempt.
//   - A step names operation and attempt; a step of an earlier attempt
//     changes nothing in a later one.
//   - What a copy knows from before it became this ledger is never safe to run.
//   - What is another caller's or another actor's is absent, by the same query
//     and with the same answer. A store that fails is never "absent".
//
// The states, and what a caller may do next, are words of package fault. The
// ledger fills a record's kind, operation, attempt and outcome; what else it
// says is the caller's. This package decides nothing about policy, does not
// bound results and does not send. It also keeps the rows of suspensions
// (suspensions.go), which package policy puts into force.
package ledger

import (
	"context"
	"encoding/base32"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/seal"
	"onbehalf.internal/broker/store"
)

// ErrOrder says that the operation's attempt is not in a state for this step,
// or is not there. Nothing was written.
var ErrOrder = errors.New("operation is not in a state for this step")

// Words for Operation.Hold. The empty word says that nothing was held.
const (
	HoldHeld    = "held"               // Vault may have it
	HoldDropped = "dropped"            // it is gone from Vault
	HoldPending = "pending"            // not seen to be gone; it ends with its epoch at the latest
	HoldExpired = "expired_with_epoch" // gone: the life of its epoch is over, and nobody has dropped it
)

// An Operation is one row.
type Operation struct {
	ID         string // made by the caller of Begin, see [NewID]
	Caller     string
	Actor      string
	RequestKey string // unique within caller and actor
	JTI        string // of the actor's assertion; empty if the actor was asserted by name
	RunID      string
	Server     string
	Tool       string

	Fingerprint [32]byte // of server, tool and arguments: tells one payload from another
	Arguments   [32]byte // of the arguments alone

	Attempt  int // from 1
	Outcome  fault.Outcome
	Late     bool // the answer came when the caller had been told that it is not known
	Deadline time.Time
	Created  time.Time // of the first attempt
	Updated  time.Time

	FirstSent    time.Time // when the caller first sent this key, as it says; zero: not known
	Supersedes   string    // the operation that this one is the second run of; empty: none
	SupersededBy string    // the second run of this one; empty: none

	// Of a server that honours a key: how it gets it, and until when a call in
	// doubt may be made again with it. Doubted says that an earlier attempt is in
	// doubt, so that nothing can be known to have not run.
	Upstream    string
	RepeatUntil time.Time
	Doubted     bool

	Resolution *Resolution // what an admin has said of this attempt; nil: nothing
	Approval   *Approval   // the last one; nil: none, or not asked for where it cannot matter

	ResultExpires time.Time // when the result will be gone
	KeyExpires    time.Time // when the rest of it, and the memory of its key, will be gone

	Calls policy.Calls // how many there may be, for Begin of a new one; not kept

	Result []byte       // exact bytes of the server's result or error object; nil while open, in lists, and where it is withheld
	Closed fault.Reason // why there is a result that could not be opened; None otherwise
	Legs   []audit.Leg
	Hold   string

	Snapshot string
	Grant    string // file:line
	Profile  string
	Audience string
	Scopes   []string
}

// NewID names a new operation, in 26 characters. It is a UUIDv7 (RFC 9562), so that ids have
// the order of time and what is written of new operations lies together in every index of ids.
func NewID() string {
	id := uuid.Must(uuid.NewV7())
	return sorted.EncodeToString(id[:])
}

// sorted is base32 with an alphabet in the order of its values.
var sorted = base32.NewEncoding("234567abcdefghijklmnopqrstuvwxyz").WithPadding(base32.NoPadding)

// Retry is what a caller may do next. It is the advice of the outcome, but that a
// call in doubt may be made again while the server remembers its key.
func (o Operation) Retry(at time.Time) fault.Retry {
	if o.Outcome.State == fault.InDoubt && at.Before(o.RepeatUntil) {
		return fault.RetrySafe
	}
	return o.Outcome.Retry()
}

// Settled is how an attempt's outcome stands for the whole operation: what an
// earlier attempt left in doubt, a later one that did not run leaves in doubt.
func (o Operation) Settled(out fault.Outcome) fault.Outcome {
	if o.Doubted && out.Ran == fault.RanNo && !out.State.Open() {
		return fault.Doubt(out.Cause)
	}
	return out
}

// A Ledger is safe for concurrent use.
type Ledger struct {
	store   *store.Store
	now     func() time.Time
	conf    Config
	denials denials
	reads   sync.Map // :: text of a query → *sql.Stmt
}

// Config is what a Ledger needs besides its store; the zero Config works.
type Config struct {
	Now  func() time.Time // the clock of rows and records; nil: time.Now
	Keep Retention
	Box  *seal.Box // what results are kept in; nil: compressed alone
}

// New returns the ledger in s.
func New(s *store.Store, c Config) *Ledger {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Box == nil {
		c.Box = &seal.Box{}
	}
	c.Keep = c.Keep.orDefault()
	return &Ledger{store: s, now: c.Now, conf: c, denials: denials{windows: map[refusal]*window{}}}
}

// errKnown undoes a Begin that found the operation.
var errKnown = errors.New("the operation is known")

// Begin starts an attempt of op, or finds the operation with op's caller,
// actor and request key. begun says which; rec is written only if it is true.
//
// The operation is begun if its key is new, or if it is safe to repeat (see
// [Operation.Retry]) in the way in which it was made; then it keeps ID and Created and has one more Attempt, and its
// earlier outcome is in the audit alone. One that waits for an approval is begun as the attempt that it is. Begin sets Attempt, Outcome, Created
// and Updated. It writes Hold as given: give [HoldHeld] if the operation may put a
// token into Vault, since a process that dies cannot say so later.
//
// The error is a *fault.Error: request_key_conflict if the key belongs to
// another Fingerprint, or Supersedes names what cannot be run a second time;
// assertion_replayed if the JTI belongs to another key of this caller;
// run_budget_spent or hour_budget_spent if there have been Calls enough; no_record
// if this ledger cannot know whether the key has run, see [Ledger.Remembers]; one of
// the store; or one of Vault's where results are sealed by a key there and it gives
// no data key. It is asked for here since Finish waits for nothing.
func (l *Ledger) Begin(ctx context.Context, op Operation, rec audit.Record) (_ Operation, begun bool, err error) {
	return l.start(ctx, op, fault.Reserved, named(rec, audit.Decision, "", 0), func(tx *store.Tx, op *Operation) error { return use(tx, *op) })
}

// start is Begin and Ask: to state, and what else belongs to that in the same commit.
func (l *Ledger) start(ctx context.Context, op Operation, state fault.State, rec audit.Record, more func(*store.Tx, *Operation) error) (_ Operation, begun bool, err error) {
	if err := l.conf.Box.Ready(ctx); err != nil {
		return Operation{}, false, err
	}
	records := []audit.Record{rec}
	err = l.store.Commit(ctx, func(tx *store.Tx) (err error) {
		if op, err = l.begin(tx, op, state); err != nil {
			return err
		}
		records[0] = named(rec, rec.Kind, op.ID, op.Attempt)
		records[0].Supersedes = op.Supersedes
		return more(tx, &op)
	}, records...)
	switch {
	case err == nil:
		return op, true, nil
	case errors.Is(err, errKnown):
		op, err = l.asked(ctx, l.opened(ctx, op)) // after the commit: it may ask Vault
		return op, false, store.Failure("ledger.Begin", err)
	}
	return Operation{}, false, store.Failure("ledger.Begin", err)
}

func (l *Ledger) begin(tx *store.Tx, op Operation, state fault.State) (Operation, error) {
	if err := fresh(tx, op); err != nil {
		return op, err
	}
	now := store.TimeOf(l.now().UnixNano())
	op.Attempt, op.Created, op.Updated, op.Deadline = 1, now, now, store.TimeOf(store.Nanoseconds(op.Deadline))
	op.Outcome = fault.Outcome{State: state, Ran: fault.RanNo, Evidence: fault.EvidenceLocal}
	op.Result, op.Legs, op.Resolution, op.Late = nil, nil, nil, false

	known, found, err := byKey(tx, op)
	if err != nil {
		return op, err
	}
	if found {
		known = l.vouched(known)
		switch {
		case known.Fingerprint != op.Fingerprint:
			return op, fault.New("ledger.Begin", fault.RequestKeyConflict, "the request key was used with another payload")
		case !known.mayBegin(op, now):
			return l.dated(known), errKnown
		}
		op.ID, op.Created, op.Attempt = known.ID, known.Created, known.Attempt
		if known.Outcome.State != fault.AwaitingApproval {
			op.Attempt++
		}
		op.FirstSent, op.Supersedes, op.SupersededBy, op.RepeatUntil = known.FirstSent, known.Supersedes, known.SupersededBy, known.RepeatUntil
		if op.Doubted = known.Doubted || known.Outcome.State == fault.InDoubt; op.Doubted {
			op.Outcome.Ran, op.Outcome.Evidence = fault.RanUnknown, fault.EvidenceNone
		}
	} else if err := l.within(tx, op); err != nil {
		return op, err
	} else if err := l.secondRun(tx, op); err != nil {
		return op, err
	}
	return l.dated(op), put(tx, op)
}

// mayBegin reports whether o, which is known, may become next. What waits for an
// approval may be begun: whether it may be sent, [Ledger.SendingApproved] asks. What
// is in doubt may be made again only in the way in which it was made, and in time.
func (o Operation) mayBegin(next Operation, at time.Time) bool {
	inTime := at.Before(o.RepeatUntil) && o.Upstream == next.Upstream
	switch o.Outcome.State {
	case fault.AwaitingApproval:
		return next.Outcome.State == fault.Reserved && (!o.Doubted || inTime)
	case fault.InDoubt:
		return inTime
	}
	return o.Retry(at) == fault.RetrySafe
}

// fresh refuses an assertion that has begun another operation.
func fresh(tx *store.Tx, op Operation) error {
	if op.JTI == "" {
		return nil
	}
	var other string
	found, err := tx.Scan([]any{&other}, `SELECT id FROM operations
		WHERE caller = ? AND jti = ? AND jti <> '' AND NOT (actor = ? AND request_key = ?)`,
		op.Caller, op.JTI, op.Actor, op.RequestKey)
	if found {
		return fault.New("ledger.Begin", fault.AssertionReplayed, "the assertion was used with another request key")
	}
	return err
}

// within refuses a new operation where there have been enough. Counting here, in the
// writer, no two requests are the last one.
func (l *Ledger) within(tx *store.Tx, op Operation) error {
	const rows = `SELECT COUNT(*) FROM (SELECT 1 FROM operations WHERE caller = ? AND actor = ? AND `
	for _, limit := range []struct {
		most   int
		where  string
		value  any
		reason fault.Reason
		what   string
	}{
		{op.Calls.PerRun, `run_id = ? AND run_id <> ''`, op.RunID, fault.RunBudgetSpent, "this run_id has had its %d calls; a person should look at the run"},
		{op.Calls.PerHour, `created > ?`, l.now().Add(-time.Hour).UnixNano(), fault.HourBudgetSpent, "there were %d calls for this actor within the last hour"},
	} {
		if limit.most == 0 || limit.value == "" {
			continue
		}
		var count int
		if _, err := tx.Scan([]any{&count}, rows+limit.where+` LIMIT ?)`, op.Caller, op.Actor, limit.value, limit.most); err != nil {
			return err
		}
		if count >= limit.most {
			return fault.New("ledger.Begin", limit.reason, fmt.Sprintf(limit.what, limit.most))
		}
	}
	return nil
}

// Decided writes that a server may be imported or probed: there is no row for that.
func (l *Ledger) Decided(ctx context.Context, rec audit.Record) error {
	rec.Kind = audit.Decision
	return store.Failure("ledger.Decided", l.store.Commit(ctx, nil, rec))
}

// DryExchanged writes how a dry exchange went.
func (l *Ledger) DryExchanged(ctx context.Context, rec audit.Record) error {
	rec.Kind = audit.DryExchange
	return store.Failure("ledger.DryExchanged", l.store.Commit(ctx, nil, rec))
}

// Sending says that tools/call may leave from now on: reserved → sending. An
// error, whichever, never means that it may.
func (l *Ledger) Sending(ctx context.Context, id string, attempt int, rec audit.Record) error {
	return l.send(ctx, id, attempt, rec, func(*store.Tx) error { return nil })
}

func (l *Ledger) send(ctx context.Context, id string, attempt int, rec audit.Record, more func(*store.Tx) error) error {
	out := fault.Outcome{State: fault.Sending, Ran: fault.RanUnknown, Evidence: fault.EvidenceNone}
	err := l.store.Commit(ctx, func(tx *store.Tx) error {
		if err := more(tx); err != nil {
			return err
		}
		return move(tx, `UPDATE operations SET `+outcomeColumns+` WHERE id = ? AND attempt = ? AND state = 'reserved'`,
			append(l.outcomeValues(out, rec.Time), id, attempt)...)
	}, ended(named(rec, audit.Sending, id, attempt), out))
	return failure("ledger.Sending", err)
}

// Finish ends an attempt: reserved or sending → out.State. result, if not nil,
// is kept as it is. hold is [HoldHeld] if a token may still be in Vault, else
// empty.
func (l *Ledger) Finish(ctx context.Context, id string, attempt int, out fault.Outcome, result []byte, legs []audit.Leg, hold string, rec audit.Record) error {
	rec.Legs = legs
	sealed, err := l.sealed(id, result)
	if err != nil {
		return failure("ledger.Finish", err)
	}
	told := asJSON(legs)
	err = l.store.Commit(ctx, func(tx *store.Tx) error {
		if err := l.end(tx, id, attempt, out, told, hold, rec.Time); err != nil {
			return err
		}
		return keep(tx, id, sealed)
	}, ended(named(rec, audit.Outcome, id, attempt), out))
	return failure("ledger.Finish", err)
}

// Late has an answer that came late take the place of the doubt about its attempt:
// unknown → succeeded, tool_error or rpc_error, with its result. It replaces no other
// word: ErrOrder if a later attempt has begun or an admin has said what became of it.
// Updated is when the answer came.
func (l *Ledger) Late(ctx context.Context, id string, attempt int, out fault.Outcome, result []byte, legs []audit.Leg, rec audit.Record) error {
	if out.Evidence != fault.EvidencePeer || out.Ran == fault.RanNo || out.State.Open() {
		return ErrOrder
	}
	rec.Legs = legs
	sealed, err := l.sealed(id, result)
	if err != nil {
		return failure("ledger.Late", err)
	}
	err = l.store.Commit(ctx, func(tx *store.Tx) error {
		if err := move(tx, `UPDATE operations SET `+outcomeColumns+`, legs = ?, late = 1 WHERE id = ? AND attempt = ? AND state = 'unknown'`,
			append(l.outcomeValues(out, rec.Time), asJSON(legs), id, attempt)...); err != nil {
			return err
		}
		return keep(tx, id, sealed)
	}, ended(named(rec, audit.Late, id, attempt), out))
	return failure("ledger.Late", err)
}

// sealed is a result as it is kept, made before the commit: there all wait for one.
func (l *Ledger) sealed(id string, result []byte) ([]byte, error) {
	if result == nil {
		return nil, nil
	}
	return l.conf.Box.Seal(result, id)
}

// keep keeps the result of an operation, if there is one.
func keep(tx *store.Tx, id string, sealed []byte) error {
	if sealed == nil {
		return nil
	}
	_, err := tx.Exec(`INSERT INTO results (operation, body, created) SELECT id, ?, created FROM operations WHERE id = ?`, sealed, id)
	return err
}

// end moves an attempt to a state that Finish may reach. Without "sending" on
// disk nothing can have run.
func (l *Ledger) end(tx *store.Tx, id string, attempt int, out fault.Outcome, legs, hold string, at time.Time) error {
	switch out.State {
	case fault.Succeeded, fault.ToolError, fault.RPCError, fault.PeerRefused, fault.NotSent, fault.InDoubt:
	default:
		return ErrOrder
	}
	from := ` AND (state = 'sending' OR state IN ('awaiting_approval', 'reserved') AND doubted = 1)`
	if out.Ran == fault.RanNo {
		from = ` AND state IN ('reserved', 'sending')`
	}
	return move(tx, `UPDATE operations SET `+outcomeColumns+`, legs = ?, hold = ? WHERE id = ? AND attempt = ?`+from,
		append(l.outcomeValues(out, at), legs, hold, id, attempt)...)
}

const outcomeColumns = `state = ?, ran = ?, evidence = ?, cause = ?, updated = ?`

// outcomeValues is for outcomeColumns. at is when, as the caller tells it; zero: now.
func (l *Ledger) outcomeValues(out fault.Outcome, at time.Time) []any {
	if at.IsZero() {
		at = l.now()
	}
	return []any{string(out.State), string(out.Ran), string(out.Evidence), string(out.Cause), at.UnixNano()}
}

// move changes the one row that is where the statement says, or fails with ErrOrder.
func move(tx *store.Tx, update string, args ...any) error {
	changed, err := tx.Exec(update, args...)
	if err == nil && changed != 1 {
		err = ErrOrder
	}
	return err
}

// Dropped says what became of the attempt's hold, in whatever state it is, and
// replaces its legs by the complete ones. Updated stays: it says when the
// operation ended. If a later attempt has begun, only the record is written. It
// joins the next commit, see [store.Store.CommitLater].
func (l *Ledger) Dropped(ctx context.Context, id string, attempt int, hold string, legs []audit.Leg, rec audit.Record) error {
	rec.Hold = hold
	told := asJSON(legs)
	err := l.store.CommitLater(ctx, func(tx *store.Tx) error {
		_, err := tx.Exec(`UPDATE operations SET hold = ?, legs = ? WHERE id = ? AND attempt = ?`, hold, told, id, attempt)
		return err
	}, named(rec, audit.Drop, id, attempt))
	return failure("ledger.Dropped", err)
}

// Gone says that a hold which was pending is gone, and how. If a later attempt has
// begun, only the record is written. It joins the next commit like Dropped.
func (l *Ledger) Gone(ctx context.Context, id string, attempt int, hold string, rec audit.Record) error {
	err := l.store.CommitLater(ctx, func(tx *store.Tx) error { return gone(tx, id, attempt, hold) }, goneRecord(rec, id, attempt, hold))
	return failure("ledger.Gone", err)
}

// gone settles a hold that may be there; one that was not seen to be dropped is
// still "held" if that could not be written.
func gone(tx *store.Tx, id string, attempt int, hold string) error {
	_, err := tx.Exec(`UPDATE operations SET hold = ? WHERE id = ? AND attempt = ? AND hold IN ('held', 'pending')`, hold, id, attempt)
	return err
}

func goneRecord(rec audit.Record, id string, attempt int, hold string) audit.Record {
	rec.Hold = hold
	return named(rec, audit.Drop, id, attempt)
}

// Revoked says whether the provider ended the attempt's token, which reason is
// for, and replaces the legs like Dropped.
func (l *Ledger) Revoked(ctx context.Context, id string, attempt int, legs []audit.Leg, reason fault.Reason, rec audit.Record) error {
	rec.Reason = reason
	err := l.store.CommitLater(ctx, func(tx *store.Tx) error {
		_, err := tx.Exec(`UPDATE operations SET legs = ? WHERE id = ? AND attempt = ?`, asJSON(legs), id, attempt)
		return err
	}, named(rec, audit.Revocation, id, attempt))
	return failure("ledger.Revoked", err)
}

// named and ended fill what the ledger knows better than its caller.
func named(rec audit.Record, kind audit.Kind, id string, attempt int) audit.Record {
	rec.Kind, rec.Operation, rec.Attempt = kind, id, attempt
	return rec
}

func ended(rec audit.Record, out fault.Outcome) audit.Record {
	rec.State, rec.Ran, rec.Evidence, rec.Reason = out.State, out.Ran, out.Evidence, out.Cause
	return rec
}

func failure(op string, err error) error {
	if errors.Is(err, ErrOrder) {
		return ErrOrder
	}
	return store.Failure(op, err)
}
