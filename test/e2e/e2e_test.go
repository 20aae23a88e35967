//go:build real

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"onbehalf.internal/broker/brokertest"
	"onbehalf.internal/broker/internal/devmcp"
	"onbehalf.internal/broker/internal/realvault"
	"onbehalf.internal/broker/internal/testhttp"
	"onbehalf.internal/broker/secret/canary"
)

// binary is the program under test; TestMain builds it.
var binary string

// A bench is a rig over a real Vault of its own.
type bench struct {
	*brokertest.Rig
	vault *realvault.Vault
}

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "e2e")
	if err != nil {
		panic(err)
	}
	binary = filepath.Join(dir, "broker")
	if out, err := exec.Command("go", "build", "-race", "-o", binary, "onbehalf.internal/broker/cmd/broker").CombinedOutput(); err != nil {
		os.Stderr.Write(out)
		os.Exit(1)
	}
	status := m.Run()
	os.RemoveAll(dir)
	os.Exit(status)
}

// start runs the program over a Vault of its own.
func start(t *testing.T, log io.Writer) bench {
	t.Helper()
	v := realvault.Start(t)
	return bench{brokertest.New(t, &brokertest.Options{Binary: binary, Vault: v.Addr, VaultToken: v.Token, Log: log}), v}
}

// TestTable is server × what happens to a call.
func TestTable(t *testing.T) {
	var rig bench
	canary.Run(t, func(c *canary.Cage) {
		rig = start(t, c.Writer())
		for server, mcp := range map[string]*devmcp.Server{"records": rig.Records, "archive": rig.Archive} {
			for _, tc := range []struct {
				name   string
				call   brokertest.Call
				status int
				state  string
				cause  string // or the problem's reason
			}{
				{"granted", brokertest.Call{Tool: "whoami"}, 200, "succeeded", ""},
				{"no grant", brokertest.Call{Tool: "whoami", Actor: "user:8"}, 403, "", "no_grant"},
				{"tool fails", brokertest.Call{Tool: "fail"}, 200, "tool_error", "tool_failed"},
				{"cut off after it ran", brokertest.Call{Tool: "drop", Arguments: map[string]string{"job": server}}, 200, "unknown", "connection_lost"},
				{"slow, short budget", brokertest.Call{Tool: "slow", Arguments: map[string]int{"seconds": 9}, Timeout: "400ms"}, 200, "unknown", "wall_clock"},
			} {
				tc.call.Server, tc.call.Key = server, server+"-"+strings.ReplaceAll(tc.name, " ", "-")
				a := rig.Call(t, tc.call)
				c.Bytes(tc.name, a.Body)
				cause := string(a.Cause + a.Reason)
				if a.Status != tc.status || string(a.State) != tc.state || cause != tc.cause {
					t.Errorf("%s, %s: %d %s", server, tc.name, a.Status, a.Body)
				}
				if tc.state == "" {
					continue
				}
				if hold := settled(t, rig.Rig, a, tc.call); hold != "dropped" || a.Durability != "durable" {
					t.Errorf("%s, %s: hold %q, %q", server, tc.name, hold, a.Durability)
				}
				again := rig.Get(t, "/v1/operations?request_key="+tc.call.Key, tc.call)
				if again.ID != a.ID || again.State != a.State || !bytes.Equal(again.Result, a.Result) {
					t.Errorf("%s, %s: retrieved %s", server, tc.name, again.Body)
				}
			}
			if n := mcp.Calls("drop"); n != 1 {
				t.Errorf("%s: drop ran %d times", server, n)
			}
		}
		if err := rig.Stop(); err != nil {
			t.Errorf("stopping: %v", err)
		}
		c.Plant(rig.Secrets()...)
		c.File(rig.DatabasePath())
	})
	if left := rig.epochs(t); len(left) != 0 {
		t.Errorf("%d epochs are left in Vault after the broker stopped", len(left))
	}
}

// settled is what became of the hold. An answer waits 250 ms for its drop; a busy
// machine may need more.
func settled(t *testing.T, rig *brokertest.Rig, a brokertest.Answer, as brokertest.Call) string {
	t.Helper()
	for until := time.Now().Add(10 * time.Second); a.Hold == "pending" && time.Now().Before(until); {
		a = rig.Get(t, "/v1/operations/"+a.ID, as)
	}
	return a.Hold
}

// TestKilled: SIGKILL while tools/call is out. The next process says that it
// is in doubt, never that it is safe, and the tool ran once.
func TestKilled(t *testing.T) {
	for _, server := range []string{"records", "archive"} {
		t.Run(server, func(t *testing.T) {
			rig := start(t, nil)
			mcp := rig.Records
			if server == "archive" {
				mcp = rig.Archive
			}
			release := mcp.Hold("tools/call")
			defer release()
			gone := make(chan error, 1)
			call := brokertest.Call{Server: server, Key: "killed"}
			go func() {
				_, err := rig.Do(context.Background(), call)
				gone <- err
			}()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			if err := mcp.Await(ctx, func() bool { return mcp.Arrived("tools/call") == 1 }); err != nil {
				t.Fatal(err)
			}
			if err := rig.Kill(); err != nil {
				t.Fatal(err)
			}
			if err := <-gone; err == nil {
				t.Error("the caller got an answer from a killed broker")
			}
			release()
			if err := rig.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			a := rig.Get(t, "/v1/operations?request_key=killed", call)
			if a.State != "unknown" || a.Cause != "process_died" || a.Retry != "never_without_looking" || a.Hold != "pending" {
				t.Errorf("%d %s", a.Status, a.Body)
			}
			if b := rig.Call(t, call); b.ID != a.ID || b.State != "unknown" || mcp.Arrived("tools/call") != 1 {
				t.Errorf("the repeat: %s, and the server saw %d calls", b.Body, mcp.Arrived("tools/call"))
			}
		})
	}
}

