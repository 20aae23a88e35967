package ledger_test

import (
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/ledger"
)

// A database as a broker with schema 1 left it when it died: op4 is reserved,
// op3 sending, op2 has ended and op1's hold is dropped, too.
//
//go:embed testdata/schema-1.sql
var schema1 string

// newFormerRig is newRig on that database.
func newFormerRig(t *testing.T) *rig {
	r := newRig(t)
	r.Store.Close()
	r.Path += ".former"
	db, err := sql.Open("sqlite", "file:"+r.Path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = db.Exec(schema1)
	if err := errors.Join(err, db.Close(), os.Chmod(r.Path, 0o600)); err != nil {
		t.Fatal(err)
	}
	r.reopen()
	return r
}

// TestFormerSchema opens what a former broker has left: rows, results, holds
// and the chain are there, and go on.
func TestFormerSchema(t *testing.T) {
	r := newFormerRig(t)
	list, err := r.List(t.Context(), "gateway", "user:7", noon, 10)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, op := range list {
		op = r.get(op)
		got = append(got, fmt.Sprint(op.ID, " ", op.Outcome.State, " ", op.Hold, " ", string(op.Result)))
	}
	want := []string{`op1 succeeded dropped {"of":"op1"}`, `op2 succeeded held {"of":"op2"}`, `op3 sending held `, `op4 reserved held `}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if op, begun, err := r.Begin(t.Context(), list[0], audit.Record{}); begun || err != nil || op.ID != "op1" {
		t.Errorf("Begin of a known key = %s, %v, %v", op.ID, begun, err)
	}
	if notSent, inDoubt, err := r.Recover(t.Context()); notSent != 1 || inDoubt != 1 || err != nil {
		t.Errorf("Recover = %d, %d, %v", notSent, inDoubt, err)
	}
	for id, hold := range map[string]string{"op1": ledger.HoldDropped, "op2": ledger.HoldPending, "op3": ledger.HoldPending, "op4": ledger.HoldPending} {
		if op := r.get(ledger.Operation{ID: id, Caller: "gateway", Actor: "user:7"}); op.Hold != hold || op.Outcome.State == fault.Sending {
			t.Errorf("%s is %s with hold %q", id, op.Outcome.State, op.Hold)
		}
	}
	op := r.begin(another(9))
	if err := r.Sending(t.Context(), op.ID, 1, audit.Record{}); err != nil {
		t.Fatal(err)
	}
	if err := r.Finish(t.Context(), op.ID, 1, succeeded, []byte("new"), nil, "", audit.Record{}); err != nil {
		t.Fatal(err)
	}
	if got := string(r.get(op).Result); got != "new" {
		t.Errorf("the result is %q", got)
	}
	if n := len(r.records()); n != 10+3+3 {
		t.Errorf("%d records", n)
	}
}
