//go:build real

package openbao_test

import (
	"testing"

	"onbehalf.internal/broker/internal/counterparts"
	"onbehalf.internal/broker/internal/realvault"
	"onbehalf.internal/broker/vault/vaulttest"
)

func TestContractOnOpenBao(t *testing.T) {
	doors := vaulttest.NewDoors(t)
	b := counterparts.OpenBao(t, doors.HCL())
	storage := realvault.Vault{Addr: b.Addr, Token: b.Token} // the raw endpoint is the same
	vaulttest.Run(t, vaulttest.Target{Address: b.Addr, RootToken: b.Token, Setup: "../../deploy/vault", Doors: doors, Namespaces: true,
		Residue: func() int { return storage.Residue(t) }})
}

// The same in a namespace, where nothing is said of the root's.
func TestContractInANamespaceOfOpenBao(t *testing.T) {
	const namespace = "team/a"
	doors := vaulttest.NewDoors(t)
	b := counterparts.OpenBao(t, doors.HCL())
	storage := realvault.Vault{Addr: b.Addr, Token: b.Token}
	storage.MakeNamespace(t, namespace)
	vaulttest.Run(t, vaulttest.Target{Address: b.Addr, RootToken: b.Token, Setup: "../../deploy/vault", Doors: doors, Namespaces: true, Namespace: namespace,
		Residue: func() int { return storage.ResidueIn(t, namespace) }})
	if n := storage.Residue(t); n != 0 {
		t.Errorf("%d cubbyhole entries are in the root namespace", n)
	}
}
