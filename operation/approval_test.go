package operation_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"onbehalf.internal/broker/brokertest"
	"onbehalf.internal/broker/fault"
)

var approving = brokertest.Options{Config: brokertest.Approving}

// asking makes a call that waits for a person.
func asking(t *testing.T, rig *brokertest.Rig, c brokertest.Call) brokertest.Answer {
	t.Helper()
	a := rig.Call(t, c)
	if a.Status != 202 || a.State != fault.AwaitingApproval || a.Retry != fault.RetryWait || a.Approval == nil || a.Approval.Decision != "" {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	return a
}

func ok(t *testing.T, a brokertest.AdminAnswer) {
	t.Helper()
	if a.Status != 200 {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
}

// TestApproval: nothing happens before a person has said yes to this very call, the
// person's yes begins nothing, and the same key runs it, once. The broker is started
// anew between every two steps.
func TestApproval(t *testing.T) {
	o := approving
	rig := brokertest.New(t, &o)
	restart := func() {
		t.Helper()
		if err := rig.Stop(); err != nil {
			t.Fatal(err)
		}
		if err := rig.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	quiet := func(when string) {
		t.Helper()
		if n := rig.Provider.Exchanges() + rig.Records.Arrived("server/discover") + rig.Records.Arrived("tools/call") + rig.Vault.Residue(); n != 0 {
			t.Errorf("%s: provider, Vault and server have heard of it", when)
		}
	}
	call := brokertest.Call{Key: "k"}
	asked := asking(t, rig, call)
	if asked.Hold != "" || len(asked.Legs) != 0 || asked.Attempt != 1 || asked.Approval.Expires.Sub(asked.Created) < 14*time.Minute {
		t.Errorf("%s", asked.Body)
	}
	restart()
	if again := asking(t, rig, call); again.ID != asked.ID || again.Attempt != 1 || again.Approval.Digest != asked.Approval.Digest || again.Header.Get("Broker-Replayed") == "" {
		t.Errorf("%s", again.Body)
	}
	if list := rig.Pending(t); len(list) != 1 || list[0].ID != asked.ID || list[0].Digest != asked.Approval.Digest || list[0].Caller != "gateway" || list[0].Actor != "user:7" {
		t.Errorf("%+v", list)
	}
	ok(t, rig.Decide(t, asked, "approve"))
	quiet("after the yes")
	restart()
	told := rig.Get(t, "/v1/operations/"+asked.ID, call)
	if told.State != fault.AwaitingApproval || told.Approval.Decision != "approved" || told.Approval.Approver != "user:8" || told.Approval.Reason != "looked at it" || len(rig.Pending(t)) != 0 {
		t.Errorf("%s", told.Body)
	}
	quiet("after a look")
	ran := rig.Call(t, call)
	if ran.State != fault.Succeeded || ran.ID != asked.ID || ran.Attempt != 1 || ran.Approval != nil || rig.Records.Calls("whoami") != 1 {
		t.Errorf("%s", ran.Body)
	}
	restart()
	if again := rig.Call(t, call); again.State != fault.Succeeded || rig.Records.Calls("whoami") != 1 {
		t.Errorf("%s", again.Body)
	}
	if err := rig.Stop(); err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for line := range strings.Lines(rig.Audit(t)) {
		if strings.Contains(line, asked.ID) {
			_, rest, _ := strings.Cut(line, `"kind":"`)
			kind, _, _ := strings.Cut(rest, `"`)
			if _, word, found := strings.Cut(line, `"approval":{"decision":"`); found {
				word, _, _ = strings.Cut(word, `"`)
				kind += " " + word
			}
			kinds = append(kinds, kind)
		}
	}
	if got, want := strings.Join(kinds, ", "), "approval asked, approval approved, decision, sending used, outcome, drop"; got != want {
		t.Errorf("the audit says %s, want %s", got, want)
	}
}

// TestApprovedOnce: many requests at once ask once, and many repeats at once of what
// was approved run it once.
func TestApprovedOnce(t *testing.T) {
	o := approving
	rig := brokertest.New(t, &o)
	call := brokertest.Call{Key: "k"}
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			if a, err := rig.Do(t.Context(), call); err != nil || a.State != fault.AwaitingApproval || a.Attempt != 1 {
				t.Errorf("%v %s", err, a.Body)
			}
		})
	}
	all.Wait()
	if n := len(rig.Pending(t)); n != 1 {
		t.Errorf("%d calls wait", n)
	}
	ok(t, rig.Decide(t, asking(t, rig, call), "approve"))
	for range 16 {
		all.Go(func() {
			if a, err := rig.Do(t.Context(), call); err != nil || a.State != fault.Succeeded || a.Attempt != 1 {
				t.Errorf("%v %s", err, a.Body)
			}
		})
	}
	all.Wait()
	if n := rig.Records.Arrived("tools/call"); n != 1 {
		t.Errorf("it was sent %d times", n)
	}
}
