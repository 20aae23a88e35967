package brokertest

import (
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"

	"onbehalf.internal/broker/internal/devidp"
)

// people are those whom the provider knows. The broker calls them "user:" and their
// Sub.
var people = []devidp.User{
	{Sub: "6", Claims: map[string]any{"groups": []string{"auditors"}}},
	{Sub: "7", Claims: map[string]any{"groups": []string{"staff"}}},
	{Sub: "8", Claims: map[string]any{"groups": []string{"approvers"}}},
	{Sub: "9", Claims: map[string]any{"groups": []string{"auditors", "approvers", "admins"}}},
}

// welcome has the provider send people back to the broker's page.
func (r *Rig) welcome() {
	r.Provider.Add(devidp.Client{ID: "page", Auth: "none", Redirects: []string{r.URL + "/ui/callback"}})
}

// A Visitor is a browser at the broker's page, without its scripts.
type Visitor struct {
	http.Client
	rig *Rig
	t   testing.TB
}

// A Shown is what a browser was shown, after redirects.
type Shown struct {
	Status int
	At     *url.URL
	Header http.Header
	Body   string
}

// Visitor returns a browser that nobody has signed in with.
func (r *Rig) Visitor(t testing.TB) *Visitor {
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &Visitor{http.Client{Jar: jar, Transport: transport}, r, t}
}

// Bearer signs in with a bearer, Person as somebody whom the provider knows.
func (v *Visitor) Bearer(bearer string) Shown {
	v.t.Helper()
	return v.Post("/ui/sign-in", url.Values{"bearer": {bearer}})
}

// Person is described at Bearer.
func (v *Visitor) Person(sub string) Shown {
	v.t.Helper()
	back, err := devidp.Browser{Client: &v.Client}.SignIn(v.rig.URL+"/ui/sign-in/provider", sub)
	if err != nil {
		v.t.Fatal(err)
	}
	return v.Get(back.RequestURI())
}

// Get opens a page.
func (v *Visitor) Get(path string) Shown {
	v.t.Helper()
	return v.do("GET", path, nil)
}

// Post sends a form of the page.
func (v *Visitor) Post(path string, form url.Values) Shown {
	v.t.Helper()
	return v.do("POST", path, form)
}

func (v *Visitor) do(method, path string, form url.Values) Shown {
	v.t.Helper()
	req, err := http.NewRequestWithContext(v.t.Context(), method, v.rig.URL+path, strings.NewReader(form.Encode()))
	if err != nil {
		v.t.Fatal(err)
	}
	if form != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	res, err := v.Client.Do(req)
	if err != nil {
		v.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		v.t.Fatal(fmt.Errorf("%s %s: %w", method, path, err))
	}
	return Shown{res.StatusCode, res.Request.URL, res.Header, string(body)}
}
