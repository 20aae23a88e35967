package counterparts

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// openbaoConfig adds to dev mode the raw endpoint, which shows what is left in
// storage, and a listener that takes no more than a mebibyte. Vault has that
// limit on a value by itself; OpenBao has it where the operator sets it.
const openbaoConfig = `
raw_storage_endpoint = true
listener "tcp" {
  address          = "127.0.0.1:PORT"
  tls_disable      = true
  max_request_size = 1048576
}
`

// An OpenBaoServer is OpenBao in dev mode: unsealed, with its data in memory.
type OpenBaoServer struct {
	Addr  string // http://127.0.0.1:<port>
	Token string // the root token
}

// OpenBao runs the server until the test ends. Its configuration may be told more.
func OpenBao(t testing.TB, more ...string) *OpenBaoServer {
	t.Helper()
	path := cached(t, "bin/bao-2.7.2", "test/openbao/install.sh")
	token := rand.Text()
	addr := func(port int) string { return fmt.Sprintf("http://127.0.0.1:%d", port) }
	port := start(t, func(home string, port int) program {
		unused, err := freePort() // dev mode has a listener of its own in any case
		if err != nil {
			t.Fatal(err)
		}
		config := filepath.Join(home, "dev.hcl")
		text := strings.ReplaceAll(openbaoConfig, "PORT", fmt.Sprint(port)) + strings.Join(more, "\n")
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return program{
			path: path,
			args: []string{"server", "-dev", "-dev-no-store-token", "-config=" + config,
				fmt.Sprintf("-dev-listen-address=127.0.0.1:%d", unused)},
			env:   []string{"BAO_DEV_ROOT_TOKEN_ID=" + token},
			ready: addr(port) + "/v1/sys/health",
		}
	})
	return &OpenBaoServer{Addr: addr(port), Token: token}
}
