// Package browser looks at the broker's pages with a real browser, as a person would
// who uses no mouse, sees little, or holds a phone.
//
//	chromium_test.go  the browser, one for all tests
//	page_test.go      a page in it, and everything that goes wrong there
//	look_test.go      how it looks, and whom that keeps out
//	rig_test.go       that the above see what they are there to see
//	signin_test.go    the broker's page: who gets in, and how
//	ui_test.go        what each of its pages is good for, and what it does not let happen
//
// What always holds:
//
//   - A page is of a browser that nobody has used before: no cookie, no cache.
//   - A test fails for every error, warning and refusal by the page's own policy that its
//     page reports, and for every request to an origin that it did not name. Such a
//     request does not leave, and no name is looked up but this machine's.
//   - Pictures of one page are of one size, time zone and language.
package browser

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/chromedp/chromedp"
)

// chromium is what pages are opened in.
var chromium context.Context

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "chromium:", err)
		code = 1
	}
	os.Exit(code)
}

// run runs the tests over one browser, which ends with them.
func run(m *testing.M) (code int, err error) {
	dir, err := os.MkdirTemp("", "chromium")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	program, stop := chromedp.NewExecAllocator(context.Background(),
		chromedp.ExecPath("chromium"),
		chromedp.UserDataDir(dir),
		chromedp.Env("HOME="+dir), // what it keeps besides
		chromedp.Headless, chromedp.DisableGPU, chromedp.NoFirstRun,
		chromedp.NoSandbox, // which root has none of; it sees pages of this repository alone
		chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-sync", true),
		chromedp.Flag("no-proxy-server", true),
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"),
		chromedp.Flag("lang", "en-GB"),
	)
	defer stop()
	ctx, closed := chromedp.NewContext(program, chromedp.WithErrorf(unspoken))
	defer closed()
	if err := chromedp.Do(ctx); err != nil {
		return 0, fmt.Errorf("%w\nOn Debian: apt-get install --no-install-recommends chromium fonts-dejavu-core", err)
	}
	defer chromedp.Cancel(ctx)
	chromium = ctx
	return m.Run(), nil
}

// unspoken drops what the client says of events that are newer than itself.
func unspoken(string, ...any) {}
