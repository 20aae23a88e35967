package devvault

import (
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A token dies at ends, or with its parent; its cubbyhole dies with it.
type token struct {
	id, accessor string
	name         string // see Live
	policies     []string
	parent       *token // nil: an orphan
	ttl          time.Duration
	ends, last   time.Time // zero: never; last: no renewal goes beyond
	renewable    bool
	entity       string            // who logged in; empty for a token that was only made
	certificate  *x509.Certificate // that it logged in with: renewed for no other
	wrapped      *wrapped          // nil: it wraps nothing
	cubbyhole    map[string]document
}

// A role is auth/token/roles/<name>.
type role struct {
	policies  []string
	maxTTL    time.Duration // token_explicit_max_ttl
	orphan    bool
	renewable bool
	noDefault bool
}

const defaultTTL = 768 * time.Hour // Vault's system default

func (s *Server) newToken(name string, parent *token, policies []string, ttl, maxTTL time.Duration, renewable bool) *token {
	if maxTTL > 0 && (ttl == 0 || ttl > maxTTL) {
		ttl = maxTTL
	}
	t := &token{id: rand.Text(), accessor: rand.Text(), name: name, parent: parent, policies: policies,
		ttl: ttl, renewable: renewable, cubbyhole: map[string]document{}}
	if ttl > 0 {
		t.ends = s.now().Add(ttl)
	}
	if maxTTL > 0 {
		t.last = s.now().Add(maxTTL)
	}
	s.tokens[t.id] = t
	return t
}

// sweep ends every token whose time has come.
func (s *Server) sweep() {
	now := s.now()
	for _, t := range s.tokens {
		if !t.ends.IsZero() && !now.Before(t.ends) {
			s.end(t)
		}
	}
}

// end removes a token and all that descend from it.
func (s *Server) end(t *token) {
	delete(s.tokens, t.id)
	for _, child := range s.tokens {
		if child.parent == t {
			s.end(child)
		}
	}
}

func (s *Server) byAccessor(accessor string) *token {
	for _, t := range s.tokens {
		if t.accessor == accessor {
			return t
		}
	}
	return nil
}

func (s *Server) createByRole(c call) reply {
	r, ok := s.roles[c.rest]
	if !ok {
		return said(http.StatusBadRequest, "unknown role "+c.rest)
	}
	policies := r.policies
	if asked := words(c.body["policies"]); len(asked) > 0 {
		for _, p := range asked {
			if !slices.Contains(r.policies, p) {
				return said(http.StatusBadRequest, "token policies must be subset of the role's allowed policies")
			}
		}
		policies = asked
	}
	if !r.noDefault {
		policies = append(slices.Clone(policies), "default")
	}
	maxTTL := r.maxTTL
	if asked := span(c.body["explicit_max_ttl"]); asked > 0 && (maxTTL == 0 || asked < maxTTL) {
		maxTTL = asked
	}
	ttl := span(c.body["ttl"])
	if ttl == 0 {
		ttl = defaultTTL
	}
	parent := c.token
	if r.orphan {
		parent = nil
	}
	t := s.newToken(c.rest, parent, policies, ttl, maxTTL, r.renewable && c.body["renewable"] != false)
	return reply{status: http.StatusOK, auth: s.auth(t)}
}

// create is for root: a token of any kind.
func (s *Server) create(c call) reply {
	parent := c.token
	if c.body["no_parent"] == true || c.path == "auth/token/create-orphan" {
		parent = nil
	}
	ttl := span(c.body["ttl"])
	if ttl == 0 {
		ttl = defaultTTL
	}
	t := s.newToken("minted", parent, words(c.body["policies"]), ttl, span(c.body["explicit_max_ttl"]), c.body["renewable"] != false)
	return reply{status: http.StatusOK, auth: s.auth(t)}
}

func (s *Server) auth(t *token) document {
	return document{"client_token": t.id, "accessor": t.accessor, "policies": t.policies, "token_policies": t.policies,
		"lease_duration": s.seconds(t), "renewable": t.renewable, "token_type": "service", "orphan": t.parent == nil}
}

// seconds is the rest of t's life, rounded up; 0 for ever.
func (s *Server) seconds(t *token) int {
	if t.ends.IsZero() {
		return 0
	}
	return int((t.ends.Sub(s.now()) + time.Second - 1) / time.Second)
}

func (s *Server) lookupSelf(c call) reply {
	t := c.token
	return reply{status: http.StatusOK, data: document{"accessor": t.accessor, "id": t.id, "policies": t.policies,
		"ttl": s.seconds(t), "creation_ttl": int(t.ttl / time.Second), "renewable": t.renewable, "orphan": t.parent == nil,
		"type": "service"}}
}

func (s *Server) renewSelf(c call) reply {
	t := c.token
	switch {
	case !t.renewable || t.ends.IsZero():
		return said(http.StatusBadRequest, "lease is not renewable")
	case t.certificate != nil && !t.certificate.Equal(c.certificate):
		return said(http.StatusBadRequest, "client identity during renewal not matching client identity used during login")
	}
	t.ends = s.now().Add(t.ttl)
	if !t.last.IsZero() && t.ends.After(t.last) {
		t.ends = t.last
	}
	return reply{status: http.StatusOK, auth: s.auth(t)}
}

func (s *Server) revokeSelf(c call) reply {
	s.end(c.token)
	return done
}

func (s *Server) revokeAccessor(c call) reply {
	accessor, _ := c.body["accessor"].(string)
	if t := s.byAccessor(accessor); t != nil {
		s.end(t)
		return done
	}
	return reply{status: http.StatusOK} // Vault 1.21: a warning
}

func (s *Server) configureRole(c call) reply {
	if c.method == http.MethodGet {
		r, ok := s.roles[c.rest]
		if !ok {
			return absent
		}
		return reply{status: http.StatusOK, data: document{"allowed_policies": r.policies, "orphan": r.orphan,
			"renewable": r.renewable, "token_explicit_max_ttl": int(r.maxTTL / time.Second), "token_no_default_policy": r.noDefault}}
	}
	s.roles[c.rest] = role{
		policies:  words(c.body["allowed_policies"]),
		maxTTL:    span(c.body["token_explicit_max_ttl"]),
		orphan:    c.body["orphan"] == true,
		renewable: c.body["renewable"] != false,
		noDefault: c.body["token_no_default_policy"] == true,
	}
	return done
}

// words reads a list of names as Vault takes it: JSON, or with commas.
func words(v any) (list []string) {
	switch v := v.(type) {
	case string:
		for w := range strings.SplitSeq(v, ",") {
			if w = strings.TrimSpace(w); w != "" {
				list = append(list, w)
			}
		}
	case []any:
		for _, w := range v {
			if w, ok := w.(string); ok {
				list = append(list, w)
			}
		}
	}
	return list
}

// span reads a duration as Vault takes it: seconds, or with a unit.
func span(v any) time.Duration {
	switch v := v.(type) {
	case float64:
		return time.Duration(v) * time.Second
	case string:
		if n, err := strconv.Atoi(v); err == nil {
			return time.Duration(n) * time.Second
		}
		d, _ := time.ParseDuration(v)
		return d
	}
	return 0
}

// stringsIn returns every string value in a document.
func stringsIn(d document) (list []string) {
	for _, v := range d {
		switch v := v.(type) {
		case string:
			list = append(list, v)
		case document:
			list = append(list, stringsIn(v)...)
		}
	}
	return list
}

// clone keeps a stored document apart from the one that came in.
func clone(d document) (copied document) {
	b, _ := json.Marshal(d)
	json.Unmarshal(b, &copied)
	return copied
}
