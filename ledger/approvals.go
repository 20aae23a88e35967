package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/store"
)

// Words for Approval.Decision. The empty word says that nobody has decided.
const (
	Approved = "approved"
	Denied   = "denied"
)

// An Approval is one time that a person was asked about a call. Of several for one
// operation the last one counts.
type Approval struct {
	Attempt   int      // of the operation, when it was asked
	Digest    [32]byte // of the very call: what is decided about
	Pin       string   // of the tool; empty: its server was never imported
	Requested time.Time
	Expires   time.Time // from then on it can neither be given nor used
	Decision  string
	Approver  policy.Consent // who has decided
	Reason    string         // the person's own words
	Decided   time.Time
	Consumed  time.Time // when the call that it was given for may have left; zero: it has not

	Arguments []byte       // exact bytes as the caller gave them; in Ask and Awaiting alone
	Closed    fault.Reason // why they could not be opened; None otherwise
}

// Allows reports whether the very call with this digest may begin. Whether it may be
// sent says [Ledger.SendingApproved].
func (a *Approval) Allows(digest [32]byte, at time.Time) bool {
	return a != nil && a.Decision == Approved && a.Consumed.IsZero() && at.Before(a.Expires) && a.Digest == digest
}

// maxAwaiting is how many operations may wait for a person at once: each keeps its
// arguments, and nobody reads more.
const maxAwaiting = 1000

// Ask begins op like [Ledger.Begin], but has it wait for a person's decision about
// exactly what a says: Digest, Pin, Arguments and Expires. An operation that waits
// already is not asked about again: it is the one that is returned.
//
// The arguments are sealed for their operation.
func (l *Ledger) Ask(ctx context.Context, op Operation, a Approval, rec audit.Record) (_ Operation, asked bool, err error) {
	rec.Approved = &audit.Approved{Decision: "asked", Digest: a.Digest, Expires: store.TimeOf(store.Nanoseconds(a.Expires))}
	op.Hold, op.Deadline = "", a.Expires
	return l.start(ctx, op, fault.AwaitingApproval, named(rec, audit.Approval, "", 0), func(tx *store.Tx, op *Operation) error {
		var waiting int
		if _, err := tx.Scan([]any{&waiting}, `SELECT COUNT(*) FROM operations WHERE state = 'awaiting_approval'`); err != nil {
			return err
		}
		if waiting > maxAwaiting { // op is one of them
			return fault.New("ledger.Ask", fault.TooManyOperations, "too many wait for an approval")
		}
		sealed, err := l.conf.Box.Seal(a.Arguments, argumentsOf(op.ID))
		if err != nil {
			return err
		}
		a.Attempt, a.Requested, a.Expires = op.Attempt, op.Updated, op.Deadline
		_, err = tx.Exec(`INSERT INTO approvals (`+approvalColumns+`, jti, arguments)
			VALUES (?, ?, ?, ?, ?, ?, '', '', '', 0, '', '', 0, 0, '', ?)`,
			op.ID, a.Attempt, a.Digest[:], a.Pin, store.Nanoseconds(a.Requested), store.Nanoseconds(a.Expires), sealed)
		op.Approval = &a
		return err
	})
}

// argumentsOf is what arguments are sealed about. It is no operation's id, so that
// they cannot be moved to where its result is.
func argumentsOf(operation string) string { return "arguments of " + operation }

const approvalColumns = `operation, attempt, digest, pin, requested, expires, decision, issuer, subject, admin, decided_by, reason, decided, consumed`

const (
	selectApproval = `SELECT ` + approvalColumns + ` FROM approvals WHERE operation = ? ORDER BY attempt DESC LIMIT 1`

	// What waits is in the order of the index operations_awaiting. It has asked with
	// its present attempt, and its deadline is when that expires.
	undecided = `WHERE state = 'awaiting_approval' AND deadline > ? AND
		EXISTS (SELECT 1 FROM approvals a WHERE a.operation = operations.id AND a.attempt = operations.attempt AND a.decision = '')
		ORDER BY created, id LIMIT ?`
	lapsed = `WHERE state = 'awaiting_approval' AND deadline <= ? ORDER BY created, id LIMIT ?`
)

