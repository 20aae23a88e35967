package webui_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/html"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/brokertest"
	"onbehalf.internal/broker/store"
)

// pages are all that can be looked at, with who may: the auditor's bearer and user:6
// may audit, user:8 approve, user:9 both.
var pages = []struct {
	path    string
	audit   int // status for who may audit
	approve int // for who may approve alone
}{
	{"/ui/", 200, 200}, // goes on to what waits
	{"/ui/grants", 200, 403},
	{"/ui/grants/explain?caller=gateway&actor=user:7&server=records&tool=whoami", 200, 403},
	{"/ui/operations", 200, 403},
	{"/ui/operations/nobody-has-this", 404, 403},
	{"/ui/approvals", 403, 200},
	{"/ui/catalogue", 200, 403},
	{"/ui/catalogue/records/whoami", 200, 403},
	{"/ui/catalogue/records/none", 404, 403},
	{"/ui/audit", 200, 403},
	{"/ui/audit/export", 200, 403},
	{"/ui/nothing", 404, 404},
}

func TestWhoMaySeeWhat(t *testing.T) {
	rig := brokertest.New(t, nil)
	rig.Admin(t, "POST", "/v1/servers/records/import", "", nil)
	nobody, bearer, auditor, approver, both := rig.Visitor(t), rig.Visitor(t), rig.Visitor(t), rig.Visitor(t), rig.Visitor(t)
	bearer.Bearer(rig.AuditorBearer())
	auditor.Person("6")
	approver.Person("8")
	both.Person("9")
	for _, p := range pages {
		for name, look := range map[string]struct {
			v    *brokertest.Visitor
			want int
		}{"bearer": {bearer, p.audit}, "user:6": {auditor, p.audit}, "user:8": {approver, p.approve}, "user:9": {both, either(p.audit, p.approve)}} {
			if got := look.v.Get(p.path); got.Status != look.want {
				t.Errorf("%s at %s: %d, want %d\n%s", name, p.path, got.Status, look.want, got.Body)
			}
		}
		got := nobody.Get(p.path)
		if at := got.At.Path; p.path != "/ui/nothing" && at != "/ui/sign-in" {
			t.Errorf("nobody at %s is shown %s", p.path, at)
		}
	}
	if got := approver.Get("/ui/"); got.At.Path != "/ui/approvals" {
		t.Errorf("who only decides is at %s", got.At.Path)
	}
}

// either is the status for who may both.
func either(audit, approve int) int {
	if approve == 200 {
		return 200
	}
	return audit
}

// TestWhoMaySignIn: what does not let anybody in.
func TestWhoMaySignIn(t *testing.T) {
	now := time.Now()
	rig := brokertest.New(t, &brokertest.Options{Now: func() time.Time { return now }}) // which stands: no try is given back
	for name, bearer := range map[string]string{"the gateway's": rig.Bearer, "an admin's": rig.AdminBearer(), "people's": rig.PeopleBearer(),
		"none": "", "another": "x", "long": strings.Repeat("x", 8000)} {
		v := rig.Visitor(t)
		if got := v.Bearer(bearer); got.Status != http.StatusForbidden || v.Get("/ui/grants").At.Path != "/ui/sign-in" {
			t.Errorf("%s: %d", name, got.Status)
		}
	}
	v := rig.Visitor(t)
	if got := v.Person("7"); got.Status != http.StatusForbidden || !strings.Contains(got.Body, "The sign-in was refused") {
		t.Errorf("somebody without a role: %d\n%s", got.Status, got.Body)
	}
	if got := rig.Visitor(t).Get("/ui/callback?code=x&state=y"); got.Status != http.StatusForbidden || !strings.Contains(got.Body, "has not begun") {
		t.Errorf("a callback that nobody has begun: %d\n%s", got.Status, got.Body)
	}
	too := rig.Visitor(t)
	for range 40 {
		if got := too.Bearer("guess"); got.Status == http.StatusTooManyRequests {
			return
		}
	}
	t.Error("40 guesses at once, and none is refused for it")
}

