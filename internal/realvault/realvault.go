// Package realvault runs real Vault in dev mode for a test.
//
// It never skips: a test that asks for real Vault fails where there is none.
// Which tests ask is decided by the build tag real.
package realvault

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// A Vault is one running server, unsealed, with its data in memory.
type Vault struct {
	Addr  string // http://127.0.0.1:<port>
	Token string // the root token
}

// Start runs Vault until the test ends. Its configuration may be told more, such as
// further listeners.
func Start(t testing.TB, config ...string) *Vault {
	t.Helper()
	binary, err := find()
	if err != nil {
		t.Fatal(err)
	}
	var last error
	for range 5 { // a free port can be taken before Vault takes it
		v, err := start(t, binary, strings.Join(config, "\n"))
		if err == nil {
			return v
		}
		last = err
	}
	t.Fatalf("starting %s: %v", binary, last)
	return nil
}

// find looks for the program: VAULT_BIN, PATH, then where `make vault` puts it.
func find() (string, error) {
	if path := os.Getenv("VAULT_BIN"); path != "" {
		return path, nil
	}
	if path, err := exec.LookPath("vault"); err == nil {
		return path, nil
	}
	cache := os.Getenv("BROKER_CACHE")
	if cache == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", err
		}
		cache = filepath.Join(home, ".cache", "onbehalf-broker")
	}
	path := filepath.Join(cache, "bin", "vault-1.21.1")
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return "", errors.New("there is no Vault to test with: run `make vault` once, or set VAULT_BIN")
	}
	return path, nil
}

func start(t testing.TB, binary, more string) (*Vault, error) {
	home := t.TempDir()
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	// The raw endpoint shows what is left in storage.
	config := filepath.Join(home, "dev.hcl")
	if err := os.WriteFile(config, []byte("raw_storage_endpoint = true\n"+more), 0o600); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(home, "vault.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()

	v := &Vault{Addr: fmt.Sprintf("http://127.0.0.1:%d", port), Token: rand.Text()}
	cmd := exec.Command(binary, "server", "-dev", "-dev-no-store-token", "-config="+config,
		fmt.Sprintf("-dev-listen-address=127.0.0.1:%d", port))
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "VAULT_DEV_ROOT_TOKEN_ID=" + v.Token}
	cmd.SysProcAttr = dieWithParent

	exited, err := launch(cmd)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		<-exited
	})
	return v, v.await(exited)
}

// launch starts cmd from a thread that lives as long as the child: the kernel
// ties the child's death to the thread, not to the process.
func launch(cmd *exec.Cmd) (exited chan struct{}, err error) {
	started := make(chan error)
	exited = make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer close(exited)
		err := cmd.Start()
		started <- err
		if err == nil {
			cmd.Wait()
		}
	}()
	return exited, <-started
}

// await waits until Vault says that it is unsealed.
func (v *Vault) await(exited chan struct{}) error {
	client := http.Client{Timeout: time.Second}
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	late := time.After(30 * time.Second)
	for {
		select {
		case <-exited:
			return errors.New("it ended at once")
		case <-late:
			return errors.New("it is not healthy after 30 s")
		case <-poll.C:
		}
		resp, err := client.Get(v.Addr + "/v1/sys/health")
		if err != nil {
			continue
		}
		resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			return nil
		}
	}
}

// freePort finds a port below those that the system gives to outgoing
// connections, so that none of ours takes it.
func freePort() (int, error) {
	for range 100 {
		n, err := rand.Int(rand.Reader, big.NewInt(12000))
		if err != nil {
			return 0, err
		}
		port := 20000 + int(n.Int64())
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			return port, l.Close()
		}
	}
	return 0, errors.New("no free port between 20000 and 32000")
}

// Residue counts what cubbyholes hold in Vault's storage, those of dead tokens
// included.
func (v *Vault) Residue(t testing.TB) int {
	t.Helper()
	return v.ResidueIn(t, "")
}

