//go:build real

package main

import (
	"bytes"
	"testing"

	"onbehalf.internal/broker/internal/realvault"
)

// TestOnceOverRealVault is the same story over a real Vault in dev mode.
func TestOnceOverRealVault(t *testing.T) {
	vault := realvault.Start(t)
	t.Setenv("VAULT_TOKEN", vault.Token)
	var out bytes.Buffer
	if err := run(t.Context(), []string{"-once", "-vault", vault.Addr}, &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
}
