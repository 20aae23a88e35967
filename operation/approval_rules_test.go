package operation_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"onbehalf.internal/broker/brokertest"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/internal/devidp"
)

func edit(t *testing.T, rig *brokertest.Rig, old, new string) {
	t.Helper()
	if err := rig.Edit(func(yaml string) string {
		if !strings.Contains(yaml, old) {
			t.Fatalf("%q is not in the configuration", old)
		}
		return strings.Replace(yaml, old, new, 1)
	}); err != nil {
		t.Fatal(err)
	}
}

const (
	people = `audience: approvals, subjects: ["user:"]`
	tool   = "whoami: {enabled: true, effect: read}"
	admin  = "whoami: {enabled: true, effect: read, requires_admin: true}"
)

// TestApprovers: who may decide about a call of user:7, and what the others are told.
// Nothing changes by a refusal, and what the gate refuses is in the audit.
func TestApprovers(t *testing.T) {
	claims := func(c map[string]any) func(*brokertest.Rig) http.Header {
		return func(rig *brokertest.Rig) http.Header {
			return http.Header{"Broker-Approver-Assertion": {rig.AssertApprover("user:8", c)}}
		}
	}
	person := func(id string) func(*brokertest.Rig) http.Header {
		return func(rig *brokertest.Rig) http.Header {
			return http.Header{"Broker-Approver-Assertion": {rig.AssertApprover(id, nil)}}
		}
	}
	bearer := func(of func(*brokertest.Rig) string) func(*brokertest.Rig) http.Header {
		return func(rig *brokertest.Rig) http.Header {
			h := person("user:8")(rig)
			h.Set("Authorization", "Bearer "+of(rig))
			return h
		}
	}
	past := time.Now().Add(-time.Hour).Unix()
	for _, row := range []struct {
		name     string
		old, new string // of the configuration
		suspend  string
		headers  func(*brokertest.Rig) http.Header
		status   int
		reason   fault.Reason
		denial   bool
	}{
		{name: "a person without a grant", headers: person("user:8"), status: 200},
		{name: "an administrator", old: tool, new: admin, headers: claims(map[string]any{"roles": []string{"admin"}}), status: 200},
		{name: "an administrator at a tool for all", headers: claims(map[string]any{"roles": "admin"}), status: 200},

		{name: "the actor", headers: person("user:7"), status: 403, reason: fault.ApproverIsActor, denial: true},
		{name: "suspended", suspend: `"actor":"user:8"`, headers: person("user:8"), status: 403, reason: fault.Suspended, denial: true},
		{name: "the server is suspended", suspend: `"server":"records"`, headers: person("user:8"), status: 403, reason: fault.Suspended, denial: true},
		{name: "the tool is for administrators", old: tool, new: admin, headers: person("user:8"), status: 403, reason: fault.AdminRequired, denial: true},
		{name: "the tool is switched off", old: tool, new: "whoami: {enabled: false}", headers: person("user:8"), status: 403, reason: fault.ToolDisabled, denial: true},
		{name: "the caller may not use the server any more", old: "servers: [records, archive]", new: "servers: [archive]", headers: person("user:8"), status: 403, reason: fault.ServerNotAllowed, denial: true},
		{name: "a person who is not listed", old: people, new: `audience: approvals, subjects: ["user:9"]`, headers: person("user:8"), status: 403, reason: fault.ApproverNotAllowed},
		{name: "a service", headers: person("service:nightly"), status: 403, reason: fault.ApproverNotAllowed},
		{name: "another issuer", headers: claims(map[string]any{"iss": "https://portal.example"}), status: 401, reason: fault.AssertionInvalid},
		{name: "another audience", headers: claims(map[string]any{"aud": "broker"}), status: 401, reason: fault.AssertionInvalid},
		{name: "expired", headers: claims(map[string]any{"iat": past, "exp": past + 60}), status: 401, reason: fault.AssertionInvalid},
		{name: "an actor's assertion", headers: func(rig *brokertest.Rig) http.Header {
			return http.Header{"Broker-Approver-Assertion": {rig.Assert("user:8")}}
		}, status: 401, reason: fault.AssertionInvalid},
		{name: "asserted by name", headers: func(*brokertest.Rig) http.Header { return http.Header{"Broker-Actor": {"user:8"}} }, status: 401, reason: fault.ApproverMissing},
		{name: "a name as an assertion", headers: func(*brokertest.Rig) http.Header {
			return http.Header{"Broker-Approver-Assertion": {"user:8"}}
		}, status: 401, reason: fault.AssertionInvalid},
		{name: "nobody", headers: func(*brokertest.Rig) http.Header { return nil }, status: 401, reason: fault.ApproverMissing},
		{name: "the gateway brings it", headers: bearer(func(rig *brokertest.Rig) string { return rig.Bearer }), status: 403, reason: fault.RoleMissing},
		{name: "an admin brings it", headers: bearer((*brokertest.Rig).AdminBearer), status: 403, reason: fault.RoleMissing},
		{name: "a caller without approvers brings it", old: "roles: [admin]", new: "roles: [admin, approve]", headers: bearer((*brokertest.Rig).AdminBearer), status: 403, reason: fault.ApproverNotAllowed},
	} {
		t.Run(row.name, func(t *testing.T) {
			o := approving
			rig := brokertest.New(t, &o)
			asked := asking(t, rig, brokertest.Call{Key: "k"})
			if row.old != "" {
				edit(t, rig, row.old, row.new)
			}
			if row.suspend != "" {
				suspend(t, rig, row.suspend)
			}
			body := `{"decision":"approve","digest":"` + asked.Approval.Digest + `"}`
			a := rig.People(t, row.headers(rig), "POST", "/v1/approvals/"+asked.ID, body, nil)
			if a.Status != row.status || a.Reason != row.reason {
				t.Errorf("%d %s", a.Status, a.Body)
			}
			if pending := len(rig.Pending(t)); (pending == 0) != (row.status == 200) {
				t.Errorf("%d are pending", pending)
			}
			if err := rig.Stop(); err != nil {
				t.Fatal(err)
			}
			if denied := strings.Count(rig.Audit(t), `"kind":"denial"`); (denied == 1) != row.denial {
				t.Errorf("%d denials are in the audit", denied)
			}
		})
	}
}

