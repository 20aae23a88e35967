package exchange

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/base64"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"golang.org/x/oauth2"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/secret"
)

// assertionLife is short because an assertion is used once, at once.
const assertionLife = 60 * time.Second

// A login says who we are in one request (RFC 6749 §2.3). The style is always
// named: left to find out, x/oauth2 sends secret and subject token a second
// time after any error.
type login struct {
	style      oauth2.AuthStyle
	id, secret string     // in the header or in the form, as the style says; empty ones are not sent
	params     url.Values // more of the form: an assertion
	raw        string     // basic_raw: the Authorization header

	certificate *tls.Certificate // mtls: shown in the handshake
}

func (c *Client) login(ctx context.Context, p *policy.Profile, k Key) (login, error) {
	l := login{style: oauth2.AuthStyleInParams, id: p.Client.ID}
	if err := k.enough(p.Client.Auth); err != nil {
		return login{}, err
	}
	switch p.Client.Auth {
	case "none":
	case "mtls": // RFC 8705 §2: the connection proves who we are, and client_id says it
		pair, err := k.pair()
		if err != nil {
			return login{}, err
		}
		l.certificate = pair
	case "anonymous":
		l.id = ""
	case "basic":
		l.style, l.secret = oauth2.AuthStyleInHeader, k.Text.Reveal() // form-encoded inside, as RFC 6749 §2.3.1 says
	case "basic_raw":
		// For servers that take id and secret as they stand.
		l.id, l.raw = "", "Basic "+base64.StdEncoding.EncodeToString([]byte(p.Client.ID+":"+k.Text.Reveal()))
	case "post":
		l.secret = k.Text.Reveal()
	case "private_key_jwt":
		signed, err := c.assertion(ctx, p, k)
		if err != nil {
			return login{}, err
		}
		l.params = url.Values{
			"client_assertion_type": {"urn:ietf:params:oauth:client-assertion-type:jwt-bearer"},
			"client_assertion":      {signed.Reveal()},
		}
	default:
		return login{}, refuse(fault.ProviderConfig, "the profile's client authentication is not one we speak")
	}
	return l, nil
}

// pair is the certificate with its key, as a connection shows it.
func (k Key) pair() (*tls.Certificate, error) {
	pair, err := tls.X509KeyPair([]byte(k.Certificate.Reveal()), []byte(k.Text.Reveal()))
	if err != nil {
		return nil, refuse(fault.CredentialRejected, "the client's certificate and key are not a pair in PEM")
	}
	return &pair, nil
}

// enough refuses a key that lacks what the authentication needs.
func (k Key) enough(auth string) error {
	switch {
	case auth == "none", auth == "anonymous":
	case auth == "mtls" && k.Certificate.IsZero():
		return refuse(fault.CredentialMissing, "the client's certificate is empty")
	case k.Text.IsZero() && (k.Sign == nil || auth != "private_key_jwt"):
		return refuse(fault.CredentialMissing, "the client's secret or key is empty")
	}
	return nil
}

// request is a form for an endpoint that x/oauth2 does not know.
func (l login) request(ctx context.Context, to *url.URL, form url.Values) (*http.Request, error) {
	for name, values := range l.params {
		form[name] = values
	}
	if l.style == oauth2.AuthStyleInParams && l.id != "" {
		form.Set("client_id", l.id)
		if l.secret != "" {
			form.Set("client_secret", l.secret)
		}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to.String(), strings.NewReader(form.Encode()))
	if err != nil {
		return nil, refuse(fault.ProviderConfig, "the endpoint is no address")
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	switch {
	case l.style == oauth2.AuthStyleInHeader:
		req.SetBasicAuth(url.QueryEscape(l.id), url.QueryEscape(l.secret))
	case l.raw != "":
		req.Header.Set("Authorization", l.raw)
	}
	return req, nil
}

// assertion is the JWT of RFC 7523 §3.
func (c *Client) assertion(ctx context.Context, p *policy.Profile, k Key) (secret.Text, error) {
	signer, method, err := signing(p.Client.Alg, k)
	if err != nil {
		return secret.Text{}, err
	}
	audience := assertionAudience(p)
	if audience == "" {
		return secret.Text{}, refuse(fault.ProviderConfig, "the profile names no audience for the client's assertion")
	}
	now := c.now()
	t := jwt.NewWithClaims(method, jwt.MapClaims{
		"iss": p.Client.ID,
		"sub": p.Client.ID,
		"aud": audience, // one string, not an array: some servers take no other
		"jti": rand.Text(),
		"iat": now.Unix(),
		"exp": now.Add(cmp.Or(p.Client.AssertionTTL, assertionLife)).Unix(),
	})
	if p.Client.Kid != "" {
		t.Header["kid"] = p.Client.Kid
	}
	return sign(ctx, t, signer, k)
}

func assertionAudience(p *policy.Profile) string {
	switch p.Client.Audience {
	case "issuer":
		return p.Response.ExpectIssuer
	case "token_endpoint":
		return p.TokenEndpoint.String()
	default:
		return p.Client.Audience
	}
}
