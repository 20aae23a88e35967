package devidp

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

// An authorization is a request to sign somebody in, and who it was, as the engine
// asks for it ([op.AuthRequest]).
type authorization struct {
	*oidc.AuthRequest
	id   string
	sub  string    // empty: nobody yet
	when time.Time // it was said who
}

func (a authorization) by(sub string) authorization {
	a.sub, a.when = sub, time.Now()
	return a
}

func (a authorization) GetID() string          { return a.id }
func (a authorization) GetACR() string         { return "" }
func (a authorization) GetAMR() []string       { return nil }
func (a authorization) GetAudience() []string  { return []string{a.ClientID} }
func (a authorization) GetAuthTime() time.Time { return a.when }
func (a authorization) GetClientID() string    { return a.ClientID }
func (a authorization) GetNonce() string       { return a.Nonce }
func (a authorization) GetScopes() []string    { return a.Scopes }
func (a authorization) GetSubject() string     { return a.sub }
func (a authorization) Done() bool             { return a.sub != "" }
func (a authorization) GetResponseMode() oidc.ResponseMode {
	return a.ResponseMode
}
func (a authorization) GetCodeChallenge() *oidc.CodeChallenge {
	return &oidc.CodeChallenge{Challenge: a.CodeChallenge, Method: a.CodeChallengeMethod}
}

var errNoAuthorization = errors.New("not known, or used")

func (s *storage) CreateAuthRequest(_ context.Context, r *oidc.AuthRequest, _ string) (op.AuthRequest, error) {
	if r.CodeChallenge == "" || r.CodeChallengeMethod != oidc.CodeChallengeMethodS256 {
		return nil, oidc.ErrInvalidRequest().WithDescription("PKCE with S256 is needed")
	}
	a := authorization{AuthRequest: r, id: rand.Text()}
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	s.p.wanted[a.id] = a
	return a, nil
}

func (s *storage) AuthRequestByID(_ context.Context, id string) (op.AuthRequest, error) {
	if a, known := s.p.authorization(id); known {
		return a, nil
	}
	return nil, errNoAuthorization
}

func (s *storage) SaveAuthCode(_ context.Context, id, code string) error {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	s.p.codes[code] = id
	return nil
}

// AuthRequestByCode gives a code's request once: who brings the code again, with
// whatever verifier, has nothing.
func (s *storage) AuthRequestByCode(_ context.Context, code string) (op.AuthRequest, error) {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	a, known := s.p.wanted[s.p.codes[code]]
	delete(s.p.wanted, s.p.codes[code])
	delete(s.p.codes, code)
	if !known {
		return nil, errNoAuthorization
	}
	return a, nil
}

func (s *storage) DeleteAuthRequest(_ context.Context, id string) error {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	delete(s.p.wanted, id)
	return nil
}

// SetUserinfoFromRequest puts what is known of the person into its ID token.
func (s *storage) SetUserinfoFromRequest(_ context.Context, info *oidc.UserInfo, r op.IDTokenRequest, _ []string) error {
	info.Subject = r.GetSubject()
	for name, value := range s.p.claims(info.Subject) {
		info.AppendClaims(name, value)
	}
	return nil
}

func (s *storage) SetUserinfoFromScopes(context.Context, *oidc.UserInfo, string, string, []string) error {
	return nil
}

func (s *storage) GetPrivateClaimsFromScopes(context.Context, string, string, []string) (map[string]any, error) {
	return nil, nil
}
