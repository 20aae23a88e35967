package ledger

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"onbehalf.internal/broker/audit"
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
		if plan := planOf(t, s, query); !strings.HasPrefix(plan, "SCAN operations USING INDEX "+index+"; ") {
			t.Errorf("%s: %s", query, plan)
		}
	}
}

// TestConditionsAreSpelledOut: one with IN costs a table of its words with every row, see
// docs/decisions/0041.
func TestConditionsAreSpelledOut(t *testing.T) {
	s, err := store.Open(t.Context(), store.Config{Path: filepath.Join(t.TempDir(), "broker.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var all, dear int
	const count = `SELECT COUNT(*), COALESCE(SUM(sql LIKE '% IN (%'), 0) FROM sqlite_schema WHERE type = 'index' AND sql LIKE '%WHERE%'`
	if err := s.Read().QueryRow(count).Scan(&all, &dear); err != nil || all < 8 || dear != 0 {
		t.Errorf("%d of %d conditions have IN, %v", dear, all, err)
	}
}

// TestSearchLooksAtSome: a page ends after so many operations, with what it has found; the
// pages together have everything once, though some of it began at once.
func TestSearchLooksAtSome(t *testing.T) {
	s, err := store.Open(t.Context(), store.Config{Path: filepath.Join(t.TempDir(), "broker.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	now := time.Now()
	l := New(s, Config{Now: func() time.Time { return now }})
	for n, tool := range []string{"save", "find", "find", "find", "find", "save", "save", "find"} {
		id := string(rune('a' + n))
		if n%3 != 1 {
			now = now.Add(time.Second)
		}
		if _, _, err := l.Begin(t.Context(), Operation{ID: id, RequestKey: id, Actor: "user:7", Tool: tool}, audit.Record{}); err != nil {
			t.Fatal(err)
		}
	}
	for look, want := range map[int]string{1: "g f - - a -", 2: "g f a -", 3: "g f - a", 4: "g f a", 7: "g f a -", 8: "g f a -", 9: "g f a"} {
		var got []string
		for after, first := (Place{}), true; first || after != (Place{}); first = false {
			page, next, err := l.search(t.Context(), Search{Actor: "user:7", Tool: "save"}, after, 10, look)
			if err != nil {
				t.Fatal(err)
			}
			for _, op := range page {
				got = append(got, op.ID)
			}
			if len(page) == 0 {
				got = append(got, "-")
			}
			if after = next; after != (Place{}) {
				if parsed, err := ParsePlace(after.Words()); len(page) == 0 && (parsed != after || err != nil) {
					t.Fatalf("%v: %v, %v", after, parsed, err)
				}
			}
		}
		if got := strings.Join(got, " "); got != want {
			t.Errorf("looking at %d: %q, want %q", look, got, want)
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
		"sqlite_autoindex_operations_1 (id=?)":                    {ID: "x", Actor: "x"},
		"operations_key (request_key=?)":                          {RequestKey: "x", Server: "x"},
		"operations_actor (actor=? AND created>? AND created<?)":  {Actor: "x", Caller: "x", Server: "x", State: fault.InDoubt},
		"operations_live":                                         {State: fault.Reserved},
		"operations_failed (state=? AND created>? AND created<?)": {State: fault.InDoubt},
		"operations_age (created>? AND created<?)":                {State: fault.Succeeded, Caller: "x"},
	} {
		where, _ := search.way()
		few := search.ID != "" || search.RequestKey != "" || search.State.Open()
		for _, query := range []string{`SELECT created FROM operations ` + where + oldest, selectRows + where + between + filtered} {
			plan := planOf(t, s, query)
			if !strings.Contains(plan, "INDEX "+want+";") || strings.Contains(plan, "FOR ORDER BY") && !few {
				t.Errorf("%+v: %s, want %s", search, plan, want)
			}
		}
	}
}

func planOf(t *testing.T, s *store.Store, query string) (plan string) {
	rows, err := s.Read().Query(`EXPLAIN QUERY PLAN `+query, make([]any, strings.Count(query, "?"))...)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var id, parent, unused int
		var step string
		if err := rows.Scan(&id, &parent, &unused, &step); err != nil {
			t.Fatal(err)
		}
		plan += step + "; "
	}
	return plan
}
