package browser

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"onbehalf.internal/broker/internal/counterparts"
)

// A look is how somebody sees a page.
type look struct {
	name          string
	scheme        string // what its person prefers
	width, height int64
	phone         bool
}

var looks = []look{
	{"light", "light", 1280, 800, false},
	{"dark", "dark", 1280, 800, false},
	{"phone", "light", 390, 844, true},
}

// as shows the page to such a person from now on.
func (p *page) as(l look) {
	p.t.Helper()
	tell(p, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: l.width, Height: l.height, DeviceScaleFactor: 1, Mobile: l.phone})
	tell(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: l.scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}}})
}

// inspect looks at the open page in every way: nobody is kept from using it, nothing of
// it is beside the screen of a phone, and pictures of it are kept as <name>-<look>.png
// in $BROKER_SCREENSHOTS, if that is set.
func (p *page) inspect(name string) {
	p.t.Helper()
	for _, l := range looks {
		p.as(l)
		serious(p.t, p, l.name)
		picture(p.t, p, name+"-"+l.name)
	}
	defer p.as(looks[0])
	if wide := p.wider(); wide != "" {
		p.t.Errorf("%s: has to be moved sideways on a phone: %s", name, wide)
	}
}

// wider says how far the page is wider than its screen; empty: it is not.
func (p *page) wider() string {
	p.t.Helper()
	return eval[string](p, `(d => d.scrollWidth > d.clientWidth ? d.scrollWidth + " of " + d.clientWidth : "")(document.documentElement)`)
}

// A violation is what keeps somebody from using a page, or nearly.
type violation struct {
	ID, Impact, Help string
	Nodes            []struct{ HTML, FailureSummary string }
}

// violations are what axe-core finds on the page that is serious or critical.
func (p *page) violations() []violation {
	p.t.Helper()
	eval[int](p, counterparts.Axe(p.t)+";0")
	all := eval[[]violation](p, `axe.run(document, {resultTypes: ["violations"]}).then(r => r.violations)`)
	return slices.DeleteFunc(all, func(v violation) bool { return v.Impact != "serious" && v.Impact != "critical" })
}

// serious fails for each violation.
func serious(t *testing.T, p *page, as string) {
	t.Helper()
	for _, v := range p.violations() {
		for _, n := range v.Nodes {
			t.Errorf("%s: %s %s: %s: %s\n%s", as, v.Impact, v.ID, v.Help, n.HTML, n.FailureSummary)
		}
	}
}

// picture keeps a picture of the whole page, as far down as it goes.
func picture(t *testing.T, p *page, name string) string {
	t.Helper()
	dir := os.Getenv("BROKER_SCREENSHOTS")
	if dir == "" {
		dir = t.TempDir()
	}
	eval[int](p, `document.fonts.ready.then(() => 0)`)
	png := get(p, chromedp.FullScreenshot(100)) // 100: as PNG
	path := filepath.Join(dir, name+".png")
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(path, png, 0o644)); err != nil {
		t.Fatal(err)
	}
	return path
}
