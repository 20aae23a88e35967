//go:build real

package openbao_test

import (
	"testing"

	"onbehalf.internal/broker/internal/counterparts"
	"onbehalf.internal/broker/internal/realvault"
	"onbehalf.internal/broker/vault/vaulttest"
)

func TestContractOnOpenBao(t *testing.T) {
	b := counterparts.OpenBao(t)
	storage := realvault.Vault{Addr: b.Addr, Token: b.Token} // the raw endpoint is the same
	vaulttest.Run(t, vaulttest.Target{Address: b.Addr, RootToken: b.Token, Setup: "../../deploy/vault",
		Residue: func() int { return storage.Residue(t) }})
}