// TestApproverReplayed: an assertion decides about one call.
func TestApproverReplayed(t *testing.T) {
	o := approving
	rig := brokertest.New(t, &o)
	first, second := asking(t, rig, brokertest.Call{Key: "1"}), asking(t, rig, brokertest.Call{Key: "2"})
	assertion := rig.AssertApprover("user:8", nil)
	ok(t, rig.DecideAs(t, first, "approve", assertion))
	if a := rig.DecideAs(t, second, "approve", assertion); a.Status != 401 || a.Reason != fault.AssertionReplayed {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	if a := rig.DecideAs(t, first, "approve", assertion); a.Status != 200 || !strings.Contains(string(a.Body), `"repeated":true`) {
		t.Errorf("the same again: %d %s", a.Status, a.Body)
	}
	if a := rig.DecideAs(t, first, "deny", assertion); a.Status != 422 || a.Reason != fault.NotAwaiting {
		t.Errorf("the other word: %d %s", a.Status, a.Body)
	}
	if a := rig.DecideAs(t, first, "approve", rig.AssertApprover("user:9", nil)); a.Status != 422 || a.Reason != fault.NotAwaiting {
		t.Errorf("another person: %d %s", a.Status, a.Body)
	}
	second.Approval.Digest = first.Approval.Digest[:len(first.Approval.Digest)-4] + "0000"
	if a := rig.Decide(t, second, "approve"); a.Status != 422 || a.Reason != fault.ApprovalMismatch || len(rig.Pending(t)) != 1 {
		t.Errorf("another digest: %d %s", a.Status, a.Body)
	}
}

// TestApproverGone: who would not be asked any more has not approved, whether the call
// has begun by then or not; the same key asks anew.
func TestApproverGone(t *testing.T) {
	changes := map[string]func(*testing.T, *brokertest.Rig){
		"not listed": func(t *testing.T, rig *brokertest.Rig) {
			edit(t, rig, people, `audience: approvals, subjects: ["user:9"]`)
		},
		"another issuer": func(t *testing.T, rig *brokertest.Rig) {
			edit(t, rig, "https://people.example", "https://others.example")
		},
		"suspended": func(t *testing.T, rig *brokertest.Rig) { suspend(t, rig, `"actor":"user:8"`) },
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			o := approving
			rig := brokertest.New(t, &o)
			call := brokertest.Call{Key: "k"}
			ok(t, rig.Decide(t, asking(t, rig, call), "approve"))
			change(t, rig)
			if a := rig.Call(t, call); a.State != fault.NotSent || a.Cause != fault.ApprovalVoid || a.Attempt != 1 || rig.Provider.Exchanges() != 0 {
				t.Errorf("%s", a.Body)
			}
			if again := asking(t, rig, call); again.Attempt != 2 {
				t.Errorf("%s", again.Body)
			}
		})
		t.Run(name+", on the way", func(t *testing.T) {
			o := approving
			rig := brokertest.New(t, &o)
			call := brokertest.Call{Key: "k"}
			ok(t, rig.Decide(t, asking(t, rig, call), "approve"))
			release, answer := held(t, rig, rig.Records, "server/discover", call)
			change(t, rig)
			release()
			if a := <-answer; a.State != fault.NotSent || a.Cause != fault.ApprovalVoid || rig.Records.Arrived("tools/call") != 0 {
				t.Errorf("%s", a.Body)
			}
			if again := asking(t, rig, call); again.Attempt != 2 {
				t.Errorf("%s", again.Body)
			}
		})
	}
	t.Run("no administrator, where one is needed by now", func(t *testing.T) {
		rig := brokertest.New(t, &brokertest.Options{Config: func(y string) string {
			return strings.Replace(brokertest.Approving(y), `audience: broker, subjects: ["user:"]`, `audience: broker, subjects: ["user:"], admin: {claim: roles, value: admin}`, 1)
		}})
		call := func() brokertest.Call {
			chief := rig.AssertApprover("user:7", map[string]any{"iss": "https://portal.example", "aud": "broker", "roles": "admin"})
			return brokertest.Call{Bearer: rig.PortalBearer(), Assertion: chief, Key: "k"}
		}
		ok(t, rig.Decide(t, asking(t, rig, call()), "approve"))
		edit(t, rig, tool, admin)
		if a := rig.Call(t, call()); a.State != fault.NotSent || a.Cause != fault.ApprovalVoid {
			t.Errorf("%s", a.Body)
		}
		again := asking(t, rig, call())
		ok(t, rig.DecideAs(t, again, "approve", rig.AssertApprover("user:8", map[string]any{"roles": "admin"})))
		if a := rig.Call(t, call()); a.State != fault.Succeeded {
			t.Errorf("%s", a.Body)
		}
	})
}

