package devidp

import (
	"html/template"
	"net/http"
	"net/url"
	"slices"

	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

// The page asks who is there, and takes anybody's word for it.
var loginPage = template.Must(template.New("login").Parse(`<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Sign in</title>
<h1>Sign in to {{.Client}}</h1>
<form method="post" action="/login">
<input type="hidden" name="id" value="{{.ID}}">
{{range .Users}}<p><button name="user" value="{{.Sub}}">{{.Sub}}</button></p>
{{end}}</form>
<form method="post" action="/login">
<input type="hidden" name="id" value="{{.ID}}">
<p><label>Somebody else: <input name="user" required autocomplete="off"></label> <button>Sign in</button></p>
</form>
<form method="post" action="/login">
<input type="hidden" name="id" value="{{.ID}}">
<p><button name="cancel" value="1">Cancel</button></p>
</form>
</html>
`))

// showLogin shows the page for an authorization request.
func (p *Provider) showLogin(w http.ResponseWriter, r *http.Request) {
	wanted, known := p.authorization(r.FormValue("id"))
	if !known {
		http.Error(w, "this request to sign in is not known, or over", http.StatusNotFound)
		return
	}
	back, _ := url.Parse(wanted.RedirectURI) // is among the client's
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
	// A browser holds form-action against the redirects after the form, too.
	h.Set("Content-Security-Policy", "default-src 'none'; base-uri 'none'; frame-ancestors 'none'; form-action 'self' "+back.Scheme+"://"+back.Host)
	loginPage.Execute(w, struct {
		Client, ID string
		Users      []User
	}{wanted.ClientID, wanted.id, p.users})
}

// login takes what was chosen there, and sends the browser on.
func (p *Provider) login(w http.ResponseWriter, r *http.Request, engine op.OpenIDProvider, callback func(id string) string) {
	wanted, known := p.authorization(r.PostFormValue("id"))
	user := r.PostFormValue("user")
	switch {
	case !known:
		http.Error(w, "this request to sign in is not known, or over", http.StatusNotFound)
	case r.PostFormValue("cancel") != "":
		op.AuthRequestError(w, r, wanted, oidc.ErrAccessDenied().WithDescription("the person does not want to"), engine)
	case user == "":
		http.Error(w, "who is there?", http.StatusBadRequest)
	default:
		p.mu.Lock()
		p.wanted[wanted.id] = wanted.by(user)
		p.mu.Unlock()
		http.Redirect(w, r, callback(wanted.id), http.StatusSeeOther)
	}
}

// claims are what is said of a user besides sub; nothing of one that nobody listed.
func (p *Provider) claims(sub string) map[string]any {
	if i := slices.IndexFunc(p.users, func(u User) bool { return u.Sub == sub }); i >= 0 {
		return p.users[i].Claims
	}
	return nil
}

func (p *Provider) authorization(id string) (authorization, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a, known := p.wanted[id]
	return a, known
}
