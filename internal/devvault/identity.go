package devvault

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"time"
)

// An oidcRole is identity/oidc/role/<name>.
type oidcRole struct {
	key      string
	clientID string // the aud of its tokens
	ttl      time.Duration
}

func (s *Server) configureKey(c call) reply {
	key := s.oidcKeys[c.rest]
	switch {
	case c.method == http.MethodGet && key == nil:
		return absent
	case c.method == http.MethodGet:
		return reply{status: http.StatusOK, data: document{"algorithm": "ES256"}}
	case key == nil && c.body["algorithm"] != "ES256": // the one that is here
		return said(http.StatusBadRequest, "unknown signing algorithm")
	case key == nil:
		s.oidcKeys[c.rest] = newSigner("ecdsa-p256")
	}
	return done
}

func (s *Server) configureOIDC(c call) reply {
	role, there := s.oidc[c.rest]
	key, _ := c.body["key"].(string)
	switch {
	case c.method == http.MethodGet && !there:
		return absent
	case c.method == http.MethodGet:
		return reply{status: http.StatusOK, data: document{"key": role.key, "client_id": role.clientID, "ttl": int(role.ttl / time.Second)}}
	case s.oidcKeys[key] == nil:
		return said(http.StatusBadRequest, "cannot find key")
	}
	if !there {
		role.clientID = rand.Text()
	}
	role.key, role.ttl = key, span(c.body["ttl"])
	s.oidc[c.rest] = role
	return done
}

// issueOIDC signs an ID token of the asking token's entity.
func (s *Server) issueOIDC(c call) reply {
	role, there := s.oidc[c.rest]
	switch {
	case !there:
		return said(http.StatusBadRequest, "role not found")
	case c.token.entity == "":
		return said(http.StatusBadRequest, "no entity associated with the request's token")
	}
	now := s.now()
	token := encode(document{"alg": "ES256", "typ": "JWT"}) + "." + encode(document{"iss": "devvault", "aud": role.clientID,
		"sub": c.token.entity, "iat": now.Unix(), "exp": now.Add(role.ttl).Unix()})
	signature := signJWS(s.oidcKeys[role.key].newest(), []byte(token), nil)
	token += "." + base64.RawURLEncoding.EncodeToString(signature)
	return reply{status: http.StatusOK, data: document{"client_id": role.clientID, "token": token, "ttl": int(role.ttl / time.Second)}}
}

func encode(d document) string {
	b, err := json.Marshal(d)
	if err != nil {
		panic(err) // the document is ours
	}
	return base64.RawURLEncoding.EncodeToString(b)
}
