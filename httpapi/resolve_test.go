package httpapi_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"onbehalf.internal/broker/brokertest"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/httpapi"
)

// doubtful makes a call that is cut off.
func doubtful(t *testing.T, rig *brokertest.Rig, actor, key string) brokertest.Answer {
	t.Helper()
	a := rig.Call(t, brokertest.Call{Actor: actor, Tool: "drop", Arguments: map[string]string{"job": "j"}, Key: key})
	if a.State != fault.InDoubt {
		t.Fatalf("%s", a.Body)
	}
	return a
}

// TestResolveRefused: what resolves nothing, with the member that is wrong.
func TestResolveRefused(t *testing.T) {
	rig := brokertest.New(t, nil)
	cut := doubtful(t, rig, "user:7", "cut")
	path := "/v1/operations/" + cut.ID + "/resolve"
	for _, tc := range []struct{ name, body, detail string }{
		{"nothing", `{}`, `ran: "yes" or "no"`},
		{"no word", `{"reason":"r"}`, `ran: "yes" or "no"`},
		{"another word", `{"ran":"unknown","reason":"r"}`, `ran: "yes" or "no"`},
		{"capitals", `{"ran":"Yes","reason":"r"}`, `ran: "yes" or "no"`},
		{"an empty word", `{"ran":"","reason":"r"}`, `ran: "yes" or "no"`},
		{"a boolean", `{"ran":true,"reason":"r"}`, "ran"},
		{"a null", `{"ran":null,"reason":"r"}`, "ran"},
		{"no reason", `{"ran":"no"}`, "reason: must be text of 1 to 512 bytes"},
		{"spaces", `{"ran":"no","reason":"  "}`, "reason: must be text"},
		{"two lines", `{"ran":"no","reason":"a\nb"}`, "reason: must be one line"},
		{"an escape", `{"ran":"no","reason":"a\u001b[2Jb"}`, "reason: must be one line"},
		{"too much reason", `{"ran":"no","reason":"` + strings.Repeat("a", 513) + `"}`, "reason: must be text"},
		{"no attempt", `{"ran":"no","reason":"r","attempt":0}`, "attempt: the number"},
		{"a null attempt", `{"ran":"no","reason":"r","attempt":null}`, "attempt"},
		{"half an attempt", `{"ran":"no","reason":"r","attempt":1.5}`, "attempt"},
		{"an attempt in words", `{"ran":"no","reason":"r","attempt":"1"}`, "attempt"},
		{"a member more", `{"ran":"no","reason":"r","by":"root"}`, "by"},
		{"twice", `{"ran":"no","ran":"yes","reason":"r"}`, "ran"},
		{"another case", `{"Ran":"no","reason":"r"}`, "Ran"},
		{"no object", `["no"]`, "not an object"},
		{"two values", `{"ran":"no","reason":"r"}{}`, "after its end"},
	} {
		a := rig.Admin(t, "POST", path, tc.body, nil)
		if a.Status != 400 || a.Reason != fault.MalformedRequest || !strings.Contains(a.Detail, tc.detail) {
			t.Errorf("%s: %d %s, want %q", tc.name, a.Status, a.Body, tc.detail)
		}
	}
	const no = `{"ran":"no","reason":"r"}`
	good := rig.Call(t, brokertest.Call{})
	rig.Call(t, brokertest.Call{Key: "next"}) // the good one's drop is recorded by now
	for _, tc := range []struct {
		method, path, body string
		status             int
		reason             fault.Reason
		detail             string
	}{
		{"POST", path + "?x=y", no, 400, "malformed_request", "no query"},
		{"POST", path, "", 415, "unsupported_media_type", ""},
		{"POST", path, strings.Repeat(" ", 9<<10), 413, "request_too_large", "8 KiB"},
		{"GET", path, "", 405, "method_not_allowed", ""},
		{"POST", "/v1/operations/aaaaaaaaaaaaaaaaaaaaaaaaaa/resolve", no, 404, "operation_not_found", ""},
		{"POST", "/v1/operations/x/resolve", no, 404, "operation_not_found", ""},
		{"POST", "/v1/operations//resolve", no, 404, "operation_not_found", ""},
		{"POST", "/v1/operations/" + good.ID + "/resolve", no, 422, "not_in_doubt", "attempt 1 is succeeded, ran yes: it is not in doubt"},
		{"POST", path, `{"ran":"no","reason":"r","attempt":2}`, 422, "not_in_doubt", "attempt 1 is unknown, ran unknown; the request is about another attempt"},
		{"GET", "/v1/doubts?state=unknown", "", 400, "malformed_request", "no query"},
		{"GET", "/v1/doubts", "{}", 400, "malformed_request", "no body"},
		{"POST", "/v1/doubts", "{}", 405, "method_not_allowed", ""},
	} {
		if a := rig.Admin(t, tc.method, tc.path, tc.body, nil); a.Status != tc.status || a.Reason != tc.reason || !strings.Contains(a.Detail, tc.detail) {
			t.Errorf("%s %s: %d %s, want %d %s", tc.method, tc.path, a.Status, a.Body, tc.status, tc.reason)
		}
	}
	if got := rig.Get(t, "/v1/operations/"+cut.ID, brokertest.Call{}); got.State != fault.InDoubt || got.Resolution != nil || strings.Contains(rig.Log(), `"resolved"`) {
		t.Errorf("refused requests have left %s", got.Body)
	}
}

