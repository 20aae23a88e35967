package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"onbehalf.internal/broker/egress"
)

// maxDocument bounds a well-known document in bytes.
const maxDocument = 64 << 10

// An authority is the authorization server in front of an MCP server.
type authority struct{ Issuer, TokenEndpoint string }

// discover finds the authorization server of the MCP server at address as an
// operator does, once, while writing a profile: by the well-known documents of
// both. The product does not do this, and reads no such document.
func discover(ctx context.Context, address *url.URL) (authority, error) {
	var resource struct {
		Resource             string   `json:"resource"`
		AuthorizationServers []string `json:"authorization_servers"`
	}
	if err := wellKnown(ctx, address, "oauth-protected-resource", &resource); err != nil { // RFC 9728 §3
		return authority{}, err
	}
	if resource.Resource != address.String() || len(resource.AuthorizationServers) != 1 {
		return authority{}, errors.New("the resource's metadata is not of this server, or does not name one authorization server")
	}
	issuer, err := url.Parse(resource.AuthorizationServers[0])
	if err != nil {
		return authority{}, errors.New("the issuer in the resource's metadata is no URL")
	}
	var server struct {
		Issuer        string `json:"issuer"`
		TokenEndpoint string `json:"token_endpoint"`
	}
	if err := wellKnown(ctx, issuer, "oauth-authorization-server", &server); err != nil { // RFC 8414 §3
		return authority{}, err
	}
	if server.Issuer != resource.AuthorizationServers[0] || server.TokenEndpoint == "" {
		return authority{}, errors.New("the authorization server's metadata is not of this issuer, or names no token endpoint")
	}
	return authority(server), nil
}

// wellKnown reads the document of that name about of, whose path goes behind
// the name (RFC 8615 §3).
func wellKnown(ctx context.Context, of *url.URL, name string, into any) error {
	at := *of
	at.Path = "/.well-known/" + name + of.Path
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return fmt.Errorf("%s: no address", name)
	}
	res, err := egress.NewClient(egress.Host{URL: &at, AllowCIDRs: loopback}, 0).Do(req)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxDocument))
	if err != nil || res.StatusCode != http.StatusOK || json.Unmarshal(body, into) != nil {
		return fmt.Errorf("%s: status %d, or not the document it should be", name, res.StatusCode)
	}
	return nil
}
