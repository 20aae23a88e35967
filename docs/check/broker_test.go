package check

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"onbehalf.internal/broker"
	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/auditlog"
	"onbehalf.internal/broker/brokertest"
	"onbehalf.internal/broker/catalogue"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/grants"
	"onbehalf.internal/broker/httpapi"
	"onbehalf.internal/broker/ledger"
	"onbehalf.internal/broker/mcpclient"
	"onbehalf.internal/broker/operation"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/store"
	"onbehalf.internal/broker/vault"
)

// An ask is one request and the status that it must get.
type ask struct {
	method, path, body string
	change             func(http.Header)
	status             int
}

// A bench is a running broker and its contract.
type bench struct {
	*contract
	rig    *brokertest.Rig
	policy *policy.Holder
}

func (b *bench) request(t *testing.T, base string, a ask) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), a.method, base+a.path, strings.NewReader(a.body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+b.rig.Bearer)
	req.Header.Set("Broker-Actor", "user:7")
	if a.method == http.MethodPost && a.path == "/v1/operations" {
		req.Header.Set("Content-Type", "application/json")
	}
	if a.change != nil {
		a.change(req.Header)
	}
	return req
}

// over asks the running broker.
func (b *bench) over(t *testing.T, a ask) {
	t.Helper()
	req := b.request(t, b.rig.URL, a)
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	b.judge(t, a, req, res)
}

// within asks a handler that is broken in a way a running one cannot be brought
// to from outside.
func (b *bench) within(t *testing.T, h http.Handler, a ask) {
	t.Helper()
	rec := httptest.NewRecorder()
	req := b.request(t, "http://127.0.0.1", a)
	h.ServeHTTP(rec, req)
	b.judge(t, a, req, rec.Result())
}

