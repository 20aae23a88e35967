//go:build real

package deployvault_test

import (
	"testing"

	"onbehalf.internal/broker/internal/realvault"
)

func TestSetUpOnVault(t *testing.T) {
	v := realvault.Start(t)
	testSetUp(t, v.Addr, v.Token)
}
