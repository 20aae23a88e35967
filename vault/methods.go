package vault

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"

	"onbehalf.internal/broker/egress"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/ownfile"
	"onbehalf.internal/broker/secret"
)

// prove makes a login by the method of the configuration. What a method reads
// from a file it reads now.
func (c *Client) prove(ctx context.Context) (*login, error) {
	switch c.auth.Method {
	case "token":
		return c.adopt(ctx, c.token)
	case "token_file":
		token, err := readSecret(c.auth.TokenFile, ownfile.Agents)
		if err != nil {
			return nil, err
		}
		return c.adopt(ctx, token)
	case "proxy":
		return c.byProxy(ctx)
	case "approle":
		return c.byAppRole(ctx)
	case "cert":
		return c.byCertificate(ctx)
	default: // kubernetes, jwt
		token, err := readSecret(c.auth.JWTFile, ownfile.Anybodys)
		if err != nil {
			return nil, err
		}
		return c.enterBy(ctx, c.answers, map[string]string{"role": c.auth.Role, "jwt": token.Reveal()})
	}
}

// adopt looks up what a token is good for that somebody else made; a zero one is
// what a Vault Proxy adds to a request without any. It is not ours to revoke.
func (c *Client) adopt(ctx context.Context, token secret.Text) (*login, error) {
	const op = "vault.login"
	client, err := c.library(token, c.answers)
	if err != nil {
		return nil, err
	}
	since := c.now()
	a, err := read(ctx, client, "auth/token/lookup-self")
	if err := answered(op, a, err); err != nil {
		return nil, err
	}
	data := a.object("data")
	life, ok := seconds(data, "ttl")
	if !ok {
		return nil, fault.New(op, fault.VaultUnexpected, "a lookup without a ttl")
	}
	l := &login{client: client, token: token}
	l.renewable, _ = member[bool](data, "renewable")
	l.live(since, life)
	return l, nil
}

// byProxy takes the login of a Vault Proxy, which renews it. A proxy that puts its
// token in place of any other would put our holds into its own cubbyhole: there they
// would outlive their epoch, so a token that cannot be must be refused through it.
func (c *Client) byProxy(ctx context.Context) (*login, error) {
	const op = "vault.login"
	made, err := c.library(secret.New("no-token-of-this-vault"), c.answers)
	if err != nil {
		return nil, err
	}
	a, err := read(ctx, made, "auth/token/lookup-self")
	switch {
	case err != nil:
		return nil, unanswered(op, err)
	case a.status == http.StatusOK:
		return nil, fault.New(op, fault.VaultNotReady, `the proxy replaces the tokens of requests: set use_auto_auth_token to true, not to "force"`)
	case a.status != http.StatusForbidden:
		return nil, unwanted(op, a)
	}
	l, err := c.adopt(ctx, secret.Text{})
	if err != nil {
		return nil, err
	}
	l.renewable = false // by us
	return l, nil
}

// byCertificate shows a certificate on connections of its own, to this login and
// to its renewals: Vault renews only for the certificate that logged in.
func (c *Client) byCertificate(ctx context.Context) (*login, error) {
	chain, err := readFile(c.auth.CertFile, ownfile.Anybodys)
	if err != nil {
		return nil, err
	}
	key, err := readFile(c.auth.KeyFile, ownfile.Ours)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(chain, key)
	if err != nil {
		return nil, fault.New("vault.login", fault.VaultNotReady,
			fmt.Sprintf("%q and %q are no certificate and key in PEM that belong together", c.auth.CertFile, c.auth.KeyFile))
	}
	host := c.host
	host.Certificate = &pair
	client := egress.NewClient(host, idle)
	body := map[string]string{}
	if c.auth.Role != "" {
		body["name"] = c.auth.Role
	}
	l, err := c.enterBy(ctx, answers{client.Transport, c.answers.namespace}, body)
	if err != nil {
		client.CloseIdleConnections()
		return nil, err
	}
	l.release = client.CloseIdleConnections
	return l, nil
}

// refusals say what to look at when Vault does not take what a method shows.
var refusals = map[string]string{
	"approle":    "it does not take role_id and secret_id",
	"kubernetes": "is there a role %q for this service account, and may Vault review tokens?",
	"jwt":        "is there a role %q for this token's audience and subject, and is the token still good?",
	"cert":       "does it know the certificate's issuer, and is the certificate still good?",
}

// enterBy makes one login. What it makes is ours.
func (c *Client) enterBy(ctx context.Context, way answers, body map[string]string) (*login, error) {
	const op = "vault.login"
	door, err := c.library(secret.Text{}, way)
	if err != nil {
		return nil, err
	}
	since := c.now()
	a, err := write(ctx, door, "auth/"+c.auth.Mount+"/login", body)
	switch {
	case err != nil:
		return nil, unanswered(op, err)
	case a.status == http.StatusBadRequest || a.status == http.StatusForbidden:
		why := refusals[c.auth.Method]
		if body["role"] != "" {
			why = fmt.Sprintf(why, c.auth.Role)
		}
		return nil, fault.New(op, fault.VaultDenied, fmt.Sprintf("Vault answered %d: %s", a.status, why))
	case a.status != http.StatusOK:
		return nil, unwanted(op, a)
	}
	t, ok := issued(a)
	if !ok || t.value.IsZero() {
		return nil, fault.New(op, fault.VaultUnexpected, "a login without a token")
	}
	client, err := c.library(t.value, way)
	if err != nil {
		return nil, err
	}
	l := &login{client: client, token: t.value, ours: true, renewable: t.renewable}
	l.live(since, t.life)
	return l, nil
}
