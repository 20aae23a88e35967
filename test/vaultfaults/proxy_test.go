package vaultfaults

import (
	"bytes"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// Where the requests of a broker go.
const (
	holds    = "cubbyhole/op/"
	subject7 = "kv/data/broker/subjects/7"
	logins   = "auth/approle/login"
	lookup   = "auth/token/lookup-self"
	renewal  = "auth/token/renew-self"
	mints    = "auth/token/create/broker-op"
	revoke   = "auth/token/revoke-self"
)

// A proxy stands before a Vault and passes everything on, until it is told to
// answer in its place. It is an http.Handler.
type proxy struct {
	vault http.Handler

	mu     sync.Mutex // guards all below
	plan   *plan
	seen   []request
	put    string          // the path of the newest hold since spoil
	tokens map[string]bool // that were sent to it
}

// A request is what the proxy saw of one.
type request struct{ method, path string }

func (r request) is(method, prefix string) bool {
	return r.method == method && strings.HasPrefix(r.path, prefix)
}

// A plan is which requests get the wrong answer: from the nth one of this method
// and prefix on, so many; -1 is all.
type plan struct {
	method, prefix string
	newest         bool // that of the newest hold only, not of one that is swept up meanwhile
	nth, many      int
	wrong          wrong
}

func (p *plan) of(r request, newest string) bool {
	return p != nil && p.many != 0 && r.is(p.method, p.prefix) && (!p.newest || r.path == newest)
}

func newProxy(vault http.Handler) *proxy {
	return &proxy{vault: vault, tokens: map[string]bool{}}
}

// spoil makes requests go wrong from now on; nil ends it. It forgets what was seen.
func (p *proxy) spoil(next *plan) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.plan, p.seen, p.put = next, nil, ""
}

// count is how many requests of this method and prefix were seen since spoil.
func (p *proxy) count(method, prefix string) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.seen {
		if r.is(method, prefix) {
			n++
		}
	}
	return n
}

// newest is the path of the newest hold since spoil.
func (p *proxy) newest() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.put
}

// secrets are the tokens that were sent to Vault.
func (p *proxy) secrets() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.tokens))
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body) // a server sees that its client has gone only behind the body
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	if wrong, ok := p.note(r); ok {
		wrong.act(w, r, p.vault)
		return
	}
	p.vault.ServeHTTP(w, r)
}

// note records a request and says whether it is to go wrong.
func (p *proxy) note(r *http.Request) (w wrong, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := request{r.Method, strings.TrimPrefix(r.URL.Path, "/v1/")}
	p.seen = append(p.seen, now)
	if token := r.Header.Get("X-Vault-Token"); token != "" {
		p.tokens[token] = true
	}
	if now.is("POST", holds) {
		p.put = now.path
	}
	if !p.plan.of(now, p.put) {
		return wrong{}, false
	}
	if p.plan.nth--; p.plan.nth > 0 {
		return wrong{}, false
	}
	p.plan.many--
	return p.plan.wrong, true
}
