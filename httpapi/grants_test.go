package httpapi_test

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/brokertest"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/httpapi"
	"onbehalf.internal/broker/secret/canary"
	"onbehalf.internal/broker/store"
)

// reviewedYAML is the configuration with grants to review: user:8's has no credential in
// Vault and soon ends, user:9's opens nothing, and nobody speaks for it.
func reviewedYAML(yaml string) string {
	return strings.Replace(yaml, `        reason: "brokertest"
`, `        reason: "brokertest"
      "user:8": {enabled: true, credential: "vault:kv/broker/subjects/nowhere#value", allowed_audiences: [mcp-records], allowed_scopes: [records.read], expires: `+time.Now().AddDate(0, 0, 3).Format(time.DateOnly)+`}
      "user:9": {enabled: true, credential: "vault:kv/broker/subjects/8#value", allowed_audiences: [mcp-archive], allowed_scopes: [records.write]}
`, 1)
}

// page asks for one page of grants and tells each row in a line.
func page(t *testing.T, rig *brokertest.Rig, path string) (lines []string, got httpapi.Grants) {
	t.Helper()
	if a := rig.Auditor(t, path, &got); a.Status != 200 {
		t.Fatalf("%s: %d %s", path, a.Status, a.Body)
	}
	lines = []string{}
	for _, g := range got.Grants {
		used := "never"
		if !g.LastUsed.IsZero() {
			used = "used"
		}
		lines = append(lines, strings.Join(strings.Fields(fmt.Sprint(g.Actor, " ", g.Server, "/", g.Tool, " ", g.Status, " ", *g.Uses, " ", used, " ", g.Stored, " ", g.Why)), " "))
	}
	return lines, got
}

// TestGrants: each view says what it is for, whatever the size of its pages, and since
// when uses are counted.
func TestGrants(t *testing.T) {
	rig := brokertest.New(t, &brokertest.Options{Config: reviewedYAML})
	for _, key := range []string{"a", "b"} {
		if got := rig.Call(t, brokertest.Call{Key: key}); got.State != fault.Succeeded {
			t.Fatalf("%s", got.Body)
		}
	}
	if a := rig.Admin(t, "POST", "/v1/suspensions", `{"server":"archive","reason":"r"}`, nil); a.Status != 201 {
		t.Fatalf("%s", a.Body)
	}
	for _, tc := range []struct {
		path string
		want []string
	}{
		{"/v1/grants?tool=whoami", []string{"user:7 archive/whoami suspended 0 never", "user:7 records/whoami active 2 used", "user:8 records/whoami active 0 never"}},
		{"/v1/grants?actor=user:9", []string{"user:9 / active 0 never"}},
		{"/v1/grants?actor=user:7&server=records&profile=company&tool=job", []string{"user:7 records/job active 0 never"}},
		{"/v1/grants/who-can?server=records&tool=whoami", []string{"user:7 records/whoami active 2 used", "user:8 records/whoami active 0 never"}},
		{"/v1/grants/who-can?server=records&tool=whoami&actor=user:8", []string{"user:8 records/whoami active 0 never"}},
		{"/v1/grants/who-can?server=archive&tool=whoami", []string{}}, // suspended
		{"/v1/grants/unused?server=records&tool=whoami", []string{"user:8 records/whoami active 0 never"}},
		{"/v1/grants/expiring", []string{"user:8 / active 0 never"}},
		{"/v1/grants/expiring?days=1", []string{}},
		{"/v1/grants/orphaned", []string{"user:8 / active 0 never missing credential_missing", "user:9 / active 0 never there " + lostWhy}},
		{"/v1/grants/orphaned?vault=skip", []string{"user:9 / active 0 never " + lostWhy}},
	} {
		lines, whole := page(t, rig, tc.path)
		if diff := cmp.Diff(tc.want, lines); diff != "" {
			t.Errorf("%s:\n%s", tc.path, diff)
		}
		if !whole.Counted.Equal(whole.Ledger.Since) || whole.Counted.IsZero() || whole.Next != "" {
			t.Errorf("%s: counted since %v, next %q", tc.path, whole.Counted, whole.Next)
		}
		one, more := []string{}, url.Values{"limit": {"1"}}
		for next := "first"; next != ""; {
			some, got := page(t, rig, tc.path+map[bool]string{true: "&", false: "?"}[strings.Contains(tc.path, "?")]+more.Encode())
			one, next = append(one, some...), got.Next
			more.Set("after", next)
		}
		if diff := cmp.Diff(tc.want, one); diff != "" {
			t.Errorf("%s, one by one:\n%s", tc.path, diff)
		}
	}
}

