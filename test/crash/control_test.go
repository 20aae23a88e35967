//go:build real

package crash

import (
	"bytes"
	"context"
	"database/sql"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"onbehalf.internal/broker/brokertest"
)

// TestControlHolds: a broker that drops nothing, and whose epochs do not end, is
// found.
func TestControlHolds(t *testing.T) {
	s := start(t)
	s.uncap(t)
	s.lies.Store(true)
	s.kill()
	if err := s.restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.load(t, 2, 1, mix)
	s.judgeHolds(t)
	if s.count(oldHold) == 0 || s.count(falseSafe)+s.count(doubleRun)+s.count(wrong) != 0 {
		t.Errorf("found %v", s.verdict)
	}
	t.Log(s.verdict)
}

// TestControlLateSending: a broker that writes "sending" after the send is found,
// at the one moment that matters and under load.
func TestControlLateSending(t *testing.T) {
	s := start(t)
	s.environ = []string{"BROKER_CRASH_LATE=1h"}
	r := row{at: "after tools/call", call: brokertest.Call{Server: "records", Key: "late"}, told: []string{notSent}, ran: 1}
	if err := s.die(t.Context(), r); err == nil || s.count(falseSafe) == 0 || s.count(doubleRun) == 0 {
		t.Errorf("at one moment: %v, found %v", err, s.verdict)
	}
	safe, double := s.count(falseSafe), s.count(doubleRun)
	s.slow = 400 * time.Millisecond
	s.environ = []string{"BROKER_CRASH_LATE=300ms"} // so most of what is under way when it is killed is in between
	s.kill()
	if err := s.restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.load(t, 8, 1, []brokertest.Call{{Server: "records", Tool: "slow"}})
	if s.count(falseSafe) == safe || s.count(doubleRun) == double {
		t.Errorf("under load: found %v", s.verdict)
	}
	t.Logf("%d false safe, %d double runs", s.count(falseSafe), s.count(doubleRun))
}

// TestControlTampered: a changed record and a secret in the log are found.
func TestControlTampered(t *testing.T) {
	s := start(t)
	ctx := t.Context()
	if a, err := s.do(ctx, brokertest.Call{Key: "one"}); err != nil || a.State != "succeeded" {
		t.Fatal(err, a.State)
	}
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	s.judgeAudit(ctx)
	s.judgeLeaks(t)
	if s.count(chainBreak)+s.count(leak)+s.count(wrong) != 0 {
		t.Fatalf("before: %v", s.verdict)
	}
	s.change(t, `UPDATE audit SET line = replace(line, '"kind":"drop"', '"kind":"drip"')`)
	if s.judgeAudit(ctx); s.count(chainBreak) != 1 {
		t.Errorf("a changed record: %v", s.verdict)
	}
	s.change(t, `UPDATE audit SET line = replace(line, '"kind":"drip"', '"kind":"drop"')`)
	s.change(t, `UPDATE operations SET state = 'not_sent'`)
	if s.judgeAudit(ctx); s.count(chainBreak) != 2 {
		t.Errorf("a changed row: %v", s.verdict)
	}
	if s.judgeLeaks(t, `"msg":"serving"`); s.count(leak) != 1 {
		t.Errorf("a secret in the log: %v", s.verdict)
	}
}

func (s *site) change(t *testing.T, statement string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+s.DatabasePath())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	result, err := db.ExecContext(context.Background(), statement)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := result.RowsAffected(); n == 0 {
		t.Fatalf("nothing changed, %v", err)
	}
}

// TestProductCannotCrash: the switches are in the program of these tests alone.
func TestProductCannotCrash(t *testing.T) {
	t.Parallel()
	product := filepath.Join(t.TempDir(), "broker")
	if out, err := exec.Command("go", "build", "-o", product, "onbehalf.internal/broker/cmd/broker").CombinedOutput(); err != nil {
		t.Fatalf("%s", out)
	}
	for path, want := range map[string]bool{binary: true, product: false} {
		program, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range []string{"BROKER_CRASH_AT", "BROKER_CRASH_LATE", "main.die", "main.sendFirst"} {
			if bytes.Contains(program, []byte(word)) != want {
				t.Errorf("%s is in %s: %v", word, filepath.Base(filepath.Dir(path)), !want)
			}
		}
	}
}
