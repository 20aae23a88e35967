package vault_test

import (
	"testing"

	"onbehalf.internal/broker/internal/devvault"
	"onbehalf.internal/broker/vault/vaulttest"
)

// start serves a devvault on loopback until the test ends.
func start(t *testing.T) (*devvault.Server, string) {
	t.Helper()
	dev := devvault.New(devvault.Options{})
	url, err := dev.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	return dev, url
}

func TestContractOnDevvault(t *testing.T) {
	dev, url := start(t)
	vaulttest.Run(t, vaulttest.Target{Address: url, RootToken: dev.RootToken(), Setup: "../deploy/vault", Residue: dev.Residue})
}
