package devidp

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

// newEngine binds the engine to p. What has no endpoint here is not served.
func newEngine(p *Provider) (http.Handler, error) {
	provider, err := op.NewProvider(
		&op.Config{AuthMethodPost: true, AuthMethodPrivateKeyJWT: true, CodeMethodS256: true, CryptoKey: chance()},
		&storage{p: p}, op.StaticIssuer(p.issuer), op.WithAllowInsecure())
	if err != nil {
		return nil, err
	}
	legacy := op.NewLegacyServer(provider, op.Endpoints{
		Authorization: op.NewEndpoint("authorize"),
		Token:         op.NewEndpoint("oauth/token"),
		Revocation:    op.NewEndpoint("revoke"),
		JwksURI:       op.NewEndpoint("keys"),
	})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /login", p.showLogin)
	mux.HandleFunc("POST /login", func(w http.ResponseWriter, r *http.Request) {
		p.login(w, r, provider, func(id string) string { return p.issuer + "/authorize/callback?id=" + id })
	})
	mux.Handle("/", op.RegisterLegacyServer(&server{legacy, p}, op.AuthorizeCallbackHandler(provider)))
	return mux, nil
}

// chance is a key for codes: they hold the id of their request.
func chance() (key [32]byte) {
	rand.Read(key[:])
	return key
}

// server is the engine with one step of its own: a grant may be altered between
// the check and the issue.
type server struct {
	*op.LegacyServer
	p *Provider
}

func (s *server) TokenExchange(ctx context.Context, r *op.ClientRequest[oidc.TokenExchangeRequest]) (*op.Response, error) {
	checked, err := op.CreateTokenExchangeRequest(ctx, r.Data, r.Client, s.Provider())
	if err != nil {
		return nil, err
	}
	g := &granted{checked, Grant{checked.GetSubject(), checked.GetClientID(), checked.GetAudience(), checked.GetScopes()}}
	s.p.mu.Lock()
	alter := s.p.alter
	s.p.mu.Unlock()
	if alter != nil {
		alter(&g.Grant)
	}
	resp, err := op.CreateTokenExchangeResponse(ctx, g, r.Client, s.Provider())
	if err != nil {
		return nil, err
	}
	s.p.mu.Lock()
	s.p.issued = append(s.p.issued, resp.AccessToken)
	s.p.mu.Unlock()
	return op.NewResponse(resp), nil
}

// CodeExchange needs the verifier of every client, where the engine lets one with a
// secret go without.
func (s *server) CodeExchange(ctx context.Context, r *op.ClientRequest[oidc.AccessTokenRequest]) (*op.Response, error) {
	if r.Data.CodeVerifier == "" {
		return nil, oidc.ErrInvalidRequest().WithDescription("code_verifier is needed")
	}
	return s.LegacyServer.CodeExchange(ctx, r)
}

// granted is a request with the parts of Grant in their place.
type granted struct {
	op.TokenExchangeRequest
	Grant
}

func (g *granted) GetSubject() string    { return g.Subject }
func (g *granted) GetAudience() []string { return g.Audience }
func (g *granted) GetScopes() []string   { return g.Scopes }

// storage is what the engine asks about clients, keys and policy. The embedded
// interface is nil: the methods that are not here belong to endpoints that are
// not served.
type storage struct {
	op.Storage
	p *Provider
}

// ValidateTokenExchangeRequest is the policy: client → audience → scopes.
func (s *storage) ValidateTokenExchangeRequest(_ context.Context, r op.TokenExchangeRequest) error {
	client, _ := s.p.client(r.GetClientID())
	meant, _ := r.GetExchangeSubjectTokenClaims()["aud"].(string)
	switch {
	case meant != s.p.issuer || s.p.isRevoked(r.GetExchangeSubjectTokenIDOrToken()):
		return oidc.ErrInvalidRequest().WithDescription("subject_token is not acceptable")
	case len(client.Allow) == 0:
		return oidc.ErrUnauthorizedClient()
	case len(r.GetAudience()) == 0:
		return oidc.ErrInvalidTarget()
	}
	for _, audience := range r.GetAudience() {
		scopes, known := client.Allow[audience]
		if !known {
			return oidc.ErrInvalidTarget()
		}
		for _, scope := range r.GetScopes() {
			if !slices.Contains(scopes, scope) {
				return oidc.ErrInvalidScope()
			}
		}
	}
	return nil
}

func (s *storage) CreateTokenExchangeRequest(context.Context, op.TokenExchangeRequest) error {
	return nil
}

func (s *storage) GetPrivateClaimsFromTokenExchangeRequest(_ context.Context, r op.TokenExchangeRequest) (map[string]any, error) {
	return map[string]any{
		"act":   map[string]any{"sub": r.(*granted).Actor},
		"scope": strings.Join(r.GetScopes(), " "),
	}, nil
}

func (s *storage) SetUserinfoFromTokenExchangeRequest(context.Context, *oidc.UserInfo, op.TokenExchangeRequest) error {
	return errors.New("no ID tokens here")
}

