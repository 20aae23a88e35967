package vault

import (
	"context"
	"fmt"
	"net/http"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/secret"
)

// IssueOIDC has Vault's identity engine sign a token by a role: an ID token of
// the entity behind the broker's login, with the claims that the role's template
// adds. Each call makes another one; nothing is kept.
func (c *Client) IssueOIDC(ctx context.Context, mount, role string) (token secret.Text, err error) {
	const op = "vault.IssueOIDC"
	if !name.MatchString(mount) || !name.MatchString(role) {
		return secret.Text{}, fault.New(op, fault.CredentialMissing, fmt.Sprintf("%q or %q is no name in Vault", mount, role))
	}
	err = c.asLogin(ctx, op, func(l *login) error {
		token, err = issueOIDC(ctx, l, mount, role)
		return err
	})
	return token, err
}

func issueOIDC(ctx context.Context, l *login, mount, role string) (secret.Text, error) {
	const op = "vault.IssueOIDC"
	a, err := read(ctx, l.client, mount+"/oidc/token/"+role)
	switch {
	case err != nil:
		return secret.Text{}, unanswered(op, err)
	case a.status == http.StatusBadRequest:
		return secret.Text{}, fault.New(op, fault.CredentialMissing, fmt.Sprintf(
			"Vault answered 400: is there an OIDC role %q, and has the broker's login an entity (a login by AppRole has, a bare token has not)?", role))
	case a.status != http.StatusOK:
		return secret.Text{}, unwanted(op, a)
	}
	token, ok := member[string](a.object("data"), "token")
	if !ok || token == "" {
		return secret.Text{}, fault.New(op, fault.VaultUnexpected, "an answer without a token")
	}
	return secret.New(token), nil
}
