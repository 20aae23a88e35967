package browser

import (
	"fmt"
	"image/png"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp"

	"onbehalf.internal/broker/brokertest"
)

const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

// frame is a page that nothing is wrong with, around what is.
const frame = `<!doctype html><html lang="en"><head><title>Example</title><link rel="icon" href="/icon.svg"><link rel="stylesheet" href="/style.css">
<meta name="viewport" content="width=device-width, initial-scale=1"></head><body><main><h1>Example</h1><p>Some text</p>%s</main></body></html>`

const style = `body { color: #222; background: #fff } .faint { color: #444; background: #fff }
@media (prefers-color-scheme: dark) { body { color: #eee; background: #111 } .faint { color: #333; background: #222 } }
.wide { width: 600px }`

// serve serves frames with these bodies, by path, under the policy that ours have.
func serve(t *testing.T, bodies map[string]string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", policy)
		switch body, ok := bodies[r.URL.Path]; {
		case r.URL.Path == "/style.css":
			w.Header().Set("Content-Type", "text/css")
			fmt.Fprint(w, style)
		case r.URL.Path == "/icon.svg":
			w.Header().Set("Content-Type", "image/svg+xml")
			fmt.Fprint(w, `<svg xmlns="http://www.w3.org/2000/svg" width="1" height="1"/>`)
		case strings.HasSuffix(r.URL.Path, ".js"):
			w.Header().Set("Content-Type", "text/javascript")
			fmt.Fprint(w, body)
		case strings.HasPrefix(body, "http"):
			http.Redirect(w, r, body, http.StatusFound)
		case ok:
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			fmt.Fprintf(w, frame, body)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// TestClean: where nothing is wrong nothing is found, and pictures have the sizes of
// their looks.
func TestClean(t *testing.T) {
	url := serve(t, map[string]string{"/": ""})
	p := newPage(t, url)
	p.open(url)
	t.Setenv("BROKER_SCREENSHOTS", t.TempDir())
	p.inspect("clean")
	for _, l := range looks {
		p.as(l)
		file, err := os.Open(picture(t, p, l.name))
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		if i, err := png.DecodeConfig(file); err != nil || i.Width != int(l.width) || i.Height != int(l.height) {
			t.Errorf("%s: %d x %d, %v", l.name, i.Width, i.Height, err)
		}
	}
}

// TestFound: what keeps people out is found, in the look where it does.
func TestFound(t *testing.T) {
	for _, tc := range []struct{ name, body, want string }{
		{"an image without words", `<img src="/icon.svg">`, "light critical image-alt, dark critical image-alt, phone critical image-alt"},
		{"a field without a name", `<input>`, "light critical label, dark critical label, phone critical label"},
		{"words that are faint in the dark", `<p class="faint">faint</p>`, "dark serious color-contrast"},
		{"wide on a phone", `<p class="wide">wide</p>`, "phone 608 of 390"},
		{"what is only unusual", `<h4>a heading of another rank</h4>`, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			url := serve(t, map[string]string{"/": tc.body})
			p := newPage(t, url)
			p.open(url)
			var found []string
			for _, l := range looks {
				p.as(l)
				for _, v := range p.violations() {
					found = append(found, l.name+" "+v.Impact+" "+v.ID)
				}
				if by := p.wider(); by != "" {
					found = append(found, l.name+" "+by)
				}
			}
			if got := strings.Join(found, ", "); got != tc.want {
				t.Errorf("found %q, want %q", got, tc.want)
			}
		})
	}
}

// TestHeard: what goes wrong on a page is heard, and a request to anybody else does not
// leave.
func TestHeard(t *testing.T) {
	var asked atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	t.Cleanup(other.Close)
	url := serve(t, map[string]string{
		"/inline": `<script>document.title = "x"</script>`, "/style": `<p style="color: red">x</p>`, "/handler": `<button onclick="x()">x</button>`,
		"/image": `<img alt="x" src="` + other.URL + `">`, "/missing": `<img alt="x" src="/missing.png">`,
		"/console": `<script src="/console.js"></script>`, "/console.js": `console.error("a thing", 7)`,
		"/throws": `<script src="/throws.js"></script>`, "/throws.js": `throw new Error("a thing")`,
		"/fetch": `<script src="/fetch.js"></script>`, "/fetch.js": `fetch("` + other.URL + `").catch(() => 0)`,
		"/link": `<a href="` + other.URL + `">x</a>`, "/away": other.URL, "/quiet": "",
	})
	p := newPage(t, url)
	for _, tc := range []struct{ path, want string }{
		{"/inline", "policy: script-src-elem refuses"},
		{"/style", "policy: style-src-attr refuses"},
		{"/handler", "policy: script-src-attr refuses"},
		{"/image", "policy: img-src refuses " + other.URL},
		{"/fetch", "policy: connect-src refuses " + other.URL},
		{"/missing", "Failed to load resource"},
		{"/nowhere", "Failed to load resource"},
		{"/console", `console: "a thing" 7`},
		{"/throws", "Error: a thing"},
		{"/away", "a request to " + other.URL},
		{"/link", ""}, {"/quiet", ""},
	} {
		err := chromedp.Do(p.ctx, chromedp.Navigate(url+tc.path))
		got := p.wrong()
		if tc.want == "" && len(got) > 0 || tc.want != "" && !slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, tc.want) }) || err != nil && tc.path != "/away" {
			t.Errorf("%s: %q, %v, want %q", tc.path, got, err, tc.want)
		}
	}
	p.open(url + "/link")
	p.do(chromedp.Click(chromedp.CSS("a")))
	p.expect("a request to " + other.URL)
	if asked.Load() != 0 {
		t.Errorf("%d requests have left", asked.Load())
	}
}

// TestApart: a page knows nothing of another one.
func TestApart(t *testing.T) {
	url := serve(t, map[string]string{"/": ""})
	one, two := newPage(t, url), newPage(t, url)
	one.open(url)
	eval[string](one, `document.cookie = "a=b"`)
	two.open(url)
	if cookie := eval[string](two, `document.cookie`); cookie != "" {
		t.Errorf("it has the other's %q", cookie)
	}
}

// TestBroker: a whole broker answers a browser.
func TestBroker(t *testing.T) {
	rig := brokertest.New(t, nil)
	p := newPage(t, rig.URL)
	p.open(rig.URL + "/readyz")
	if text := get(p, chromedp.Text(chromedp.CSS("body"))); !strings.Contains(text, "ready") {
		t.Errorf("it says %q", text)
	}
}
