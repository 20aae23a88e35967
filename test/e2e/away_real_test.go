//go:build real

package e2e

import (
	"testing"

	"onbehalf.internal/broker/brokertest"
	"onbehalf.internal/broker/internal/realvault"
)

func TestRealVaultIsAwayAtTheStart(t *testing.T) {
	v := realvault.Start(t)
	awayAtStart(t, brokertest.Options{Binary: binary, Vault: v.Addr, VaultToken: v.Token})
}
