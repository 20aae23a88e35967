package realvault

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A Node is a Vault with its data on disk, in integrated storage, alone or one of a
// cluster. It can be sealed, killed and started again.
type Node struct {
	Vault
	home    string
	binary  string
	ports   [2]int // of the API, and of the cluster
	join    string // the API of a node to join; empty: it is the first
	key     string // unseals
	process *os.Process
	exited  chan struct{}
}

// StartNode runs a node, initialised and unsealed, until the test ends.
func StartNode(t testing.TB) *Node {
	t.Helper()
	n := newNode(t, "")
	n.start(t)
	var said struct {
		Keys  []string `json:"keys_base64"`
		Token string   `json:"root_token"`
	}
	n.must(t, http.MethodPut, "sys/init", map[string]int{"secret_shares": 1, "secret_threshold": 1}, &said)
	n.key, n.Token = said.Keys[0], said.Token
	n.Unseal(t)
	n.await(t, "it leads", func(status int) bool { return status == http.StatusOK })
	return n
}

// StartCluster runs so many nodes, and waits until each has a vote: a leader that is
// the only one to vote would succeed itself. The first is the leader as yet.
func StartCluster(t testing.TB, size int) []*Node {
	t.Helper()
	nodes := []*Node{StartNode(t)}
	for len(nodes) < size {
		n := newNode(t, nodes[0].Addr)
		n.key, n.Token = nodes[0].key, nodes[0].Token
		n.start(t)
		n.Unseal(t)
		nodes = append(nodes, n)
	}
	nodes[0].await(t, "every node votes", func(int) bool { return nodes[0].voters(t) == size })
	return nodes
}

func (n *Node) voters(t testing.TB) (voters int) {
	t.Helper()
	var said struct {
		Data struct {
			Config struct {
				Servers []struct{ Voter bool }
			}
		}
	}
	n.must(t, http.MethodGet, "sys/storage/raft/configuration", nil, &said)
	for _, s := range said.Data.Config.Servers {
		if s.Voter {
			voters++
		}
	}
	return voters
}

func newNode(t testing.TB, join string) *Node {
	t.Helper()
	binary, err := find()
	if err != nil {
		t.Fatal(err)
	}
	n := &Node{home: t.TempDir(), binary: binary, join: join}
	for i := range n.ports {
		if n.ports[i], err = freePort(); err != nil {
			t.Fatal(err)
		}
	}
	n.Addr = fmt.Sprintf("http://127.0.0.1:%d", n.ports[0])
	return n
}

// config is a server's configuration. The raw endpoint shows what is left in storage.
func (n *Node) config() string {
	join := ""
	if n.join != "" {
		join = fmt.Sprintf("retry_join { leader_api_addr = %q }", n.join)
	}
	return fmt.Sprintf(`
storage "raft" {
  path    = %q
  node_id = "node-%d"
  performance_multiplier = 1
  %s
}
listener "tcp" {
  address         = "127.0.0.1:%d"
  cluster_address = "127.0.0.1:%d"
  tls_disable     = true
}
api_addr             = %q
cluster_addr         = "https://127.0.0.1:%d"
disable_mlock        = true
raw_storage_endpoint = true
`, filepath.Join(n.home, "raft"), n.ports[0], join, n.ports[0], n.ports[1], n.Addr, n.ports[1])
}

// start runs the program over what is on disk, and waits until it answers.
func (n *Node) start(t testing.TB) {
	t.Helper()
	config := filepath.Join(n.home, "vault.hcl")
	err := errors.Join(os.WriteFile(config, []byte(n.config()), 0o600), os.MkdirAll(filepath.Join(n.home, "raft"), 0o700))
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.OpenFile(filepath.Join(n.home, "vault.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(n.binary, "server", "-config="+config)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = []string{"HOME=" + n.home, "PATH=" + os.Getenv("PATH")}
	cmd.SysProcAttr = dieWithParent
	if n.exited, err = launch(cmd); err != nil {
		t.Fatal(err)
	}
	n.process = cmd.Process
	t.Cleanup(n.Kill)
	n.await(t, "it answers", func(status int) bool { return status != 0 })
}

// Kill ends the program at once, as SIGKILL does.
func (n *Node) Kill() {
	n.process.Kill()
	<-n.exited
}

// Restart starts a killed node again and unseals it.
func (n *Node) Restart(t testing.TB) {
	t.Helper()
	n.start(t)
	n.Unseal(t)
}

// PID is the program's.
func (n *Node) PID() int { return n.process.Pid }

// Home is a folder of the node's own.
func (n *Node) Home() string { return n.home }

// Seal seals the node.
func (n *Node) Seal(t testing.TB) {
	t.Helper()
	n.must(t, http.MethodPut, "sys/seal", nil, nil)
}

// Unseal unseals the node and waits until it is active or a standby. One that joins
// has to find the others first, so it may take several attempts.
func (n *Node) Unseal(t testing.TB) {
	t.Helper()
	last := time.Now()
	n.await(t, "it is unsealed", func(status int) bool {
		if status == http.StatusOK || status == http.StatusTooManyRequests {
			return true
		}
		if now := time.Now(); now.After(last) {
			n.Ask(t, http.MethodPut, "sys/unseal", map[string]string{"key": n.key}, nil)
			last = now.Add(500 * time.Millisecond)
		}
		return false
	})
}

// StepDown makes the leader give up being it; the cluster elects another, or the same.
// It reports whether this node was the leader.
func (n *Node) StepDown(t testing.TB) bool {
	t.Helper()
	return n.Ask(t, http.MethodPut, "sys/step-down", nil, nil) == http.StatusNoContent
}

// Leads reports whether the node is the leader.
func (n *Node) Leads() bool { return n.health() == http.StatusOK }

func (n *Node) health() int {
	client := http.Client{Timeout: 2 * time.Second}
	resp, err := client.Get(n.Addr + "/v1/sys/health")
	if err != nil {
		return 0
	}
	resp.Body.Close()
	return resp.StatusCode
}

// await asks for the node's health until ok.
func (n *Node) await(t testing.TB, what string, ok func(status int) bool) {
	t.Helper()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	late := time.After(60 * time.Second)
	for !ok(n.health()) {
		select {
		case <-poll.C:
		case <-n.exited:
			t.Fatalf("Vault ended:\n%s", n.tail())
		case <-late:
			t.Fatalf("not within a minute: %s\n%s", what, n.tail())
		}
	}
}

func (n *Node) tail() string {
	b, _ := os.ReadFile(filepath.Join(n.home, "vault.log"))
	return string(b[max(0, len(b)-4096):])
}

// Ask makes a request as root and returns the status, 0 if there was no answer. An
// answer is read into into, unless that is nil.
func (n *Node) Ask(t testing.TB, method, path string, body, into any) int {
	t.Helper()
	raw, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	if body == nil {
		raw = nil
	}
	req, err := http.NewRequest(method, n.Addr+"/v1/"+path, bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Vault-Token", n.Token)
	client := http.Client{Timeout: 20 * time.Second}
	resp, err := client.Do(req)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	if into != nil && json.NewDecoder(resp.Body).Decode(into) != nil {
		t.Fatalf("%s %s: %d without JSON", method, path, resp.StatusCode)
	}
	return resp.StatusCode
}

func (n *Node) must(t testing.TB, method, path string, body, into any) {
	t.Helper()
	if status := n.Ask(t, method, path, body, into); status != http.StatusOK && status != http.StatusNoContent {
		t.Fatalf("%s %s: status %d\n%s", method, path, status, strings.TrimSpace(n.tail()))
	}
}