// TestRevokedInVault: an operator who revokes the epoch by its accessor, as the
// audit names it, stops the operation before its next leg.
func TestRevokedInVault(t *testing.T) {
	rig := start(t, nil)
	release := rig.Archive.Hold("initialize")
	defer release()
	got := make(chan brokertest.Answer, 1)
	go func() {
		a, err := rig.Do(context.Background(), brokertest.Call{Server: "archive"})
		if err != nil {
			t.Error(err)
		}
		got <- a
	}()
	if err := rig.Archive.Await(t.Context(), func() bool { return rig.Archive.Arrived("initialize") == 1 }); err != nil {
		t.Fatal(err)
	}
	for _, accessor := range rig.epochs(t) {
		rig.ask(t, "POST", "auth/token/revoke-accessor", map[string]string{"accessor": accessor})
	}
	release()
	if a := <-got; a.State != "not_sent" || a.Cause != "hold_gone" || a.Retry != "safe" || rig.Archive.Arrived("tools/call") != 0 {
		t.Errorf("%s", a.Body)
	}
}

// TestOneOperationRevokedInVault: with a token for each operation, an operator ends
// one and no other.
func TestOneOperationRevokedInVault(t *testing.T) {
	v := realvault.Start(t)
	rig := bench{brokertest.New(t, &brokertest.Options{Binary: binary, Vault: v.Addr, VaultToken: v.Token, Config: func(yaml string) string {
		return strings.Replace(yaml, "hold: {role: broker-op}", "hold: {role: broker-op, per: operation}", 1)
	}}), v}
	release := rig.Archive.Hold("initialize")
	defer release()
	known := rig.epochs(t)
	got, accessors := map[string]chan brokertest.Answer{}, map[string]string{}
	for i, name := range []string{"killed", "other"} {
		answered := make(chan brokertest.Answer, 1)
		got[name] = answered
		go func() {
			a, err := rig.Do(context.Background(), brokertest.Call{Server: "archive", Key: name})
			if err != nil {
				t.Error(err)
			}
			answered <- a
		}()
		if err := rig.Archive.Await(t.Context(), func() bool { return rig.Archive.Arrived("initialize") == i+1 }); err != nil {
			t.Fatal(err)
		}
		now := rig.epochs(t)
		fresh := slices.DeleteFunc(slices.Clone(now), func(a string) bool { return slices.Contains(known, a) })
		if len(fresh) != 1 {
			t.Fatalf("operation %q has %d tokens of its own", name, len(fresh))
		}
		accessors[name], known = fresh[0], now
	}
	rig.ask(t, "POST", "auth/token/revoke-accessor", map[string]string{"accessor": accessors["killed"]})
	release()
	if a := <-got["killed"]; a.State != "not_sent" || a.Cause != "hold_gone" || a.Retry != "safe" {
		t.Errorf("the killed: %s", a.Body)
	}
	if a := <-got["other"]; a.State != "succeeded" || settled(t, rig.Rig, a, brokertest.Call{}) != "dropped" {
		t.Errorf("the other: %s", a.Body)
	}
	if left := rig.epochs(t); len(left) != 1 || slices.Contains(left, accessors["other"]) {
		t.Errorf("%d tokens are left, of the operations too: %v", len(left), slices.Contains(left, accessors["other"]))
	}
}

// TestReload: SIGHUP takes a grant away; a broken file leaves things as they are.
func TestReload(t *testing.T) {
	rig := start(t, nil)
	await := func(word string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		for !strings.Contains(rig.Log(), word) {
			if ctx.Err() != nil {
				t.Fatalf("no %s in the log:\n%s", word, rig.Log())
			}
			rig.Get(t, "/v1/operations", brokertest.Call{})
		}
	}
	edit := func(old, new string) {
		t.Helper()
		if err := rig.Edit(func(yaml string) string { return strings.Replace(yaml, old, new, 1) }); err != nil {
			t.Fatal(err)
		}
	}
	edit("enabled: true\n        credential", "enabled: false\n        credential")
	await(`"msg":"reloaded"`)
	if a := rig.Call(t, brokertest.Call{}); a.Status != 403 || a.Reason != "grant_disabled" {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	edit("enabled: false\n        credential", "enabled: perhaps\n        credential")
	await(`"msg":"reload refused"`)
	await("profiles.yaml:") // the problem, with its line
	if a := rig.Call(t, brokertest.Call{}); a.Status != 403 || a.Reason != "grant_disabled" {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}

// epochs are the accessors of the live tokens with policy broker-op.
func (b bench) epochs(t *testing.T) (found []string) {
	t.Helper()
	var list struct{ Data struct{ Keys []string } }
	b.ask(t, "LIST", "auth/token/accessors", nil, &list)
	for _, accessor := range list.Data.Keys {
		var token struct{ Data struct{ Policies []string } }
		b.ask(t, "POST", "auth/token/lookup-accessor", map[string]string{"accessor": accessor}, &token)
		if len(token.Data.Policies) == 1 && token.Data.Policies[0] == "broker-op" {
			found = append(found, accessor)
		}
	}
	return found
}

// ask makes a request as Vault's root.
func (b bench) ask(t *testing.T, method, path string, body any, into ...any) {
	t.Helper()
	raw, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequest(method, b.vault.Addr+"/v1/"+path, bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Vault-Token", b.vault.Token)
	res, err := testhttp.Client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	for _, v := range into {
		if err := json.NewDecoder(res.Body).Decode(v); err != nil {
			t.Fatal(err)
		}
	}
}