// An approvalRow is an approval as the database gives it.
type approvalRow struct {
	a                                    Approval
	operation                            string
	digest                               []byte
	requested, expires, decided, consume int64
}

func (r *approvalRow) dest() []any {
	a := &r.a
	return []any{&r.operation, &a.Attempt, &r.digest, &a.Pin, &r.requested, &r.expires, &a.Decision,
		&a.Approver.Issuer, &a.Approver.Subject, &a.Approver.Admin, &a.Approver.By, &a.Reason, &r.decided, &r.consume}
}

func (r *approvalRow) approval() (Approval, error) {
	a := r.a
	if len(r.digest) != len(a.Digest) {
		return a, fmt.Errorf("the approval of operation %q has a damaged digest", r.operation)
	}
	a.Digest = [32]byte(r.digest)
	a.Requested, a.Expires, a.Decided, a.Consumed = store.TimeOf(r.requested), store.TimeOf(r.expires), store.TimeOf(r.decided), store.TimeOf(r.consume)
	return a, nil
}

// A Word is what a person says about a call.
type Word struct {
	Approver policy.Consent
	JTI      string   // of the person's assertion
	Digest   [32]byte // of the call that they have seen
	Approved bool     // else denied
	Reason   string
}

func (w Word) decision() string {
	if w.Approved {
		return Approved
	}
	return Denied
}

// Decide records what a person says about the call of an operation that waits. A yes
// begins nothing; a no ends the operation. The same word of the same person again is
// repeated: it writes nothing.
//
// The error is a *fault.Error: approval_not_found; assertion_replayed where the
// assertion has decided about another call; approval_mismatch where another one was
// seen; approval_expired; not_awaiting_approval, whose detail says how it stands; or
// one of the store.
func (l *Ledger) Decide(ctx context.Context, id string, w Word) (op Operation, repeated bool, err error) {
	records := make([]audit.Record, 1, 2)
	if !w.Approved {
		records = records[:2] // and how the operation ended
	}
	err = l.store.Commit(ctx, func(tx *store.Tx) (err error) {
		if op, err = l.askedAbout(tx, id); err != nil {
			return err
		}
		a := op.Approval
		if err := unused(tx, id, a.Attempt, w); err != nil {
			return err
		}
		if w.repeats(*a) {
			return errKnown
		}
		now := store.TimeOf(l.now().UnixNano())
		if err := op.undecidable(w, now); err != nil {
			return err
		}
		a.Decision, a.Approver, a.Reason, a.Decided = w.decision(), w.Approver, w.Reason, now
		if err := decided(tx, id, *a, w.JTI); err != nil {
			return err
		}
		records[0] = l.decisionRecord(op)
		if !w.Approved {
			records[1], err = l.endAwaiting(tx, &op, fault.ApprovalDenied)
		}
		return err
	}, records...)
	if errors.Is(err, errKnown) {
		return l.dated(op), true, nil
	}
	return l.dated(op), false, failure("ledger.Decide", err)
}

// repeats reports whether a has been decided by this very word.
func (w Word) repeats(a Approval) bool {
	return a.Decision == w.decision() && a.Approver.Issuer == w.Approver.Issuer && a.Approver.Subject == w.Approver.Subject && a.Digest == w.Digest
}

func decided(tx *store.Tx, id string, a Approval, jti string) error {
	return move(tx, `UPDATE approvals SET decision = ?, issuer = ?, subject = ?, admin = ?, jti = ?, decided_by = ?, reason = ?, decided = ?
		WHERE operation = ? AND attempt = ? AND decision = ''`,
		a.Decision, a.Approver.Issuer, a.Approver.Subject, a.Approver.Admin, jti, a.Approver.By, a.Reason, store.Nanoseconds(a.Decided), id, a.Attempt)
}

