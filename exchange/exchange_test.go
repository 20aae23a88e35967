package exchange_test

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"onbehalf.internal/broker/egress"
	"onbehalf.internal/broker/exchange"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/secret"
)

func TestRequest(t *testing.T) {
	p := newProvider(t, says(answer()))
	o := p.order(func(o *exchange.Order) {
		o.Scopes = []string{"files.read", "files.list"}
		o.Profile.Resource = []string{"https://mcp.example.org/a", "https://mcp.example.org/b?x=1"}
		o.Profile.ExtraParams = url.Values{
			"connector_id":  {"corp"},
			"audience":      {"mcp-mail"}, // one of ours: it must not get through
			"subject_token": {"other"},
		}
	})
	_, err := p.client().Order(t.Context(), o, secret.New(subjectToken), secret.New(clientSecret))
	wantReason(t, err, fault.ScopeNarrowed) // two were asked for, one was granted

	got := p.requests()
	if len(got) != 1 {
		t.Fatalf("%d requests, want exactly 1", len(got))
	}
	want := url.Values{
		"grant_type":           {"urn:ietf:params:oauth:grant-type:token-exchange"},
		"subject_token":        {subjectToken},
		"subject_token_type":   {accessToken},
		"requested_token_type": {accessToken},
		"audience":             {audience},
		"resource":             {"https://mcp.example.org/a", "https://mcp.example.org/b?x=1"},
		"scope":                {"files.read files.list"},
		"connector_id":         {"corp"},
		"client_id":            {"broker"},
		"client_secret":        {clientSecret},
	}
	if diff := cmp.Diff(want, got[0].form); diff != "" {
		t.Errorf("form (-want +got):\n%s", diff)
	}
	if got[0].query != "" || got[0].header.Get("Accept") != "application/json" || got[0].header.Get("Authorization") != "" {
		t.Errorf("query %q, header %v", got[0].query, got[0].header)
	}
}

func TestIssued(t *testing.T) {
	issued := try(t, nil, says(answer()), fault.None)
	if issued.Token.Reveal() != issuedToken {
		t.Error("another token than the one that was issued")
	}
	issued.Token = secret.Text{}
	want := exchange.Issued{Expires: now.Add(5 * time.Minute), Scopes: []string{"files.read"}}
	if diff := cmp.Diff(want, issued, cmp.Comparer(secret.Text.Equal)); diff != "" {
		t.Errorf("Issued (-want +got):\n%s", diff)
	}
}

// TestSubjectTokenType holds that the profile names the type.
func TestSubjectTokenType(t *testing.T) {
	p := newProvider(t, says(answer()))
	o := p.order(func(o *exchange.Order) { o.Profile.SubjectTokenType = "urn:example:session" })
	if _, err := p.client().Order(t.Context(), o, secret.New(subjectToken), secret.New(clientSecret)); err != nil {
		t.Fatal(err)
	}
	if got := p.requests()[0].form.Get("subject_token_type"); got != "urn:example:session" {
		t.Errorf("subject_token_type %q", got)
	}
}

// TestEmpty holds that what is empty is not sent, and that a token for nobody
// is not taken for one that was asked for.
func TestEmpty(t *testing.T) {
	p := newProvider(t, says(answer("access_token", quote(jwt("aud", `""`, "scope", "")), "scope", "")))
	o := p.order(func(o *exchange.Order) {
		o.Audience, o.Scopes, o.Profile.Response.TokenFormat = "", nil, "jwt"
	})
	_, err := p.client().Order(t.Context(), o, secret.New(subjectToken), secret.New(clientSecret))
	wantReason(t, err, fault.WrongAudience)
	if f := p.requests()[0].form; f.Has("audience") || f.Has("scope") || f.Has("resource") {
		t.Errorf("empty parameters in %v", slices.Sorted(maps.Keys(f)))
	}
}

// TestRedirect holds that nothing is sent where a redirect points, whichever
// it is: 307 and 308 would carry secret and subject token along.
func TestRedirect(t *testing.T) {
	elsewhere := newProvider(t, says(answer()))
	for _, status := range []int{300, 301, 302, 303, 304, 305, 307, 308} {
		try(t, nil, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL, status)
		}, fault.ProviderRedirect)
	}
	if n := len(elsewhere.requests()); n != 0 {
		t.Errorf("%d requests were sent on", n)
	}
}

// TestNothingSent holds that what is wrong on our side does not reach the
// provider.
func TestNothingSent(t *testing.T) {
	for _, tc := range []struct {
		name         string
		change       func(*exchange.Order)
		subject, key string
		want         fault.Reason
	}{
		{"no subject token", nil, "", clientSecret, fault.CredentialMissing},
		{"no client secret", nil, subjectToken, "", fault.CredentialMissing},
		{"unknown client authentication", auth("digest"), subjectToken, clientSecret, fault.ProviderConfig},
		{"no client authentication", auth(""), subjectToken, clientSecret, fault.ProviderConfig},
		{"key is no PEM", auth("private_key_jwt"), subjectToken, clientSecret, fault.CredentialRejected},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newProvider(t, says(answer()))
			_, err := p.client().Order(t.Context(), p.order(tc.change), secret.New(tc.subject), secret.New(tc.key))
			wantReason(t, err, tc.want)
			if n := len(p.requests()); n != 0 {
				t.Errorf("%d requests, want none", n)
			}
		})
	}
}

// TestNoDecision holds that a token is exchanged for a grant and not otherwise.
func TestNoDecision(t *testing.T) {
	_, err := new(exchange.Client).Exchange(t.Context(), policy.Decision{}, exchange.Subject{Token: secret.New(subjectToken)}, exchange.Key{Text: secret.New(clientSecret)})
	wantReason(t, err, fault.NoGrant)
}

