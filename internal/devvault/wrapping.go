package devvault

import (
	"net/http"
	"time"
)

// A wrapped is an answer that waits under a token of its own for one taker.
type wrapped struct {
	answer reply
	path   string // of the request that made it
	made   time.Time
}

// wrap puts an answer away, as the header X-Vault-Wrap-TTL asks for it.
func (s *Server) wrap(r reply, c call) reply {
	t := s.newToken("wrapping", nil, nil, c.wrapTTL, c.wrapTTL, false)
	t.wrapped = &wrapped{r, c.path, s.now()}
	return reply{status: http.StatusOK, wrap: document{"token": t.id, "accessor": t.accessor, "ttl": int(c.wrapTTL / time.Second),
		"creation_time": t.wrapped.made.UTC().Format(time.RFC3339Nano), "creation_path": c.path}}
}

// wrapping finds the wrapping token that a call is about: in its body, or its own.
func (s *Server) wrapping(c call) *token {
	t := c.token
	if id, _ := c.body["token"].(string); id != "" {
		t = s.tokens[id]
	}
	if t == nil || t.wrapped == nil {
		return nil
	}
	return t
}

var notWrapping = said(http.StatusBadRequest, "wrapping token is not valid or does not exist")

func (s *Server) lookupWrapping(c call) reply {
	t := s.wrapping(c)
	if t == nil {
		return notWrapping
	}
	return reply{status: http.StatusOK, data: document{"creation_path": t.wrapped.path, "creation_ttl": int(t.ttl / time.Second),
		"creation_time": t.wrapped.made.UTC().Format(time.RFC3339Nano)}}
}

func (s *Server) unwrap(c call) reply {
	t := s.wrapping(c)
	if t == nil {
		return notWrapping
	}
	s.end(t)
	return t.wrapped.answer
}

// wrapData wraps what it is given.
func (s *Server) wrapData(c call) reply { return reply{status: http.StatusOK, data: clone(c.body)} }
