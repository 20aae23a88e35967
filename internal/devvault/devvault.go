// Package devvault is NOT Vault. It answers the few Vault endpoints that the
// broker and its set-up script call, from memory, for tests and for the demo.
//
// It is here because real Vault cannot be told to fail at a given request. What
// it does is held against real Vault by the cases of vault/vaulttest, which run
// on both.
//
// There: health, seal state, KV version 1 and 2 with check-and-set and patches,
// cubbyholes, service tokens with parents, roles and lifetimes, response wrapping,
// logins by AppRole, JWT, Kubernetes and certificate, signatures and data keys of
// Transit, OIDC tokens of an entity, namespaces, and policies with exact, "+" and trailing "*" paths.
//
// Not there: leases of anything but tokens, audit devices, batch tokens, what else
// Transit, the identity engine and the auth methods do, quotas, replication, listing,
// and any durability or encryption. A request that needs one of them is answered 404
// or 405.
//
// A Server is safe for concurrent use.
package devvault

import (
	"crypto/rand"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Options say how a Server starts. The zero value works.
type Options struct {
	RootToken string           // empty: a random one, see [Server.RootToken]
	Now       func() time.Time // nil: time.Now
}

// A Server is one pretended Vault. It is an http.Handler, and an
// http.RoundTripper that needs no network.
type Server struct {
	now    func() time.Time
	root   *token
	parent *Server // nil: this is no namespace

	mu       sync.Mutex // guards all below
	sealed   bool
	mounts   map[string]*mount
	policies map[string]policy
	roles    map[string]role
	auths    map[string]*authMount
	children map[string]*Server // namespaces below this one, by name
	tokens   map[string]*token  // by their value
	transits map[string]transit
	oidcKeys map[string]*signer
	oidc     map[string]oidcRole
	faults   []*fault
	requests []Request

	server *http.Server // after Start
}

// New returns a Vault in the state that deploy/vault/setup.sh leaves behind:
// KV version 2 at kv/, the policies "broker" and "broker-op" and the token role
// "broker-op"; and KV version 1 at kv1/ besides. AppRole is not enabled.
func New(o Options) *Server {
	s := &Server{
		now:      o.Now,
		mounts:   map[string]*mount{"kv": newMount(2), "kv1": newMount(1)},
		policies: map[string]policy{},
		roles:    map[string]role{},
		auths:    map[string]*authMount{},
		children: map[string]*Server{},
		tokens:   map[string]*token{},
		transits: map[string]transit{},
		oidcKeys: map[string]*signer{},
		oidc:     map[string]oidcRole{},
	}
	if s.now == nil {
		s.now = time.Now
	}
	s.root = &token{id: o.RootToken, accessor: rand.Text(), name: "root", policies: []string{"root"}}
	if s.root.id == "" {
		s.root.id = rand.Text()
	}
	s.tokens[s.root.id] = s.root
	s.policies["broker"] = parsePolicy(`
		path "auth/token/create/broker-op" { capabilities = ["update"] }
		path "auth/token/lookup-self" { capabilities = ["read"] }
		path "auth/token/renew-self" { capabilities = ["update"] }
		path "auth/token/revoke-self" { capabilities = ["update"] }
		path "sys/capabilities-self" { capabilities = ["update"] }
		path "kv/data/broker/+" { capabilities = ["read"] }
		path "kv/data/broker/+/+" { capabilities = ["read"] }`)
	s.policies["broker-op"] = parsePolicy(`
		path "cubbyhole/op/+" { capabilities = ["create", "read", "delete"] }
		path "auth/token/revoke-self" { capabilities = ["update"] }`)
	s.roles["broker-op"] = role{policies: []string{"broker-op"}, maxTTL: 75 * time.Second, noDefault: true}
	return s
}

// Start serves on a free loopback port and returns the URL, without a slash at
// the end. [Server.Close] stops it.
func (s *Server) Start() (url string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	s.Serve(l)
	return "http://" + l.Addr().String(), nil
}

// Serve serves on l too, until [Server.Close]: a Unix socket, or TLS that asks for
// certificates.
func (s *Server) Serve(l net.Listener) {
	if s.server == nil {
		s.server = &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}
	}
	go s.server.Serve(l)
}

// Close stops what Start and Serve started and cuts its connections.
func (s *Server) Close() error { return s.server.Close() }

