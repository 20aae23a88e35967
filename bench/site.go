package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"onbehalf.internal/broker/brokertest"
)

// A site is what all cases stand on.
type site struct {
	vault    *vault
	binary   string
	profiles string // the folder for CPU profiles; empty: none
}

// open starts a rig. Each case has its own, so that no case pays for what an
// earlier one left in the dev servers and the ledger.
func (s *site) open(ctx context.Context, vaultAddress string) (*brokertest.Rig, process, error) {
	rig, err := brokertest.Start(ctx, brokertest.Options{Binary: s.binary, Vault: vaultAddress, VaultToken: s.vault.root, Config: patient})
	if err != nil {
		return nil, "", err
	}
	p, err := findProcess(s.binary)
	if err != nil {
		return nil, "", errors.Join(err, rig.Close())
	}
	return rig, p, nil
}

// patient leaves operations time enough for a machine that is busy elsewhere,
// and for a thousand of them to gather.
func patient(yaml string) string {
	return strings.Replace(yaml, "operation: {timeout: 5s}", "operation: {timeout: 60s}", 1)
}

// close ends a rig and keeps its profile, if there is one.
func (s *site) close(rig *brokertest.Rig, name string) error {
	err := rig.Stop()
	if s.profiles != "" {
		raw, lost := os.ReadFile(filepath.Join(rig.Dir, "cpu.pprof"))
		if lost == nil {
			lost = os.WriteFile(filepath.Join(s.profiles, strings.ReplaceAll(name, "/", "-")+".pprof"), raw, 0o600)
		}
		err = errors.Join(err, lost)
	}
	return errors.Join(err, rig.Close())
}

// A gateway asks the broker, as lean as the floor is: what it reads of an answer
// is what it checks.
type gateway struct {
	rig    *brokertest.Rig
	server string
	client *http.Client

	mu   sync.Mutex
	late []string // operations whose answer did not wait for the drop
}

func newGateway(rig *brokertest.Rig, era string) *gateway {
	g := &gateway{rig: rig, server: "records",
		client: &http.Client{Transport: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64}}}
	if era == "legacy" {
		g.server = "archive"
	}
	return g
}

func (g *gateway) close() { g.client.CloseIdleConnections() }

// operation runs one. An answer may say that the drop is still under way; what
// became of it is for [gateway.settle].
func (g *gateway) operation(ctx context.Context) error {
	body := fmt.Sprintf(`{"server":%q,"tool":"whoami","arguments":{},"request_key":%q}`, g.server, rand.Text())
	req, err := http.NewRequestWithContext(ctx, "POST", g.rig.URL+"/v1/operations", strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+g.rig.Bearer)
	req.Header.Set("Broker-Actor", "user:7")
	req.Header.Set("Content-Type", "application/json")
	status, answer, err := send(g.client, req)
	if err != nil {
		return err
	}
	var said struct {
		ID, State, Cause, Reason, Hold string
		Result                         json.RawMessage
	}
	err = json.Unmarshal(answer, &said)
	switch {
	case err != nil:
		return err
	case said.State != "succeeded" || !bytes.Contains(said.Result, []byte(rightAnswer)):
		return fmt.Errorf("broker: %d %s %s %s", status, said.State, said.Cause, said.Reason)
	case said.Hold == "pending":
		g.mu.Lock()
		g.late = append(g.late, said.ID)
		g.mu.Unlock()
	case said.Hold != "dropped":
		return fmt.Errorf("broker: the hold is %q", said.Hold)
	}
	return nil
}

// settle looks until every late drop is done, at most ten seconds. It returns
// how many there were and forgets them.
func (g *gateway) settle(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	late := g.late
	g.late = nil
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for _, id := range late {
		for {
			a, err := g.rig.Look(ctx, "/v1/operations/"+id, brokertest.Call{})
			if err != nil {
				return len(late), fmt.Errorf("broker: the hold of an operation is not known to be dropped: %w", err)
			}
			if a.Hold == "dropped" {
				break
			}
			<-poll.C
		}
	}
	return len(late), nil
}
