package devvault

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// An authMount is one auth method where it is enabled.
type authMount struct {
	kind   string // approle, jwt, kubernetes or cert
	config document
	roles  map[string]*authRole
}

// An authRole is a role of an auth method; of cert, a certificate.
type authRole struct {
	name, entity string
	settings     document
	policies     []string
	ttl, maxTTL  time.Duration

	roleID    string // approle
	secretIDs []string
	refused   int       // in a row
	last      time.Time // of the refusals
}

// rolesAt is where a method keeps its roles.
var rolesAt = map[string]string{"approle": "role/", "jwt": "role/", "kubernetes": "role/", "cert": "certs/"}

// authAt splits a path below auth/ into the mount and the rest.
func (s *Server) authAt(path string) (*authMount, string) {
	for i := range path {
		if path[i] == '/' && s.auths[path[:i]] != nil {
			return s.auths[path[:i]], path[i+1:]
		}
	}
	return nil, ""
}

func (s *Server) enableAuth(c call) reply {
	m := s.auths[c.rest]
	kind, _ := c.body["type"].(string)
	switch {
	case c.method == http.MethodGet && m == nil:
		return said(http.StatusBadRequest, "No auth engine at "+c.rest+"/")
	case c.method == http.MethodGet:
		return reply{status: http.StatusOK, data: document{"type": m.kind}}
	case m != nil:
		return said(http.StatusBadRequest, "path is already in use at "+c.rest+"/")
	case rolesAt[kind] == "":
		return said(http.StatusBadRequest, "plugin not found in the catalog: "+kind)
	}
	s.auths[c.rest] = &authMount{kind: kind, config: document{}, roles: map[string]*authRole{}}
	return done
}

// authMounted answers below auth/. A login needs no token, all else does.
func (s *Server) authMounted(c call) reply {
	m, rest := s.authAt(c.rest)
	name, isRole := "", false
	if m != nil {
		name, isRole = strings.CutPrefix(rest, rolesAt[m.kind])
	}
	switch {
	case m != nil && rest == "login":
		if c.method != http.MethodPost && c.method != http.MethodPut {
			return said(http.StatusMethodNotAllowed, "unsupported operation")
		}
		return s.login(m, c)
	case !s.allowed(c):
		return denied
	case m == nil:
		return absent
	case isRole:
		return m.configureRole(c, name)
	case rest == "config" && c.method != http.MethodGet:
		m.config = clone(c.body)
		return done
	}
	return absent
}

func (m *authMount) configureRole(c call, name string) reply {
	name, part, _ := strings.Cut(name, "/")
	r := m.roles[name]
	switch {
	case r == nil && (part != "" || c.method == http.MethodGet):
		return absent
	case part == "role-id" && m.kind == "approle":
		return reply{status: http.StatusOK, data: document{"role_id": r.roleID}}
	case part == "secret-id" && m.kind == "approle":
		id := rand.Text()
		r.secretIDs = append(r.secretIDs, id)
		return reply{status: http.StatusOK, data: document{"secret_id": id, "secret_id_ttl": 0}}
	case part != "":
		return absent
	case c.method == http.MethodGet:
		return reply{status: http.StatusOK, data: document{"token_policies": r.policies}}
	}
	if r == nil {
		r = &authRole{name: name, roleID: rand.Text(), entity: rand.Text()}
		m.roles[name] = r
	}
	r.settings = clone(c.body)
	r.policies, r.ttl, r.maxTTL = words(c.body["token_policies"]), span(c.body["token_ttl"]), span(c.body["token_max_ttl"])
	return done
}

func (s *Server) login(m *authMount, c call) reply {
	var r *authRole
	var refusal reply
	switch m.kind {
	case "approle":
		r, refusal = m.byAppRole(c, s.now())
	case "jwt":
		r, refusal = m.byJWT(c, s.now())
	case "kubernetes":
		r, refusal = m.byTokenReview(c)
	case "cert":
		r, refusal = m.byCertificate(c, s.now())
	}
	if r == nil {
		return refusal
	}
	ttl := r.ttl
	if ttl == 0 {
		ttl = defaultTTL
	}
	t := s.newToken(m.kind+":"+r.name, nil, r.policies, ttl, r.maxTTL, true)
	t.entity = r.entity
	if m.kind == "cert" {
		t.certificate = c.certificate
	}
	return reply{status: http.StatusOK, auth: s.auth(t)}
}

// As Vault does it: five refusals, less than 15 minutes apart, close a role for so long.
const (
	lockoutThreshold = 5
	lockoutDuration  = 15 * time.Minute
)

