package ledger_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/ledger"
	"onbehalf.internal/broker/store"
)

// TestKill ends a process that sends as fast as it can, with SIGKILL. What it
// was allowed to send is never called unsent.
func TestKill(t *testing.T) {
	r := newRig(t)
	r.Store.Close()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "LEDGER_TEST_CHILD="+r.Path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var sent []string
	for lines := bufio.NewScanner(out); lines.Scan(); {
		sent = append(sent, lines.Text())
		if len(sent) == 20 {
			cmd.Process.Kill()
		}
	}
	_ = cmd.Wait()

	r.reopen()
	if _, inDoubt, err := r.Recover(t.Context()); err != nil || inDoubt < len(sent) || len(sent) < 20 {
		t.Errorf("Recover = %d in doubt, %v, but %d were sent", inDoubt, err, len(sent))
	}
	for _, id := range sent {
		op, err := r.Get(t.Context(), "gateway", "user:7", id)
		if err != nil || op.Outcome != fault.Doubt(fault.ProcessDied) || op.Hold != ledger.HoldPending {
			t.Errorf("%s is %v with hold %q, %v", id, op.Outcome, op.Hold, err)
		}
	}
	r.records()
}

func TestMain(m *testing.M) {
	if path := os.Getenv("LEDGER_TEST_CHILD"); path != "" {
		fmt.Println(sendForEver(path))
		return
	}
	os.Exit(m.Run())
}

// sendForEver prints each operation once Sending has returned.
func sendForEver(path string) error {
	ctx := context.Background()
	s, err := store.Open(ctx, store.Config{Path: path})
	if err != nil {
		return err
	}
	l := ledger.New(s, ledger.Config{})
	for n := 0; ; n++ {
		op, _, err := l.Begin(ctx, another(n), audit.Record{})
		if err != nil {
			return err
		}
		if err := l.Sending(ctx, op.ID, op.Attempt, audit.Record{}); err != nil {
			return err
		}
		fmt.Println(op.ID)
	}
}
