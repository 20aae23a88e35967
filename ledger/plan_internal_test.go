package ledger

import (
	"path/filepath"
	"strings"
	"testing"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/store"
)

// TestStartReadsLittle: what a start asks is answered from an index of what is
// not over, however many operations there are.
func TestStartReadsLittle(t *testing.T) {
	s, err := store.Open(t.Context(), store.Config{Path: filepath.Join(t.TempDir(), "broker.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for query, index := range map[string]string{
		selectRows + leftOpen:    "operations_live",
		selectRows + leftPending: "operations_pending",
		selectRows + lapsed:      "operations_awaiting",
		selectRows + undecided:   "operations_awaiting",
		doubtOpen:                "operations_live",
		leaveHolds:               "operations_live",
	} {
		var id, parent, unused int
		var plan string
		if err := s.Read().QueryRow(`EXPLAIN QUERY PLAN `+query, make([]any, strings.Count(query, "?"))...).Scan(&id, &parent, &unused, &plan); err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(plan, "USING INDEX "+index) {
			t.Errorf("%s: %s", query, plan)
		}
	}
}

// TestSearchReadsLittle holds what [Search.way] says of its indexes, and that a page is
// in their order: nothing is sorted but what began in the same nanosecond.
func TestSearchReadsLittle(t *testing.T) {
	s, err := store.Open(t.Context(), store.Config{Path: filepath.Join(t.TempDir(), "broker.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for want, search := range map[string]Search{
		"sqlite_autoindex_operations_1 (id=?)":                               {ID: "x", Actor: "x"},
		"operations_key (request_key=?)":                                     {RequestKey: "x", Server: "x"},
		"operations_list (caller=? AND actor=? AND created>? AND created<?)": {Caller: "x", Actor: "x"},
		"operations_actor (actor=? AND created>? AND created<?)":             {Actor: "x", Server: "x", State: fault.InDoubt},
		"operations_server (server=? AND created>? AND created<?)":           {Server: "x", Tool: "x", State: fault.InDoubt},
		"operations_live": {State: fault.Reserved},
		"operations_failed (state=? AND created>? AND created<?)": {State: fault.InDoubt},
		"operations_age (created>? AND created<?)":                {State: fault.Succeeded, Caller: "x"},
	} {
		where, args := search.way()
		rows, err := s.Read().Query(`EXPLAIN QUERY PLAN `+selectRows+where+inOrder, append(args, search.inOrder(Place{})...)...)
		if err != nil {
			t.Fatal(err)
		}
		var plan string
		for rows.Next() {
			var id, parent, unused int
			var step string
			if err := rows.Scan(&id, &parent, &unused, &step); err != nil {
				t.Fatal(err)
			}
			plan += step + "; "
		}
		if !strings.Contains(plan, "INDEX "+want+";") {
			t.Errorf("%+v: %s, want %s", search, plan, want)
		}
		few := search.ID != "" || search.RequestKey != "" || search.State.Open()
		if strings.Contains(plan, "FOR ORDER BY") && !few {
			t.Errorf("%+v: %s", search, plan)
		}
	}
}