// ResidueIn does so for a namespace of OpenBao, such as "team/a".
func (v *Vault) ResidueIn(t testing.TB, namespace string) int {
	t.Helper()
	var mount, made struct{ Data struct{ UUID string } }
	v.get(t, namespace, "sys/internal/ui/mounts/cubbyhole", &mount)
	if mount.Data.UUID == "" {
		t.Fatal("Vault does not say where cubbyholes are stored")
	}
	folder := "sys/raw/logical/"
	if namespace != "" {
		parent, name := split(namespace)
		v.get(t, parent, "sys/namespaces/"+name, &made)
		folder = "sys/raw/namespaces/" + made.Data.UUID + "/logical/"
	}
	return v.count(t, folder+mount.Data.UUID+"/")
}

// MakeNamespace makes a namespace and those above it.
func (v *Vault) MakeNamespace(t testing.TB, namespace string) {
	t.Helper()
	parent, name := split(namespace)
	if parent != "" {
		v.MakeNamespace(t, parent)
	}
	v.call(t, http.MethodPost, parent, "sys/namespaces/"+name, nil)
}

func split(namespace string) (parent, name string) {
	if i := strings.LastIndex(namespace, "/"); i >= 0 {
		return namespace[:i], namespace[i+1:]
	}
	return "", namespace
}

// Left counts what tokens have left in Vault's storage: keys of cubbyholes, those of
// dead tokens included, leases, and the tokens that Vault still takes.
//
// Not counted is what stays when a request for a token is cut off between two of
// Vault's writes: the entry of a token without a lease, which is refused like one
// that does not exist, and its indices (measured: some 50 of 1,500 such cuts).
func (v *Vault) Left(t testing.TB) map[string]int {
	t.Helper()
	return map[string]int{"cubbyholes": v.Residue(t), "leases": v.count(t, "sys/raw/sys/expire/id/"), "tokens": v.tokens(t)}
}

func (v *Vault) tokens(t testing.TB) (n int) {
	t.Helper()
	const folder = "sys/raw/sys/token/id/"
	var list struct{ Data struct{ Keys []string } }
	v.get(t, "", folder+"?list=true", &list)
	for _, key := range list.Data.Keys {
		var entry struct{ Data struct{ Value string } }
		var token struct{ ID string }
		v.get(t, "", folder+key, &entry)
		if entry.Data.Value == "" { // gone since
			continue
		}
		if err := json.Unmarshal([]byte(entry.Data.Value), &token); err != nil || token.ID == "" {
			t.Fatalf("Vault's entry of a token is not understood: %v", err)
		}
		resp := v.ask(t, http.MethodGet, "", "auth/token/lookup-self", token.ID)
		resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			n++
		}
	}
	return n
}

func (v *Vault) count(t testing.TB, folder string) (n int) {
	t.Helper()
	var list struct{ Data struct{ Keys []string } }
	v.get(t, "", folder+"?list=true", &list)
	for _, key := range list.Data.Keys {
		if strings.HasSuffix(key, "/") {
			n += v.count(t, folder+key)
		} else {
			n++
		}
	}
	return n
}

func (v *Vault) get(t testing.TB, namespace, path string, into any) {
	t.Helper()
	v.call(t, http.MethodGet, namespace, path, into)
}

// call is a request with the root token. What is not there leaves into as it is.
func (v *Vault) call(t testing.TB, method, namespace, path string, into any) {
	t.Helper()
	resp := v.ask(t, method, namespace, path, v.Token)
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusNotFound: // an empty folder
		return
	case resp.StatusCode != http.StatusOK:
		t.Fatalf("%s %s: status %d", method, path, resp.StatusCode)
	case into == nil:
		return
	}
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
}

// client is our own: no proxy of the environment leads it elsewhere.
var client = &http.Client{Transport: &http.Transport{}}

func (v *Vault) ask(t testing.TB, method, namespace, path, token string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, v.Addr+"/v1/"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Vault-Token", token)
	if namespace != "" {
		req.Header.Set("X-Vault-Namespace", namespace)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}
