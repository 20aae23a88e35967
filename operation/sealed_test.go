package operation_test

import (
	"crypto/rand"
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"onbehalf.internal/broker/brokertest"
)

// TestSealedResults: with a key no result is in the database; a rotated key still
// opens it; without the key the operation is told and its result withheld.
func TestSealedResults(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "results.key")
	newKey := func() string {
		raw := make([]byte, 32)
		rand.Read(raw)
		return base64.StdEncoding.EncodeToString(raw) + "\n"
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	first := newKey()
	write(first)
	rig := brokertest.New(t, &brokertest.Options{Config: func(yaml string) string { return yaml + "keys: {results: \"file:" + path + "\"}\n" }})
	call := brokertest.Call{Key: "k"}
	told := rig.Call(t, call)
	const inIt = `"audience":["mcp-records"]`
	if !strings.Contains(string(told.Result), inIt) {
		t.Fatalf("%s", told.Body)
	}
	restart := func(keys string) brokertest.Answer {
		t.Helper()
		write(keys)
		if err := rig.Stop(); err != nil {
			t.Fatal(err)
		}
		raw, err := os.ReadFile(rig.DatabasePath())
		if err != nil || strings.Contains(string(raw), inIt) {
			t.Errorf("the result is in the database, %v", err)
		}
		if err := rig.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		return rig.Call(t, call)
	}
	if got := restart(newKey() + first); string(got.Result) != string(told.Result) {
		t.Errorf("after a rotation: %s", got.Body)
	}
	if got := restart(newKey()); got.Result != nil || got.Withheld != "result_closed" || got.State != "succeeded" || rig.Records.Calls("whoami") != 1 {
		t.Errorf("without the key: %s", got.Body)
	}
	const shared = 0o640 // what our group may read is refused
	for name, row := range map[string]struct {
		keys string
		mode os.FileMode
	}{"none": {"\n", 0o600}, "short": {"AAAA\n", 0o600}, "shared": {first, shared}} {
		write(row.keys)
		if err := os.Chmod(path, row.mode); err != nil {
			t.Fatal(err)
		}
		if err := rig.Stop(); err != nil {
			t.Fatal(err)
		}
		if err := rig.Restart(t.Context()); err == nil || !strings.Contains(err.Error(), "results.key") || strings.Contains(err.Error(), "chmod 600") != (row.mode == shared) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
