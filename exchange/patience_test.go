package exchange_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"onbehalf.internal/broker/egress"
	"onbehalf.internal/broker/exchange"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/secret"
)

// A scripted transport plays one answer after the other, and the last one from
// then on.
type scripted struct {
	steps []func(*http.Request) (*http.Response, error)
	sent  int
}

func (s *scripted) RoundTrip(r *http.Request) (*http.Response, error) {
	s.sent++
	return s.steps[min(s.sent, len(s.steps))-1](r)
}

func (s *scripted) client() *exchange.Client {
	return &exchange.Client{HTTP: func(egress.Host) *http.Client { return &http.Client{Transport: s} }}
}

func step(status int, body string, header ...string) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		h := http.Header{"Content-Type": {"application/json"}}
		for i := 0; i < len(header); i += 2 {
			h.Set(header[i], header[i+1])
		}
		return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
	}
}

func breaks(err error) func(*http.Request) (*http.Response, error) {
	return func(*http.Request) (*http.Response, error) { return nil, err }
}

func opaqueOrder(change func(*exchange.Order)) exchange.Order {
	o := exchange.Order{Profile: &policy.Profile{TokenEndpoint: &url.URL{Scheme: "https", Host: "idp.example", Path: "/token"},
		Client: policy.Client{ID: "broker", Auth: "post"}, Response: policy.Response{TokenFormat: "opaque", AudienceUnverified: true}},
		Audience: audience, Scopes: []string{"files.read"}}
	if change != nil {
		change(&o)
	}
	return o
}

// TestSecondTime: when the request leaves once more, after which pause, and
// when it does not.
func TestSecondTime(t *testing.T) {
	good := step(200, answer())
	noConnection := breaks(fault.New("egress.dial", fault.ConnectFailed, ""))
	for _, tc := range []struct {
		name    string
		steps   []func(*http.Request) (*http.Response, error)
		budget  time.Duration
		subject string // its type
		change  func(*exchange.Order)
		want    fault.Reason
		sent    int
		took    time.Duration
	}{
		{"no connection, then one", steps(noConnection, good), time.Second, "", nil, fault.None, 2, 100 * time.Millisecond},
		{"no connection twice", steps(noConnection), time.Second, "", nil, fault.ProviderUnreachable, 2, 100 * time.Millisecond},
		{"502, then good", steps(step(502, ""), good), time.Second, "", nil, fault.None, 2, 100 * time.Millisecond},
		{"504 twice", steps(step(504, "")), time.Second, "", nil, fault.ProviderUnreachable, 2, 100 * time.Millisecond},
		{"503, then a refusal", steps(step(503, ""), step(400, `{"error":"invalid_target"}`)), time.Second, "", nil, fault.TargetRejected, 2, 100 * time.Millisecond},
		{"503 that says when", steps(step(503, "", "Retry-After", "1"), good), 5 * time.Second, "", nil, fault.None, 2, time.Second},
		{"503 that says later", steps(step(503, "", "Retry-After", "3"), good), 5 * time.Second, "", nil, fault.ProviderUnreachable, 1, 0},
		{"503 that says when it is too late", steps(step(503, "", "Retry-After", "2"), good), time.Second, "", nil, fault.ProviderUnreachable, 1, 0},
		{"503 that says nonsense", steps(step(503, "", "Retry-After", "-1"), good), time.Second, "", nil, fault.None, 2, 100 * time.Millisecond},
		{"no room in the budget", steps(step(502, ""), good), 99 * time.Millisecond, "", nil, fault.ProviderUnreachable, 1, 0},
		{"no room in the profile's timeout", steps(step(502, ""), good), time.Second, "", func(o *exchange.Order) { o.Profile.Timeout = 50 * time.Millisecond }, fault.ProviderUnreachable, 1, 0},
		{"the connection broke", steps(breaks(errors.New("EOF")), good), time.Second, "", nil, fault.ProviderUnreachable, 1, 0},
		{"TLS failed", steps(breaks(fault.New("egress.dial", fault.TLSFailed, "")), good), time.Second, "", nil, fault.ProviderUnreachable, 1, 0},
		{"500", steps(step(500, `{"error":"server_error"}`), good), time.Second, "", nil, fault.ProviderError, 1, 0},
		{"429", steps(step(429, ""), good), time.Second, "", nil, fault.ProviderRateLimited, 1, 0},
		{"a refresh token", steps(step(502, ""), good), time.Second, "urn:ietf:params:oauth:token-type:refresh_token", nil, fault.ProviderUnreachable, 1, 0},
		{"a refresh token, no connection", steps(noConnection, good), time.Second, "urn:ietf:params:oauth:token-type:refresh_token", nil, fault.ProviderUnreachable, 1, 0},
		{"the profile's are refresh tokens", steps(step(502, ""), good), time.Second, "",
			func(o *exchange.Order) { o.Profile.SubjectTokenType = "urn:ietf:params:oauth:token-type:refresh_token" }, fault.ProviderUnreachable, 1, 0},
		{"an assertion", steps(step(502, ""), good), time.Second, "", func(o *exchange.Order) { o.Profile.SubjectParam = "assertion" }, fault.ProviderUnreachable, 1, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), tc.budget)
				defer cancel()
				s := &scripted{steps: tc.steps}
				began := time.Now()
				_, err := s.client().OrderWith(ctx, opaqueOrder(tc.change), exchange.Subject{Token: secret.New(subjectToken), Type: tc.subject}, exchange.Key{Text: secret.New(clientSecret)})
				wantReason(t, err, tc.want)
				if s.sent != tc.sent || time.Since(began) != tc.took {
					t.Errorf("%d requests in %v, want %d in %v", s.sent, time.Since(began), tc.sent, tc.took)
				}
			})
		})
	}
}

