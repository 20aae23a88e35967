//go:build interop

package mcpclients

import (
	"testing"

	"onbehalf.internal/broker/internal/counterparts"
)

// TestKeycloakSignIn: at Keycloak, set up as docs/mcp.md says. It ignores the resource that a client
// asks for, so one audience is for all servers, and it writes no client_id, so a token is no at+jwt.
func TestKeycloakSignIn(t *testing.T) {
	h := houseOf(t, freeAddress(t), counterparts.Keycloak(t).Login(t), `, type: JWT, audience: "https://broker.example.org/mcp"`)
	for _, p := range programs() {
		t.Run(p.name, func(t *testing.T) { h.signIn(t, p, counterparts.SignIn{ClientID: h.login.ClientID}) })
	}
}
