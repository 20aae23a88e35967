package exchange

import (
	"context"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"onbehalf.internal/broker/egress"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/policy"
)

// maxAnswer bounds an answer in bytes. A token that is longer than a quarter of
// it fits into no header.
const maxAnswer = 64 << 10

// A reply is what came back, as bytes.
type reply struct {
	status  int
	json    bool // the content type says so
	body    []byte
	toolong bool // then body is nil
}

// send makes the one request. x/oauth2 encodes the form and the client
// authentication; the answer does not reach it.
func (c *Client) send(ctx context.Context, p *policy.Profile, login *clientcredentials.Config, form url.Values) (reply, error) {
	maps.Copy(form, login.EndpointParams)
	login.EndpointParams = form
	timed := ctx
	if p.Timeout > 0 {
		var stop context.CancelFunc
		timed, stop = context.WithTimeout(ctx, p.Timeout)
		defer stop()
	}
	t := &tap{base: c.transport(p)}
	_, err := login.Token(context.WithValue(timed, oauth2.HTTPClient, &http.Client{Transport: t}))
	if err != nil {
		return reply{}, unanswered(ctx, err)
	}
	return t.reply, nil
}

func (c *Client) transport(p *policy.Profile) http.RoundTripper {
	h := egress.Host{URL: p.TokenEndpoint, AllowCIDRs: p.AllowCIDRs, CA: p.CA}
	if c.HTTP == nil {
		return egress.NewClient(h, 0).Transport
	}
	return c.HTTP(h).Transport
}

// A tap stands between x/oauth2 and the network. It keeps the answer for us and
// hands x/oauth2 a blank one: that library takes members in any case, prints
// bodies in its errors, follows redirects with the form, and cuts long tokens.
type tap struct {
	base  http.RoundTripper
	reply reply
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
	if t.reply, err = read(res); err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: http.StatusOK,
		Header:     http.Header{"Content-Type": {"application/json"}},
		Body:       io.NopCloser(strings.NewReader(`{"access_token":"-"}`)),
		Request:    out,
	}, nil
}

// read takes one byte more than is allowed, so that a long answer is an error
// and not a cut one.
func read(res *http.Response) (reply, error) {
	media, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	re := reply{status: res.StatusCode, json: media == "application/json"}
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	switch {
	case len(body) > maxAnswer:
		re.toolong = true
	case err == nil:
		re.body = body
	case res.StatusCode == http.StatusOK:
		return reply{}, err
	}
	return re, nil
}

// unanswered says why no answer came. The text of err stays here: it names the
// URL and may quote what the other side sent.
func unanswered(ctx context.Context, err error) error {
	deadline, limited := ctx.Deadline()
	switch {
	case fault.ReasonOf(err) == fault.HostRefused:
		return refuse(fault.HostRefused, "the token endpoint's address is not one we may dial")
	case ctx.Err() == context.Canceled:
		return refuse(fault.CallerCancelled, "")
	case ctx.Err() != nil, limited && !time.Now().Before(deadline): // a dial may notice before the context does
		return refuse(fault.WallClock, "the token endpoint did not answer before the deadline")
	default:
		return refuse(fault.ProviderUnreachable, "no whole answer came from the token endpoint")
	}
}
