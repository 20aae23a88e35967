package devvault

import (
	"net/http"
	"strings"
)

// createNamespace makes a namespace below this one: a Vault of its own, in which the
// tokens of those above it are known.
func (s *Server) createNamespace(c call) reply {
	child := s.children[c.rest]
	switch {
	case c.method == http.MethodGet && child == nil:
		return absent
	case child == nil:
		child = New(Options{Now: s.now})
		delete(child.mounts, "kv") // a new namespace is empty
		delete(child.mounts, "kv1")
		clear(child.policies)
		clear(child.roles)
		clear(child.tokens) // and has no root of its own
		child.parent = s
		s.children[c.rest] = child
	}
	return reply{status: http.StatusOK, data: document{"path": c.rest + "/"}}
}

// Namespace returns the namespace at a path such as "team/a"; nil if there is none.
func (s *Server) Namespace(path string) *Server {
	for name := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		if name == "" || s == nil {
			return s
		}
		s.mu.Lock()
		child := s.children[name]
		s.mu.Unlock()
		s = child
	}
	return s
}

// above finds a live token of a namespace above this one. What it may do is what its
// policies say there, so here all but root may do nothing.
func (s *Server) above(id string) *token {
	if s.parent == nil {
		return nil
	}
	s.parent.mu.Lock()
	defer s.parent.mu.Unlock()
	s.parent.sweep()
	if t := s.parent.tokens[id]; t != nil {
		return t
	}
	return s.parent.above(id)
}
