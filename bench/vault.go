package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"onbehalf.internal/broker/internal/testhttp"
)

// A vault is a Vault as an operator sees it.
type vault struct {
	address string
	root    string // its root token
	server  *exec.Cmd
}

// startVault starts real Vault in dev mode, its home below dir.
func startVault(ctx context.Context, dir string) (*vault, error) {
	binary, err := findVault()
	if err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	v := &vault{address: "http://" + port, root: rand.Text()}
	v.server = exec.Command(binary, "server", "-dev", "-dev-no-store-token", "-dev-listen-address="+port)
	v.server.Env = []string{"HOME=" + dir, "PATH=" + os.Getenv("PATH"), "VAULT_DEV_ROOT_TOKEN_ID=" + v.root}
	if err := v.server.Start(); err != nil {
		return nil, err
	}
	if err := v.await(ctx); err != nil {
		v.close()
		return nil, err
	}
	return v, nil
}

// findVault looks where package realvault looks: VAULT_BIN, PATH, the cache.
func findVault() (string, error) {
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
	if _, err := os.Stat(path); err != nil {
		return "", errors.New("there is no Vault to measure with: run `make vault` once, or set VAULT_BIN")
	}
	return path, nil
}

// freePort finds a port below those that the system gives to outgoing
// connections, and below those where brokertest looks for one.
func freePort() (string, error) {
	for port := 18000 + os.Getpid()%1000; port < 20000; port++ {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			return l.Addr().String(), l.Close()
		}
	}
	return "", errors.New("no free port between 18000 and 20000")
}

// await waits until Vault says that it is unsealed.
func (v *vault) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for {
		if err := v.call(ctx, "GET", "sys/health", nil, nil); err == nil {
			return nil
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return fmt.Errorf("starting a Vault at %s: %w", v.address, ctx.Err())
		}
	}
}

func (v *vault) close() {
	v.server.Process.Kill()
	v.server.Wait()
}

// token mints one below the root token: auth/token/create or one of its roles.
func (v *vault) token(ctx context.Context, path string, order map[string]any) (string, error) {
	var said struct {
		Auth struct {
			Token string `json:"client_token"`
		} `json:"auth"`
	}
	err := v.call(ctx, "POST", path, order, &said)
	return said.Auth.Token, err
}

// call makes one request with the root token.
func (v *vault) call(ctx context.Context, method, path string, body map[string]any, into any) error {
	raw := []byte("{}")
	if body != nil {
		var err error
		if raw, err = json.Marshal(body); err != nil {
			return err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, v.address+"/v1/"+path, bytes.NewReader(raw))
	if err != nil {
		return err
	}
	req.Header.Set("X-Vault-Token", v.root)
	status, answer, err := send(testhttp.Client, req)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("asking Vault: it answered %d to %s %s", status, method, path)
	}
	if err == nil && into != nil {
		err = json.Unmarshal(answer, into)
	}
	return err
}

// send makes one request and reads the whole answer.
func send(client *http.Client, req *http.Request) (status int, body []byte, err error) {
	res, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	body, err = io.ReadAll(res.Body)
	return res.StatusCode, body, err
}
