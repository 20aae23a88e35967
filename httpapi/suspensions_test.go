package httpapi_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"onbehalf.internal/broker/brokertest"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/httpapi"
)

// TestSuspensionRefused: what suspends nothing, with the member that is wrong.
func TestSuspensionRefused(t *testing.T) {
	rig := brokertest.New(t, nil)
	soon := time.Now().Add(time.Hour).Format(time.RFC3339)
	for _, tc := range []struct{ name, body, detail string }{
		{"no target", `{"reason":"r"}`, "exactly one of actor, server and profile"},
		{"two targets", `{"actor":"user:7","server":"records","reason":"r"}`, "exactly one of"},
		{"two, one empty", `{"actor":"","server":"records","reason":"r"}`, "exactly one of"},
		{"empty actor", `{"actor":"","reason":"r"}`, "actor: must be an actor"},
		{"everybody of a sort", `{"actor":"user:","reason":"r"}`, "actor: must be an actor"},
		{"a wildcard", `{"actor":"user:*","reason":"r"}`, "actor: must be an actor"},
		{"no sort", `{"actor":"7","reason":"r"}`, "actor: must be an actor"},
		{"empty server", `{"server":"","reason":"r"}`, "server: must be 1 to 32"},
		{"a server's address", `{"server":"https://records.example.org","reason":"r"}`, "server: must be 1 to 32"},
		{"a profile with a space", `{"profile":"com pany","reason":"r"}`, "profile: must be 1 to 64"},
		{"a null", `{"actor":null,"reason":"r"}`, "exactly one of"},
		{"a null reason", `{"actor":"user:7","reason":null}`, "reason"},
		{"no reason", `{"actor":"user:7"}`, "reason: must be text of 1 to 512 bytes"},
		{"an empty reason", `{"actor":"user:7","reason":""}`, "reason: must be text"},
		{"spaces", `{"actor":"user:7","reason":"  "}`, "reason: must be text"},
		{"two lines", `{"actor":"user:7","reason":"a\nb"}`, "reason: must be one line"},
		{"an escape", `{"actor":"user:7","reason":"a\u001b[2Jb"}`, "reason: must be one line"},
		{"right to left", `{"actor":"user:7","reason":"a\u202eb"}`, "reason: must be one line"},
		{"too much reason", `{"actor":"user:7","reason":"` + strings.Repeat("a", 513) + `"}`, "reason: must be text"},
		{"until is over", `{"actor":"user:7","reason":"r","until":"2020-01-31T12:00:00Z"}`, "until: a time to come"},
		{"until is empty", `{"actor":"user:7","reason":"r","until":""}`, "until: a time to come"},
		{"until is a day", `{"actor":"user:7","reason":"r","until":"2030-01-31"}`, "until: a time to come"},
		{"until has no zone", `{"actor":"user:7","reason":"r","until":"2030-01-31T12:00:00"}`, "until: a time to come"},
		{"until is far", `{"actor":"user:7","reason":"r","until":"2300-01-31T12:00:00Z"}`, "until: a time to come"},
		{"until is a number", `{"actor":"user:7","reason":"r","until":1900000000}`, "until"},
		{"a member more", `{"actor":"user:7","reason":"r","by":"root"}`, "by"},
		{"twice", `{"actor":"user:7","actor":"user:8","reason":"r"}`, "actor"},
		{"another case", `{"Actor":"user:7","reason":"r"}`, "Actor"},
		{"no object", `["user:7"]`, "not an object"},
		{"two values", `{"actor":"user:7","reason":"r"}{}`, "after its end"},
	} {
		a := rig.Admin(t, "POST", "/v1/suspensions", tc.body, nil)
		if a.Status != 400 || a.Reason != fault.MalformedRequest || !strings.Contains(a.Detail, tc.detail) {
			t.Errorf("%s: %d %s, want %q", tc.name, a.Status, a.Body, tc.detail)
		}
	}
	const unknown = "/v1/suspensions/aaaaaaaaaaaaaaaaaaaaaaaaaa"
	for _, tc := range []struct {
		method, path, body string
		status             int
		reason             fault.Reason
	}{
		{"POST", "/v1/suspensions?x=y", `{"actor":"user:7","reason":"r"}`, 400, "malformed_request"},
		{"POST", "/v1/suspensions", "", 415, "unsupported_media_type"},
		{"POST", "/v1/suspensions", strings.Repeat(" ", 9<<10), 413, "request_too_large"},
		{"GET", "/v1/suspensions?state=all", "", 400, "malformed_request"},
		{"GET", "/v1/suspensions", "{}", 400, "malformed_request"},
		{"DELETE", unknown, "", 400, "malformed_request"},
		{"DELETE", unknown + "?reason=", "", 400, "malformed_request"},
		{"DELETE", unknown + "?reason=a&reason=b", "", 400, "malformed_request"},
		{"DELETE", unknown + "?reason=a&by=b", "", 400, "malformed_request"},
		{"DELETE", unknown + "?reason=%zz", "", 400, "malformed_request"},
		{"DELETE", unknown + "?reason=a&%zz=b", "", 400, "malformed_request"},
		{"DELETE", unknown + "?reason=a%ffb", "", 400, "malformed_request"},
		{"DELETE", unknown + "?reason=a%0ab", "", 400, "malformed_request"},
		{"DELETE", unknown + "?reason=r", `{"reason":"r"}`, 400, "malformed_request"},
		{"DELETE", unknown + "?reason=r", "", 404, "suspension_not_found"},
		{"DELETE", "/v1/suspensions?reason=r", "", 405, "method_not_allowed"},
		{"DELETE", "/v1/suspensions/?reason=r", "", 404, "unknown_route"},
		{"GET", "/v1/suspensions/aaaaaaaaaaaaaaaaaaaaaaaaaa", "", 405, "method_not_allowed"},
	} {
		if a := rig.Admin(t, tc.method, tc.path, tc.body, nil); a.Status != tc.status || a.Reason != tc.reason {
			t.Errorf("%s %s: %d %s, want %d %s", tc.method, tc.path, a.Status, a.Body, tc.status, tc.reason)
		}
	}
	var list struct{ Suspensions []httpapi.Suspension }
	if a := rig.Admin(t, "GET", "/v1/suspensions", "", &list); a.Status != 200 || !bytes.Contains(a.Body, []byte(`"suspensions":[]`)) {
		t.Errorf("refused requests have left %s", a.Body)
	}
	if a := rig.Admin(t, "POST", "/v1/suspensions", `{"actor":"user:7","reason":"r","until":"`+soon+`"}`, nil); a.Status != 201 {
		t.Errorf("a good one: %d %s", a.Status, a.Body)
	}
}

