//go:build real

package vault_test

import (
	"testing"

	"onbehalf.internal/broker/internal/realvault"
	"onbehalf.internal/broker/vault/vaulttest"
)

func TestContractOnVault(t *testing.T) {
	v := realvault.Start(t)
	vaulttest.Run(t, vaulttest.Target{Address: v.Addr, RootToken: v.Token, Setup: "../deploy/vault",
		Residue: func() int { return v.Residue(t) }})
}