// lostWhy is why the grant of user:9 opens nothing.
var lostWhy = func() string {
	var all []string
	for _, at := range []struct {
		server string
		reason fault.Reason
	}{{"archive", fault.ScopeNotAllowed}, {"records", fault.AudienceNotAllowed}} {
		for _, tool := range []string{"drop", "fail", "job", "slow", "whoami"} {
			all = append(all, at.server+"/"+tool+": "+string(at.reason))
		}
	}
	return strings.Join(all, "; ")
}()

// TestOrphanedWithoutVault: what Vault does not say is said of each grant, and nothing
// else is missing; no value of a credential is anywhere.
func TestOrphanedWithoutVault(t *testing.T) {
	rig := brokertest.New(t, &brokertest.Options{Config: reviewedYAML})
	canary.Run(t, func(c *canary.Cage) {
		c.Bytes("there", rig.Auditor(t, "/v1/grants/orphaned", nil).Body)
		rig.Vault.Seal(true)
		lines, _ := page(t, rig, "/v1/grants/orphaned")
		if diff := cmp.Diff([]string{"user:9 / active 0 never vault_sealed " + lostWhy}, lines); diff != "" {
			t.Error(diff)
		}
		rig.Vault.Seal(false)
		c.Bytes("log", []byte(rig.Log()))
	}, rig.Secrets()...)
}

// TestExplain: the snapshot that decides now is asked, with what is suspended.
func TestExplain(t *testing.T) {
	rig := brokertest.New(t, &brokertest.Options{Config: reviewedYAML})
	explain := func(query string) (e httpapi.Explanation) {
		t.Helper()
		if a := rig.Auditor(t, "/v1/grants/explain?"+query, &e); a.Status != 200 {
			t.Fatalf("%s", a.Body)
		}
		return e
	}
	const asked = "caller=gateway&actor=user:7&server=records&tool=whoami"
	e := explain(asked)
	if last := e.Checks[len(e.Checks)-1]; !e.Allowed || e.Reason != "" || len(e.Checks) < 15 || last.Name != "approval" || !strings.HasPrefix(last.Where, "profiles.yaml:") {
		t.Errorf("%+v", e)
	}
	var s httpapi.Suspension
	rig.Admin(t, "POST", "/v1/suspensions", `{"actor":"user:7","reason":"r"}`, &s)
	e = explain(asked)
	if last := e.Checks[len(e.Checks)-1]; e.Allowed || e.Reason != fault.Suspended || last.Value != "actor user:7" || last.Where != "suspension "+s.ID || last.OK {
		t.Errorf("%+v", e)
	}
	if e = explain("caller=gateway&actor=user:9&server=records&tool=whoami"); e.Allowed || e.Reason != fault.ActorNotAllowed || len(e.Checks) != 1 {
		t.Errorf("%+v", e)
	}
	if e = explain("caller=gateway&actor=user:8&server=records&tool=nothing"); e.Reason != fault.ToolUnknown {
		t.Errorf("%+v", e)
	}
}

// TestSearchOperations: an auditor finds what any caller did, and nothing of what was
// sent or came back.
func TestSearchOperations(t *testing.T) {
	rig := brokertest.New(t, nil)
	const argument = "canary-argument-2f6c"
	first := rig.Call(t, brokertest.Call{Key: "first", Arguments: map[string]string{"q": argument}})
	rig.Call(t, brokertest.Call{Key: "second", Tool: "fail"})
	rig.Call(t, brokertest.Call{Key: "third"})
	find := func(query string) (keys string, next string) {
		t.Helper()
		var got httpapi.Found
		a := rig.Auditor(t, "/v1/audit/operations?"+query, &got)
		if a.Status != 200 {
			t.Fatalf("%s: %s", query, a.Body)
		}
		for _, leak := range []string{argument, `"result"`, `"text"`, `"error"`} {
			if strings.Contains(string(a.Body), leak) {
				t.Errorf("%s: %s in %s", query, leak, a.Body)
			}
		}
		for _, op := range got.Operations {
			keys += " " + op.RequestKey
			if op.Caller != "gateway" {
				t.Errorf("%+v", op)
			}
		}
		return strings.TrimSpace(keys), got.Next
	}
	for query, want := range map[string]string{
		"": "third second first", "id=" + first.ID: "first", "request_key=second": "second", "caller=gateway&actor=user:7": "third second first",
		"caller=portal": "", "actor=user:8": "", "server=records&tool=fail": "second", "state=tool_error": "second", "state=reserved": "",
		"until=2026-01-01T00:00:00Z": "", "since=2026-01-01T00:00:00Z&tool=whoami": "third first",
	} {
		if got, next := find(query); got != want || next != "" {
			t.Errorf("%s: %q, next %q, want %q", query, got, next, want)
		}
	}
	var all []string
	for next := "first"; next != ""; {
		query := "limit=1&after=" + next
		if next == "first" {
			query = "limit=1"
		}
		var keys string
		keys, next = find(query)
		all = append(all, keys)
	}
	if diff := cmp.Diff([]string{"third", "second", "first"}, all); diff != "" {
		t.Error(diff)
	}
}

