package browser

import (
	"bytes"
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"onbehalf.internal/broker/brokertest"
)

// toApprove waits for a person.
var toApprove = brokertest.Call{Tool: "slow", Arguments: map[string]any{"seconds": 0}, Key: "nightly-7"}

// busy is a broker to which a lot has happened: every outcome that a page marks, a tool
// that is not as it was pinned, a suspension, a call that waits, signed heads.
func busy(t *testing.T) (rig *brokertest.Rig, waiting brokertest.Answer) {
	t.Helper()
	rig = brokertest.New(t, &brokertest.Options{SignedAudit: true, Config: func(y string) string {
		y = strings.Replace(y, "requires_approval: false", "requires_approval: true", 1) // records
		return strings.Replace(y, "fail: {enabled: true}", `fail: {enabled: true, pin: "sha256:`+strings.Repeat("1", 64)+`"}`, 1)
	}})
	for _, server := range []string{"records", "archive"} {
		if a := rig.Admin(t, "POST", "/v1/servers/"+server+"/import", "", nil); a.Status != 200 {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
	}
	for _, tool := range []string{"whoami", "whoami", "fail"} {
		rig.Call(t, brokertest.Call{Server: "archive", Tool: tool})
	}
	rig.Call(t, brokertest.Call{Server: "archive", Tool: "drop", Arguments: map[string]string{"job": "j"}})
	rig.Call(t, brokertest.Call{Actor: "user:8"})
	waiting = rig.Call(t, toApprove)
	if waiting.Approval == nil {
		t.Fatalf("nothing waits: %s", waiting.Body)
	}
	rig.Admin(t, "POST", "/v1/suspensions", `{"actor":"user:66","reason":"the laptop is lost"}`, nil)
	return rig, waiting
}

// TestPages: everybody can use every page: seen light and dark, on a phone, and by what
// reads it aloud. Nothing on it fails, and nothing is asked of anybody else.
func TestPages(t *testing.T) {
	rig, _ := busy(t)
	p := person(t, rig, "9")
	for _, row := range []struct{ name, path, want string }{
		{"overview", "/ui/", "Operations can run."},
		{"grants", "/ui/grants", "vault:kv/broker/subjects/7#value"},
		{"explain", "/ui/grants/explain?caller=gateway&actor=user:7&server=archive&tool=whoami", "Allowed"},
		{"explain-refused", "/ui/grants/explain?caller=gateway&actor=user:8&server=archive&tool=whoami", "Refused"},
		{"operations", "/ui/operations", "succeeded"},
		{"approvals", "/ui/approvals", `"seconds": 0`},
		{"catalogue", "/ui/catalogue", "changed"},
		{"tool", "/ui/catalogue/records/fail", "Definition"},
		{"audit", "/ui/audit", "signed head"},
	} {
		p.open(rig.URL + row.path)
		if text := p.text("body"); !strings.Contains(text, row.want) {
			t.Errorf("%s does not say %q:\n%s", row.name, row.want, text)
		}
		p.inspect(row.name)
	}
	p.open(rig.URL + "/ui/operations?state=succeeded")
	p.click("td a", ".legs")
	p.inspect("operation")
	p.open(rig.URL + "/ui/nothing")
	p.expect("404")
	p.inspect("not-found")
}

// TestFilter: who changes a filter is shown what is left, at an address that can be kept;
// the reason of a row is shown, and comes into focus, without leaving the list.
func TestFilter(t *testing.T) {
	rig, _ := busy(t)
	p := auditor(t, rig)
	p.open(rig.URL + "/ui/grants")
	p.do(chromedp.SetValue(chromedp.CSS(`[name="server"]`), "archive"))
	eval[bool](p, `document.querySelector('[name="server"]').dispatchEvent(new Event("change", {bubbles: true}))`)
	p.until(`[...document.querySelectorAll('#found [data-label="Server"]')].every(e => e.innerText.includes("archive"))`)
	if at := get(p, chromedp.Location()); !strings.Contains(at, "server=archive") {
		t.Errorf("the address is %s", at)
	}
	p.click(`td a[href*="whoami"]`, "#why h2")
	if why := p.text("#why"); !strings.Contains(why, "Allowed") {
		t.Errorf("the reason is %q", why)
	}
	p.until(`document.activeElement.id === "why"`)
	p.inspect("why")

	p.open(rig.URL + "/ui/operations")
	p.do(chromedp.SendKeys(chromedp.CSS(`[name="tool"]`), "fail"+kb.Enter))
	p.until(`document.querySelectorAll("#found tbody tr").length === 1`)
	if title := eval[string](p, `document.querySelector("time").title`); !strings.Contains(title, "UTC") { // the browser's own zone
		t.Errorf("a time says %q where it is pointed at", title)
	}
}

// TestNoScript: a browser that runs none shows the same by whole documents.
func TestNoScript(t *testing.T) {
	rig, _ := busy(t)
	p := auditor(t, rig)
	tell(p, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	p.open(rig.URL + "/ui/operations")
	p.do(chromedp.SendKeys(chromedp.CSS(`[name="tool"]`), "fail"+kb.Enter))
	p.until(`document.querySelectorAll("#found tbody tr").length === 1`)
	p.open(rig.URL + "/ui/grants?server=archive")
	p.click(`td a[href*="whoami"]`, "#explained")
}

// TestApproving: a person decides by the keyboard alone, and the call then runs.
func TestApproving(t *testing.T) {
	rig, waiting := busy(t)
	p := person(t, rig, "8")
	if text := p.text("main"); !strings.Contains(text, waiting.ID) && !strings.Contains(text, waiting.Approval.Digest) {
		t.Errorf("who decides is shown first:\n%s", text)
	}
	p.do(chromedp.Focus(chromedp.CSS("pre")))
	p.press(kb.Tab)
	p.press("looked at it", kb.Tab)
	if on := eval[string](p, `document.activeElement.innerText`); on != "Approve this call" {
		t.Fatalf("the keyboard is on %q", on)
	}
	p.press(kb.Enter)
	p.do(chromedp.WaitVisible(chromedp.CSS(`[role="status"]`)))
	p.inspect("approved")
	if again := rig.Call(t, toApprove); again.State != "succeeded" {
		t.Errorf("approved, it is %s", again.State)
	}
}

// TestVerifyAndExport: the chain is verified on the page, and the file that it gives is
// the record.
func TestVerifyAndExport(t *testing.T) {
	rig, _ := busy(t)
	p := auditor(t, rig)
	p.open(rig.URL + "/ui/audit")
	p.click(".actions button", `[role="status"]`)
	p.inspect("verified")
	p.open(rig.URL + "/ui/audit?actor=user:8")
	dir, events := t.TempDir(), true
	whole := chromedp.BrowserEvents(p.ctx, browser.DownloadProgress)
	if _, err := chromedp.CallBrowser(p.ctx, browser.SetDownloadBehavior, browser.SetDownloadBehaviorParams{Behavior: browser.SetDownloadBehaviorBehaviorAllow,
		BrowserContextID: chromedp.FromContext(p.ctx).BrowserContextID, DownloadPath: dir, EventsEnabled: &events}); err != nil {
		t.Fatal(err)
	}
	p.do(chromedp.Click(chromedp.CSS("a[download]")))
	for e, err := range whole {
		if err != nil {
			t.Fatal(err)
		}
		if e.State == browser.DownloadProgressStateCompleted {
			break
		}
	}
	file, err := os.ReadFile(filepath.Join(dir, "audit.jsonl"))
	if err != nil || bytes.Count(file, []byte("\n")) != 1 || !bytes.Contains(file, []byte(`"kind":"denial"`)) {
		t.Errorf("%v, %s", err, file)
	}
}

// TestHostile: what servers, callers and people write does nothing on a page, and hides
// nothing. (Names of actors, servers and tools with such characters are refused at the
// door; an address can still be made to show them.)
func TestHostile(t *testing.T) {
	const markup = `"'><img/src=x/onerror=alert(1)><script>alert(1)</script><style>*{display:none}</style>`
	evil := markup + " \u202eabc\u2066\u0007"
	long := evil + strings.Repeat("long", 10<<10/4)
	rig := brokertest.New(t, &brokertest.Options{Config: func(y string) string {
		return strings.Replace(brokertest.Approving(y), `reason: "brokertest"`, `reason: '`+strings.ReplaceAll(markup, `'`, `''`)+`'`, 1)
	}})
	list := func(name, description string) string {
		b, _ := json.Marshal(map[string]any{"name": name, "description": description, "inputSchema": map[string]any{"type": "object", "description": long}})
		return string(b)
	}
	rig.Records.List(list("whoami", long), list(evil, "x"))
	rig.Admin(t, "POST", "/v1/servers/records/import", "", nil)
	if a := rig.Call(t, brokertest.Call{Arguments: map[string]string{evil: long}, Key: markup}); a.Approval == nil {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	reason, _ := json.Marshal(map[string]string{"actor": "user:66", "reason": markup})
	if a := rig.Admin(t, "POST", "/v1/suspensions", string(reason), nil); a.Status != 201 {
		t.Fatalf("%d %s", a.Status, a.Body)
	}

	p := person(t, rig, "9")
	asked := func(text string) string {
		return "?" + url.Values{"actor": {text}, "server": {text}, "tool": {text}, "caller": {text}, "profile": {text}, "key": {text}}.Encode()
	}
	for _, row := range []struct{ name, path string }{
		{"overview", "/ui/"}, {"catalogue", "/ui/catalogue"}, {"tool", "/ui/catalogue/records/whoami"}, {"approvals", "/ui/approvals"},
		{"grants", "/ui/grants"}, {"operations", "/ui/operations" + asked(markup)}, {"audit", "/ui/audit"},
		{"explain", "/ui/grants/explain" + asked(evil)}, {"explain-long", "/ui/grants/explain" + asked(long)[:8<<10]},
	} {
		p.open(rig.URL + row.path)
		if row.name == "audit" {
			eval[int](p, `document.querySelectorAll("details").forEach(d => d.open = true), 0`)
		}
		text := eval[string](p, `document.body.innerText + [...document.querySelectorAll("input")].map(i => i.value).join()`)
		if !strings.Contains(text, "onerror=alert(1)") {
			t.Errorf("%s does not show it: this test looks at nothing:\n%s", row.name, text)
		}
		if strings.ContainsAny(text, "\u202e\u2066\u0007") {
			t.Errorf("%s steers its reader", row.name)
		}
		if n := eval[int](p, `document.querySelectorAll('img[src="x"], [onerror], script:not([src]), style, iframe').length`); n != 0 {
			t.Errorf("%s has %d elements of somebody else", row.name, n)
		}
		p.inspect("hostile-" + row.name)
	}
}