func (l *Ledger) decisionRecord(op Operation) audit.Record {
	a, rec := op.Approval, l.recordOf(op, audit.Approval)
	rec.Approved = &audit.Approved{Decision: a.Decision, Digest: a.Digest, Expires: a.Expires,
		Issuer: a.Approver.Issuer, Subject: a.Approver.Subject, By: a.Approver.By, Text: a.Reason}
	return rec
}

// askedAbout is the operation with its last approval.
func (l *Ledger) askedAbout(tx *store.Tx, id string) (Operation, error) {
	var r approvalRow
	found, err := tx.Scan(r.dest(), selectApproval, id)
	if err == nil && !found {
		err = fault.New("ledger.Decide", fault.ApprovalNotFound, "no operation with this id has asked for an approval")
	}
	if err != nil {
		return Operation{}, err
	}
	op, err := byID(tx, id)
	if err != nil {
		return op, err
	}
	a, err := r.approval()
	op.Approval = &a
	return op, err
}

// unused refuses an assertion that has decided about another call.
func unused(tx *store.Tx, id string, attempt int, w Word) error {
	var other string
	found, err := tx.Scan([]any{&other}, `SELECT operation FROM approvals WHERE issuer = ? AND jti = ? AND jti <> '' AND NOT (operation = ? AND attempt = ?)`,
		w.Approver.Issuer, w.JTI, id, attempt)
	if found {
		return fault.New("ledger.Decide", fault.AssertionReplayed, "the assertion has decided about another call: make one for each")
	}
	return err
}

// undecidable says what keeps the word from being taken.
func (o Operation) undecidable(w Word, at time.Time) error {
	const op = "ledger.Decide"
	a := o.Approval
	switch {
	case a.Digest != w.Digest:
		return fault.New(op, fault.ApprovalMismatch, "the digest is not that of the call that was asked about: look at it again")
	case a.Decision != "":
		return fault.New(op, fault.NotAwaiting, fmt.Sprintf("it was %s by %q", a.Decision, a.Approver.Subject))
	case o.Outcome.State != fault.AwaitingApproval && o.Outcome.Cause != fault.ApprovalExpired:
		return fault.New(op, fault.NotAwaiting, fmt.Sprintf("the operation is %s", o.Outcome.State))
	case o.Outcome.State != fault.AwaitingApproval || !at.Before(a.Expires):
		return fault.New(op, fault.ApprovalExpired, "it could be decided until "+a.Expires.Format(time.RFC3339))
	}
	return nil
}

// EndAwaiting ends an operation that waits for an approval: nothing of it has left.
// ErrOrder if it does not wait any more.
func (l *Ledger) EndAwaiting(ctx context.Context, op Operation, cause fault.Reason) (Operation, error) {
	records := make([]audit.Record, 1)
	err := l.store.Commit(ctx, func(tx *store.Tx) (err error) {
		records[0], err = l.endAwaiting(tx, &op, cause)
		return err
	}, records...)
	return op, failure("ledger.EndAwaiting", err)
}

func (l *Ledger) endAwaiting(tx *store.Tx, op *Operation, cause fault.Reason) (audit.Record, error) {
	op.Outcome, op.Updated = op.Settled(fault.NotSentBecause(cause)), store.TimeOf(l.now().UnixNano())
	err := move(tx, `UPDATE operations SET `+outcomeColumns+` WHERE id = ? AND attempt = ? AND state = 'awaiting_approval'`,
		append(l.outcomeValues(op.Outcome, op.Updated), op.ID, op.Attempt)...)
	return l.recordOf(*op, audit.Outcome), err
}