// TestSuspensionRoles: admins suspend and lift, auditors look, and nobody else
// learns anything.
func TestSuspensionRoles(t *testing.T) {
	for role, want := range map[string][3]int{
		"operate": {403, 403, 403}, "approve": {403, 403, 403}, "audit": {403, 200, 403}, "admin": {201, 200, 404},
	} {
		rig := brokertest.New(t, &brokertest.Options{Config: func(y string) string {
			return strings.Replace(y, "  admin:\n    roles: [admin]", "  admin:\n    roles: ["+role+"]", 1)
		}})
		for i, ask := range [][3]string{
			{"POST", "/v1/suspensions", `{"actor":"user:7","reason":"r"}`},
			{"GET", "/v1/suspensions", ""},
			{"DELETE", "/v1/suspensions/aaaaaaaaaaaaaaaaaaaaaaaaaa?reason=r", ""},
		} {
			if a := rig.Admin(t, ask[0], ask[1], ask[2], nil); a.Status != want[i] {
				t.Errorf("role %q, %s: %d %s, want %d", role, ask[0], a.Status, a.Body, want[i])
			}
		}
	}
}

// TestSuspensionIsTold: the answer, the list and the lifting say who, what, when,
// why and until when; the same again is the same.
func TestSuspensionIsTold(t *testing.T) {
	rig := brokertest.New(t, nil)
	until := time.Now().Add(time.Hour).Truncate(time.Second).UTC()
	body := `{"server":"archive","reason":"SEC-120: \"odd\" answers – ü","until":"` + until.In(time.FixedZone("", 7200)).Format(time.RFC3339) + `"}`
	var first, again, second, lifted httpapi.Suspension
	if a := rig.Admin(t, "POST", "/v1/suspensions", body, &first); a.Status != 201 {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	if len(first.ID) != 26 || first.Server != "archive" || first.Actor+first.Profile != "" || first.Reason != `SEC-120: "odd" answers – ü` || first.By != "admin" ||
		!first.Known || first.Until == nil || !first.Until.Equal(until) || time.Since(first.Since).Abs() > time.Minute || first.Lifted != nil || first.Others != nil {
		t.Errorf("%+v", first)
	}
	if a := rig.Admin(t, "POST", "/v1/suspensions", body, &again); a.Status != 200 || again.ID != first.ID || !again.Since.Equal(first.Since) {
		t.Errorf("the same again: %d %s", a.Status, a.Body)
	}
	if a := rig.Admin(t, "POST", "/v1/suspensions", `{"server":"archive","reason":"another"}`, &second); a.Status != 201 || second.ID == first.ID || second.Until != nil {
		t.Errorf("for another reason: %d %s", a.Status, a.Body)
	}
	var list struct{ Suspensions []httpapi.Suspension }
	rig.Admin(t, "GET", "/v1/suspensions", "", &list)
	if len(list.Suspensions) != 2 || list.Suspensions[0].ID != first.ID || list.Suspensions[1].ID != second.ID || list.Suspensions[0].Reason != first.Reason {
		t.Errorf("the list: %+v", list)
	}
	if a := rig.Admin(t, "DELETE", "/v1/suspensions/"+first.ID+"?reason=mended", "", &lifted); a.Status != 200 || lifted.ID != first.ID || lifted.Lifted == nil || *lifted.Others != 1 {
		t.Errorf("lifting: %d %s", a.Status, a.Body)
	}
	if a := rig.Admin(t, "DELETE", "/v1/suspensions/"+first.ID+"?reason=mended", "", nil); a.Status != 404 {
		t.Errorf("lifting again: %d %s", a.Status, a.Body)
	}
	if a := rig.Admin(t, "DELETE", "/v1/suspensions/"+second.ID+"?reason=mended", "", &lifted); a.Status != 200 || *lifted.Others != 0 {
		t.Errorf("lifting the last: %d %s", a.Status, a.Body)
	}
	for _, line := range []string{`"msg":"suspended","suspension":"` + first.ID + `","target":"server archive","by":"admin"}`,
		`"msg":"suspension lifted","suspension":"` + first.ID + `","target":"server archive","by":"admin","others":1}`} {
		if strings.Count(rig.Log(), line) != 1 {
			t.Errorf("not once in the log: %s", line)
		}
	}
	if strings.Contains(rig.Log(), "SEC-120") {
		t.Error("an admin's words are in the log")
	}
}

// TestSuspensionsAtOnce: many at once are all there.
func TestSuspensionsAtOnce(t *testing.T) {
	rig := brokertest.New(t, nil)
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			body, _ := json.Marshal(map[string]string{"actor": "user:" + string(rune('a'+i%10)), "reason": "r"}) // each twice
			if a := rig.Admin(t, "POST", "/v1/suspensions", string(body), nil); a.Status != http.StatusCreated && a.Status != http.StatusOK {
				t.Errorf("%d %s", a.Status, a.Body)
			}
		})
		all.Go(func() {
			if err := rig.Broker.Reload(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	var list struct{ Suspensions []httpapi.Suspension }
	if rig.Admin(t, "GET", "/v1/suspensions", "", &list); len(list.Suspensions) != 10 {
		t.Errorf("%d stand", len(list.Suspensions))
	}
}
