package devvault

import (
	"crypto/x509"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"time"
)

// A call is one request on its way to an answer.
type call struct {
	method string
	path   string   // without /v1/
	rest   string   // what the route's "*" stood for
	token  *token   // nil: none that lives
	body   document // empty without one
	media  string   // its Content-Type
	query  url.Values

	certificate *x509.Certificate // shown in the TLS handshake; nil: none
	wrapTTL     time.Duration     // X-Vault-Wrap-TTL; 0: not asked for
}

type document = map[string]any

// A reply is an answer before it is JSON. Data and auth go into Vault's
// envelope; raw stands alone.
type reply struct {
	status     int
	data, auth document
	wrap       document
	raw        document
	errors     []string
	bare       bool // no body
}

func said(status int, errors ...string) reply { return reply{status: status, errors: errors} }

var (
	done   = reply{status: http.StatusNoContent}
	denied = said(http.StatusForbidden, "permission denied")
	absent = reply{status: http.StatusNotFound}
)

// routes are the endpoints, the first match counts. A "*" at the end takes the
// rest of the path. Open ones need no token.
var routes = []struct {
	methods, path string
	open          bool
	handle        func(*Server, call) reply
}{
	{"GET", "sys/health", true, (*Server).health},
	{"GET", "sys/internal/ui/mounts/*", true, (*Server).readMount},
	{"GET POST PUT", "sys/mounts/*", false, (*Server).configureMount},
	{"POST PUT", "sys/capabilities-self", false, (*Server).ownCapabilities},
	{"POST PUT", "sys/policies/acl/*", false, (*Server).writePolicy},
	{"GET POST PUT", "sys/auth/*", false, (*Server).enableAuth},
	{"GET POST PUT", "sys/namespaces/*", false, (*Server).createNamespace},
	{"POST PUT", "sys/wrapping/wrap", false, (*Server).wrapData},
	{"POST PUT", "sys/wrapping/lookup", true, (*Server).lookupWrapping},
	{"POST PUT", "sys/wrapping/unwrap", true, (*Server).unwrap},
	{"GET POST PUT", "auth/token/roles/*", false, (*Server).configureRole},
	{"POST PUT", "auth/token/create/*", false, (*Server).createByRole},
	{"POST PUT", "auth/token/create", false, (*Server).create},
	{"POST PUT", "auth/token/create-orphan", false, (*Server).create},
	{"GET", "auth/token/lookup-self", false, (*Server).lookupSelf},
	{"POST PUT", "auth/token/renew-self", false, (*Server).renewSelf},
	{"POST PUT", "auth/token/revoke-self", false, (*Server).revokeSelf},
	{"POST PUT", "auth/token/revoke-accessor", false, (*Server).revokeAccessor},
	{"GET POST PUT", "auth/*", true, (*Server).authMounted},
	{"GET POST PUT DELETE", "cubbyhole/*", false, (*Server).cubbyhole},
	{"GET POST PUT", "identity/oidc/key/*", false, (*Server).configureKey},
	{"GET POST PUT", "identity/oidc/role/*", false, (*Server).configureOIDC},
	{"GET", "identity/oidc/token/*", false, (*Server).issueOIDC},
	{"GET POST PUT PATCH DELETE", "*", false, (*Server).mounted},
}

// ServeHTTP answers one request, or fails it as [Server.Fail] says.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path, ok := strings.CutPrefix(r.URL.Path, "/v1/")
	body, err := io.ReadAll(io.LimitReader(r.Body, 32<<20))
	if !ok || err != nil {
		http.NotFound(w, r)
		return
	}
	in := s.Namespace(r.Header.Get("X-Vault-Namespace"))
	if in == nil {
		said(http.StatusNotFound, "namespace not found").write(w)
		return
	}
	in.serve(w, r, path, body)
}

