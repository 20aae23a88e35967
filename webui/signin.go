package webui

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/identity"
	"onbehalf.internal/broker/secret"
)

type signInPage struct {
	Provider string // host of the issuer; empty: there is none
	Problem  string
}

// signIn shows the ways to sign in.
func (u *UI) signIn(_ context.Context, v *visit) (answer, error) {
	if !v.nobody() {
		return answer{redirect: "/ui/"}, nil
	}
	return u.signInPage(http.StatusOK, ""), nil
}

func (u *UI) signInPage(status int, problem string) answer {
	p := signInPage{Problem: problem}
	if entry, ok := u.Policy.Current().Directory.SignIn(); ok {
		if issuer, err := url.Parse(entry.Issuer); err == nil {
			p.Provider = issuer.Host
		}
	}
	return answer{status: status, page: "sign-in", title: "Sign in", model: p}
}

// showBearer signs in an auditor's program, to read. What is refused is not told apart.
func (u *UI) showBearer(_ context.Context, v *visit) (answer, error) {
	if !u.tries.AllowN(u.Now(), 1) {
		return answer{}, fault.New("webui.showBearer", fault.RateLimited, "too many tries to sign in")
	}
	bearer := strings.TrimSpace(v.http.PostFormValue("bearer"))
	caller, err := u.Policy.Current().Directory.Caller(http.Header{"Authorization": {"Bearer " + bearer}})
	if err != nil || !caller.Has(identity.Audit) {
		return u.signInPage(http.StatusForbidden, "This is not the bearer of a caller with the role audit."), nil
	}
	u.Log.Info("signed in", "caller", caller.ID())
	token := u.sessions.begin(session{bearer: secret.New(bearer)})
	return answer{redirect: "/ui/", cookies: []*http.Cookie{u.cookie(sessionCookie, token, http.SameSiteStrictMode)}}, nil
}

// begin sends the browser to the provider. The cookie has to come back with a redirect
// of another site: Lax.
func (u *UI) begin(ctx context.Context, _ *visit) (answer, error) {
	to, attempt, err := u.SignIn.Begin(ctx)
	if err != nil {
		return answer{}, err
	}
	return answer{redirect: to, cookies: []*http.Cookie{u.cookie(attemptCookie, u.sessions.attempt(attempt), http.SameSiteLaxMode)}}, nil
}

// end is where the provider sends the browser back to. It goes on by a document of its
// own: a redirect would still be one of another site, without the strict cookie.
func (u *UI) end(ctx context.Context, v *visit) (answer, error) {
	gone := u.cookie(attemptCookie, "", http.SameSiteLaxMode)
	attempt, ok := u.sessions.take(v.http)
	if !ok {
		ans := u.signInPage(http.StatusForbidden, "This browser has not begun to sign in, or too long ago. Begin again.")
		ans.cookies = []*http.Cookie{gone}
		return ans, nil
	}
	person, err := u.SignIn.End(ctx, attempt, v.http.URL.Query())
	if err != nil {
		u.Log.Warn("sign-in refused", "reason", string(fault.ReasonOf(err)))
		ans := u.signInPage(fault.Status(fault.ReasonOf(err)), "The sign-in was refused: "+told(err)+".")
		ans.cookies = []*http.Cookie{gone}
		return ans, nil
	}
	u.Log.Info("signed in", "caller", person.Caller().ID(), "person", person.String())
	token := u.sessions.begin(session{person: person, signed: true})
	return answer{page: "signed-in", title: "Signed in", refresh: "/ui/", model: person.String(),
		cookies: []*http.Cookie{gone, u.cookie(sessionCookie, token, http.SameSiteStrictMode)}}, nil
}

func (u *UI) signOut(_ context.Context, v *visit) (answer, error) {
	u.sessions.end(v.token)
	return answer{redirect: "/ui/sign-in", cookies: []*http.Cookie{u.cookie(sessionCookie, "", http.SameSiteStrictMode)}}, nil
}

// cookie ends with the browser; without a value it ends now. Its path keeps it from the
// API.
func (u *UI) cookie(name, value string, same http.SameSite) *http.Cookie {
	c := &http.Cookie{Name: name, Value: value, Path: "/ui", HttpOnly: true, SameSite: same, Secure: strings.HasPrefix(u.Origin, "https:")}
	if value == "" {
		c.MaxAge = -1
	}
	return c
}
