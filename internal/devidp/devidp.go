// Package devidp is an identity provider for tests and the demo: OAuth 2.0
// Token Exchange with JWT access tokens, on the loopback interface.
//
// The protocol is not ours: the engine of github.com/zitadel/oidc reads the
// requests, authenticates the clients, verifies subject tokens, signs and words
// the errors. Ours is who may have what (engine.go), a page on which people sign in
// for OpenID Connect's code flow (login.go), the handles by which a
// test looks at what happened, and the ways to break it (breaks.go).
//
// What always holds:
//
//   - A client gets a token for the audiences and scopes of its own table and
//     no others; a scope that is asked for and not allowed is an error.
//   - The token's sub is the subject token's, exactly, and act.sub is the
//     client (RFC 8693 §4.1).
//   - What was issued is no subject token in its turn.
//   - People sign in for a redirect URI of the client's own, and with PKCE (S256) alone.
//   - [Provider.Requests] never holds a token.
//
// It has no passwords, no refresh tokens and no persistence: its key
// is made at the start, and who signs in says who it is. The engine writes a few lines to slog's default logger.
package devidp

import (
	"crypto"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// Config says who may have what. The zero fields work; without clients nobody
// gets anything.
type Config struct {
	Addr    string        // a loopback address and port; empty: 127.0.0.1 and a free port
	TTL     time.Duration // of an issued token; 0: five minutes
	Clients []Client
	Users   []User // whom the page offers; any other name can be typed there
}

// A User signs in.
type User struct {
	Sub    string         // as in "8"
	Claims map[string]any // of its ID tokens, besides
}

// A Client may exchange tokens, or have people sign in.
type Client struct {
	ID     string
	Auth   string              // "basic" or "post" (either is taken for both), "private_key_jwt" or "none"
	Secret string              // basic, post
	Key    crypto.PublicKey    // private_key_jwt: RSA (RS256, PS256) or P-256 (ES256); aud must be the issuer
	Allow  map[string][]string // audience → scopes

	Redirects []string // redirect URIs; empty: nobody signs in there
}

// A Grant is an exchange that was allowed and is about to be issued.
type Grant struct {
	Subject  string
	Actor    string
	Audience []string
	Scopes   []string
}

// A Request is one that arrived, without anything secret.
type Request struct {
	Method, Path     string
	GrantType        string
	Audience         []string
	Resource         []string
	Scope            string
	SubjectTokenType string
	Status           int // 0: not answered (yet)
}

// A Provider is a running identity provider. It is safe for concurrent use.
type Provider struct {
	http   *http.Server
	issuer string
	ttl    time.Duration
	key    key
	users  []User

	mu       sync.Mutex
	clients  map[string]Client
	requests []Request
	issued   []string
	revoked  map[string]bool          // by jti
	wanted   map[string]authorization // by id; who signs in, until the code was used
	codes    map[string]string        // → id
	alter    func(*Grant)
	broken   func(http.Handler) http.Handler
}

// Start starts a provider; Close ends it.
func Start(c Config) (*Provider, error) {
	addr := c.Addr
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	if !ln.Addr().(*net.TCPAddr).IP.IsLoopback() {
		ln.Close()
		return nil, fmt.Errorf("%q is not a loopback address", addr)
	}
	p := &Provider{
		issuer:  "http://" + ln.Addr().String(),
		ttl:     c.TTL,
		key:     newKey(),
		clients: make(map[string]Client),
		users:   c.Users,
		revoked: make(map[string]bool),
		wanted:  make(map[string]authorization),
		codes:   make(map[string]string),
	}
	if p.ttl == 0 {
		p.ttl = 5 * time.Minute
	}
	for _, client := range c.Clients {
		p.clients[client.ID] = client
	}
	engine, err := newEngine(p)
	if err != nil {
		ln.Close()
		return nil, err
	}
	p.http = &http.Server{Handler: p.record(p.breakable(engine)), ReadHeaderTimeout: 10 * time.Second}
	go p.http.Serve(ln)
	return p, nil
}

// Add has one more client, or another one in place of that of its ID.
func (p *Provider) Add(c Client) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clients[c.ID] = c
}

// Close ends every connection at once.
func (p *Provider) Close() error { return p.http.Close() }

