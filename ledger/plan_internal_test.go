package ledger

import (
	"path/filepath"
	"strings"
	"testing"

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