// RootToken returns the token that may do everything.
func (s *Server) RootToken() string { return s.root.id }

// PutSecret stores a secret under a mount of either version.
func (s *Server) PutSecret(mount, path string, fields map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	data := make(map[string]any, len(fields))
	for k, v := range fields {
		data[k] = v
	}
	s.mounts[mount].put(path, data)
}

// A NewToken is what [Server.Mint] makes.
type NewToken struct {
	Policies  []string
	TTL       time.Duration // 0: for ever
	MaxTTL    time.Duration // 0: no cap on renewals
	Renewable bool
}

// Mint makes a token without a parent.
func (s *Server) Mint(n NewToken) (value, accessor string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.newToken("minted", nil, n.Policies, n.TTL, n.MaxTTL, n.Renewable)
	return t.id, t.accessor
}

// Revoke ends the token with this accessor and all that descend from it, and
// reports whether there was one.
func (s *Server) Revoke(accessor string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.byAccessor(accessor)
	if t != nil {
		s.end(t)
	}
	return t != nil
}

// RevokeAll ends every token of this name, see [Server.Live], and all that
// descend from them.
func (s *Server) RevokeAll(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tokens {
		if t.name == name {
			s.end(t)
		}
	}
}

// Seal makes every request but health answer 503, until it is called with false.
func (s *Server) Seal(sealed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sealed = sealed
}

// Residue is how many entries live cubbyholes hold.
func (s *Server) Residue() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep()
	n := 0
	for _, t := range s.tokens {
		n += len(t.cubbyhole)
	}
	return n
}

// Live is how many tokens of this name live: "root", "minted", the name of a
// token role, "wrapping", or an auth method and its role, as in "approle:broker".
func (s *Server) Live(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep()
	n := 0
	for _, t := range s.tokens {
		if t.name == name {
			n++
		}
	}
	return n
}

// Secrets returns every value that must not show up anywhere else: tokens,
// secret ids, data keys, and all strings that KV and the cubbyholes hold.
func (s *Server) Secrets() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	values := slices.Collect(maps.Keys(s.tokens))
	for _, t := range s.tokens {
		for _, data := range t.cubbyhole {
			values = append(values, stringsIn(data)...)
		}
	}
	for _, m := range s.mounts {
		for _, e := range m.entries {
			for _, data := range e.versions {
				values = append(values, stringsIn(data)...)
			}
		}
	}
	for _, m := range s.auths {
		for _, r := range m.roles {
			values = append(values, r.secretIDs...)
		}
	}
	for _, keys := range s.transits {
		for _, key := range keys {
			if key.encrypter != nil {
				values = append(values, key.encrypter.dataKeys...)
			}
		}
	}
	return values
}

// A Request is what the Server remembers of one request.
type Request struct {
	Method string
	Path   string // without /v1/
	Who    string // the token's name, see [Server.Live]; empty: no live token
	Status int    // 0: no answer was given
}

// Requests returns the requests so far, in the order of their ends.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Count is how many requests had this method (empty: any) and a path that
// begins like this.
func (s *Server) Count(method, pathPrefix string) int {
	n := 0
	for _, r := range s.Requests() {
		if (method == "" || r.Method == method) && strings.HasPrefix(r.Path, pathPrefix) {
			n++
		}
	}
	return n
}

// A Failure is how a request goes wrong. With none of Cut, Hang and Status set
// the answer is a 500 as Vault writes it.
type Failure struct {
	After    bool // the request takes effect first; else it does not
	Cut      bool // the connection is cut instead of an answer
	Hang     bool // no answer until the client gives up
	Status   int
	Type     string // Content-Type; empty: application/json
	Body     string
	Location string // the header
}

type fault struct {
	method, prefix string
	left           int
	failure        Failure
}

// Fail makes the next n requests of this method (empty: any) under this path go
// wrong; a negative n means all of them.
func (s *Server) Fail(method, pathPrefix string, n int, f Failure) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, &fault{method, pathPrefix, n, f})
}

// Mend forgets every Fail.
func (s *Server) Mend() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = nil
}

// failing takes one failure for the request, if there is any.
func (s *Server) failing(method, path string) *Failure {
	for _, f := range s.faults {
		if f.left != 0 && (f.method == "" || f.method == method) && strings.HasPrefix(path, f.prefix) {
			f.left--
			return &f.failure
		}
	}
	return nil
}
