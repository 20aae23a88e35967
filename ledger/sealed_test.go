package ledger_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/seal"
	"onbehalf.internal/broker/secret"
)

// A vault is a key that stays in Vault.
type vault struct {
	err    error  // of both questions
	before func() // runs while a data key is unwrapped
	made   int
}

func (v *vault) box() *seal.Box {
	plain := secret.New("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")
	return seal.New(seal.InVault(seal.Transit{Name: "key",
		DataKey: func(context.Context) (secret.Text, string, error) {
			v.made++
			return plain, fmt.Sprint("wrapped ", v.made), v.err
		},
		Unwrap: func(context.Context, string) (secret.Text, error) {
			if v.before != nil {
				v.before()
			}
			return plain, v.err
		}}))
}

// TestOpeningIsOutsideOfTheWriter: while Vault is asked, others commit.
func TestOpeningIsOutsideOfTheWriter(t *testing.T) {
	r, v := newRig(t), &vault{}
	body := []byte(`{"content":[]}`)
	r.box = v.box()
	r.reopen()
	op := r.finished(op1(), succeeded, body)
	n := 0
	v.before = func() {
		n++
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := r.Store.Commit(ctx, nil, audit.Record{Kind: audit.Reload, Time: noon, Snapshot: "sha256:00"}); err != nil {
			t.Error(err)
		}
	}
	for name, read := range map[string]func() (any, []byte, error){
		"Begin": func() (any, []byte, error) {
			got, begun, err := r.Begin(t.Context(), op1(), audit.Record{})
			return begun, got.Result, err
		},
		"Get": func() (any, []byte, error) { return false, r.get(op).Result, nil },
		"Find": func() (any, []byte, error) {
			got, found, err := r.Find(t.Context(), op.Caller, op.Actor, op.RequestKey)
			return !found, got.Result, err
		},
	} {
		n, r.box = 0, v.box() // of another process
		r.reopen()
		if wrong, got, err := read(); wrong != false || err != nil || string(got) != string(body) || n != 1 {
			t.Errorf("%s: %v, %q, %v, asked %d times", name, wrong, got, err, n)
		}
	}
}

// TestNothingBeginsWithoutADataKey, and nothing is stored without one.
func TestNothingBeginsWithoutADataKey(t *testing.T) {
	r, v := newRig(t), &vault{err: fault.New("vault", fault.VaultSealed, "")}
	begun := r.begin(another(2))
	r.must(r.Sending(t.Context(), begun.ID, 1, audit.Record{}))
	r.box = v.box()
	r.reopen()
	if _, begun, err := r.Begin(t.Context(), op1(), audit.Record{}); fault.ReasonOf(err) != fault.VaultSealed || begun {
		t.Errorf("Begin = %v, %v", begun, err)
	}
	if _, found, err := r.Find(t.Context(), "gateway", "user:7", "key1"); found || err != nil {
		t.Errorf("there is an operation, %v", err)
	}
	err := r.Finish(t.Context(), begun.ID, 1, succeeded, []byte("{}"), nil, "", audit.Record{})
	if got := r.get(begun); err == nil || got.Outcome.State != fault.Sending || got.Result != nil {
		t.Errorf("Finish = %v, and then %+v", err, got.Outcome)
	}
	v.err = nil
	r.begin(op1())
	if err := r.Finish(t.Context(), begun.ID, 1, succeeded, []byte("{}"), nil, "", audit.Record{}); err != nil {
		t.Error(err)
	}
	v.err = fault.New("vault", fault.VaultDenied, "")
	r.box = v.box()
	r.reopen()
	if got := r.get(begun); got.Result != nil || got.Closed != fault.VaultDenied || got.Outcome != succeeded {
		t.Errorf("withheld for %q: %+v", got.Closed, got.Outcome)
	}
}
