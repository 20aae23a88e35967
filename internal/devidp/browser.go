package devidp

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// A Browser is a person at a browser that signs in here.
type Browser struct {
	*http.Client // its jar, if any, and its transport
}

// SignIn goes to where a client sent it, says that it is user on the page there, or cancels
// for the empty user, and returns where it is sent then, without going there.
func (b Browser) SignIn(to, user string) (back *url.URL, err error) {
	res, err := b.Get(to)
	if err != nil {
		return nil, err
	}
	res.Body.Close()
	page := res.Request.URL
	if res.StatusCode != http.StatusOK || page.Path != "/login" {
		return nil, fmt.Errorf("no page to sign in: status %d at %s", res.StatusCode, page.Path)
	}
	form := url.Values{"id": {page.Query().Get("id")}, "user": {user}}
	if user == "" {
		form = url.Values{"id": form["id"], "cancel": {"1"}}
	}
	stays := *b.Client
	stays.CheckRedirect = func(req *http.Request, _ []*http.Request) error {
		if req.URL.Host != page.Host {
			return http.ErrUseLastResponse
		}
		return nil
	}
	res, err = stays.Post(page.ResolveReference(&url.URL{Path: "/login"}).String(), "application/x-www-form-urlencoded", strings.NewReader(form.Encode()))
	if err != nil {
		return nil, err
	}
	res.Body.Close()
	if back, err = res.Location(); err != nil {
		return nil, errors.New("it was sent nowhere")
	}
	return back, nil
}