// TestReviewRefused: what is misspelt is not answered as if nobody could.
func TestReviewRefused(t *testing.T) {
	rig := brokertest.New(t, nil)
	for path, detail := range map[string]string{
		"/v1/grants?server=record":                          `server: the configuration has no server "record"`,
		"/v1/grants?profile=x":                              `profile: the configuration has no profile "x"`,
		"/v1/grants?tool=nothing":                           `tool: the configuration has no tool "nothing" there`,
		"/v1/grants?actor=7":                                "actor: must be an actor",
		"/v1/grants?actor=":                                 "actor: once, 1 to",
		"/v1/grants?actor=user:7&actor=user:8":              "actor: once, 1 to",
		"/v1/grants?%zz":                                    "the query cannot be read",
		"/v1/grants?user=user:7":                            "known in the query: actor, profile, server, tool, limit, after",
		"/v1/grants?limit=0":                                "limit: from 1 to 5000",
		"/v1/grants?after=x":                                "after: it is no place",
		"/v1/grants?actor=user:" + strings.Repeat("a", 257): "actor: at most 256 bytes",
		"/v1/grants/who-can?tool=whoami":                    "needed in the query: server",
		"/v1/grants/who-can":                                "needed in the query: server, tool",
		"/v1/grants/explain?caller=gateway":                 "needed in the query: actor, server, tool",
		"/v1/grants/explain?caller=gateway&actor=user:7&server=records&tool=whoami&zone=moon": "zone: one of",
		"/v1/grants/explain?caller=gateway&actor=user:7&server=records&tool=whoami&admin=yes": "admin: the caller cannot prove it",
		"/v1/grants/explain?caller=gateway&actor=7&server=records&tool=whoami":                "actor: must be an actor",
		"/v1/grants/unused?days=0":                                "days: from 1 to 3660",
		"/v1/grants/expiring?days=-1":                             "days: from 0 to 3660",
		"/v1/grants/orphaned?vault=maybe":                         "vault: ask or skip",
		"/v1/audit/operations?state=done":                         "state: a state of",
		"/v1/audit/operations?after=1":                            "after: it is no place where a page ends",
		"/v1/audit/operations?after=0.aaaaaaaaaaaaaaaaaaaaaaaaaa": "after: it is no place where a page ends",
		"/v1/audit/operations?since=yesterday":                    "since: a time such as",
		"/v1/audit/operations?limit=1001":                         "limit: from 1 to 1000",
	} {
		if a := rig.Auditor(t, path, nil); a.Status != 400 || a.Reason != fault.MalformedRequest || !strings.Contains(a.Detail, detail) {
			t.Errorf("%s: %d %s, want %q", path, a.Status, a.Body, detail)
		}
	}
}

// TestReviewIsRecorded: each reading is in the audit once, with what it was about; where
// that cannot be written, nothing is read.
func TestReviewIsRecorded(t *testing.T) {
	var broken atomic.Bool
	rig := brokertest.New(t, &brokertest.Options{Tamper: func(at store.Moment, records []audit.Record) error {
		if broken.Load() && at == store.Applying && len(records) == 1 && records[0].Kind == audit.Read {
			return errors.New("no")
		}
		return nil
	}})
	paths := map[string]string{
		"/v1/grants?actor=user:7":                                                `"view":"grants","actor":"user:7"}`,
		"/v1/grants/who-can?server=records&tool=whoami":                          `"view":"grants","server":"records","tool":"whoami"`,
		"/v1/grants/explain?caller=gateway&actor=user:7&server=records&tool=job": `"view":"grants","actor":"user:7","server":"records","tool":"job"`,
		"/v1/grants/unused?tool=slow":                                            `"view":"grants","tool":"slow"`,
		"/v1/grants/orphaned":                                                    `"view":"grants"}`,
		"/v1/audit/operations?server=archive":                                    `"view":"operations","server":"archive"`,
	}
	broken.Store(true)
	for path := range paths {
		if a := rig.Auditor(t, path, nil); a.Status != 503 || strings.Contains(string(a.Body), "user:7") {
			t.Errorf("%s without a record: %d %s", path, a.Status, a.Body)
		}
	}
	broken.Store(false)
	for path := range paths {
		for range 2 {
			if a := rig.Auditor(t, path, nil); a.Status != 200 {
				t.Errorf("%s: %s", path, a.Body)
			}
		}
	}
	if err := rig.Stop(); err != nil {
		t.Fatal(err)
	}
	lines := rig.Audit(t)
	for path, want := range paths {
		if n := strings.Count(lines, want); n != 1 {
			t.Errorf("%s: %d records with %s", path, n, want)
		}
	}
	if t.Failed() {
		t.Log(lines)
	}
}
