package ledger_test

import (
	"database/sql"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/ledger"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/store"
)

// newSearched is a rig with four operations, begun a minute apart, op2 and op3 at once.
func newSearched(t *testing.T) *rig {
	r := newRig(t)
	for n, change := range []func(*ledger.Operation){
		func(op *ledger.Operation) {},
		func(op *ledger.Operation) { op.Caller, op.Server = "batch", "wiki" },
		func(op *ledger.Operation) { op.Actor, op.Tool = "user:8", "save" },
		func(op *ledger.Operation) { op.Caller, op.RequestKey, op.Server = "batch", "key1", "wiki" },
	} {
		op := another(n + 1)
		change(&op)
		r.begin(op)
		if n != 1 {
			r.Now = r.Now.Add(time.Minute)
		}
	}
	for n, out := range map[int]fault.Outcome{1: succeeded, 3: inDoubt} {
		if err := r.step(n, 1, sending); err != nil {
			t.Fatal(err)
		}
		if err := r.Finish(t.Context(), another(n).ID, 1, out, []byte("secret"), nil, "", audit.Record{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.step(2, 1, notSent); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestSearch holds each filter, and that pages of every size give the same.
func TestSearch(t *testing.T) {
	r := newSearched(t)
	for _, tc := range []struct {
		what ledger.Search
		want string
	}{
		{ledger.Search{}, "op4 op2 op3 op1"},
		{ledger.Search{ID: "op2"}, "op2"},
		{ledger.Search{ID: "op2", Actor: "user:8"}, ""},
		{ledger.Search{RequestKey: "key1"}, "op4 op1"},
		{ledger.Search{RequestKey: "key1", Caller: "batch"}, "op4"},
		{ledger.Search{Caller: "batch"}, "op4 op2"},
		{ledger.Search{Actor: "user:7"}, "op4 op2 op1"},
		{ledger.Search{Actor: "user:7", Caller: "gateway"}, "op1"},
		{ledger.Search{Actor: "user:7", Server: "wiki"}, "op4 op2"},
		{ledger.Search{Server: "records"}, "op3 op1"},
		{ledger.Search{Server: "records", Tool: "save"}, "op3"},
		{ledger.Search{Tool: "search"}, "op4 op2 op1"},
		{ledger.Search{State: fault.Reserved}, "op4"},
		{ledger.Search{State: fault.Succeeded}, "op1"},
		{ledger.Search{State: fault.InDoubt}, "op3"},
		{ledger.Search{State: fault.NotSent, Server: "wiki"}, "op2"},
		{ledger.Search{Since: noon.Add(time.Minute)}, "op4 op2 op3"},
		{ledger.Search{Until: noon.Add(time.Minute)}, "op1"},
		{ledger.Search{Actor: "nobody"}, ""},
	} {
		for _, limit := range []int{1, 2, 3, 4, 10} {
			var got []string
			var after ledger.Place
			for first := true; first || after != (ledger.Place{}); first = false {
				page, next, err := r.Search(t.Context(), tc.what, after, limit)
				if err != nil || len(page) > limit {
					t.Fatal(page, err)
				}
				for _, op := range page {
					got = append(got, op.ID)
					if op.Result != nil || op.KeyExpires.IsZero() {
						t.Errorf("%+v", op)
					}
				}
				after = next
			}
			if diff := cmp.Diff(tc.want, strings.Join(got, " ")); diff != "" {
				t.Errorf("%+v by %d: %s", tc.what, limit, diff)
			}
		}
	}
}

// TestUses: each attempt that begins is counted, with the grant that let it, and no
// sweep takes that away. What asks for no grant, or was refused, is not counted.
func TestUses(t *testing.T) {
	r := newRig(t)
	r.begin(another(1))
	r.Now = r.Now.Add(time.Hour)
	if err := r.step(1, 1, notSent); err != nil {
		t.Fatal(err)
	}
	again := r.begin(another(1))
	if _, begun, err := r.Begin(t.Context(), another(1), audit.Record{}); begun || err != nil {
		t.Fatal(begun, err)
	}
	other := another(2)
	other.Actor, other.Tool = "user:8", "save"
	r.begin(other)
	legacy := another(3)
	legacy.Profile = ""
	r.begin(legacy)
	asked := another(4) // it waits for a person, and then too long
	asked.Actor = "user:9"
	if _, begun, err := r.Ask(t.Context(), asked, ledger.Approval{Arguments: []byte("{}"), Expires: r.Now.Add(time.Hour)}, audit.Record{}); !begun || err != nil {
		t.Fatal(begun, err)
	}
	first := policy.RowID{Actor: "user:7", Profile: "company", Server: "records", Tool: "search"}
	second := policy.RowID{Actor: "user:8", Profile: "company", Server: "records", Tool: "save"}
	whole := map[policy.RowID]ledger.Use{first: {2, again.Updated}, second: {1, again.Updated}}
	r.uses(policy.Filter{}, "user:", "user:~", whole)
	r.uses(policy.Filter{}, "user:7", "user:7", map[policy.RowID]ledger.Use{first: whole[first]})
	r.uses(policy.Filter{Tool: "save", Server: "records", Profile: "company"}, "user:7", "user:9", map[policy.RowID]ledger.Use{second: whole[second]})
	r.uses(policy.Filter{Server: "wiki"}, "user:7", "user:9", map[policy.RowID]ledger.Use{})

	for _, n := range []int{1, 2, 3} {
		attempt := map[int]int{1: 2}[n]
		if err := r.step(n, max(attempt, 1), notSent); err != nil {
			t.Fatal(err)
		}
	}
	r.Now = r.Now.AddDate(1, 0, 0)
	for more, err := true, error(nil); more; more, err = r.Sweep(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
	}
	if left, _, err := r.Search(t.Context(), ledger.Search{}, ledger.Place{}, 10); len(left) != 0 || err != nil {
		t.Fatal(left, err)
	}
	r.uses(policy.Filter{}, "user:", "user:~", whole)
}

func (r *rig) uses(f policy.Filter, first, last string, want map[policy.RowID]ledger.Use) {
	r.t.Helper()
	got, since, err := r.Uses(r.t.Context(), f, first, last)
	if err != nil || !since.Equal(noon) {
		r.t.Errorf("since %v, %v", since, err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		r.t.Error(diff)
	}
}

// TestUsesSince: nothing is said of the time before uses were counted, in a file that
// is older, and in what became another ledger.
func TestUsesSince(t *testing.T) {
	r := newRig(t)
	since := func(want time.Time) {
		t.Helper()
		if _, got, err := r.Uses(t.Context(), policy.Filter{}, "", "~"); !got.Equal(want) || err != nil {
			t.Errorf("counted since %v, %v, want %v", got, err, want)
		}
	}
	since(noon)
	r.Store.Close()
	r.Now = noon.AddDate(0, 0, 1)
	db, err := sql.Open("sqlite", "file:"+r.Path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = db.Exec(`CREATE INDEX operations_list ON operations (caller, actor, created); CREATE INDEX operations_server ON operations (server, created, tool);
		DROP TABLE uses; DROP TABLE copied; DROP TABLE cut; DROP INDEX heads_age; DELETE FROM migrations WHERE number >= ?`, store.CountsUses)
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	r.reopen()
	since(r.Now)

	r.Store.Close()
	r.Now = noon.AddDate(0, 0, 2)
	if err := os.Remove(r.Path + ".lock"); err != nil {
		t.Fatal(err)
	}
	r.reopen()
	since(r.Now)
}
