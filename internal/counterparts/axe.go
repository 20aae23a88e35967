package counterparts

import (
	"os"
	"testing"
)

// Axe is the script of axe-core, which finds on a page what keeps people from using it.
func Axe(t testing.TB) string {
	t.Helper()
	script, err := os.ReadFile(cached(t, "axe-core-4.14.1/node_modules/axe-core/axe.min.js", "test/browser/install.sh"))
	if err != nil {
		t.Fatal(err)
	}
	return string(script)
}
