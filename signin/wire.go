package signin

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
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
	t := newTap(in, doc.token)
	ctx = context.WithValue(ctx, oauth2.HTTPClient, &http.Client{Transport: t})
	if _, err := conf.Exchange(ctx, code.Reveal(), oauth2.VerifierOption(verifier.Reveal())); err != nil {
		return secret.Text{}, unanswered(ctx, err)
	}
	m, err := strictjson.Members(t.body)
	token := secret.New(text(m["id_token"]))
	switch {
	case t.status != http.StatusOK:
		return secret.Text{}, refused(t.status, text(m["error"]))
	case err != nil || token.IsZero():
		return secret.Text{}, refuse(fault.ProviderError, "its answer to the code holds no ID token")
	}
	return token, nil
}

// A tap stands between x/oauth2 and the network, to one address. It keeps the answer
// for us and hands x/oauth2 a blank one: that library takes members in any case, prints
// bodies in its errors, and follows redirects with the form.
type tap struct {
	base   http.RoundTripper
	status int
	body   []byte
}

func newTap(in identity.SignIn, to *url.URL) *tap {
	return &tap{base: egress.NewClient(egress.Host{URL: to, AllowCIDRs: in.AllowCIDRs, CA: in.CA}, 0).Transport}
}

func (t *tap) RoundTrip(req *http.Request) (*http.Response, error) {
	out := req.Clone(req.Context())
	out.GetBody = nil // without it no transport can send the form twice
	out.Header.Set("Accept", "application/json")
	res, err := t.base.RoundTrip(out)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	switch {
	case len(body) > maxAnswer:
		return nil, refuse(fault.ProviderError, "its answer is longer than 256 KiB")
	case err != nil:
		return nil, err
	}
	t.status, t.body = res.StatusCode, body
	return &http.Response{
		StatusCode: http.StatusOK,
		Header:     http.Header{"Content-Type": {"application/json"}},
		Body:       io.NopCloser(strings.NewReader(`{"access_token":"-"}`)),
		Request:    out,
	}, nil
}
