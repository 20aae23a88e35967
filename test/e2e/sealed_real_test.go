//go:build real

package e2e

import (
	"os"
	"strings"
	"testing"

	"onbehalf.internal/broker/brokertest"
	"onbehalf.internal/broker/internal/realvault"
)

// TestRealVaultSealsResults: the next process opens what the last one sealed, until an
// operator shuts the version of the key that wrapped its data key.
func TestRealVaultSealsResults(t *testing.T) {
	v := realvault.Start(t)
	rig := bench{brokertest.New(t, &brokertest.Options{Binary: binary, Vault: v.Addr, VaultToken: v.Token, KeyInVault: true}), v}
	call := brokertest.Call{Key: "k"}
	told := rig.Call(t, call)
	const inIt = `"audience":["mcp-records"]`
	if told.State != "succeeded" || !strings.Contains(string(told.Result), inIt) {
		t.Fatalf("%s", told.Body)
	}
	restarted := func() brokertest.Answer {
		t.Helper()
		if err := rig.Stop(); err != nil {
			t.Fatal(err)
		}
		if raw, err := os.ReadFile(rig.DatabasePath()); err != nil || strings.Contains(string(raw), inIt) {
			t.Errorf("the result is in the database, %v", err)
		}
		if err := rig.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		return rig.Call(t, call)
	}
	rig.ask(t, "POST", "transit/keys/broker/rotate", nil)
	if got := restarted(); string(got.Result) != string(told.Result) || got.Withheld != "" {
		t.Errorf("%s", got.Body)
	}
	rig.ask(t, "POST", "transit/keys/broker/config", map[string]int{"min_decryption_version": 2})
	if got := restarted(); got.Result != nil || got.Withheld != "result_closed" || got.State != "succeeded" {
		t.Errorf("%s", got.Body)
	}
	if n := rig.Records.Calls("whoami"); n != 1 {
		t.Errorf("whoami ran %d times", n)
	}
}