// SendingApproved is Sending for a call that a person has to have approved: in the
// same commit its approval is used up. The error is approval_void if there is none
// for the call with this digest that is approved, not used, and good at this moment.
func (l *Ledger) SendingApproved(ctx context.Context, id string, attempt int, digest [32]byte, rec audit.Record) error {
	rec.Approved = &audit.Approved{Decision: "used", Digest: digest}
	return l.send(ctx, id, attempt, rec, func(tx *store.Tx) error {
		now := l.now().UnixNano()
		used, err := tx.Exec(`UPDATE approvals SET consumed = ? WHERE operation = ? AND attempt = (SELECT MAX(attempt) FROM approvals WHERE operation = ?)
			AND decision = 'approved' AND consumed = 0 AND expires > ? AND digest = ?`, now, id, id, now, digest[:])
		if err == nil && used != 1 {
			err = fault.New("ledger.SendingApproved", fault.ApprovalVoid, "no approval holds for this very call")
		}
		return err
	})
}

// Awaiting returns the operations that wait for a person, oldest first, with their
// arguments: at most limit, and no more than atMost bytes of arguments but for those
// of the first.
func (l *Ledger) Awaiting(ctx context.Context, limit, atMost int) ([]Operation, error) {
	const op = "ledger.Awaiting"
	all, err := l.all(ctx, op, undecided, l.now().UnixNano(), limit)
	if err != nil {
		return nil, err
	}
	size := 0
	for i := range all {
		var body []byte
		if all[i], err = l.asked(ctx, all[i]); err != nil {
			return nil, store.Failure(op, err)
		}
		a := all[i].Approval
		if _, err := l.first(ctx, []any{&body}, `SELECT arguments FROM approvals WHERE operation = ? AND attempt = ?`, all[i].ID, a.Attempt); err != nil {
			return nil, store.Failure(op, err)
		}
		a.Arguments, a.Closed = l.unsealed(ctx, body, argumentsOf(all[i].ID))
		if size += len(a.Arguments); size > atMost && i > 0 {
			return all[:i], nil
		}
	}
	return all, nil
}

// Asked returns an operation about which a person was asked, of whatever caller. The error is
// approval_not_found if no operation with this id has asked for one.
func (l *Ledger) Asked(ctx context.Context, id string) (Operation, error) {
	const op = "ledger.Asked"
	all, err := l.all(ctx, op, `WHERE id = ? AND EXISTS (SELECT 1 FROM approvals WHERE operation = operations.id)`, id)
	switch {
	case err != nil:
		return Operation{}, err
	case len(all) == 0:
		return Operation{}, fault.New(op, fault.ApprovalNotFound, "no operation with this id has asked for an approval")
	}
	return all[0], nil
}

// asked has op with its last approval where that may matter next: while it waits, and
// where it may be begun again.
func (l *Ledger) asked(ctx context.Context, op Operation) (Operation, error) {
	if op.Outcome.State != fault.AwaitingApproval && op.Retry(l.now()) != fault.RetrySafe && op.Outcome.Cause != fault.ApprovalDenied {
		return op, nil
	}
	var r approvalRow
	found, err := l.first(ctx, r.dest(), selectApproval, op.ID)
	if err == nil && !found && op.Outcome.State == fault.AwaitingApproval {
		err = fmt.Errorf("operation %q waits for an approval that is not there", op.ID)
	}
	if err != nil || !found {
		return op, err
	}
	a, err := r.approval()
	op.Approval = &a
	return op, err
}

// first reads the first row of a query into dest.
func (l *Ledger) first(ctx context.Context, dest []any, query string, args ...any) (found bool, err error) {
	stmt, err := l.statement(query)
	if err != nil {
		return false, err
	}
	if err = stmt.QueryRowContext(ctx, args...).Scan(dest...); errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// lapse ends what has waited for too long, at most [sweepChunk] operations, and
// reports whether there may be more.
func (l *Ledger) lapse(ctx context.Context) (more bool, err error) {
	left, err := l.query(ctx, selectRows+lapsed, l.now().UnixNano(), sweepChunk)
	if err != nil || len(left) == 0 {
		return false, store.Failure("ledger.lapse", err)
	}
	for _, op := range left {
		if _, err := l.EndAwaiting(ctx, op, fault.ApprovalExpired); err != nil && !errors.Is(err, ErrOrder) {
			return false, err
		}
	}
	return len(left) == sweepChunk, nil
}