// TestAnswers: what every answer says, whoever asks.
func TestAnswers(t *testing.T) {
	rig := brokertest.New(t, nil)
	v := rig.Visitor(t)
	signedIn := v.Bearer(rig.AuditorBearer())
	answers := map[string]brokertest.Shown{"signed in": signedIn, "nothing": rig.Visitor(t).Get("/ui/nothing"),
		"a file": v.Get("/ui/static/style.css"), "an export": v.Get("/ui/audit/export"), "refused": v.Get("/ui/approvals")}
	for name, got := range answers {
		for header, want := range map[string]string{
			"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
			"X-Content-Type-Options":  "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "same-origin",
			"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
		} {
			if got.Header.Get(header) != want {
				t.Errorf("%s: %s: %q", name, header, got.Header.Get(header))
			}
		}
		if name != "a file" && got.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s may be kept: %q", name, got.Header.Get("Cache-Control"))
		}
	}
	v.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	set := v.Bearer(rig.AuditorBearer()).Header.Get("Set-Cookie")
	if !regexp.MustCompile(`^broker-page=[A-Z2-7]{52}; Path=/ui; HttpOnly; SameSite=Strict$`).MatchString(set) {
		t.Errorf("the cookie: %s", set)
	}
	if again := v.Bearer(rig.AuditorBearer()).Header.Get("Set-Cookie"); again == set {
		t.Error("two sessions have one cookie")
	}
}

