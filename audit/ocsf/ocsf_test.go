package ocsf_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/audit/ocsf"
	"onbehalf.internal/broker/fault"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 123456789, time.UTC)

// event writes a record and reads the event that is made of it, which is valid.
func event(t *testing.T, r audit.Record) (text string, e map[string]any) {
	t.Helper()
	line, head := audit.Head{Seq: 6}.Next(r)
	var out bytes.Buffer
	if err := ocsf.Write(&out, audit.Exported(line, head.Hash)); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(out.Bytes(), &e); err != nil || bytes.Count(out.Bytes(), []byte("\n")) != 1 {
		t.Fatalf("%v in %s", err, out.Bytes())
	}
	for _, problem := range wrong(out.Bytes()) {
		t.Errorf("%s: %s in %s", r.Kind, problem, out.Bytes())
	}
	return out.String(), e
}

// TestClasses: a record of every kind is an event of the class that docs/audit.md
// names for it, with its outcome.
func TestClasses(t *testing.T) {
	page, err := os.ReadFile("../../docs/audit.md")
	if err != nil {
		t.Fatal(err)
	}
	missing := audit.Kinds()
	for _, tc := range []struct {
		record                  audit.Record
		class, activity, status int
	}{
		{audit.Record{Kind: audit.Decision, Actor: "user:7", Scopes: []string{"read"}}, 3003, 1, 1},
		{audit.Record{Kind: audit.Decision, Actor: "user:7"}, 6003, 99, 1},
		{audit.Record{Kind: audit.Denial, Actor: "user:7", Reason: fault.NoGrant}, 6003, 99, 2},
		{audit.Record{Kind: audit.Sending}, 6003, 99, 1},
		{audit.Record{Kind: audit.Outcome, State: fault.Succeeded}, 6003, 99, 1},
		{audit.Record{Kind: audit.Outcome, State: fault.InDoubt, Reason: fault.WallClock}, 6003, 99, 0},
		{audit.Record{Kind: audit.Outcome, State: fault.ToolError}, 6003, 99, 2},
		{audit.Record{Kind: audit.Late, State: fault.Succeeded}, 6003, 99, 1},
		{audit.Record{Kind: audit.Drop}, 6003, 4, 1},
		{audit.Record{Kind: audit.Revocation}, 6003, 99, 1},
		{audit.Record{Kind: audit.Resolution}, 6003, 99, 1},
		{audit.Record{Kind: audit.Approval}, 6003, 99, 1},
		{audit.Record{Kind: audit.Read}, 6003, 2, 1},
		{audit.Record{Kind: audit.Import}, 6003, 2, 1},
		{audit.Record{Kind: audit.Probe, Reason: fault.ConnectFailed}, 6003, 2, 2},
		{audit.Record{Kind: audit.DryExchange, Reason: fault.ProviderConfig}, 6003, 99, 2},
		{audit.Record{Kind: audit.Suspension, Actor: "user:7"}, 3001, 5, 1},
		{audit.Record{Kind: audit.Suspension, Server: "records"}, 6003, 99, 1},
		{audit.Record{Kind: audit.Lifting, Actor: "user:7"}, 3001, 2, 1},
		{audit.Record{Kind: audit.Lifting, Profile: "company"}, 6003, 99, 1},
		{audit.Record{Kind: audit.Start}, 6002, 3, 1},
		{audit.Record{Kind: audit.Stop}, 6002, 4, 1},
		{audit.Record{Kind: audit.Reload}, 6002, 8, 1},
		{audit.Record{Kind: audit.Recovery}, 0, 99, 1},
		{audit.Record{Kind: audit.Retention}, 0, 99, 1},
	} {
		missing = slices.DeleteFunc(missing, func(k audit.Kind) bool { return k == tc.record.Kind })
		tc.record.Time = noon
		text, e := event(t, tc.record)
		if e["class_uid"] != float64(tc.class) || e["activity_id"] != float64(tc.activity) || e["status_id"] != float64(tc.status) ||
			e["category_uid"] != float64(tc.class/1000) || e["time"] != float64(noon.UnixMilli()) {
			t.Errorf("%s: %s", tc.record.Kind, text)
		}
		row := fmt.Sprintf("\n| `%s`", tc.record.Kind)
		if _, rest, ok := strings.Cut(string(page), row); !ok || !strings.Contains(strings.SplitN(rest, "\n", 2)[0], fmt.Sprintf("%d/%d ", tc.class, tc.activity)) {
			t.Errorf("docs/audit.md does not say that %s is of %d, activity %d", tc.record.Kind, tc.class, tc.activity)
		}
	}
	if len(missing) > 0 {
		t.Errorf("no row for %v", missing)
	}
}