// Issuer is the iss of every token.
func (p *Provider) Issuer() string { return p.issuer }

// TokenEndpoint is where tokens are exchanged.
func (p *Provider) TokenEndpoint() string { return p.issuer + "/oauth/token" }

// AuthorizationEndpoint is where browsers go to sign in.
func (p *Provider) AuthorizationEndpoint() string { return p.issuer + "/authorize" }

// RevocationEndpoint is that of RFC 7009.
func (p *Provider) RevocationEndpoint() string { return p.issuer + "/revoke" }

// Mint returns an access token of subject for this provider itself, to be
// exchanged. A ttl below zero gives one that has expired.
func (p *Provider) Mint(subject string, ttl time.Duration) string {
	now := time.Now()
	token := jwt.NewWithClaims(jwt.SigningMethodES256, jwt.MapClaims{
		"iss": p.issuer,
		"aud": p.issuer,
		"sub": subject,
		"jti": rand.Text(),
		"iat": now.Unix(),
		"exp": now.Add(ttl).Unix(),
	})
	token.Header["kid"] = p.key.ID()
	signed, err := token.SignedString(p.key.private)
	if err != nil {
		panic(err) // the key is ours
	}
	return signed
}

// Verify checks a token as the MCP server for audience would: signature,
// issuer, audience, exp, and that it was not revoked.
func (p *Provider) Verify(token, audience string) (subject, actor string, scopes []string, err error) {
	var c struct {
		jwt.RegisteredClaims
		Act   struct{ Sub string }
		Scope string
	}
	_, err = jwt.ParseWithClaims(token, &c, func(*jwt.Token) (any, error) { return p.key.private.Public(), nil },
		jwt.WithValidMethods([]string{"ES256"}), jwt.WithIssuer(p.issuer), jwt.WithAudience(audience), jwt.WithExpirationRequired())
	if err != nil {
		return "", "", nil, errors.New("token is not valid for this audience")
	}
	if p.isRevoked(c.ID) {
		return "", "", nil, errors.New("token was revoked")
	}
	return c.Subject, c.Act.Sub, splitScope(c.Scope), nil
}

// Requests are those that arrived so far, in order.
func (p *Provider) Requests() []Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.requests)
}

// Exchanges is how many tokens were issued, whether or not the answer arrived.
func (p *Provider) Exchanges() int { return len(p.Issued()) }

// Issued are all tokens that were ever issued, to be looked for where none may
// be.
func (p *Provider) Issued() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.issued)
}

// Alter has f change every grant before it is issued, as a provider does that
// gives something else than was asked for. nil ends that.
func (p *Provider) Alter(f func(*Grant)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.alter = f
}

// Break puts f around the whole provider, see [Fail] and the others. nil mends
// it.
func (p *Provider) Break(f func(http.Handler) http.Handler) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.broken = f
}

func (p *Provider) breakable(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		broken := p.broken
		p.mu.Unlock()
		if broken == nil {
			next.ServeHTTP(w, r)
			return
		}
		broken(next).ServeHTTP(w, r)
	})
}

func (p *Provider) record(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, 1<<20)
		r.ParseForm() // an error shows as an empty form, to the engine too
		f := r.PostForm
		p.mu.Lock()
		i := len(p.requests)
		p.requests = append(p.requests, Request{
			Method: r.Method, Path: r.URL.Path, GrantType: f.Get("grant_type"), Audience: f["audience"], Resource: f["resource"],
			Scope: f.Get("scope"), SubjectTokenType: f.Get("subject_token_type"),
		})
		p.mu.Unlock()
		answered := func(status int) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.requests[i].Status = status
		}
		next.ServeHTTP(&statusWriter{ResponseWriter: w, answered: answered}, r)
	})
}

// A statusWriter tells the status before it goes out: a test that has the
// answer finds it in Requests.
type statusWriter struct {
	http.ResponseWriter
	answered func(int)
	told     bool
}

func (w *statusWriter) WriteHeader(status int) {
	w.told = true
	w.answered(status)
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Write(b []byte) (int, error) {
	if !w.told {
		w.WriteHeader(http.StatusOK)
	}
	return w.ResponseWriter.Write(b)
}

func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (p *Provider) isRevoked(jti string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.revoked[jti]
}
