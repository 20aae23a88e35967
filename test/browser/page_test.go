package browser

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/audits"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/fetch"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// A page is one tab of a browser that nobody has used before.
type page struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex
	origins  []string // where its requests may go
	problems []string
}

const patience = 3 * time.Minute // for one test's page, on a busy machine

// newPage opens an empty page whose requests may go to these origins. It ends with the
// test, which fails for what went wrong on it.
func newPage(t *testing.T, origins ...string) *page {
	t.Helper()
	ctx, end := chromedp.NewContext(chromium, chromedp.WithNewBrowserContext())
	t.Cleanup(end)
	p := &page{t: t, origins: origins}
	if err := chromedp.Listen(ctx, p.heard); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(ctx, patience) // not before: the tab would end with it
	t.Cleanup(cancel)
	p.ctx = ctx
	tell(p, fetch.Enable, fetch.EnableParams{})
	tell(p, log.Enable, cdp.Empty{})
	tell(p, runtime.Enable, cdp.Empty{})
	tell(p, audits.Enable, cdp.Empty{})
	tell(p, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "UTC"})
	p.as(looks[0])
	t.Cleanup(func() {
		for _, problem := range p.wrong() {
			t.Errorf("on the page: %s", problem)
		}
	})
	return p
}

// do does something on the page.
func (p *page) do(steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	if err := chromedp.Do(p.ctx, steps...); err != nil {
		p.t.Fatal(err)
	}
}

// get does something on the page that has an answer.
func get[T any](p *page, a chromedp.Action[T]) T {
	p.t.Helper()
	v, err := chromedp.Run(p.ctx, a)
	if err != nil {
		p.t.Fatal(err)
	}
	return v
}

// eval is the value of a script, waited for. It is run from outside, where the page's
// policy has no say.
func eval[T any](p *page, script string) T {
	p.t.Helper()
	return get(p, chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise))
}

// tell is a command to the browser about the page.
func tell[P, R any](p *page, command cdp.Command[P, R], params P) {
	p.t.Helper()
	if _, err := chromedp.Call(p.ctx, command, params); err != nil {
		p.t.Fatal(err)
	}
}

// open goes to an address and waits until it is loaded.
func (p *page) open(address string) {
	p.t.Helper()
	p.do(chromedp.Navigate(address))
}

// click clicks on what the selector finds, and waits for what then is there.
func (p *page) click(on, then string) {
	p.t.Helper()
	p.do(chromedp.Click(chromedp.CSS(on)), chromedp.WaitVisible(chromedp.CSS(then)))
}

// press presses keys, one after the other.
func (p *page) press(keys ...string) {
	p.t.Helper()
	for _, key := range keys {
		p.do(chromedp.KeyEvent(key))
	}
}

// until waits until a script is true of the page, also one that is only on its way.
func (p *page) until(script string) {
	p.t.Helper()
	for {
		is, err := chromedp.Run(p.ctx, chromedp.Evaluate[bool](script))
		switch {
		case is:
			return
		case p.ctx.Err() != nil:
			p.t.Fatalf("%s: %v", script, err)
		}
		p.do(chromedp.Sleep(10 * time.Millisecond))
	}
}

// text is what the page, or a part of it, says to somebody who sees it.
func (p *page) text(of string) string {
	p.t.Helper()
	return get(p, chromedp.Text(chromedp.CSS(of)))
}

// wrong returns what has gone wrong so far, once. What the page has said before is in:
// it says it, and answers, in one order.
func (p *page) wrong() []string {
	p.t.Helper()
	eval[int](p, `0`)
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.problems
	p.problems = nil
	return all
}

// expect takes off what is meant to go wrong, and fails where it did not.
func (p *page) expect(part string) {
	p.t.Helper()
	all := p.wrong()
	rest := slices.DeleteFunc(slices.Clone(all), func(s string) bool { return strings.Contains(s, part) })
	if len(rest) == len(all) {
		p.t.Errorf("%q did not go wrong", part)
	}
	p.say(rest...)
}

// only has requests go to these origins alone from now on.
func (p *page) only(origins ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.origins = origins
}

func (p *page) may(origin string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Contains(p.origins, origin)
}

func (p *page) say(problems ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.problems = append(p.problems, problems...)
}

// heard is told everything that happens on the page. It may not wait for the browser.
func (p *page) heard(event any) {
	switch e := event.(type) {
	case *fetch.EventRequestPaused:
		go p.pass(e)
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
			p.say(fmt.Sprintf("%s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL))
		}
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning || e.Type == runtime.ConsoleAPICalledTypeAssert {
			p.say("console: " + said(e.Args))
		}
	case *cdppage.EventJavascriptDialogOpening:
		p.say("a dialog: " + e.Message)
	case *runtime.EventExceptionThrown:
		p.say("exception: " + e.ExceptionDetails.Text + " " + said([]*runtime.RemoteObject{e.ExceptionDetails.Exception}))
	case *audits.EventIssueAdded:
		if policy := e.Issue.Details.ContentSecurityPolicyIssueDetails; policy != nil {
			p.say(fmt.Sprintf("policy: %s refuses %s", policy.ViolatedDirective, policy.BlockedURL))
		}
	}
}

// pass lets a request go on, or not. That for the icon of a page that names none is
// answered here: the browser makes it at a time of its own.
func (p *page) pass(e *fetch.EventRequestPaused) {
	var err error
	switch to := origin(e.Request.URL); {
	case !p.may(to):
		p.say("a request to " + e.Request.URL)
		_, err = chromedp.Call(p.ctx, fetch.FailRequest, fetch.FailRequestParams{RequestID: e.RequestID, ErrorReason: network.ErrorReasonBlockedByClient})
	case e.Request.URL == to+"/favicon.ico":
		_, err = chromedp.Call(p.ctx, fetch.FulfillRequest, fetch.FulfillRequestParams{RequestID: e.RequestID, ResponseCode: http.StatusNoContent})
	default:
		_, err = chromedp.Call(p.ctx, fetch.ContinueRequest, fetch.ContinueRequestParams{RequestID: e.RequestID})
	}
	if err != nil && p.ctx.Err() == nil {
		p.say("passing " + e.Request.URL + ": " + err.Error())
	}
}

func origin(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return address
	}
	return u.Scheme + "://" + u.Host
}

func said(args []*runtime.RemoteObject) string {
	var words []string
	for _, a := range args {
		words = append(words, string(a.Value)+a.Description)
	}
	return strings.Join(words, " ")
}
