package signin

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/oauth2"

	"onbehalf.internal/broker/egress"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/identity"
	"onbehalf.internal/broker/secret"
	"onbehalf.internal/broker/strictjson"
)

const (
	patience  = 10 * time.Second // for one answer of the provider; a person waits for it
	maxAnswer = 256 << 10        // bytes
)

// redeem gives the code for an ID token (OpenID Connect Core 1.0 §3.1.3).
func (p *Provider) redeem(ctx context.Context, in identity.SignIn, doc document, code, verifier secret.Text) (secret.Text, error) {
	conf := p.conf(in, doc)
	conf.Endpoint.AuthStyle = oauth2.AuthStyleInParams // the client id alone
	if p.Secret != nil {
		client, err := p.Secret(ctx)
		if err != nil {
			return secret.Text{}, err
		}
		if conf.ClientSecret = client.Reveal(); conf.ClientSecret != "" {
			conf.Endpoint.AuthStyle = doc.style
		}
	}
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	var a answer
	ctx = context.WithValue(ctx, oauth2.HTTPClient, &http.Client{Transport: a.from(in, doc.token)})
	if _, err := conf.Exchange(ctx, code.Reveal(), oauth2.VerifierOption(verifier.Reveal())); err != nil {
		return secret.Text{}, unanswered(ctx, err)
	}
	m, err := strictjson.Members(a.body)
	token := secret.New(text(m["id_token"]))
	switch {
	case a.status != http.StatusOK:
		return secret.Text{}, refused(a.status, text(m["error"]))
	case err != nil || token.IsZero():
		return secret.Text{}, refuse(fault.ProviderError, "its answer to the code holds no ID token")
	}
	return token, nil
}

// An answer is what came back, as bytes.
type answer struct {
	status int
	body   []byte
}

// from is how an answer comes from one address of the provider.
func (a *answer) from(in identity.SignIn, to *url.URL) *egress.Tap {
	return &egress.Tap{Base: egress.NewClient(egress.Host{URL: to, AllowCIDRs: in.AllowCIDRs, CA: in.CA}, 0).Transport, Read: a.read}
}

func (a *answer) read(res *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	switch {
	case len(body) > maxAnswer:
		return refuse(fault.ProviderError, "its answer is longer than 256 KiB")
	case err != nil:
		return err
	}
	a.status, a.body = res.StatusCode, body
	return nil
}