// TestResolveRoles: admins resolve, auditors look, and nobody else learns anything.
func TestResolveRoles(t *testing.T) {
	for role, want := range map[string][2]int{
		"operate": {403, 403}, "approve": {403, 403}, "audit": {403, 200}, "admin": {404, 200},
	} {
		rig := brokertest.New(t, &brokertest.Options{Config: func(y string) string {
			return strings.Replace(y, "  admin:\n    roles: [admin]", "  admin:\n    roles: ["+role+"]", 1)
		}})
		for i, ask := range [][3]string{
			{"POST", "/v1/operations/aaaaaaaaaaaaaaaaaaaaaaaaaa/resolve", `{"ran":"yes","reason":"r"}`}, {"GET", "/v1/doubts", ""},
		} {
			if a := rig.Admin(t, ask[0], ask[1], ask[2], nil); a.Status != want[i] {
				t.Errorf("role %q, %s: %d %s, want %d", role, ask[1], a.Status, a.Body, want[i])
			}
		}
	}
}

// TestResolvedIsTold: the answers to the admin and to the caller say who, when and
// why; the log says it once and without the admin's words.
func TestResolvedIsTold(t *testing.T) {
	rig := brokertest.New(t, nil)
	first, second := doubtful(t, rig, "user:7", "first"), doubtful(t, rig, "user:7", "second")
	rig.Call(t, brokertest.Call{})
	var list struct {
		Operations []httpapi.Operation
		Limit      int
	}
	a := rig.Admin(t, "GET", "/v1/doubts", "", &list)
	if len(list.Operations) != 2 || list.Operations[0].ID != second.ID || list.Operations[1].ID != first.ID || list.Limit != 100 ||
		list.Operations[0].Caller != "gateway" || list.Operations[0].Actor != "user:7" {
		t.Errorf("the list: %s", a.Body)
	}
	for i, body := range []string{`{"ran":"no","reason":"SEC-121: \"gone\" – ü"}`, `{"ran":"no","reason":"another"}`} {
		var op httpapi.Operation
		a := rig.Admin(t, "POST", "/v1/operations/"+first.ID+"/resolve", body, &op)
		if r := op.Resolution; a.Status != 200 || op.Caller != "gateway" || op.Ledger == nil || op.Attempt != 1 || r == nil ||
			r.By != "admin" || r.Reason != `SEC-121: "gone" – ü` || time.Since(r.At).Abs() > time.Minute {
			t.Errorf("the admin's answer %d: %d %s", i, a.Status, a.Body)
		}
	}
	told := rig.Get(t, "/v1/operations/"+first.ID, brokertest.Call{})
	if r := told.Resolution; r == nil || r.By != "admin" || r.Reason != `SEC-121: "gone" – ü` || told.Caller != "" ||
		told.Header.Get("Broker-Outcome") != "resolved_not_ran; retry=safe" {
		t.Errorf("the caller's answer: %s", told.Body)
	}
	var mine struct{ Operations []httpapi.Operation }
	if err := json.Unmarshal(rig.Get(t, "/v1/operations", brokertest.Call{}).Body, &mine); err != nil || len(mine.Operations) != 3 || mine.Operations[2].Resolution == nil {
		t.Errorf("the caller's list: %v %+v", err, mine)
	}
	if got := rig.Get(t, "/v1/operations/"+first.ID, brokertest.Call{Actor: "user:8"}); got.Status != 404 || bytes.Contains(got.Body, []byte("SEC-121")) {
		t.Errorf("another actor: %d %s", got.Status, got.Body)
	}
	line := `"msg":"resolved","operation":"` + first.ID + `","attempt":1,"state":"resolved_not_ran","by":"admin"}`
	if strings.Count(rig.Log(), line) != 1 || strings.Contains(rig.Log(), "SEC-121") {
		t.Errorf("the log: %s", rig.Log())
	}
}