func (s *storage) CreateAccessToken(context.Context, op.TokenRequest) (string, time.Time, error) {
	return rand.Text(), time.Now().Add(s.p.ttl), nil
}

func (s *storage) CreateAccessAndRefreshTokens(context.Context, op.TokenRequest, string) (string, string, time.Time, error) {
	return "", "", time.Time{}, oidc.ErrInvalidRequest().WithDescription("no refresh tokens here")
}

func (s *storage) TokenRequestByRefreshToken(context.Context, string) (op.RefreshTokenRequest, error) {
	return nil, op.ErrInvalidRefreshToken
}

func (s *storage) GetRefreshTokenInfo(context.Context, string, string) (string, string, error) {
	return "", "", op.ErrInvalidRefreshToken
}

func (s *storage) RevokeToken(_ context.Context, jti, _, _ string) *oidc.Error {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	s.p.revoked[jti] = true
	return nil
}

func (s *storage) GetClientByClientID(_ context.Context, id string) (op.Client, error) {
	c, known := s.p.client(id)
	if !known {
		return nil, errors.New("unknown client")
	}
	return registered{c}, nil
}

func (s *storage) AuthorizeClientIDSecret(_ context.Context, id, secret string) error {
	c, known := s.p.client(id)
	if !known || c.Secret == "" || subtle.ConstantTimeCompare([]byte(c.Secret), []byte(secret)) != 1 {
		return errors.New("unknown client or wrong secret")
	}
	return nil
}

func (s *storage) GetKeyByIDAndClientID(_ context.Context, _, id string) (*jose.JSONWebKey, error) {
	c, known := s.p.client(id)
	if !known || c.Key == nil {
		return nil, errors.New("unknown client or no key")
	}
	return &jose.JSONWebKey{Key: c.Key, Use: "sig"}, nil
}

func (s *storage) SigningKey(context.Context) (op.SigningKey, error) { return s.p.key, nil }
func (s *storage) KeySet(context.Context) ([]op.Key, error)          { return []op.Key{public{s.p.key}}, nil }
func (s *storage) SignatureAlgorithms(context.Context) ([]jose.SignatureAlgorithm, error) {
	return []jose.SignatureAlgorithm{jose.ES256}, nil
}
func (s *storage) Health(context.Context) error { return nil }

func (p *Provider) client(id string) (Client, bool) {
	p.mu.Lock()
	c, known := p.clients[id]
	p.mu.Unlock()
	return c, known
}

// registered shows a Client to the engine.
type registered struct{ c Client }

func (r registered) GetID() string { return r.c.ID }
func (r registered) AuthMethod() oidc.AuthMethod {
	switch r.c.Auth {
	case "none":
		return oidc.AuthMethodNone
	case "private_key_jwt":
		return oidc.AuthMethodPrivateKeyJWT
	case "post":
		return oidc.AuthMethodPost
	default:
		return oidc.AuthMethodBasic
	}
}
func (r registered) GrantTypes() []oidc.GrantType {
	return []oidc.GrantType{oidc.GrantTypeTokenExchange, oidc.GrantTypeCode}
}
func (r registered) AccessTokenType() op.AccessTokenType { return op.AccessTokenTypeJWT }
func (r registered) ApplicationType() op.ApplicationType { return op.ApplicationTypeWeb }
func (r registered) IDTokenLifetime() time.Duration      { return idTokenLife }
func (r registered) ClockSkew() time.Duration            { return 0 }
func (r registered) RedirectURIs() []string              { return r.c.Redirects }
func (r registered) PostLogoutRedirectURIs() []string    { return nil }
func (r registered) ResponseTypes() []oidc.ResponseType {
	return []oidc.ResponseType{oidc.ResponseTypeCode}
}
func (r registered) LoginURL(id string) string  { return "/login?id=" + id }
func (r registered) DevMode() bool              { return false }
func (r registered) IsScopeAllowed(string) bool { return true } // all of them give the same
func (r registered) IDTokenUserinfoClaimsAssertion() bool {
	return false
}
func (r registered) RestrictAdditionalIdTokenScopes() func([]string) []string     { return unchanged }
func (r registered) RestrictAdditionalAccessTokenScopes() func([]string) []string { return unchanged }

func unchanged(scopes []string) []string { return scopes }

const idTokenLife = 5 * time.Minute

// key signs; public is the half of it that is published.
type key struct {
	id      string
	private *ecdsa.PrivateKey
}

func newKey() key {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err) // no source of chance
	}
	return key{rand.Text(), private}
}

func (k key) ID() string                                  { return k.id }
func (k key) Key() any                                    { return k.private }
func (k key) SignatureAlgorithm() jose.SignatureAlgorithm { return jose.ES256 }

type public struct{ key }

func (k public) Key() any                           { return k.private.Public() }
func (k public) Use() string                        { return "sig" }
func (k public) Algorithm() jose.SignatureAlgorithm { return jose.ES256 }

func splitScope(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, " ")
}