// TestApprovalVoid: what was not approved is not sent, also where approvals came to be
// asked for when the call had begun.
func TestApprovalVoid(t *testing.T) {
	rig := brokertest.New(t, nil)
	call := brokertest.Call{Key: "k"}
	release, answer := held(t, rig, rig.Records, "server/discover", call)
	if err := rig.Edit(brokertest.Approving); err != nil {
		t.Fatal(err)
	}
	release()
	if a := <-answer; a.State != fault.NotSent || a.Cause != fault.ApprovalVoid || rig.Records.Arrived("tools/call") != 0 {
		t.Errorf("%s", a.Body)
	}
	asked := asking(t, rig, call)
	if asked.Attempt != 2 || asked.Hold != "" || len(asked.Legs) != 0 {
		t.Errorf("%s", asked.Body)
	}
	ok(t, rig.Decide(t, asked, "approve"))
	if a := rig.Call(t, call); a.State != fault.Succeeded || a.Attempt != 2 {
		t.Errorf("%s", a.Body)
	}
}

// TestApprovalSwitched: what the newest file says counts: off, and what waits runs
// without; on the way, too.
func TestApprovalSwitched(t *testing.T) {
	o := approving
	rig := brokertest.New(t, &o)
	off := func(yaml string) string {
		return strings.ReplaceAll(yaml, "requires_approval: true", "requires_approval: false")
	}
	call, other := brokertest.Call{Key: "k"}, brokertest.Call{Key: "other"}
	asked := asking(t, rig, call)
	ok(t, rig.Decide(t, asking(t, rig, other), "approve"))
	if err := rig.Edit(off); err != nil {
		t.Fatal(err)
	}
	if a := rig.Call(t, call); a.State != fault.Succeeded || a.ID != asked.ID || a.Attempt != 1 {
		t.Errorf("%s", a.Body)
	}
	if a := rig.Decide(t, asked, "approve"); a.Status != 422 || a.Reason != fault.NotAwaiting {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	if err := rig.Edit(brokertest.Approving); err != nil {
		t.Fatal(err)
	}
	release, answer := held(t, rig, rig.Records, "tools/call", other)
	if err := rig.Edit(off); err != nil {
		t.Fatal(err)
	}
	release()
	if a := <-answer; a.State != fault.Succeeded {
		t.Errorf("%s", a.Body)
	}
}

// TestApprovalExpires: after its time an approval can neither be given nor used; a
// repeat, a look or the sweep notices, and the next repeat asks anew.
func TestApprovalExpires(t *testing.T) {
	var ahead atomic.Int64
	clock := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	rig := brokertest.New(t, &brokertest.Options{Now: clock, Config: func(y string) string {
		return strings.Replace(brokertest.Approving(y), "requires_approval: true", "requires_approval: true\n    approval: {expires: 1m}", 1)
	}})
	repeat, look, byKey := brokertest.Call{Key: "1"}, brokertest.Call{Key: "2"}, brokertest.Call{Key: "3"}
	first, second, third := asking(t, rig, repeat), asking(t, rig, look), asking(t, rig, byKey)
	ok(t, rig.Decide(t, second, "approve"))
	ahead.Add(int64(59 * time.Second))
	if a := rig.Call(t, repeat); a.State != fault.AwaitingApproval {
		t.Errorf("%s", a.Body)
	}
	ahead.Add(int64(time.Second))
	if a := rig.Decide(t, first, "approve"); a.Status != 422 || a.Reason != fault.ApprovalExpired || len(rig.Pending(t)) != 0 {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	for _, a := range []brokertest.Answer{rig.Call(t, repeat), rig.Get(t, "/v1/operations/"+second.ID, look), rig.Get(t, "/v1/operations?request_key=3", byKey)} {
		if a.Status != 200 || a.State != fault.NotSent || a.Cause != fault.ApprovalExpired || a.Retry != fault.RetrySafe || a.Attempt != 1 {
			t.Errorf("%d %s", a.Status, a.Body)
		}
	}
	for _, call := range []brokertest.Call{repeat, look, byKey} {
		if again := asking(t, rig, call); again.Attempt != 2 {
			t.Errorf("%s", again.Body)
		}
	}
	if n := rig.Provider.Exchanges(); n != 0 || third.ID == "" {
		t.Errorf("%d exchanges", n)
	}
}

// TestApprovalDenied: a no ends it, with the person's words for its caller; the same
// key asks anew.
func TestApprovalDenied(t *testing.T) {
	o := approving
	rig := brokertest.New(t, &o)
	call := brokertest.Call{Key: "k"}
	asked := asking(t, rig, call)
	ok(t, rig.Decide(t, asked, "deny"))
	told := rig.Get(t, "/v1/operations/"+asked.ID, call)
	if told.State != fault.NotSent || told.Cause != fault.ApprovalDenied || told.Approval == nil || told.Approval.Decision != "denied" ||
		told.Approval.Approver != "user:8" || told.Approval.Reason != "looked at it" {
		t.Errorf("%s", told.Body)
	}
	if a := rig.Decide(t, asked, "approve"); a.Status != 422 || a.Reason != fault.NotAwaiting {
		t.Errorf("a yes after it: %d %s", a.Status, a.Body)
	}
	if again := asking(t, rig, call); again.ID != asked.ID || again.Attempt != 2 || again.Approval.Reason != "" {
		t.Errorf("%s", again.Body)
	}
}

// TestApprovalCancelled: who gives up is not kept waiting, and nobody is asked; a yes
// that was there is good for the same call still.
func TestApprovalCancelled(t *testing.T) {
	o := approving
	rig := brokertest.New(t, &o)
	call, approved := brokertest.Call{Key: "k"}, brokertest.Call{Key: "approved"}
	asked, yes := asking(t, rig, call), asking(t, rig, approved)
	ok(t, rig.Decide(t, yes, "approve"))
	for _, a := range []brokertest.Answer{rig.Cancel(t, asked.ID, call), rig.Cancel(t, yes.ID, approved)} {
		if a.Status != 200 || a.State != fault.NotSent || a.Cause != fault.CallerCancelled {
			t.Errorf("%d %s", a.Status, a.Body)
		}
	}
	if a := rig.Decide(t, asked, "approve"); a.Status != 422 || a.Reason != fault.NotAwaiting || len(rig.Pending(t)) != 0 {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	if again := asking(t, rig, call); again.Attempt != 2 {
		t.Errorf("%s", again.Body)
	}
	if a := rig.Call(t, approved); a.State != fault.Succeeded || a.Attempt != 2 {
		t.Errorf("%s", a.Body)
	}
}

// TestApprovalUse: what ended before it was sent has not used it; what was sent has,
// whatever became of it.
func TestApprovalUse(t *testing.T) {
	t.Run("not sent", func(t *testing.T) {
		o := approving
		rig := brokertest.New(t, &o)
		call := brokertest.Call{Key: "k"}
		ok(t, rig.Decide(t, asking(t, rig, call), "approve"))
		rig.Provider.Break(devidp.CutBefore)
		if a := rig.Call(t, call); a.State != fault.NotSent || a.Cause != fault.ProviderUnreachable {
			t.Fatalf("%s", a.Body)
		}
		rig.Provider.Break(nil)
		if a := rig.Call(t, call); a.State != fault.Succeeded || a.Attempt != 2 {
			t.Errorf("%s", a.Body)
		}
	})
	t.Run("refused", func(t *testing.T) {
		o := approving
		b := &bench{t: t, Rig: brokertest.New(t, &o)}
		call := brokertest.Call{Key: "k"}
		ok(t, b.Decide(t, asking(t, b.Rig, call), "approve"))
		b.at("tools/call", status(401))
		if a := b.Call(t, call); a.State != fault.PeerRefused {
			t.Fatalf("%s", a.Body)
		}
		b.Records.Break(nil)
		again := asking(t, b.Rig, call)
		if again.Attempt != 2 || b.Records.Calls("whoami") != 0 {
			t.Errorf("%s", again.Body)
		}
		ok(t, b.Decide(t, again, "approve"))
		if a := b.Call(t, call); a.State != fault.Succeeded || a.Attempt != 2 {
			t.Errorf("%s", a.Body)
		}
	})
	t.Run("resolved as not run", func(t *testing.T) {
		o := approving
		rig := brokertest.New(t, &o)
		call := brokertest.Call{Tool: "drop", Arguments: map[string]string{"job": "j"}, Key: "k"}
		ok(t, rig.Decide(t, asking(t, rig, call), "approve"))
		cut := rig.Call(t, call)
		if cut.State != fault.InDoubt {
			t.Fatalf("%s", cut.Body)
		}
		if _, a := resolve(t, rig, cut.ID, `{"ran":"no","reason":"r"}`); a.Status != 200 {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
		if again := asking(t, rig, call); again.Attempt != 2 || rig.Records.Calls("drop") != 1 {
			t.Errorf("%s", again.Body)
		}
	})
}

// TestAskedWhileCleanedUp: what the attempt before still does after its end is not told
// in place of what waits.
func TestAskedWhileCleanedUp(t *testing.T) {
	b := &bench{t: t, Rig: brokertest.New(t, &brokertest.Options{Config: func(y string) string { return brokertest.Approving(revoking(y)) }})}
	asked, release := holdRevocation(t, b.Provider)
	call := brokertest.Call{Key: "k"}
	ok(t, b.Decide(t, asking(t, b.Rig, call), "approve"))
	b.at("tools/call", status(401))
	if a := b.Call(t, call); a.State != fault.PeerRefused {
		t.Fatalf("%s", a.Body)
	}
	<-asked
	for range 2 {
		again := asking(t, b.Rig, call)
		if told := b.Get(t, "/v1/operations/"+again.ID, call); again.Attempt != 2 || told.State != fault.AwaitingApproval || told.Attempt != 2 {
			t.Errorf("%s", told.Body)
		}
	}
	release()
}

// TestApprovalAndPolicy: who may not make a call is not heard by a person; what is
// taken away while a call waits stops it, approved or not.
func TestApprovalAndPolicy(t *testing.T) {
	o := approving
	rig := brokertest.New(t, &o)
	if a := rig.Call(t, brokertest.Call{Actor: "user:8"}); a.Status != 403 || a.Reason != fault.NoGrant || len(rig.Pending(t)) != 0 {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	call := brokertest.Call{Key: "k"}
	ok(t, rig.Decide(t, asking(t, rig, call), "approve"))
	if a := rig.Call(t, brokertest.Call{Key: "k", Tool: "fail"}); a.Status != 422 || a.Reason != fault.RequestKeyConflict {
		t.Errorf("another call by its key: %d %s", a.Status, a.Body)
	}
	if err := rig.Edit(disableGrant); err != nil {
		t.Fatal(err)
	}
	if a := rig.Call(t, call); a.Status != 202 || a.State != fault.AwaitingApproval || rig.Provider.Exchanges() != 0 {
		t.Errorf("without its grant: %d %s", a.Status, a.Body)
	}
}

// TestApprovalWhileStopping: a broker that stops asks nobody, and answers whoever
// waits already.
func TestApprovalWhileStopping(t *testing.T) {
	o := approving
	rig := brokertest.New(t, &o)
	call, waiting := brokertest.Call{Key: "k"}, brokertest.Call{Key: "waiting"}
	asking(t, rig, waiting)
	ok(t, rig.Decide(t, asking(t, rig, call), "approve"))
	release, answer := held(t, rig, rig.Records, "tools/call", call)
	stopped := make(chan error, 1)
	go func() { stopped <- rig.Stop() }()
	insist := func(c brokertest.Call) brokertest.Answer { // idle connections are closed meanwhile
		for {
			if a, err := rig.Do(t.Context(), c); err == nil || t.Context().Err() != nil {
				return a
			}
		}
	}
	for i := 0; ; i++ {
		a := insist(brokertest.Call{Key: fmt.Sprint("new", i)})
		if a.Reason == fault.Draining {
			break
		}
		if a.State != fault.AwaitingApproval {
			t.Fatalf("%s", a.Body)
		}
	}
	if a := insist(waiting); a.State != fault.AwaitingApproval || a.Attempt != 1 {
		t.Errorf("%s", a.Body)
	}
	release()
	if a := <-answer; a.State != fault.Succeeded {
		t.Errorf("%s", a.Body)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}
