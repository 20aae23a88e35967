package exchange

import (
	"cmp"
	"context"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"onbehalf.internal/broker/egress"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/policy"
)

// maxAnswer bounds an answer in bytes where the profile does not. A token that
// is longer than a quarter of it fits into no header.
const maxAnswer = 64 << 10

// A reply is what came back, as bytes.
type reply struct {
	asked   time.Time // right before the request left
	status  int
	json    bool // the content type says so
	body    []byte
	toolong bool          // then body is nil
	most    int           // how many bytes it might have
	after   time.Duration // Retry-After; 0: none
	unsent  bool          // there was no connection
	alone   bool          // nobody's credential was handed in, so whom it refuses is us
}

// send makes one request to the token endpoint. x/oauth2 encodes the form and
// the client authentication; the answer does not reach it.
func (c *Client) send(ctx context.Context, p *policy.Profile, l login, form url.Values) (reply, error) {
	maps.Copy(form, l.params)
	r := reply{asked: c.now(), most: cmp.Or(p.MaxAnswer, maxAnswer), alone: form.Get("grant_type") == clientCredentials}
	t := &egress.Tap{Base: c.transport(p, p.TokenEndpoint, l), Basic: l.raw, Read: r.read}
	conf := clientcredentials.Config{ClientID: l.id, ClientSecret: l.secret, AuthStyle: l.style, TokenURL: p.TokenEndpoint.String(), EndpointParams: form}
	_, err := conf.Token(context.WithValue(ctx, oauth2.HTTPClient, &http.Client{Transport: t}))
	r.unsent = fault.ReasonOf(err) == fault.ConnectFailed
	return r, err
}

// post makes one request to another endpoint that takes our authentication.
func (c *Client) post(ctx context.Context, p *policy.Profile, to *url.URL, l login, form url.Values) (reply, error) {
	req, err := l.request(ctx, to, form)
	if err != nil {
		return reply{}, err
	}
	return c.fetch(p, req, l)
}

// fetch makes one request to an endpoint of the provider.
func (c *Client) fetch(p *policy.Profile, req *http.Request, l login) (reply, error) {
	r := reply{asked: c.now(), most: cmp.Or(p.MaxAnswer, maxAnswer), alone: true}
	_, err := (&egress.Tap{Base: c.transport(p, req.URL, l), Read: r.read}).RoundTrip(req)
	return r, err
}

// transport reaches one endpoint of the provider and nothing else.
func (c *Client) transport(p *policy.Profile, to *url.URL, l login) http.RoundTripper {
	h := egress.Host{URL: to, AllowCIDRs: p.AllowCIDRs, CA: p.CA, Certificate: l.certificate}
	if to.Host == p.TokenEndpoint.Host {
		h.ServerName = p.ServerName
	}
	switch {
	case c.HTTP != nil:
		return c.HTTP(h).Transport
	case p.ConnectTimeout > 0:
		return hasty{h, p.ConnectTimeout}
	default:
		return egress.NewClient(h, 0).Transport
	}
}

// A hasty transport gives the connection less time than the request.
type hasty struct {
	host  egress.Host
	limit time.Duration
}

func (h hasty) RoundTrip(req *http.Request) (*http.Response, error) {
	l := egress.NewLine(h.host)
	ready, stop := context.WithTimeout(req.Context(), h.limit)
	defer stop()
	if err := l.Ready(ready); err != nil {
		l.Close()
		if fault.ReasonOf(err) == fault.BudgetSpent && req.Context().Err() == nil {
			err = fault.New("exchange.connect", fault.ConnectFailed, "no connection within connect_timeout")
		}
		return nil, err
	}
	res, err := l.Do(req.Context(), req, func() error { return nil })
	if err != nil {
		l.Close()
		return nil, err
	}
	res.Body = lineBody{res.Body, l}
	return res, nil
}

// A lineBody ends its connection with the answer.
type lineBody struct {
	io.ReadCloser
	line *egress.Line
}

func (b lineBody) Close() error {
	b.ReadCloser.Close()
	return b.line.Close()
}

// read takes one byte more than is allowed, so that a long answer is an error
// and not a cut one.
func (r *reply) read(res *http.Response) error {
	media, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	body, err := io.ReadAll(io.LimitReader(res.Body, int64(r.most)+1))
	if err != nil && len(body) <= r.most && res.StatusCode == http.StatusOK {
		return err
	}
	r.status, r.json = res.StatusCode, media == "application/json"
	r.after = retryAfter(res.Header)
	r.toolong = len(body) > r.most
	if !r.toolong && err == nil {
		r.body = body
	}
	return nil
}

// unanswered says why no answer came. The text of err stays here: it names the
// URL and may quote what the other side sent.
func unanswered(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	switch ended := fault.Ended(ctx, fault.WallClock); {
	case fault.ReasonOf(err) == fault.HostRefused:
		return refuse(fault.HostRefused, "the endpoint's address is not one we may dial")
	case ended != fault.None:
		return refuse(ended, "the provider had not answered by then")
	case fault.ReasonOf(err) == fault.TLSFailed:
		return refuse(fault.ProviderUnreachable, "no TLS with the endpoint that we trust")
	default:
		return refuse(fault.ProviderUnreachable, "no whole answer came from the provider")
	}
}
