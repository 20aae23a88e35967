//go:build real

package crash

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/secret/canary"
)

// A violation is a promise that can be broken.
type violation string

const (
	oldHold    violation = "holds after their epoch"
	falseSafe  violation = "false safe"
	doubleRun  violation = "double runs"
	chainBreak violation = "chain breaks"
	leak       violation = "leaked canaries"
	wrong      violation = "else wrong" // not what the rules say, though none of the above
)

// violations in the order of the last line.
var violations = []violation{oldHold, falseSafe, doubleRun, chainBreak, leak}

// A verdict is what a run has found.
type verdict struct {
	mu                sync.Mutex
	kills, operations int
	found             map[violation][]string
}

func newVerdict() *verdict { return &verdict{found: map[violation][]string{}} }

func (v *verdict) killed() { v.mu.Lock(); v.kills++; v.mu.Unlock() }

func (v *verdict) operated(n int) { v.mu.Lock(); v.operations += n; v.mu.Unlock() }

// is notes a violation.
func (v *verdict) is(what violation, format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.found[what] = append(v.found[what], fmt.Sprintf(format, args...))
}

func (v *verdict) count(what violation) int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.found[what])
}

// String lists what was found, for the tests that expect something.
func (v *verdict) String() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return fmt.Sprint(v.found)
}

// report fails t for everything that was found, and adds it to the last line.
func (v *verdict) report(t *testing.T) {
	t.Helper()
	v.mu.Lock()
	defer v.mu.Unlock()
	total.mu.Lock()
	defer total.mu.Unlock()
	total.kills += v.kills
	total.operations += v.operations
	for what, list := range v.found {
		total.found[what] = append(total.found[what], list...)
		for _, text := range list {
			t.Errorf("%s: %s", what, text)
		}
	}
}

// total is over all tests that are not controls.
var total = newVerdict()

func (v *verdict) line() string {
	parts := []string{fmt.Sprintf("%d kills, %d operations", v.kills, v.operations)}
	for _, what := range violations {
		parts = append(parts, fmt.Sprintf("%d %s", len(v.found[what]), what))
	}
	return "faults: " + strings.Join(parts, ", ")
}

// judgeAudit reads the audit out of the database, as the process has left it or
// is just writing it.
func (s *site) judgeAudit(ctx context.Context) {
	db, err := sql.Open("sqlite", "file:"+s.DatabasePath()+"?mode=ro&_busy_timeout=5000")
	if err != nil {
		s.is(wrong, "the database: %v", err)
		return
	}
	defer db.Close()
	tx, err := db.BeginTx(ctx, nil) // one moment
	if err != nil {
		s.is(wrong, "the database: %v", err)
		return
	}
	defer tx.Rollback()
	lines, exported, err := auditLines(tx)
	if err != nil {
		s.is(chainBreak, "the audit cannot be read: %v", err)
		return
	}
	if _, err := audit.Verify(bytes.NewReader(exported)); err != nil {
		s.is(chainBreak, "%v", err)
	}
	if err := s.compareRows(tx, lines); err != nil {
		s.is(wrong, "the database: %v", err)
	}
}

func auditLines(tx *sql.Tx) (lines [][]byte, exported []byte, err error) {
	rows, err := tx.Query(`SELECT line, hash FROM audit ORDER BY seq`)
	if err != nil {
		return nil, nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var line, hash []byte
		if err := rows.Scan(&line, &hash); err != nil {
			return nil, nil, err
		}
		if len(line) == 0 || len(hash) != len(audit.Head{}.Hash) {
			return nil, nil, fmt.Errorf("record %d is damaged", len(lines)+1)
		}
		lines = append(lines, line)
		exported = append(exported, audit.Exported(line, [32]byte(hash))...)
	}
	return lines, exported, rows.Err()
}

// compareRows holds the audit against the rows: every attempt was decided before
// it was sending, was sending before it ran, ended once, and its last word is
// the row's. A death between the two words of an opening makes the file another
// ledger (package store), for which nothing that was begun before is known not to
// have run.
func (s *site) compareRows(tx *sql.Tx, lines [][]byte) error {
	type attempt struct{ decided, sending, ended, former bool }
	attempts, last := map[string]*attempt{}, map[string]string{}
	for n, line := range lines {
		var r struct {
			Kind                  audit.Kind
			Operation, State, Ran string
			Attempt               int
			Started               audit.Started
		}
		if err := json.Unmarshal(line, &r); err != nil {
			return err
		}
		key := fmt.Sprint(r.Operation, " ", r.Attempt)
		a := attempts[key]
		if a == nil {
			a = &attempt{}
			attempts[key] = a
		}
		fits := true
		switch r.Kind {
		case audit.Start:
			for _, a := range attempts {
				a.former = a.former || r.Started.Former != ""
			}
		case audit.Decision:
			fits, a.decided, last[r.Operation] = !a.decided, true, "reserved"
		case audit.Sending:
			fits, a.sending, last[r.Operation] = a.decided && !a.sending && !a.ended, true, "sending"
		case audit.Outcome:
			fits, a.ended, last[r.Operation] = a.decided && !a.ended && (a.sending || r.Ran == "no" || a.former && r.Ran == "unknown"), true, r.State
		case audit.Late: // in place of the doubt, once
			fits, last[r.Operation] = a.ended && last[r.Operation] == "unknown", r.State
		}
		if !fits {
			s.is(chainBreak, "record %d, %s of %s, does not fit what is before it", n+1, r.Kind, key)
		}
	}
	rows, err := tx.Query(`SELECT id, state FROM operations`)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var id, state string
		if err := rows.Scan(&id, &state); err != nil {
			return err
		}
		if last[id] != state {
			s.is(chainBreak, "operation %s is %s, and its last record says %q", id, state, last[id])
		}
	}
	return rows.Err()
}

// samples is how many of the exchanged tokens are looked for; all of them have their
// beginning in common, which is looked for, too.
const samples = 24

// judgeLeaks looks for what is secret in all that the broker has put out.
func (s *site) judgeLeaks(t *testing.T, planted ...string) {
	t.Helper()
	secrets := s.Secrets()
	known := len(secrets) - len(s.Provider.Issued())
	step := max(1, (len(secrets)-known)/samples)
	for i, secret := range secrets {
		if i < known || (i-known)%step == 0 {
			planted = append(planted, secret)
		}
	}
	if issued := s.Provider.Issued(); len(issued) > 0 {
		planted = append(planted, issued[0][:len(issued[0])/3])
	}
	s.mu.Lock()
	outputs := map[string][]byte{"the log": []byte(s.Log()), "an answer": bytes.Join(s.answers, nil)}
	s.mu.Unlock()
	files, err := filepath.Glob(s.DatabasePath() + "*")
	if err != nil || len(files) == 0 {
		t.Fatalf("no database: %v", err)
	}
	for _, path := range files {
		if outputs[filepath.Base(path)], err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	}
	for name, data := range outputs {
		for i, secret := range planted {
			if form, found := canary.Find(data, secret); found {
				s.is(leak, "secret %d is in %s, %s", i+1, name, form)
			}
		}
	}
}
