package httpapi_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"onbehalf.internal/broker/brokertest"
	"onbehalf.internal/broker/fault"
)

// TestDecideRefused: what decides nothing, with the member that is wrong.
func TestDecideRefused(t *testing.T) {
	rig := brokertest.New(t, &brokertest.Options{Config: brokertest.Approving})
	asked := rig.Call(t, brokertest.Call{})
	path, digest := "/v1/approvals/"+asked.ID, asked.Approval.Digest
	body := func(oldnew ...string) string {
		return strings.NewReplacer(oldnew...).Replace(`{"decision":"approve","digest":"` + digest + `","reason":"r"}`)
	}
	for _, tc := range []struct {
		name, method, path, body string
		status                   int
		reason                   fault.Reason
		detail                   string
	}{
		{"nothing", "POST", path, `{}`, 400, "malformed_request", `decision: "approve" or "deny"`},
		{"another word", "POST", path, body("approve", "approved"), 400, "malformed_request", `decision: "approve" or "deny"`},
		{"capitals", "POST", path, body("approve", "Approve"), 400, "malformed_request", "decision"},
		{"a null", "POST", path, body(`"approve"`, "null"), 400, "malformed_request", "decision"},
		{"no digest", "POST", path, `{"decision":"approve"}`, 400, "malformed_request", "digest: "},
		{"half a digest", "POST", path, body(digest, digest[:40]), 400, "malformed_request", "digest: "},
		{"without its name", "POST", path, body("sha256:", ""), 400, "malformed_request", "digest: "},
		{"a no without a reason", "POST", path, `{"decision":"deny","digest":"` + digest + `"}`, 400, "malformed_request", "reason: "},
		{"two lines", "POST", path, body(`"r"`, `"a\nb"`), 400, "malformed_request", "reason: must be one line"},
		{"an escape", "POST", path, body(`"r"`, `"a\u001b[2Jb"`), 400, "malformed_request", "reason: must be one line"},
		{"too much reason", "POST", path, body(`"r"`, `"`+strings.Repeat("a", 513)+`"`), 400, "malformed_request", "reason: "},
		{"a member more", "POST", path, body(`"reason"`, `"approver":"user:8","reason"`), 400, "malformed_request", "approver"},
		{"twice", "POST", path, body(`"reason"`, `"decision":"deny","reason"`), 400, "malformed_request", "decision"},
		{"two values", "POST", path, body() + "{}", 400, "malformed_request", "after its end"},
		{"a query", "POST", path + "?x=y", body(), 400, "malformed_request", "no query"},
		{"no body", "POST", path, "", 415, "unsupported_media_type", ""},
		{"too much", "POST", path, strings.Repeat(" ", 9<<10), 413, "request_too_large", "8 KiB"},
		{"another method", "GET", path, "", 405, "method_not_allowed", ""},
		{"nowhere", "POST", "/v1/approvals/aaaaaaaaaaaaaaaaaaaaaaaaaa", body(), 404, "approval_not_found", ""},
		{"no id", "POST", "/v1/approvals/x", body(), 404, "approval_not_found", ""},
		{"another digest", "POST", path, body(digest, "sha256:"+strings.Repeat("0", 64)), 422, "approval_mismatch", "look at it again"},
		{"a list with a query", "GET", "/v1/approvals?state=open", "", 400, "malformed_request", "no query"},
		{"a list with a body", "GET", "/v1/approvals", "{}", 400, "malformed_request", "no body"},
	} {
		headers := http.Header{"Broker-Approver-Assertion": {rig.AssertApprover("user:8", nil)}}
		if a := rig.People(t, headers, tc.method, tc.path, tc.body, nil); a.Status != tc.status || a.Reason != tc.reason || !strings.Contains(a.Detail, tc.detail) {
			t.Errorf("%s: %d %s, want %d %s %q", tc.name, a.Status, a.Body, tc.status, tc.reason, tc.detail)
		}
	}
	if list := rig.Pending(t); len(list) != 1 || strings.Contains(rig.Log(), `"decision":"approved"`) {
		t.Errorf("refused requests have left %+v", list)
	}
}

// TestApprovalsRoles: approvers look and decide, and nobody else.
func TestApprovalsRoles(t *testing.T) {
	for role, want := range map[string]int{"operate": 403, "approve": 200, "audit": 403, "admin": 403} {
		rig := brokertest.New(t, &brokertest.Options{Config: func(y string) string {
			return strings.Replace(y, "  admin:\n    roles: [admin]", "  admin:\n    roles: ["+role+"]", 1)
		}})
		if a := rig.Admin(t, "GET", "/v1/approvals", "", nil); a.Status != want || want == 200 && !strings.Contains(string(a.Body), `"approvals":[]`) {
			t.Errorf("role %q: %d %s", role, a.Status, a.Body)
		}
	}
}