// serve answers one request in a namespace.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, path string, body []byte) {
	c := call{method: r.Method, path: path, media: r.Header.Get("Content-Type"), query: r.URL.Query(), wrapTTL: span(r.Header.Get("X-Vault-Wrap-TTL"))}
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		c.certificate = r.TLS.PeerCertificates[0]
	}
	who, answer, failure := s.act(c, r.Header.Get("X-Vault-Token"), body)

	status := answer.status
	if failure != nil {
		status = failure.Status
		if status == 0 && !failure.Cut && !failure.Hang {
			*failure = Failure{Status: http.StatusInternalServerError, Body: `{"errors":["internal error"]}`}
			status = failure.Status
		}
	}
	s.mu.Lock()
	s.requests = append(s.requests, Request{r.Method, path, who, status})
	s.mu.Unlock()

	if failure != nil {
		failure.write(w, r)
		return
	}
	answer.write(w)
}

// act lets one request take effect. The failure, if any, is to be shown
// instead of the answer.
func (s *Server) act(c call, tokenID string, body []byte) (who string, r reply, f *Failure) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep()
	c.token = s.tokens[tokenID]
	if c.token == nil {
		c.token = s.above(tokenID)
	}
	if c.token != nil {
		who = c.token.name
	}
	if next := s.failing(c.method, c.path); next != nil {
		copied := *next
		f = &copied
		if !f.After {
			return who, reply{}, f
		}
	}
	if len(body) > 0 && json.Unmarshal(body, &c.body) != nil {
		return who, said(http.StatusBadRequest, "error parsing JSON"), f
	}
	r = s.answer(c)
	if c.wrapTTL > 0 && r.status == http.StatusOK {
		r = s.wrap(r, c)
	}
	return who, r, f
}

func (s *Server) answer(c call) reply {
	if s.sealed && c.path != "sys/health" {
		return said(http.StatusServiceUnavailable, "Vault is sealed")
	}
	for _, route := range routes {
		prefix, wild := strings.CutSuffix(route.path, "*")
		if rest, ok := strings.CutPrefix(c.path, prefix); ok && (wild || rest == "") {
			c.rest = rest
			switch {
			case !route.open && !s.allowed(c):
				return denied
			case !strings.Contains(" "+route.methods+" ", " "+c.method+" "):
				return said(http.StatusMethodNotAllowed, "unsupported operation")
			}
			return route.handle(s, c)
		}
	}
	return absent
}

func (s *Server) health(c call) reply {
	if s.parent != nil {
		return said(http.StatusBadRequest, "operation unavailable in namespaces")
	}
	status := http.StatusOK
	if s.sealed && c.query.Get("sealedcode") != "200" {
		status = http.StatusServiceUnavailable
	}
	return reply{status: status, raw: document{"initialized": true, "sealed": s.sealed, "standby": false, "version": "devvault", "server_time_utc": s.now().Unix()}}
}

func (r reply) write(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(r.status)
	if r.status == http.StatusNoContent || r.bare {
		return
	}
	var body any = document{"request_id": "devvault", "data": r.data, "auth": r.auth, "wrap_info": r.wrap, "warnings": nil}
	switch {
	case r.raw != nil:
		body = r.raw
	case r.status >= 400 && r.data == nil:
		body = document{"errors": append([]string{}, r.errors...)}
	}
	json.NewEncoder(w).Encode(body)
}

func (f Failure) write(w http.ResponseWriter, r *http.Request) {
	switch {
	case f.Hang:
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	case f.Cut:
		panic(http.ErrAbortHandler)
	}
	if f.Location != "" {
		w.Header().Set("Location", f.Location)
	}
	if f.Type == "" {
		f.Type = "application/json"
	}
	w.Header().Set("Content-Type", f.Type)
	w.WriteHeader(f.Status)
	io.WriteString(w, f.Body)
}

// RoundTrip answers without a network, for tests in which time is held still.
func (s *Server) RoundTrip(r *http.Request) (resp *http.Response, err error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	if r.Body == nil {
		r = r.Clone(r.Context())
		r.Body = http.NoBody
	}
	defer r.Body.Close()
	defer func() {
		if p := recover(); p == http.ErrAbortHandler {
			if resp, err = nil, r.Context().Err(); err == nil {
				err = io.ErrUnexpectedEOF
			}
		} else if p != nil {
			panic(p)
		}
	}()
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	resp = w.Result()
	resp.Request = r
	return resp, nil
}