func steps(all ...func(*http.Request) (*http.Response, error)) []func(*http.Request) (*http.Response, error) {
	return all
}

// TestCoolDown: how long nothing is sent to an endpoint that asked for it.
func TestCoolDown(t *testing.T) {
	later := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(http.TimeFormat) }
	for _, tc := range []struct {
		name   string
		status int
		after  func() string
		want   time.Duration // 0: none
	}{
		{"no Retry-After", 429, func() string { return "" }, time.Second},
		{"seconds", 429, func() string { return "17" }, 17 * time.Second},
		{"more than a minute", 429, func() string { return "999999999" }, time.Minute},
		{"beyond all numbers", 429, func() string { return "99999999999999999999" }, time.Second},
		{"zero", 429, func() string { return "0" }, time.Second},
		{"negative", 429, func() string { return "-5" }, time.Second},
		{"a date", 429, func() string { return later(20 * time.Second) }, 20 * time.Second},
		{"a date of the past", 429, func() string { return later(-time.Hour) }, time.Second},
		{"503 that says when", 503, func() string { return "30" }, 30 * time.Second},
		{"400 that says when", 400, func() string { return "30" }, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &scripted{steps: steps(step(tc.status, "", "Retry-After", tc.after()), step(200, answer()))}
				c, o := s.client(), opaqueOrder(nil)
				ask := func(o exchange.Order) error {
					_, err := c.Order(t.Context(), o, secret.New(subjectToken), secret.New(clientSecret))
					return err
				}
				if e, ok := errors.AsType[*fault.Error](ask(o)); !ok || tc.want > 0 && e.After != tc.want {
					t.Errorf("after %v, want %v", e.After, tc.want)
				}
				if tc.want == 0 {
					wantReason(t, ask(o), fault.None)
					return
				}
				time.Sleep(tc.want - time.Millisecond)
				err := ask(o)
				wantReason(t, err, fault.ProviderRateLimited)
				if e, _ := errors.AsType[*fault.Error](err); e.After != time.Millisecond || s.sent != 1 {
					t.Errorf("after %v, %d requests", e.After, s.sent)
				}
				other := opaqueOrder(func(o *exchange.Order) { o.Profile.TokenEndpoint = &url.URL{Scheme: "https", Host: "other.example"} })
				wantReason(t, ask(other), fault.None)
				time.Sleep(time.Millisecond)
				wantReason(t, ask(o), fault.None)
			})
		})
	}
}

// TestConnectTimeout: a connection that does not come about ends before the
// request's own time, and the request may leave again.
func TestConnectTimeout(t *testing.T) {
	o := opaqueOrder(func(o *exchange.Order) {
		o.Profile.TokenEndpoint, o.Profile.ConnectTimeout = &url.URL{Scheme: "https", Host: silentListener(t), Path: "/token"}, 50*time.Millisecond
		o.Profile.AllowCIDRs = loopbackCIDRs
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := exchange.New(nil).Order(ctx, o, secret.New(subjectToken), secret.New(clientSecret))
	wantReason(t, err, fault.ProviderUnreachable)
	if ctx.Err() != nil {
		t.Error("it took the whole budget")
	}
	p := newProvider(t, says(answer()))
	good := p.order(func(o *exchange.Order) { o.Profile.ConnectTimeout, o.Profile.AllowCIDRs = time.Second, loopbackCIDRs })
	if _, err := exchange.New(func() time.Time { return now }).Order(ctx, good, secret.New(subjectToken), secret.New(clientSecret)); err != nil {
		t.Error(err)
	}
}

var loopbackCIDRs = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

// silentListener accepts connections and says nothing on them.
func silentListener(t *testing.T) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln.Addr().String()
}