// TestDecisionIsTold: to the approver's caller with who vouches for the person, in the
// log once, with ids and words of ours.
func TestDecisionIsTold(t *testing.T) {
	rig := brokertest.New(t, &brokertest.Options{Config: brokertest.Approving})
	asked := rig.Call(t, brokertest.Call{})
	for range 2 {
		rig.Decide(t, asked, "approve")
	}
	var told map[string]any
	a := rig.Decide(t, asked, "approve")
	if err := json.Unmarshal(a.Body, &told); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]any{"id": asked.ID, "caller": "gateway", "actor": "user:7", "server": "records", "tool": "whoami", "digest": asked.Approval.Digest,
		"decision": "approved", "approver": "user:8", "issuer": "https://people.example", "by": "people", "reason": "looked at it", "repeated": true} {
		if told[name] != want {
			t.Errorf("%s is %v, want %v", name, told[name], want)
		}
	}
	if told["arguments"] != nil || told["decided"] == nil {
		t.Errorf("%s", a.Body)
	}
	log := rig.Log()
	if n := strings.Count(log, `"msg":"approval"`); n != 2 || strings.Contains(log, "looked at it") || !strings.Contains(log, `"decision":"approved","digest":"`+asked.Approval.Digest+`","approver":"user:8","by":"people"`) {
		t.Errorf("%d lines: %s", n, log)
	}
}

// TestStreamOfWhatWaits: it goes on until a person has decided, and its outcome is the
// decision, of a new call and of one that is looked at.
func TestStreamOfWhatWaits(t *testing.T) {
	rig := brokertest.New(t, &brokertest.Options{Config: brokertest.Approving, Heartbeat: time.Hour})
	for word, want := range map[string]string{"approve": "approved", "deny": "denied"} {
		body := `{"server":"records","tool":"whoami","request_key":"` + word + `"}`
		call := open(t, rig, "POST", "/v1/operations", body)
		op, _ := call.nextOf(t, "operation")
		if op.State != fault.AwaitingApproval || op.Approval == nil {
			t.Fatalf("%+v", op)
		}
		look := open(t, rig, "GET", "/v1/operations/"+op.ID, "")
		look.nextOf(t, "operation")
		if a := rig.Decide(t, brokertest.Answer{Operation: op}, word); a.Status != 200 {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
		for _, s := range []*stream{call, look} {
			if last, data := s.nextOf(t, "outcome"); last.Approval == nil || last.Approval.Decision != want || (last.State == fault.AwaitingApproval) != (want == "approved") || s.next(t).name != "" {
				t.Errorf("%s", data)
			}
		}
		if want == "approved" {
			again := open(t, rig, "POST", "/v1/operations", body)
			again.nextOf(t, "operation")
			if last, data := again.nextOf(t, "outcome"); last.State != fault.Succeeded {
				t.Errorf("%s", data)
			}
		}
	}
}

// TestStreamOfWhatWaitsBeats: nothing on the way takes the silence for the end, and a
// time that is over is noticed.
func TestStreamOfWhatWaitsBeats(t *testing.T) {
	var ahead atomic.Int64
	rig := brokertest.New(t, &brokertest.Options{Config: brokertest.Approving, Heartbeat: 20 * time.Millisecond,
		Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }})
	s := open(t, rig, "POST", "/v1/operations", `{"server":"records","tool":"whoami","request_key":"k"}`)
	s.nextOf(t, "operation")
	if e := s.next(t); e.name != ":" {
		t.Errorf("%+v", e)
	}
	ahead.Store(int64(15 * time.Minute))
	if last, data := s.nextOf(t, "outcome"); last.Cause != fault.ApprovalExpired {
		t.Errorf("%s", data)
	}
}

// TestStreamOfWhatIsGivenUp: a cancel ends it, and so does a broker that stops, without
// an outcome.
func TestStreamOfWhatIsGivenUp(t *testing.T) {
	rig := brokertest.New(t, &brokertest.Options{Config: brokertest.Approving, Heartbeat: time.Hour})
	start := func(key string) (*stream, string) {
		s := open(t, rig, "POST", "/v1/operations", `{"server":"records","tool":"whoami","request_key":"`+key+`"}`)
		op, _ := s.nextOf(t, "operation")
		return s, op.ID
	}
	cancelled, id := start("1")
	if a := rig.Cancel(t, id, brokertest.Call{}); a.State != fault.NotSent {
		t.Errorf("%s", a.Body)
	}
	if last, data := cancelled.nextOf(t, "outcome"); last.Cause != fault.CallerCancelled {
		t.Errorf("%s", data)
	}
	stopped, _ := start("2")
	began := time.Now()
	if err := rig.Stop(); err != nil {
		t.Fatal(err)
	}
	if e := stopped.next(t); e.name != "" {
		t.Errorf("%+v", e)
	}
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("the broker has waited %v for a reader", took)
	}
}