func (b *bench) judge(t *testing.T, a ask, req *http.Request, res *http.Response) {
	t.Helper()
	if res.StatusCode != a.status {
		t.Errorf("%s %s: %d, want %d", a.method, a.path, res.StatusCode, a.status)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err == nil {
		err = b.hold(req, a.body, res, answer)
	}
	if err != nil {
		t.Errorf("%s %s, %d %s: %v", a.method, a.path, res.StatusCode, answer, err)
	}
}

// TestContract asks for every address with every status.
func TestContract(t *testing.T) {
	rig := brokertest.New(t, &brokertest.Options{SignedAudit: true})
	snapshot, err := policy.Load(rig.ConfigPath)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{read(t), rig, policy.NewHolder(snapshot)}
	if b.doc.Info.Version != broker.Version {
		t.Errorf("the file is of version %s, and the broker %s", b.doc.Info.Version, broker.Version)
	}
	b.ended(t)
	b.open(t)
	b.refused(t)
	b.suspended(t)
	b.resolved(t)
	b.approved(t)
	b.served(t) // from here on arguments have to fit
	b.reviewed(t)
	b.audited(t)
	b.limited(t)
	b.panics(t)
	b.unavailable(t)
	b.complete(t)
}

const whoami = `{"server":"records","tool":"whoami","request_key":"KEY","run_id":"r","wait":"10s","timeout":"4s"}`

func call(key string) string { return strings.Replace(whoami, "KEY", key, 1) }

func (b *bench) ended(t *testing.T) {
	id := b.rig.Call(t, brokertest.Call{Key: "ended"}).ID
	b.rig.Call(t, brokertest.Call{Tool: "fail", Key: "failed"})
	b.rig.Call(t, brokertest.Call{Tool: "drop", Key: "cut", Arguments: map[string]string{"job": "a"}})
	for _, a := range []ask{
		{"POST", "/v1/operations", call("new"), nil, 200},
		{"POST", "/v1/operations", call("new"), nil, 200}, // replayed
		{"GET", "/v1/operations/" + id, "", nil, 200},
		{"POST", "/v1/operations/" + id + "/cancel", "", nil, 200},
		{"GET", "/v1/operations?request_key=ended", "", nil, 200},
		{"GET", "/v1/operations?request_key=failed", "", nil, 200},
		{"GET", "/v1/operations?request_key=cut", "", nil, 200},
		{"GET", "/v1/operations", "", nil, 200},
		{"GET", "/v1/operations?state=open", "", func(h http.Header) { h.Del("Broker-Actor") }, 200},
		{"GET", "/healthz", "", nil, 200},
		{"HEAD", "/healthz", "", nil, 200},
		{"GET", "/readyz", "", nil, 200},
		{"HEAD", "/readyz", "", nil, 200},
	} {
		b.over(t, a)
	}
}

// open asks about an operation whose server does not answer.
func (b *bench) open(t *testing.T) {
	release := b.rig.Records.Hold("tools/call")
	defer release()
	answer := b.rig.Call(t, brokertest.Call{Key: "open", Wait: "0s"})
	for _, a := range []ask{
		{"POST", "/v1/operations", call("other"), func(h http.Header) { h.Set("Prefer", "respond-async") }, 202},
		{"GET", "/v1/operations/" + answer.ID, "", nil, 202},
		{"GET", "/v1/operations?request_key=open", "", nil, 202},
		{"GET", "/v1/operations?state=open", "", nil, 200},
		{"POST", "/v1/operations/" + answer.ID + "/cancel", "", nil, 202},
	} {
		b.over(t, a)
	}
}

func (b *bench) refused(t *testing.T) {
	const id = "/v1/operations/aaaaaaaaaaaaaaaaaaaaaaaaaa"
	stranger := func(h http.Header) { h.Del("Authorization") }
	other := func(h http.Header) { h.Set("Broker-Actor", "user:9") }
	browser := func(h http.Header) { h.Set("Origin", "https://other.example") }
	for _, a := range []ask{
		{"POST", "/v1/operations", `{}`, nil, 400},
		{"POST", "/v1/operations", call("k"), stranger, 401},
		{"POST", "/v1/operations", call("k"), other, 403},
		{"POST", "/v1/operations", strings.Replace(call("k"), "whoami", "nothing", 1), nil, 403},
		{"POST", "/v1/operations", strings.Replace(call("k"), `"run_id"`, `"supersedes":"aaaaaaaaaaaaaaaaaaaaaaaaaa","run_id"`, 1), nil, 404},
		{"POST", "/v1/operations", `{"server":"` + strings.Repeat("a", 300<<10) + `"}`, nil, 413},
		{"POST", "/v1/operations", call("k"), func(h http.Header) { h.Del("Content-Type") }, 415},
		{"POST", "/v1/operations", strings.Replace(call("ended"), "whoami", "job", 1), nil, 422},
		{"GET", "/v1/operations?state=closed", "", nil, 400},
		{"GET", "/v1/operations", "", stranger, 401},
		{"GET", "/v1/operations", "", func(h http.Header) { h.Del("Broker-Actor") }, 401},
		{"GET", "/v1/operations", "", other, 403},
		{"GET", "/v1/operations?request_key=nowhere", "", nil, 404},
	} {
		b.over(t, a)
	}
	for _, at := range []struct{ method, path string }{{"GET", id}, {"POST", id + "/cancel"}} {
		b.over(t, ask{at.method, at.path, "{}", nil, 400})
		b.over(t, ask{at.method, at.path, "", stranger, 401})
		b.over(t, ask{at.method, at.path, "", other, 403})
		b.over(t, ask{at.method, at.path, "", nil, 404})
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		for _, method := range []string{"GET", "HEAD"} {
			b.over(t, ask{method, path, "{}", nil, 400})
			b.over(t, ask{method, path, "", browser, 403})
		}
	}
}

// config is an API over nothing.
func (b *bench) config() httpapi.Config {
	return httpapi.Config{Policy: b.policy, Now: time.Now, Log: slog.New(slog.DiscardHandler), Metrics: httpapi.NewMetrics(func() int { return 0 }, func() vault.Stats { return vault.Stats{} }, func() []httpapi.Server { return nil }),
		Ledger: func() (string, time.Time) { return "l", time.Time{} }}
}

// limited floods each address that has a caller, until one answer is 429.
func (b *bench) limited(t *testing.T) {
	h := httpapi.New(b.config())
	flood := func(a ask) {
		for range 50_000 {
			req, rec := b.request(t, "http://127.0.0.1", a), httptest.NewRecorder()
			if h.ServeHTTP(rec, req); rec.Code == a.status {
				b.judge(t, a, req, rec.Result())
				return
			}
		}
		t.Errorf("%s %s: never limited", a.method, a.path)
	}
	nobody := func(h http.Header) { h.Del("Broker-Actor") } // so that nothing is run
	flood(ask{"POST", "/v1/operations", "", nobody, 429})
	flood(ask{"GET", "/v1/operations", "", nobody, 429})
	flood(ask{"GET", "/v1/operations/x", "", nobody, 429})
	flood(ask{"POST", "/v1/operations/x/cancel", "", nobody, 429})
	flood(ask{"POST", "/v1/operations/x/resolve", "", b.admin, 429})
	flood(ask{"GET", "/v1/doubts", "", b.admin, 429})
	flood(ask{"GET", "/v1/tools", "", nobody, 429})
	flood(ask{"GET", "/v1/servers?x=y", "", b.admin, 429})
	flood(ask{"GET", "/v1/servers/nowhere/tools", "", b.admin, 429})
	flood(ask{"POST", "/v1/servers/x/import", "{}", b.admin, 429})
	flood(ask{"POST", "/v1/servers/x/probe", "{}", b.admin, 429})
	flood(ask{"POST", "/v1/doctor", "{}", b.admin, 429})
	flood(ask{"GET", "/v1/doctor/patience?x=y", "", b.admin, 429})
	flood(ask{"GET", "/v1/audit?x=y", "", b.auditor, 429})
	flood(ask{"GET", "/v1/audit/head?x=y", "", b.auditor, 429})
	for _, path := range reviewed {
		flood(ask{"GET", path + "?x=y", "", b.auditor, 429})
	}
	flood(ask{"POST", "/v1/suspensions", "", b.admin, 429})
	flood(ask{"GET", "/v1/approvals", "", b.people, 429})
	flood(ask{"POST", "/v1/approvals/x", "", func(h http.Header) { b.people(h); h.Del("Broker-Approver-Assertion") }, 429})
	flood(ask{"GET", "/v1/suspensions", "", b.admin, 429})
	flood(ask{"DELETE", "/v1/suspensions/x", "", b.admin, 429})
}

// panics asks an API that has a defect: it has no clock.
func (b *bench) panics(t *testing.T) {
	c := b.config()
	c.Now = nil
	h := httpapi.New(c)
	for path, item := range b.doc.Paths.Map() {
		for method := range item.Operations() {
			b.within(t, h, ask{method, path, "", nil, 500})
		}
	}
}

// unavailable asks an API whose store is closed and whose Vault is away.
func (b *bench) unavailable(t *testing.T) {
	db, err := store.Open(t.Context(), store.Config{Path: filepath.Join(t.TempDir(), "broker.db"), Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	c := b.config()
	c.Ready = func() error { return fault.New("check", fault.VaultNotReady, "") }
	c.Rows = ledger.New(db, ledger.Config{})
	c.Grants = &grants.Reader{Policy: b.policy, Ledger: c.Rows, Now: time.Now}
	s := policy.Suspension{ID: "standing", Target: policy.Target{Sort: "actor", Name: "user:9"}}
	b.policy.Restore([]policy.Suspension{s}, time.Now())
	c.Catalogue = catalogue.New(db, time.Now)
	if err := db.Commit(t.Context(), nil, audit.Record{Kind: audit.Start}); err != nil {
		t.Fatal(err)
	}
	c.Auditors = auditlog.NewReader(db, time.Now)
	c.Runner = operation.New(operation.Config{Ledger: ledger.New(db, ledger.Config{}), Policy: b.policy, Catalogue: c.Catalogue, MCP: mcpclient.New(mcpclient.Config{}), Now: time.Now, Log: c.Log})
	h := httpapi.New(c)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for _, a := range []ask{
		{"POST", "/v1/operations", call("k"), nil, 503},
		{"GET", "/v1/operations", "", nil, 503},
		{"GET", "/v1/operations/x", "", nil, 503},
		{"POST", "/v1/operations/x/cancel", "", nil, 503},
		{"POST", "/v1/operations/x/resolve", itRan, b.admin, 503},
		{"GET", "/v1/doubts", "", b.admin, 503},
		{"GET", "/v1/tools", "", nil, 503},
		{"GET", "/v1/servers", "", b.admin, 503},
		{"GET", "/v1/servers/records/tools", "", b.admin, 503},
		{"POST", "/v1/servers/records/import", "", b.admin, 503},
		{"POST", "/v1/servers/records/probe", "", b.admin, 503},
		{"GET", "/v1/audit", "", b.auditor, 503},
		{"GET", "/v1/audit/head", "", b.auditor, 503},
		{"GET", "/v1/audit/operations", "", b.auditor, 503},
		{"GET", "/v1/grants", "", b.auditor, 503},
		{"GET", "/v1/grants/who-can?server=records&tool=whoami", "", b.auditor, 503},
		{"GET", "/v1/grants/explain?caller=gateway&actor=user:7&server=records&tool=whoami", "", b.auditor, 503},
		{"GET", "/v1/grants/unused", "", b.auditor, 503},
		{"GET", "/v1/grants/expiring", "", b.auditor, 503},
		{"GET", "/v1/grants/orphaned", "", b.auditor, 503},
		{"POST", "/v1/suspensions", suspendUser8, b.admin, 503},
		{"GET", "/v1/approvals", "", b.people, 503},
		{"POST", "/v1/approvals/x", approve("sha256:" + strings.Repeat("0", 64)), b.people, 503},
		{"DELETE", "/v1/suspensions/standing?reason=r", "", b.admin, 503},
		{"GET", "/readyz", "", nil, 503},
		{"HEAD", "/readyz", "", nil, 503},
	} {
		b.within(t, h, a)
	}
}

// TestTeeth: an answer that the file does not have, or has otherwise, is seen.
func TestTeeth(t *testing.T) {
	c := read(t)
	req := httptest.NewRequest("GET", "/healthz", nil)
	for _, tc := range []struct {
		name, media, body string
		status            int
		wrong             bool
	}{
		{"as written", "application/json", `{"status":"ok"}`, 200, false},
		{"another status", "application/json", `{"status":"ok"}`, 418, true},
		{"another word", "application/json", `{"status":"fine"}`, 200, true},
		{"a member more", "application/json", `{"status":"ok","host":"x"}`, 200, true},
		{"another media type", "text/plain", `{"status":"ok"}`, 200, true},
		{"a reason outside the list", "application/problem+json",
			`{"title":"x","status":403,"kind":"denied","reason":"made_up","ledger":{"id":"l","since":"2026-01-01T00:00:00Z"}}`, 403, true},
	} {
		res := &http.Response{StatusCode: tc.status, Header: http.Header{"Content-Type": {tc.media}}}
		if err := c.hold(req, "", res, []byte(tc.body)); (err != nil) != tc.wrong {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}
