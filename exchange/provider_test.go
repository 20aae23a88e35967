package exchange_test

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"onbehalf.internal/broker/egress"
	"onbehalf.internal/broker/exchange"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/secret"
	"onbehalf.internal/broker/secret/canary"
)

const (
	issuer   = "https://identity.example.org"
	audience = "mcp-files"

	subjectToken = "subject-Zb41qXw8LmTr.0vN-planted"
	clientSecret = "b/r+o k%er:&=~ü-planted-secret"
	issuedToken  = "issued-9KfPq27sVhYd_3cE-planted"
	refreshToken = "refresh-Uj52oWn6RxBt~8gM-planted"

	accessToken = "urn:ietf:params:oauth:token-type:access_token"
)

// now is when every exchange of these tests begins.
var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// A provider is a token endpoint that answers as the test says and remembers
// what it was asked.
type provider struct {
	*httptest.Server
	mu    sync.Mutex
	asked []request
}

type request struct {
	path   string
	header http.Header
	query  string
	form   url.Values
}

func newProvider(t testing.TB, answer http.HandlerFunc) *provider {
	p := &provider{}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		form, _ := url.ParseQuery(string(body))
		p.mu.Lock()
		p.asked = append(p.asked, request{r.URL.Path, r.Header, r.URL.RawQuery, form})
		p.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(p.Close)
	return p
}

func (p *provider) requests() []request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.asked)
}

// client exchanges over the provider's own transport, with the clock at now.
func (p *provider) client() *exchange.Client {
	return &exchange.Client{
		Now:  func() time.Time { return now },
		HTTP: func(egress.Host) *http.Client { return p.Client() },
	}
}

// order asks the provider for audience and one scope, opaque and with a secret
// in the form, as far as change does not say otherwise.
func (p *provider) order(change func(*exchange.Order)) exchange.Order {
	endpoint, err := url.Parse(p.URL + "/token")
	if err != nil {
		panic(err)
	}
	o := exchange.Order{
		Profile: &policy.Profile{
			TokenEndpoint: endpoint,
			Client:        policy.Client{ID: "broker", Auth: "post"},
			Response:      policy.Response{TokenFormat: "opaque", AudienceUnverified: true},
		},
		Audience: audience,
		Scopes:   []string{"files.read"},
	}
	if change != nil {
		change(&o)
	}
	return o
}

// try makes one exchange against a provider that answers so, and wants the
// reason; none of the planted secrets may show up in what comes of it.
func try(t *testing.T, change func(*exchange.Order), answer http.HandlerFunc, want fault.Reason) exchange.Issued {
	t.Helper()
	return tryTimes(t, 1, change, answer, want)
}

// tryTimes wants that many requests.
func tryTimes(t *testing.T, times int, change func(*exchange.Order), answer http.HandlerFunc, want fault.Reason) (issued exchange.Issued) {
	t.Helper()
	p := newProvider(t, answer)
	canary.Run(t, func(c *canary.Cage) {
		var err error
		issued, err = p.client().Order(t.Context(), p.order(change), secret.New(subjectToken), secret.New(clientSecret))
		c.Value("error", err)
		c.Value("issued", issued)
		wantReason(t, err, want)
	}, subjectToken, clientSecret, issuedToken, refreshToken)
	if n := len(p.requests()); n != times {
		t.Errorf("%d requests, want exactly %d", n, times)
	}
	return issued
}

// inTurn answers with one after the other, and with the last one from then on.
func inTurn(answers ...http.HandlerFunc) http.HandlerFunc {
	var n atomic.Int64
	return func(w http.ResponseWriter, r *http.Request) {
		answers[min(int(n.Add(1)), len(answers))-1](w, r)
	}
}

// at answers by path.
func at(paths map[string]http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if answer, ok := paths[r.URL.Path]; ok {
			answer(w, r)
			return
		}
		http.NotFound(w, r)
	}
}

// paths are those of the requests, in order.
func (p *provider) paths() string {
	var all []string
	for _, r := range p.requests() {
		all = append(all, r.path)
	}
	return strings.Join(all, " ")
}

// address is a URL of the provider.
func (p *provider) address(path string) *url.URL {
	u, err := url.Parse(p.URL + path)
	if err != nil {
		panic(err)
	}
	return u
}

func wantReason(t *testing.T, err error, want fault.Reason) {
	t.Helper()
	if want == fault.None {
		if err != nil {
			t.Errorf("error %v, want none", err)
		}
		return
	}
	if _, ours := err.(*fault.Error); !ours || fault.ReasonOf(err) != want {
		t.Errorf("error %v, want a fault with reason %s", err, want)
	}
}

// says answers 200 with JSON.
func says(body string) http.HandlerFunc { return answers(200, "application/json", body) }

func answers(status int, contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Content-Type"] = []string{contentType}
		w.WriteHeader(status)
		io.WriteString(w, body)
	}
}

// refuses answers an RFC 6749 §5.2 error that repeats our secrets.
func refuses(status int, code string) http.HandlerFunc {
	return answers(status, "application/json", object(nil,
		"error", quote(code),
		"error_description", quote(subjectToken+"\n\x1b[31m"+clientSecret)))
}

// answer is a good answer with members changed: name, raw JSON, name, raw JSON.
// The raw JSON "" takes the member away.
func answer(changes ...string) string {
	return object(map[string]string{
		"access_token":      quote(issuedToken),
		"issued_token_type": quote(accessToken),
		"token_type":        `"Bearer"`,
		"expires_in":        "300",
		"scope":             `"files.read"`,
		"refresh_token":     quote(refreshToken),
	}, changes...)
}

// jwt is a good token with claims changed in the same way.
func jwt(changes ...string) string {
	return pack(object(map[string]string{
		"iss":   quote(issuer),
		"aud":   quote(audience),
		"sub":   `"user-7"`,
		"exp":   "1796040600", // ten minutes after now
		"act":   `{"sub":"broker"}`,
		"scope": `"files.read"`,
	}, changes...))
}

func pack(claims string) string {
	enc := base64.RawURLEncoding.EncodeToString
	return enc([]byte(`{"alg":"RS256"}`)) + "." + enc([]byte(claims)) + ".c2lnbmF0dXJl"
}

func object(members map[string]string, changes ...string) string {
	members = maps.Clone(members)
	if members == nil {
		members = map[string]string{}
	}
	for i := 0; i < len(changes); i += 2 {
		members[changes[i]] = changes[i+1]
	}
	var list []string
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if members[name] != "" {
			list = append(list, quote(name)+":"+members[name])
		}
	}
	return "{" + strings.Join(list, ",") + "}"
}

func quote(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}
