//go:build real

package vault_test

import (
	"testing"

	"onbehalf.internal/broker/internal/realvault"
	"onbehalf.internal/broker/vault/vaulttest"
)

func TestContractOnVault(t *testing.T) {
	doors := vaulttest.NewDoors(t)
	v := realvault.Start(t, doors.HCL())
	vaulttest.Run(t, vaulttest.Target{Address: v.Addr, RootToken: v.Token, Setup: "../deploy/vault", Doors: doors,
		Residue: func() int { return v.Residue(t) },
		Proxy: func(force bool, roleID, secretIDFile string) (string, string) {
			return v.Proxy(t, force, roleID, secretIDFile)
		}})
}
