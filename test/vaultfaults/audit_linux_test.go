//go:build real

package vaultfaults

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"onbehalf.internal/broker/brokertest"
	"onbehalf.internal/broker/internal/devmcp"
	"onbehalf.internal/broker/internal/realvault"
)

// An auditLog is a Vault's only audit device, a file. It is full where the test says so:
// by the limit of the process on the size of a file, which needs no disk of its own.
type auditLog struct {
	t    *testing.T
	node *realvault.Node
	path string
}

// The file begins with a hole, so that the limit meets no other file of Vault's.
const hole = 1 << 30

func enableAudit(t *testing.T, n *realvault.Node) *auditLog {
	t.Helper()
	l := &auditLog{t, n, filepath.Join(n.Home(), "audit.log")}
	if err := os.WriteFile(l.path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(l.path, hole); err != nil {
		t.Fatal(err)
	}
	device := map[string]any{"type": "file", "options": map[string]string{"file_path": l.path}}
	if status := n.Ask(t, http.MethodPut, "sys/audit/file", device, nil); status != http.StatusNoContent {
		t.Fatalf("enabling the audit device: status %d", status)
	}
	return l
}

func (l *auditLog) size() int64 {
	st, err := os.Stat(l.path)
	if err != nil {
		l.t.Error(err)
		return 0
	}
	return st.Size()
}

// fill leaves room for so many bytes.
func (l *auditLog) fill(room int64) { l.limit(fmt.Sprint(l.size() + room)) }

// mend takes the limit away.
func (l *auditLog) mend() { l.limit("unlimited") }

func (l *auditLog) limit(to string) {
	out, err := exec.Command("prlimit", fmt.Sprintf("--pid=%d", l.node.PID()), "--fsize="+to+":unlimited").CombinedOutput()
	if err != nil {
		l.t.Errorf("prlimit: %v\n%s", err, out)
	}
}

// requestSize is how long Vault's entry for such a request is, of the last one in the log.
func (l *auditLog) requestSize(method, path string) (size int64) {
	l.t.Helper()
	f, err := os.Open(l.path)
	if err != nil {
		l.t.Fatal(err)
	}
	defer f.Close()
	f.Seek(hole, 0)
	operation := map[string]string{"POST": "create", "GET": "read", "DELETE": "delete"}[method]
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e struct {
			Type    string
			Request struct{ Operation, Path string }
		}
		if json.Unmarshal(lines.Bytes(), &e) == nil && e.Type == "request" && e.Request.Operation == operation && strings.HasPrefix(e.Request.Path, path) {
			size = int64(len(lines.Bytes())) + 1
		}
	}
	if size == 0 {
		l.t.Fatalf("no entry of %s %s in Vault's audit log", method, path)
	}
	return size
}

// TestAuditCannotWrite: Vault cannot write the audit entry of a request, and does
// nothing; or not the one of its response, and has done it. Both are a 500. Nothing
// is sent that was not checked, and what may be stored is dropped when it goes again.
func TestAuditCannotWrite(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		method string // of the request to the hold
		after  bool   // the response's entry; else the request's
		want   end
		there  int // holds while it is broken
	}{
		{"POST", false, end{State: "not_sent", Cause: "vault_unexpected", Retry: "safe", Hold: "pending"}, 0},
		{"POST", true, end{State: "not_sent", Cause: "vault_unexpected", Retry: "safe", Hold: "pending"}, 1},
		{"GET", false, end{State: "not_sent", Cause: "vault_unexpected", Retry: "safe", Hold: "pending"}, 1},
		{"GET", true, end{State: "not_sent", Cause: "vault_unexpected", Retry: "safe", Hold: "pending"}, 1},
		{"DELETE", false, end{State: "succeeded", Retry: "never", Hold: "pending", Calls: 1}, 1},
		{"DELETE", true, end{State: "succeeded", Retry: "never", Hold: "pending", Calls: 1}, 0},
	} {
		entry := map[bool]string{false: "request", true: "response"}[row.after]
		t.Run(row.method+" "+entry, func(t *testing.T) {
			t.Parallel()
			faults.Add(1)
			n := realvault.StartNode(t)
			rig := brokertest.New(t, &brokertest.Options{Vault: n.Addr, VaultToken: n.Token})
			log := enableAudit(t, n)
			call := brokertest.Call{Server: "records"}
			if row.method == "GET" {
				call.Server = "archive" // which has a leg before the call
			}
			if a := rig.Call(t, call); a.State != "succeeded" {
				t.Fatalf("nothing is wrong: %s", a.Body)
			}
			room := int64(0)
			if row.after {
				room = log.requestSize(row.method, holds) + 100
			}
			before(rig, row.method, func() { log.fill(room) })
			calls := func() int { return rig.Records.Arrived("tools/call") + rig.Archive.Arrived("tools/call") }
			sent := calls()
			a := rig.Call(t, call)
			answered := time.Now()
			got := end{State: string(a.State), Cause: string(a.Cause), Retry: string(a.Retry), Hold: a.Hold, Calls: calls() - sent}
			if got != row.want {
				t.Errorf("got %+v, want %+v\n%s", got, row.want, a.Body)
			}
			// Vault answers nobody else either: who looks has to mend it first, and looks
			// before the broker's next attempt, a second after the first.
			log.mend()
			if left := n.Residue(t); left != row.there && time.Since(answered) < 900*time.Millisecond {
				t.Errorf("%d holds are there, want %d", left, row.there)
			}
			back(t, rig, n)
		})
	}
}

// before calls f once, while the leg is out after which that request is the next.
func before(rig *brokertest.Rig, method string, f func()) {
	var once sync.Once
	during := func(leg string) func(http.Handler) http.Handler {
		return func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if leg == "" || devmcp.MethodOf(r) == leg {
					once.Do(f)
				}
				next.ServeHTTP(w, r)
			})
		}
	}
	switch method {
	case "POST":
		rig.Provider.Break(during(""))
	case "GET":
		rig.Archive.Break(during("initialize"))
	case "DELETE":
		rig.Records.Break(during("tools/call"))
	}
}

// TestStoppedWhileAuditIsFull: the broker stops and can revoke nothing, since Vault can
// write nothing. What it held ends with its epoch, by Vault alone.
func TestStoppedWhileAuditIsFull(t *testing.T) {
	t.Parallel()
	faults.Add(1)
	n := realvault.StartNode(t)
	rig := brokertest.New(t, &brokertest.Options{Vault: n.Addr, VaultToken: n.Token})
	log := enableAudit(t, n)
	before(rig, "DELETE", func() { log.fill(0) })
	if a := rig.Call(t, brokertest.Call{}); a.State != "succeeded" || a.Hold != "pending" {
		t.Errorf("%s", a.Body)
	}
	if err := rig.Stop(); err != nil {
		t.Error(err)
	}
	log.mend()
	if left := n.Residue(t); left != 1 {
		t.Errorf("%d holds are there when the broker has gone, want 1", left)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 80*time.Second)
	defer cancel()
	await(ctx, t, "the hold ends with its epoch", func() bool { return n.Residue(t) == 0 })
}