func (m *authMount) byAppRole(c call, now time.Time) (*authRole, reply) {
	secretID, _ := c.body["secret_id"].(string)
	for _, r := range m.roles {
		if r.roleID != c.body["role_id"] {
			continue
		}
		if now.Sub(r.last) >= lockoutDuration {
			r.refused = 0
		}
		switch {
		case r.refused >= lockoutThreshold:
			return nil, denied
		case slices.Contains(r.secretIDs, secretID):
			r.refused = 0
			return r, reply{}
		}
		r.refused, r.last = r.refused+1, now
	}
	return nil, said(http.StatusBadRequest, "invalid role or secret ID")
}

// byJWT knows keys that are configured, of ECDSA alone.
func (m *authMount) byJWT(c call, now time.Time) (*authRole, reply) {
	name, _ := c.body["role"].(string)
	r := m.roles[name]
	if r == nil {
		return nil, said(http.StatusBadRequest, "role could not be found")
	}
	token, _ := c.body["jwt"].(string)
	options := []jwt.ParserOption{jwt.WithValidMethods([]string{"ES256"}), jwt.WithExpirationRequired(), jwt.WithTimeFunc(func() time.Time { return now })}
	for _, audience := range words(r.settings["bound_audiences"]) {
		options = append(options, jwt.WithAudience(audience))
	}
	if subject, _ := r.settings["bound_subject"].(string); subject != "" {
		options = append(options, jwt.WithSubject(subject))
	}
	for _, key := range words(m.config["jwt_validation_pubkeys"]) {
		public, ok := parsePublicKey(key)
		if !ok {
			continue
		}
		if _, err := jwt.Parse(token, func(*jwt.Token) (any, error) { return public, nil }, options...); err == nil {
			return r, reply{}
		}
	}
	return nil, said(http.StatusBadRequest, "error validating token")
}

func parsePublicKey(text string) (*ecdsa.PublicKey, bool) {
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return nil, false
	}
	key, err := x509.ParsePKIXPublicKey(block.Bytes)
	public, ok := key.(*ecdsa.PublicKey)
	return public, err == nil && ok
}

// byTokenReview asks the API server whose the token is.
func (m *authMount) byTokenReview(c call) (*authRole, reply) {
	name, _ := c.body["role"].(string)
	r := m.roles[name]
	if r == nil {
		return nil, said(http.StatusBadRequest, "invalid role name")
	}
	user, ok := m.review(c.body["jwt"])
	part := strings.Split(user, ":")
	switch {
	case !ok || len(part) != 4 || part[0] != "system" || part[1] != "serviceaccount":
		return nil, denied
	case !slices.Contains(words(r.settings["bound_service_account_namespaces"]), part[2]),
		!slices.Contains(words(r.settings["bound_service_account_names"]), part[3]):
		return nil, denied
	}
	return r, reply{}
}

func (m *authMount) review(token any) (user string, ok bool) {
	host, _ := m.config["kubernetes_host"].(string)
	reviewer, _ := m.config["token_reviewer_jwt"].(string)
	body, err := json.Marshal(document{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": document{"token": token}})
	if err != nil {
		return "", false
	}
	req, err := http.NewRequest(http.MethodPost, host+"/apis/authentication.k8s.io/v1/tokenreviews", bytes.NewReader(body))
	if err != nil {
		return "", false
	}
	req.Header.Set("Authorization", "Bearer "+reviewer)
	req.Header.Set("Content-Type", "application/json")
	ca, _ := m.config["kubernetes_ca_cert"].(string)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(ca))
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	defer transport.CloseIdleConnections()
	client := http.Client{Transport: transport, Timeout: 5 * time.Second}
	resp, err := client.Do(req)
	if err != nil {
		return "", false
	}
	defer resp.Body.Close()
	var said struct {
		Status struct {
			Authenticated bool
			User          struct{ Username string }
		}
	}
	err = json.NewDecoder(resp.Body).Decode(&said)
	return said.Status.User.Username, err == nil && resp.StatusCode < 300 && said.Status.Authenticated
}

// byCertificate takes what the TLS handshake has shown, if an authority that is
// configured has issued it.
func (m *authMount) byCertificate(c call, now time.Time) (*authRole, reply) {
	if c.certificate == nil {
		return nil, said(http.StatusBadRequest, "client certificate must be supplied")
	}
	for name, r := range m.roles {
		if asked, _ := c.body["name"].(string); asked != "" && asked != name {
			continue
		}
		text, _ := r.settings["certificate"].(string)
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM([]byte(text))
		_, err := c.certificate.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
		if err == nil {
			return r, reply{}
		}
	}
	return nil, said(http.StatusBadRequest, "invalid certificate or no client certificate supplied")
}
