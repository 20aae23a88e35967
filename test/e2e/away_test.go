package e2e

import (
	"context"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"onbehalf.internal/broker/brokertest"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/internal/testhttp"
)

// A gate stands between a broker and its Vault. Shut, nothing listens there.
type gate struct {
	address string

	mu    sync.Mutex
	l     net.Listener
	vault string // host and port
}

var vaultAddress = regexp.MustCompile(`address: "http://([^"]+)"`)

// before is a Config that puts the gate before the Vault of a rig.
func (g *gate) before(yaml string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.vault = vaultAddress.FindStringSubmatch(yaml)[1]
	return strings.Replace(yaml, g.vault, g.address, 1)
}

func (g *gate) open(t *testing.T) {
	t.Helper()
	l, err := net.Listen("tcp", g.address)
	if err != nil {
		t.Fatal(err)
	}
	g.mu.Lock()
	g.l, g.address = l, l.Addr().String()
	g.mu.Unlock()
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			go g.carry(from)
		}
	}()
}

func (g *gate) carry(from net.Conn) {
	defer from.Close()
	g.mu.Lock()
	vault := g.vault
	g.mu.Unlock()
	to, err := net.Dial("tcp", vault)
	if err != nil {
		return
	}
	defer to.Close()
	go func() { io.Copy(to, from); to.Close() }()
	io.Copy(from, to)
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.l.Close()
}

// awayAtStart starts a broker while its Vault is not there. It serves, says that it
// is not ready and why, and becomes ready by itself.
func awayAtStart(t *testing.T, o brokertest.Options) {
	g := &gate{address: "127.0.0.1:0"}
	g.open(t)
	t.Cleanup(g.shut)
	o.Config, o.API = g.before, freeAddress(t)
	rig := brokertest.New(t, &o)
	if err := rig.Stop(); err != nil {
		t.Fatal(err)
	}
	g.shut()

	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	restarted := make(chan error, 1)
	go func() { restarted <- rig.Restart(ctx) }()
	answer := func() (status int, body string) {
		resp, err := testhttp.Client.Get("http://" + o.API + "/readyz")
		if err != nil {
			return 0, ""
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(b)
	}
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	status, body := answer()
	for ; status != http.StatusServiceUnavailable || !strings.Contains(rig.Log(), "no login: "); status, body = answer() {
		select {
		case <-poll.C:
		case err := <-restarted:
			t.Fatalf("it started: %v", err)
		}
	}
	if !strings.Contains(body, string(fault.VaultNotReady)) {
		t.Errorf("without a Vault /readyz is %d %s", status, body)
	}
	beside := brokertest.Rig{URL: "http://" + o.API, Bearer: rig.Bearer} // the other one is being restarted
	if a := beside.Call(t, brokertest.Call{}); a.State != "not_sent" || a.Cause != fault.VaultNotReady || a.Retry != "safe" {
		t.Errorf("without a Vault: %d %s", a.Status, a.Body)
	}
	g.open(t)
	if err := <-restarted; err != nil {
		t.Fatalf("with its Vault again: %v", err)
	}
	if a := rig.Call(t, brokertest.Call{}); a.State != "succeeded" {
		t.Errorf("with its Vault again: %d %s", a.Status, a.Body)
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func TestVaultIsAwayAtTheStart(t *testing.T) { awayAtStart(t, brokertest.Options{}) }