// full has a word in every member that the mapping looks at, but those of a decision.
func full() audit.Record {
	return audit.Record{Time: noon, Caller: "m-caller", Actor: "m-actor", Operation: "m-operation", Attempt: 77, RequestKey: audit.DigestOf("k"),
		Server: "m-server", Tool: "m-tool", Pin: "m-pin", Arguments: audit.DigestOf("a"), Grant: "m-grant", Snapshot: "m-snapshot", Profile: "m-profile", Audience: "m-audience",
		Scopes: []string{"m-scope"}, Reason: fault.WallClock, State: "m-state", Ran: "m-ran", Evidence: "m-evidence", Epoch: "m-epoch", Token: audit.DigestOf("t"), Hold: "m-hold",
		Count: 7777, Supersedes: "m-supersedes", Suspended: &audit.Suspended{ID: "m-id", Text: "m-text"}, Reading: &audit.Reading{From: 88888, Person: "m-person"}}
}

// TestValid: the event of every kind is valid, however much or little its record knows.
func TestValid(t *testing.T) {
	approved := audit.Record{Caller: "m-caller", Approved: &audit.Approved{By: "m-by", Subject: "m-subject"}}
	resolved := audit.Record{Actor: "m-actor", Resolved: &audit.Resolved{By: "m-by"}}
	for _, kind := range audit.Kinds() {
		for _, r := range []audit.Record{{}, full(), approved, resolved, {Actor: "a"}, {Scopes: []string{"s"}}, {Caller: "c", Server: "s", Tool: "t"}} {
			r.Kind, r.Time = kind, noon
			event(t, r)
		}
	}
}

// TestDoer: who did it is a person who decided or read, then the actor, then the
// caller, and the broker itself where nobody asked.
func TestDoer(t *testing.T) {
	for _, tc := range []struct {
		record      audit.Record
		actor, from string
	}{
		{audit.Record{Kind: audit.Outcome, Caller: "gateway", Actor: "user:7"}, `{"user":{"uid":"user:7"}}`, `{"name":"gateway"}`},
		{audit.Record{Kind: audit.Import, Caller: "admin"}, `{"user":{"uid":"admin"}}`, `{"name":"admin"}`},
		{audit.Record{Kind: audit.Import}, `{"app_name":"onbehalf-broker"}`, `{"svc_name":"onbehalf-broker"}`},
		{audit.Record{Kind: audit.Approval, Caller: "gateway", Actor: "user:7", Approved: &audit.Approved{Decision: "asked"}}, `{"user":{"uid":"user:7"}}`, `{"name":"gateway"}`},
		{audit.Record{Kind: audit.Approval, Caller: "gateway", Actor: "user:7", Approved: &audit.Approved{Decision: "approved", Subject: "user:8", By: "people"}},
			`{"user":{"uid":"user:8"}}`, `{"name":"people"}`},
		{audit.Record{Kind: audit.Resolution, Caller: "gateway", Actor: "user:7", Resolved: &audit.Resolved{By: "admin"}}, `{"user":{"uid":"admin"}}`, `{"name":"admin"}`},
		{audit.Record{Kind: audit.Read, Caller: "page", Reading: &audit.Reading{Person: "user:9", Actor: "user:7"}}, `{"user":{"uid":"user:9"}}`, `{"name":"page"}`},
	} {
		tc.record.Time = noon
		if text, _ := event(t, tc.record); !strings.Contains(text, `"actor":`+tc.actor+`,`) || !strings.Contains(text, `"src_endpoint":`+tc.from+`,`) {
			t.Errorf("%s: %s", tc.record.Kind, text)
		}
	}
}

// TestNothingIsLost: whatever a record has is in its event.
func TestNothingIsLost(t *testing.T) {
	r := full()
	for _, kind := range audit.Kinds() {
		r.Kind = kind
		line, head := audit.Head{Seq: 6}.Next(r)
		want := []string{"77", "7777", "88888", "wall_clock", "2026-11-30T12:00:00.123456789Z", string(kind), fmt.Sprintf("%x", head.Hash),
			audit.DigestOf("k").String(), audit.DigestOf("a").String(), audit.DigestOf("t").String()}
		for word := range strings.FieldsFuncSeq(string(line), func(c rune) bool { return c == '"' || c == ',' }) {
			if strings.HasPrefix(word, "m-") {
				want = append(want, word)
			}
		}
		if len(want) < 25 {
			t.Fatalf("only %d words are looked for", len(want))
		}
		text, e := event(t, r)
		for _, word := range want {
			if !strings.Contains(text, `"`+word+`"`) && !strings.Contains(text, ":"+word+",") && !strings.Contains(text, ":"+word+"}") {
				t.Errorf("%s: %q is not in %s", kind, word, text)
			}
		}
		if metadata := e["metadata"].(map[string]any); metadata["sequence"] != 7.0 || metadata["event_code"] != string(kind) {
			t.Errorf("%s: %v", kind, metadata)
		}
	}
}

func TestNotJSON(t *testing.T) {
	if err := ocsf.Write(&bytes.Buffer{}, []byte("x\n")); err == nil {
		t.Error("taken")
	}
}