// TestOtherOrigins: a page of somebody else can neither have a form sent nor this page
// opened under another name.
func TestOtherOrigins(t *testing.T) {
	rig := brokertest.New(t, nil)
	v := rig.Visitor(t)
	v.Bearer(rig.AuditorBearer())
	for name, row := range map[string]struct {
		method string
		change func(*http.Request)
		want   int
	}{
		"a form of another site":     {"POST", func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, 403},
		"of another port":            {"POST", func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") }, 403},
		"of another origin, old":     {"POST", func(r *http.Request) { r.Header.Set("Origin", "http://evil.example") }, 403},
		"of a sandbox":               {"POST", func(r *http.Request) { r.Header.Set("Origin", "null") }, 403},
		"of this page":               {"POST", func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-origin") }, 200},
		"a name that leads here":     {"GET", func(r *http.Request) { r.Host = "evil.example" }, 403},
		"localhost, which is not it": {"GET", func(r *http.Request) { r.Host = "localhost" }, 403},
		"a method that is none":      {"PUT", func(*http.Request) {}, 404},
	} {
		req, err := http.NewRequestWithContext(t.Context(), row.method, rig.URL+"/ui/audit/verify", nil)
		if err != nil {
			t.Fatal(err)
		}
		row.change(req)
		res, err := v.Client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if name == "a name that leads here" || name == "localhost, which is not it" {
			row.want = 403
		}
		if res.StatusCode != row.want {
			t.Errorf("%s: %d, want %d", name, res.StatusCode, row.want)
		}
	}
	// The API refuses browsers, also that of a page of its own.
	if got := v.Get("/v1/audit"); got.Status != http.StatusUnauthorized {
		t.Errorf("the cookie opens the API: %d", got.Status)
	}
}

// TestSessions: what ends one.
func TestSessions(t *testing.T) {
	now := time.Now()
	rig := brokertest.New(t, &brokertest.Options{Now: func() time.Time { return now }})
	in := func(v *brokertest.Visitor) bool {
		got := v.Get("/ui/audit")
		return got.Status == 200 && got.At.Path == "/ui/audit"
	}
	person := func() *brokertest.Visitor { v := rig.Visitor(t); v.Person("6"); return v }
	bearer := func() *brokertest.Visitor { v := rig.Visitor(t); v.Bearer(rig.AuditorBearer()); return v }

	page, err := url.Parse(rig.URL + "/ui/")
	if err != nil {
		t.Fatal(err)
	}
	for name, v := range map[string]*brokertest.Visitor{"person": person(), "bearer": bearer()} {
		if !in(v) {
			t.Fatalf("%s: is not in", name)
		}
		kept := v.Jar.Cookies(page)
		if v.Post("/ui/sign-out", nil); in(v) {
			t.Errorf("%s: is in after it has signed out", name)
		}
		if v.Jar.SetCookies(page, kept); in(v) {
			t.Errorf("%s: is in by the cookie of before it has signed out", name)
		}
	}
	rested := bearer()
	busy := bearer()
	for range 16 {
		now = now.Add(29 * time.Minute)
		if !in(busy) {
			t.Fatal("ended while it was used")
		}
	}
	if in(rested) {
		t.Error("open after hours without a request")
	}
	now = now.Add(29 * time.Minute)
	if in(busy) {
		t.Error("open after more than eight hours")
	}

	// What the newest configuration says counts with the next request.
	byPerson, byBearer := person(), bearer()
	edit := func(old, new string) {
		t.Helper()
		if err := rig.Edit(func(y string) string { return strings.Replace(y, old, new, 1) }); err != nil {
			t.Fatal(err)
		}
	}
	edit(`audit: {claim: groups, value: auditors}`, `audit: {claim: groups, value: others}`)
	if in(byPerson) || !in(byBearer) {
		t.Error("the claim that gave the role is another one: the person is in, or the bearer is not")
	}
	edit("  auditor:\n    roles: [audit]", "  auditor:\n    roles: [admin]")
	if in(byBearer) {
		t.Error("the caller has not the role any more, and is in")
	}
}

// TestReadingIsRecorded: who looks is in the audit before anything is shown, and where
// that cannot be written nothing is shown.
func TestReadingIsRecorded(t *testing.T) {
	var broken error
	rig := brokertest.New(t, &brokertest.Options{Tamper: func(at store.Moment, records []audit.Record) error {
		for _, r := range records {
			if r.Kind == audit.Read && at == store.Applying {
				return broken
			}
		}
		return nil
	}})
	rig.Admin(t, "POST", "/v1/servers/records/import", "", nil)
	v := rig.Visitor(t)
	v.Person("6")
	for _, row := range []struct{ path, want string }{
		{"/ui/", `{"person":"user:6","view":"servers"}`},
		{"/ui/grants?actor=user:7", `{"person":"user:6","view":"grants","actor":"user:7"}`},
		{"/ui/grants/explain?actor=user:7&server=records&tool=whoami", `{"person":"user:6","view":"grants","actor":"user:7","server":"records","tool":"whoami"}`},
		{"/ui/operations?server=records", `{"person":"user:6","view":"operations","server":"records"}`},
		{"/ui/operations/some", `{"person":"user:6","view":"operations","operation":"some"}`},
		{"/ui/catalogue", `{"person":"user:6","view":"catalogue"}`},
		{"/ui/catalogue/records/whoami", `{"person":"user:6","view":"catalogue","server":"records","tool":"whoami"}`},
	} {
		v.Get(row.path)
		if got := last(t, rig); got != row.want {
			t.Errorf("%s: %s, want %s", row.path, got, row.want)
		}
	}
	v.Get("/ui/audit?actor=user:7")
	if got := last(t, rig); !strings.HasPrefix(got, `{"person":"user:6","from":1,"to":`) || !strings.HasSuffix(got, `,"actor":"user:7"}`) {
		t.Errorf("the audit itself: %s", got)
	}

	broken = errors.New("no space left")
	for _, path := range []string{"/ui/grants?actor=user:8", "/ui/operations?server=archive", "/ui/catalogue?server=archive", "/ui/audit?actor=user:8", "/ui/operations/other"} {
		if got := v.Get(path); got.Status < 500 || strings.Contains(got.Body, "<table") {
			t.Errorf("%s: shown without a record: %d", path, got.Status)
		}
	}
}

// last is the newest reading in the audit.
func last(t *testing.T, rig *brokertest.Rig) (reading string) {
	t.Helper()
	lines := rig.Auditor(t, "/v1/audit?limit=10000", nil).Body
	for line := range strings.Lines(string(lines)) {
		var r struct {
			Kind    audit.Kind
			Caller  string
			Reading json.RawMessage
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		if r.Kind == audit.Read && r.Caller == "reviewers" {
			reading = string(r.Reading)
		}
	}
	return reading
}

// TestApproving: a person who has signed in decides about the very call that was shown,
// and nobody else does.
func TestApproving(t *testing.T) {
	rig := brokertest.New(t, &brokertest.Options{Config: brokertest.Approving})
	call := brokertest.Call{Actor: "user:7", Server: "records", Tool: "whoami", Key: "needs-a-person"}
	waiting := rig.Call(t, call)
	if waiting.State != "awaiting_approval" {
		t.Fatal(waiting)
	}
	v := rig.Visitor(t)
	v.Person("8")
	page := v.Get("/ui/approvals")
	digest := waiting.Approval.Digest
	if !strings.Contains(page.Body, digest) || !strings.Contains(page.Body, "user:7") {
		t.Fatalf("the call is not shown:\n%s", page.Body)
	}
	at := "/ui/approvals/" + waiting.ID
	for name, form := range map[string]url.Values{
		"no decision":                  {"digest": {digest}},
		"another decision":             {"digest": {digest}, "decision": {"maybe"}},
		"no digest":                    {"decision": {"approve"}},
		"another digest":               {"digest": {"sha256:" + strings.Repeat("0", 64)}, "decision": {"approve"}},
		"no reason":                    {"digest": {digest}, "decision": {"deny"}},
		"a long reason":                {"digest": {digest}, "decision": {"approve"}, "reason": {strings.Repeat("x", 513)}},
		"a reason that cannot be seen": {"digest": {digest}, "decision": {"approve"}, "reason": {"yes\u202e"}},
	} {
		if got := v.Post(at, form); got.Status < 400 || len(rig.Pending(t)) != 1 {
			t.Errorf("%s: %d, %d wait", name, got.Status, len(rig.Pending(t)))
		}
	}
	good := url.Values{"digest": {digest}, "decision": {"approve"}, "reason": {"looked at it"}}
	bearer := rig.Visitor(t)
	bearer.Bearer(rig.AuditorBearer())
	auditor := rig.Visitor(t)
	auditor.Person("6")
	for name, v := range map[string]*brokertest.Visitor{"a bearer": bearer, "an auditor": auditor, "nobody": rig.Visitor(t)} {
		if got := v.Post(at, good); got.Status < 400 && got.At.Path != "/ui/sign-in" || len(rig.Pending(t)) != 1 {
			t.Errorf("%s decides: %d", name, got.Status)
		}
	}
	if got := v.Post(at, good); got.Status != 200 || !strings.Contains(got.Body, "is approved") {
		t.Errorf("the decision: %d\n%s", got.Status, got.Body)
	}
	if got := v.Post(at, good); got.Status != 200 || !strings.Contains(got.Body, "said so before") {
		t.Errorf("the same again: %d\n%s", got.Status, got.Body)
	}
	if got := rig.Call(t, call); got.State != "succeeded" {
		t.Errorf("approved, it is %s %s", got.State, got.Cause)
	}
}

// TestBearerOnlyReads: also that of a caller with more roles.
func TestBearerOnlyReads(t *testing.T) {
	rig := brokertest.New(t, &brokertest.Options{Config: func(y string) string {
		return strings.Replace(brokertest.Approving(y), "  auditor:\n    roles: [audit]", "  auditor:\n    roles: [audit, approve, admin]", 1)
	}})
	waiting := rig.Call(t, brokertest.Call{Actor: "user:7", Server: "records", Tool: "whoami"})
	v := rig.Visitor(t)
	v.Bearer(rig.AuditorBearer())
	if page := v.Get("/ui/"); page.Status != 200 || strings.Contains(page.Body, "/ui/approvals") {
		t.Errorf("%d: is offered approvals\n%s", page.Status, page.Body)
	}
	if got := v.Get("/ui/approvals"); got.Status != 403 {
		t.Errorf("sees what waits: %d", got.Status)
	}
	got := v.Post("/ui/approvals/"+waiting.ID, url.Values{"digest": {waiting.Approval.Digest}, "decision": {"approve"}})
	if got.Status != 403 || len(rig.Pending(t)) != 1 {
		t.Errorf("decides: %d", got.Status)
	}
}

// TestOwnCall: who signs in does not decide about a call made for themselves.
func TestOwnCall(t *testing.T) {
	rig := brokertest.New(t, &brokertest.Options{Config: func(y string) string {
		return strings.Replace(brokertest.Approving(y), `value: approvers`, `value: staff`, 1) // user:7 may approve
	}})
	waiting := rig.Call(t, brokertest.Call{Actor: "user:7", Server: "records", Tool: "whoami"})
	v := rig.Visitor(t)
	v.Person("7")
	if page := v.Get("/ui/approvals"); !strings.Contains(page.Body, "your own call") || strings.Contains(page.Body, `value="approve"`) {
		t.Errorf("the page offers to decide:\n%s", page.Body)
	}
	got := v.Post("/ui/approvals/"+waiting.ID, url.Values{"digest": {waiting.Approval.Digest}, "decision": {"approve"}})
	if got.Status != 403 || !strings.Contains(got.Body, "approver is actor") || len(rig.Pending(t)) != 1 {
		t.Errorf("%d\n%s", got.Status, got.Body)
	}
}

// TestHostileText: what servers, callers and actors call themselves is text on every
// page, and what steers or cannot be seen is spelled out.
func TestHostileText(t *testing.T) {
	evil := `<img src=x onerror=alert(1)>"'><script>alert(1)</script>` + "\u202eabc\u2066\u0007"
	rig := brokertest.New(t, &brokertest.Options{Config: brokertest.Approving})
	rig.Records.List(tool("whoami", evil+strings.Repeat("long ", 100)), tool(evil, "x"))
	rig.Admin(t, "POST", "/v1/servers/records/import", "", nil)
	rig.Call(t, brokertest.Call{Actor: "user:7", Server: "records", Tool: evil})
	rig.Call(t, brokertest.Call{Actor: "user:7", Server: evil, Tool: "whoami", Key: evil})
	rig.Call(t, brokertest.Call{Actor: `user:<script>alert(3)</script>`, Server: "records", Tool: "whoami"})
	rig.Call(t, brokertest.Call{Actor: "user:7", Server: "records", Tool: "whoami", Arguments: map[string]string{evil: evil}})
	reason, _ := json.Marshal(map[string]string{"actor": "user:66", "reason": `<script>alert(2)</script>`})
	rig.Admin(t, "POST", "/v1/suspensions", string(reason), nil)

	v, approver := rig.Visitor(t), rig.Visitor(t)
	v.Bearer(rig.AuditorBearer())
	approver.Person("8")
	q := url.QueryEscape(evil)
	shown := map[string]brokertest.Shown{"approvals": approver.Get("/ui/approvals")}
	for _, path := range []string{"/ui/", "/ui/catalogue", "/ui/catalogue/records/whoami", "/ui/operations", "/ui/audit",
		"/ui/grants?actor=" + q + "&server=" + q + "&tool=" + q + "&profile=" + q, "/ui/operations?id=" + q + "&actor=" + q + "&key=" + q,
		"/ui/grants/explain?caller=" + q + "&actor=" + q + "&server=" + q + "&tool=" + q, "/ui/audit?actor=" + q, "/ui/operations/" + url.PathEscape(evil),
		"/ui/catalogue/records/" + url.PathEscape(evil)} {
		shown[path] = v.Get(path)
	}
	seen := 0
	for name, page := range shown {
		if strings.ContainsAny(page.Body, "\u202e\u2066\u0007") {
			t.Errorf("%s: steers its reader", name)
		}
		seen += strings.Count(page.Body, `alert(`)
		inert(t, name, page.Body)
	}
	if seen < 10 {
		t.Errorf("the hostile text is on the pages %d times: this test looks at nothing", seen)
	}
}

// tool is the JSON of a tool that takes anything.
func tool(name, description string) string {
	b, _ := json.Marshal(map[string]any{"name": name, "description": description, "inputSchema": map[string]any{"type": "object"}})
	return string(b)
}

// inert fails for a document that does anything by itself, or names a place that is not
// on this page's list.
func inert(t *testing.T, name, document string) {
	t.Helper()
	root, err := html.Parse(strings.NewReader(document))
	if err != nil {
		t.Fatal(err)
	}
	for n := range root.Descendants() {
		if n.Type != html.ElementNode {
			continue
		}
		for _, a := range n.Attr {
			place := a.Key == "src" || a.Key == "href" || a.Key == "action" || a.Key == "hx-get"
			if strings.HasPrefix(a.Key, "on") || a.Key == "style" || place && !strings.HasPrefix(a.Val, "/ui/") && a.Val != "#main" && a.Val != "/ui" {
				t.Errorf("%s: <%s %s=%q>", name, n.Data, a.Key, a.Val)
			}
		}
		if n.Data == "script" && (n.FirstChild != nil || len(n.Attr) == 0) || n.Data == "style" || n.Data == "iframe" || n.Data == "object" {
			t.Errorf("%s: a <%s> of its own", name, n.Data)
		}
	}
}

// TestExport: the files are what the API gives, and verify as a whole.
func TestExport(t *testing.T) {
	rig := brokertest.New(t, nil)
	rig.Call(t, brokertest.Call{Actor: "user:7", Server: "records", Tool: "whoami"})
	rig.Call(t, brokertest.Call{Actor: "user:8", Server: "records", Tool: "whoami"})
	v := rig.Visitor(t)
	v.Person("6")
	whole := v.Get("/ui/audit/export")
	if report, err := (audit.Evidence{}).Verify(strings.NewReader(whole.Body)); err != nil || report.Head.Seq < 6 { // the drop may come later
		t.Errorf("%+v, %v", report, err)
	}
	if got := whole.Header.Get("Content-Disposition"); got != `attachment; filename="audit.jsonl"` {
		t.Error(got)
	}
	some := v.Get("/ui/audit/export?actor=user:8")
	if lines := strings.Count(some.Body, "\n"); lines != 1 || !strings.Contains(some.Body, "no_grant") {
		t.Errorf("%d lines of user:8:\n%s", lines, some.Body)
	}
	if ocsf := v.Get("/ui/audit/export?format=ocsf&actor=user:8"); !strings.Contains(ocsf.Body, `"class_uid"`) {
		t.Error(ocsf.Body)
	}
	if page := v.Post("/ui/audit/verify", nil); page.Status != 200 || !strings.Contains(page.Body, "Whole: ") {
		t.Errorf("%d\n%s", page.Status, page.Body)
	}
}

// TestPrunedAudit: where records were pruned, the page begins after them, and what is
// left is whole.
func TestPrunedAudit(t *testing.T) {
	var ago atomic.Int64
	ago.Store(int64(48 * time.Hour))
	rig := brokertest.New(t, &brokertest.Options{SignedAudit: true, Now: func() time.Time { return time.Now().Add(-time.Duration(ago.Load())) },
		Config: func(yaml string) string {
			return strings.Replace(yaml, `/heads"}`, `/heads", sink: "file:audit.jsonl", keep: 24h}`, 1)
		}})
	if err := rig.Stop(); err != nil { // which signs all there is
		t.Fatal(err)
	}
	ago.Store(0)
	if err := rig.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	v := rig.Visitor(t)
	v.Person("6")
	for n := 0; strings.HasPrefix(v.Get("/ui/audit/export").Body, `{"seq":1,`); n++ {
		if n == 500 {
			t.Fatal("nothing is pruned")
		}
	}
	page := v.Post("/ui/audit/verify", nil)
	if page.Status != 200 || !regexp.MustCompile(`Whole: the records after record \d+ follow each other, .* Those up to there were pruned`).MatchString(page.Body) {
		t.Errorf("%d\n%s", page.Status, page.Body)
	}
	if page := v.Get("/ui/audit?after=1"); strings.Contains(page.Body, "after=0") || !strings.Contains(page.Body, "retention") {
		t.Error(page.Body)
	}
}

// TestPages: what they say of a broker that has something to say.
func TestPages(t *testing.T) {
	rig := brokertest.New(t, &brokertest.Options{Config: func(y string) string {
		return strings.Replace(y, "fail: {enabled: true}", `fail: {enabled: true, pin: "sha256:`+strings.Repeat("1", 64)+`"}`, 1)
	}})
	rig.Admin(t, "POST", "/v1/servers/records/import", "", nil)
	good := rig.Call(t, brokertest.Call{Actor: "user:7", Server: "records", Tool: "whoami"})
	rig.Call(t, brokertest.Call{Actor: "user:7", Server: "archive", Tool: "drop"})
	v := rig.Visitor(t)
	v.Person("6")
	for _, row := range []struct {
		path string
		want []string
	}{
		{"/ui/", []string{"Operations can run.", ">succeeded</a>", ">unknown</a>", `href="/ui/catalogue/records/fail"`, "heads are not signed"}},
		{"/ui/grants?actor=user:7&tool=whoami&server=records", []string{"vault:kv/broker/subjects/7#value", "gateway, portal", "1×", "profiles.yaml:"}},
		{"/ui/grants?show=unused&tool=slow", []string{">unused</span>", "never"}},
		{"/ui/grants?show=expiring", []string{"No grant is like that."}},
		{"/ui/grants?show=orphaned&actor=user:7", []string{"No grant is like that."}},
		{"/ui/grants/explain?caller=gateway&actor=user:7&server=records&tool=whoami", []string{"<h2>Allowed</h2>", "caller speaks for the actor"}},
		{"/ui/grants/explain?caller=gateway&actor=user:8&server=records&tool=whoami", []string{"Refused: no grant"}},
		{"/ui/grants/explain?caller=gateway&actor=user:7&server=records&tool=fail", []string{"Refused: tool changed"}},
		{"/ui/operations?state=unknown", []string{"connection lost", "archive"}},
		{"/ui/operations?state=succeeded&actor=user:7", []string{good.ID}},
		{"/ui/operations?actor=user:8", []string{"None is like that"}},
		{"/ui/operations/" + good.ID, []string{"<rect", ">exchange<", ">tools/call<", "mcp-records"}},
		{"/ui/catalogue", []string{">changed</span>", ">not pinned</span>"}},
		{"/ui/catalogue/records/fail", []string{"never imported here", "Definition"}},
		{"/ui/audit?operation=" + good.ID, []string{"decision", "sending", "outcome", "drop"}},
	} {
		got := v.Get(row.path)
		for _, want := range row.want {
			if !strings.Contains(got.Body, want) {
				t.Errorf("%s: no %q in\n%s", row.path, want, got.Body)
			}
		}
	}
	records := v.Get("/ui/audit").Body
	if first, start := strings.Index(records, `"What">audit read`), strings.LastIndex(records, `"What">start`); first < 0 || start < first {
		t.Errorf("the newest record is not the first: %d, %d", first, start)
	}
	for _, path := range []string{"/ui/grants?after=x", "/ui/grants?show=x", "/ui/audit?since=yesterday"} {
		if got := v.Get(path); got.Status != http.StatusBadRequest {
			t.Errorf("%s: %d", path, got.Status)
		}
	}
}

// TestChangedTool: a tool that is not as it was pinned is shown with each difference.
func TestChangedTool(t *testing.T) {
	rig := brokertest.New(t, nil)
	imported := func(description string) {
		t.Helper()
		rig.Records.List(tool("whoami", description))
		if a := rig.Admin(t, "POST", "/v1/servers/records/import", "", nil); a.Status != 200 {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
	}
	imported("Says who calls.")
	var kept struct{ Tools []struct{ Pin string } }
	rig.Auditor(t, "/v1/servers/records/tools", &kept)
	if err := rig.Edit(func(y string) string {
		return strings.Replace(y, "whoami: {enabled: true", `whoami: {enabled: true, pin: "`+kept.Tools[0].Pin+`"`, 1)
	}); err != nil {
		t.Fatal(err)
	}
	v := rig.Visitor(t)
	v.Bearer(rig.AuditorBearer())
	if page := v.Get("/ui/catalogue/records/whoami"); !strings.Contains(page.Body, "as pinned") || strings.Contains(page.Body, "<del>") {
		t.Errorf("as pinned:\n%s", page.Body)
	}
	imported("Says who \u200bcalls.")
	page := v.Get("/ui/catalogue/records/whoami")
	for _, want := range []string{">changed<", "/description", "<del>&#34;Says who calls.&#34;</del>", `<ins>&#34;Says who \u{200b}calls.&#34;</ins>`} {
		if !strings.Contains(page.Body, want) {
			t.Errorf("changed, without %q:\n%s", want, page.Body)
		}
	}
}

// TestLongLists: every grant and operation is on one page and no more.
func TestLongLists(t *testing.T) {
	rig := brokertest.New(t, &brokertest.Options{Config: func(y string) string {
		var more strings.Builder
		for i := range 60 {
			fmt.Fprintf(&more, "      \"user:a%d\": {enabled: true, credential: \"vault:kv/broker/subjects/7#value\", allowed_audiences: [mcp-records], allowed_scopes: [records.read]}\n", i)
		}
		return strings.Replace(y, "    grants:\n", "    grants:\n"+more.String(), 1)
	}})
	for range 60 {
		rig.Call(t, brokertest.Call{Actor: "user:7", Server: "records", Tool: "whoami"})
	}
	v := rig.Visitor(t)
	v.Bearer(rig.AuditorBearer())
	row, next := regexp.MustCompile(`(?s)<tr>\n<td.*?</tr>|<tr>\n<td`), regexp.MustCompile(`<a href="(/ui/[a-z]+\?[^"]*)">(?:Next|Older)</a>`)
	for path, want := range map[string]int{"/ui/grants": 60*5 + 10, "/ui/operations": 60} {
		seen := 0
		for at := path; at != ""; {
			page := v.Get(at).Body
			seen += len(row.FindAllString(page, -1))
			at = ""
			if found := next.FindStringSubmatch(page); found != nil {
				at = strings.ReplaceAll(found[1], "&amp;", "&")
			}
		}
		if seen != want {
			t.Errorf("%s: %d rows, want %d", path, seen, want)
		}
	}
}

// TestOff: without `ui` there is no page.
func TestOff(t *testing.T) {
	people := regexp.MustCompile(`(?s)ui: \{\}\n|  reviewers:.*?\n\n`)
	rig := brokertest.New(t, &brokertest.Options{Config: func(y string) string { return people.ReplaceAllString(y, "") }})
	if got := rig.Visitor(t).Get("/ui/"); got.Status != http.StatusUnauthorized {
		t.Errorf("%d", got.Status)
	}
}

// TestStatic: the files beside the pages have types of their own and are asked for once,
// and no template has a script in it.
func TestStatic(t *testing.T) {
	rig := brokertest.New(t, nil)
	for name, media := range map[string]string{"style.css": "text/css; charset=utf-8", "page.js": "text/javascript; charset=utf-8",
		"htmx.min.js": "text/javascript; charset=utf-8", "icon.svg": "image/svg+xml"} {
		v := rig.Visitor(t)
		got := v.Get("/ui/static/" + name)
		own, err := os.ReadFile(filepath.Join("static", name))
		if err != nil || got.Status != 200 || got.Body != string(own) || got.Header.Get("Content-Type") != media {
			t.Errorf("%s: %d, %d bytes, %q, %v", name, got.Status, len(got.Body), got.Header.Get("Content-Type"), err)
		}
		req, _ := http.NewRequestWithContext(t.Context(), "GET", rig.URL+"/ui/static/"+name, nil)
		req.Header.Set("If-None-Match", got.Header.Get("ETag"))
		req.Header.Set("Range", "bytes=0-1")
		res, err := v.Client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != http.StatusNotModified {
			t.Errorf("%s, which the browser has: %d", name, res.StatusCode)
		}
	}
	if got := rig.Visitor(t).Get("/ui/static/none.js"); got.Status != 404 {
		t.Errorf("a file that is none: %d", got.Status)
	}
	templates, err := filepath.Glob("templates/*.html")
	if err != nil || len(templates) < 10 {
		t.Fatal(templates, err)
	}
	script := regexp.MustCompile(`(?is)<script[^>]*>[^<]|\son[a-z]+=|javascript:`)
	for _, name := range templates {
		text, err := os.ReadFile(name)
		if found := script.Find(text); found != nil || err != nil {
			t.Errorf("%s: %q, %v", name, found, err)
		}
	}
}

// TestHTMX: the file is the one that its authors publish, 4.0.1.
func TestHTMX(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("static", "htmx.min.js"))
	if err != nil {
		t.Fatal(err)
	}
	if sum := sha256.Sum256(b); hex.EncodeToString(sum[:]) != "a0abb04f2f45a1f89d1d4844023245537e5e6014c87b144553e0607b4cc32130" {
		t.Errorf("%x", sum)
	}
}
