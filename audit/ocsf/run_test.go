package ocsf_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/audit/ocsf"
	"onbehalf.internal/broker/brokertest"
	"onbehalf.internal/broker/fault"
)

// TestRun: what a whole broker records of nearly everything that can happen to it is
// valid, line by line.
func TestRun(t *testing.T) {
	rig := brokertest.New(t, nil)
	admin := func(method, path, body string) {
		t.Helper()
		if a := rig.Admin(t, method, path, body, nil); a.Status >= 300 {
			t.Fatalf("%s: %d %s", path, a.Status, a.Body)
		}
	}
	rig.Call(t, brokertest.Call{})
	rig.Call(t, brokertest.Call{Server: "archive"})
	rig.Call(t, brokertest.Call{Tool: "fail"})
	rig.Call(t, brokertest.Call{Actor: "user:8"})
	doubt := rig.Call(t, brokertest.Call{Tool: "drop", Arguments: map[string]string{"job": "j"}})
	admin("POST", "/v1/operations/"+doubt.ID+"/resolve", `{"ran":"no","reason":"looked"}`)
	admin("POST", "/v1/servers/records/import", "")
	admin("POST", "/v1/servers/archive/probe", "")
	admin("POST", "/v1/doctor", "")
	for _, target := range []string{`"actor":"user:7"`, `"server":"records"`} {
		var made struct{ ID string }
		if a := rig.Admin(t, "POST", "/v1/suspensions", `{`+target+`,"reason":"a test"}`, &made); a.Status != http.StatusCreated {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
		admin("DELETE", "/v1/suspensions/"+made.ID+"?reason=over", "")
	}
	if err := rig.Edit(brokertest.Approving); err != nil {
		t.Fatal(err)
	}
	asked := rig.Call(t, brokertest.Call{})
	if a := rig.Decide(t, asked, "approve"); a.Status != http.StatusOK {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	rig.Auditor(t, "/v1/audit", nil)
	if err := errors.Join(rig.Stop(), rig.Restart(t.Context())); err != nil {
		t.Fatal(err)
	}

	var events bytes.Buffer
	if err := ocsf.Write(&events, rig.Auditor(t, "/v1/audit?limit=1000", nil).Body); err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(events.Bytes()) {
		for _, problem := range wrong(line) {
			t.Errorf("%s in %s", problem, line)
		}
	}
	for _, kind := range audit.Kinds() {
		if slices.Contains([]audit.Kind{audit.Late, audit.Recovery, audit.Revocation, audit.Retention}, kind) {
			continue // these take a wait, a death or another provider
		}
		if !strings.Contains(events.String(), fmt.Sprintf(`"event_code":%q`, kind)) {
			t.Errorf("no %s was recorded", kind)
		}
	}
	if doubt.State != fault.InDoubt || !strings.Contains(events.String(), `"status_code":"`+string(fault.InDoubt)+`"`) {
		t.Errorf("%s", doubt.Body)
	}
}
