package broker

import (
	"cmp"
	"context"
	"net/http"
	"strings"

	"onbehalf.internal/broker/identity"
	"onbehalf.internal/broker/secret"
	"onbehalf.internal/broker/signin"
	"onbehalf.internal/broker/webui"
)

// withPage has the web page answer at /ui and below, where the configuration has one,
// and the API everywhere else.
func (b *Broker) withPage(api http.Handler) http.Handler {
	s := b.policy.Current()
	if s.UI == nil {
		return api
	}
	origin := cmp.Or(s.UI.Origin, b.Address())
	page := b.metrics.Counted(webui.New(webui.Config{Runner: b.runner, Policy: b.policy, Ledger: b.ledger, Grants: b.grants(), Identity: b.store.Ledger, Catalogue: b.catalogue,
		Auditors: b.auditors, Ready: b.Ready, SignIn: b.provider(origin), Origin: origin, Version: Version, Log: b.log, Now: b.now}), webui.Route)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/ui" || strings.HasPrefix(r.URL.Path, "/ui/") {
			page.ServeHTTP(w, r)
			return
		}
		api.ServeHTTP(w, r)
	})
}

// provider is where people sign in, as the newest configuration says.
func (b *Broker) provider(origin string) *signin.Provider {
	return signin.New(signin.Config{
		Directory: func() *identity.Directory { return b.policy.Current().Directory },
		Redirect:  origin + "/ui/callback",
		Secret: func(ctx context.Context) (secret.Text, error) {
			entry, ok := b.policy.Current().Directory.SignIn()
			if !ok || entry.Secret.IsZero() {
				return secret.Text{}, nil
			}
			return b.vault.Credential(ctx, entry.Secret)
		},
		Now: b.now,
	})
}