// roundTrip is a transport as a function.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func silent(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// TestNoAnswer tells apart whose patience ended.
func TestNoAnswer(t *testing.T) {
	within := func(d time.Duration) func(context.Context) (context.Context, context.CancelFunc) {
		return func(ctx context.Context) (context.Context, context.CancelFunc) { return context.WithTimeout(ctx, d) }
	}
	cancelled := func(ctx context.Context) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(ctx)
		time.AfterFunc(time.Second, cancel)
		return ctx, cancel
	}
	for _, tc := range []struct {
		name    string
		ctx     func(context.Context) (context.Context, context.CancelFunc)
		timeout time.Duration // the profile's
		want    fault.Reason
		after   time.Duration
	}{
		{"the operation's deadline", within(3 * time.Second), 0, fault.WallClock, 3 * time.Second},
		{"the operation's deadline before the profile's", within(3 * time.Second), time.Minute, fault.WallClock, 3 * time.Second},
		{"the profile's timeout", within(time.Minute), 2 * time.Second, fault.ProviderUnreachable, 2 * time.Second},
		{"the caller", cancelled, time.Minute, fault.CallerCancelled, time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := tc.ctx(t.Context())
				defer cancel()
				c := &exchange.Client{HTTP: func(egress.Host) *http.Client { return &http.Client{Transport: roundTrip(silent)} }}
				o := exchange.Order{Profile: &policy.Profile{TokenEndpoint: &url.URL{Scheme: "https", Host: "idp.example"}, Timeout: tc.timeout, Client: policy.Client{ID: "broker", Auth: "none"}}}
				begun := time.Now()
				_, err := c.Order(ctx, o, secret.New(subjectToken), secret.Text{})
				wantReason(t, err, tc.want)
				if took := time.Since(begun); took != tc.after {
					t.Errorf("took %v, want %v", took, tc.after)
				}
			})
		})
	}
}

// passed is a context whose deadline is over before it says so itself: timers
// of the network can be first.
type passed struct{ context.Context }

func (passed) Deadline() (time.Time, bool) { return time.Now(), true }

func TestTransportFails(t *testing.T) {
	refused := fault.New("egress.Dial", fault.HostRefused, "10.0.0.1")
	for _, tc := range []struct {
		name string
		ctx  context.Context
		err  error
		want fault.Reason
	}{
		{"connection refused", t.Context(), errors.New("dial: " + subjectToken), fault.ProviderUnreachable},
		{"address refused", t.Context(), &url.Error{Op: "Post", URL: subjectToken, Err: refused}, fault.HostRefused},
		{"i/o timeout at the deadline", passed{t.Context()}, errors.New("i/o timeout"), fault.WallClock},
	} {
		t.Run(tc.name, func(t *testing.T) {
			fails := roundTrip(func(r *http.Request) (*http.Response, error) {
				if r.GetBody != nil {
					t.Error("the transport could send the form twice")
				}
				return nil, tc.err
			})
			c := &exchange.Client{HTTP: func(egress.Host) *http.Client { return &http.Client{Transport: fails} }}
			o := exchange.Order{Profile: &policy.Profile{TokenEndpoint: &url.URL{Scheme: "https", Host: "idp.example"}, Client: policy.Client{ID: "broker", Auth: "none"}}}
			_, err := c.Order(tc.ctx, o, secret.New(subjectToken), secret.Text{})
			wantReason(t, err, tc.want)
			if strings.Contains(err.Error(), subjectToken) {
				t.Error("the transport's text got through")
			}
		})
	}
}

// TestSlowAnswer holds that the life of a token is counted from before the
// request was sent.
func TestSlowAnswer(t *testing.T) {
	for took, want := range map[time.Duration]fault.Reason{
		298 * time.Second: fault.None,
		299 * time.Second: fault.LifetimeTooShort,
	} {
		var passed atomic.Int64
		p := newProvider(t, func(w http.ResponseWriter, r *http.Request) {
			passed.Store(int64(took))
			says(answer("expires_in", "300"))(w, r)
		})
		c := p.client()
		c.Now = func() time.Time { return now.Add(time.Duration(passed.Load())) }
		issued, err := c.Order(t.Context(), p.order(nil), secret.New(subjectToken), secret.New(clientSecret))
		wantReason(t, err, want)
		if want == fault.None && !issued.Expires.Equal(now.Add(300*time.Second)) {
			t.Errorf("expires %v", issued.Expires)
		}
	}
}

// TestHost holds that the client is made for the profile's host and no other.
func TestHost(t *testing.T) {
	srv := httptest.NewTLSServer(says(answer()))
	defer srv.Close()
	endpoint, _ := url.Parse(srv.URL)
	p := &policy.Profile{TokenEndpoint: endpoint, Client: policy.Client{ID: "broker", Auth: "none"}, Response: policy.Response{TokenFormat: "opaque", AudienceUnverified: true}}
	var got egress.Host
	c := &exchange.Client{HTTP: func(h egress.Host) *http.Client { got = h; return srv.Client() }}
	o := exchange.Order{Profile: p, Audience: audience, Scopes: []string{"files.read"}}
	if _, err := c.Order(t.Context(), o, secret.New(subjectToken), secret.Text{}); err != nil {
		t.Fatal(err)
	}
	if got.URL != endpoint || got.AnyAddress {
		t.Errorf("host %+v", got)
	}
}

func auth(method string) func(*exchange.Order) {
	return func(o *exchange.Order) { o.Profile.Client.Auth = method }
}
