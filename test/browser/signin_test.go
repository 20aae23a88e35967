package browser

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"onbehalf.internal/broker/brokertest"
)

// arrive opens the broker's page as somebody who has to sign in there.
func arrive(t *testing.T, rig *brokertest.Rig) *page {
	t.Helper()
	p := newPage(t, rig.URL)
	p.open(rig.URL + "/ui/")
	return p
}

// auditor signs in with the auditor's bearer, by the keyboard alone.
func auditor(t *testing.T, rig *brokertest.Rig) *page {
	t.Helper()
	p := arrive(t, rig)
	p.do(chromedp.SendKeys(chromedp.CSS("#bearer"), rig.AuditorBearer()+kb.Enter), chromedp.WaitVisible(chromedp.CSS("nav")))
	return p
}

// person signs in at the provider as somebody whom it knows. No request goes there
// afterwards.
func person(t *testing.T, rig *brokertest.Rig, sub string) *page {
	t.Helper()
	p := arrive(t, rig)
	p.only(rig.URL, rig.Provider.Issuer())
	p.click(".button", `button[name="user"]`)
	p.click(`button[value="`+sub+`"]`, "nav")
	p.only(rig.URL)
	return p
}

// TestSignIn: by bearer and as a person, out again, and not back by the browser's own
// memory.
func TestSignIn(t *testing.T) {
	rig := brokertest.New(t, nil)
	for name, in := range map[string]*page{"auditor": auditor(t, rig), "user:6": person(t, rig, "6"), "user:8": person(t, rig, "8"), "user:9": person(t, rig, "9")} {
		if who := in.text(".visitor bdi"); who != name {
			t.Errorf("%s is %q", name, who)
		}
		in.click(".visitor button", "#bearer")
		eval[int](in, `history.back(), 0`)
		in.until(`performance.getEntriesByType("navigation")[0].type !== "navigate"`)
		if at := eval[string](in, `location.pathname`); at != "/ui/sign-in" {
			t.Errorf("%s has signed out and is shown %s", name, at)
		}
		if cookie := eval[string](in, `document.cookie`); cookie != "" {
			t.Errorf("%s: scripts see the cookie %q", name, cookie)
		}
	}
}

// TestRefused: who gets in neither way is told so on a page that all can use.
func TestRefused(t *testing.T) {
	rig := brokertest.New(t, nil)
	p := arrive(t, rig)
	p.inspect("sign-in")
	p.do(chromedp.SendKeys(chromedp.CSS("#bearer"), "a guess"+kb.Enter), chromedp.WaitVisible(chromedp.CSS(`[role="alert"]`)))
	p.expect("403")
	p.inspect("sign-in-refused")

	p.only(rig.URL, rig.Provider.Issuer())
	p.click(".button", `button[name="user"]`)
	p.click(`button[value="7"]`, `[role="alert"]`)
	p.expect("403")
	if said := p.text(`[role="alert"]`); !strings.Contains(said, "refused") {
		t.Errorf("somebody without a role is told %q", said)
	}
	p.click(".button", `button[name="cancel"]`)
	p.click(`button[name="cancel"]`, `[role="alert"]`)
	p.expect("the server responded with")
}
