package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/brokertest"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/internal/devidp"
	"onbehalf.internal/broker/internal/devmcp"
	"onbehalf.internal/broker/internal/devvault"
	"onbehalf.internal/broker/internal/testhttp"
	"onbehalf.internal/broker/ledger"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/store"
	"onbehalf.internal/broker/store/storetest"
)

// A stopping is a broker, run as a program, that is stopped while an operation
// is at some leg.
type stopping struct {
	*brokertest.Rig
	t       *testing.T
	ctx     context.Context // ends when every stated bound is over, and more
	answers chan brokertest.Answer
}

// binary is this test's own, which is the broker where its name is: see TestMain.
func binary(t testing.TB) string {
	t.Helper()
	path, err := exec.LookPath("broker")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// startStopping starts a broker whose configuration says this of `stop`.
func startStopping(t *testing.T, stop string) *stopping {
	t.Helper()
	rig := brokertest.New(t, &brokertest.Options{Binary: binary(t), Config: func(yaml string) string {
		yaml = strings.Replace(yaml, "operation: {timeout: 5s}", "operation: {timeout: 5m}", 1)
		if stop != "" {
			yaml += "stop: " + stop + "\n"
		}
		return yaml
	}})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return &stopping{rig, t, ctx, make(chan brokertest.Answer, 1)}
}

// call makes a call that is waited for.
func (s *stopping) call(c brokertest.Call) {
	go func() {
		a, err := s.Do(s.ctx, c)
		if err != nil {
			s.t.Errorf("the waiting caller got %v", err)
		}
		s.answers <- a
	}()
}

func (s *stopping) await(holds func() bool) {
	s.t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-s.ctx.Done():
			s.t.Fatal("it did not come to that")
		}
	}
}

func (s *stopping) signal(sig os.Signal) {
	s.t.Helper()
	if err := s.Process().Signal(sig); err != nil {
		s.t.Fatal(err)
	}
}

// ready is what /readyz says: a status and a reason.
func (s *stopping) ready() string {
	req, _ := http.NewRequestWithContext(s.ctx, "GET", s.URL+"/readyz", nil)
	res, err := testhttp.Client.Do(req)
	if err != nil {
		return err.Error()
	}
	defer res.Body.Close()
	var body struct{ Reason string }
	json.NewDecoder(res.Body).Decode(&body)
	return fmt.Sprint(res.StatusCode, " ", body.Reason)
}

// terminate sends SIGTERM and waits until it is seen to be taken.
func (s *stopping) terminate() {
	s.t.Helper()
	s.signal(syscall.SIGTERM)
	s.await(func() bool { return s.ready() == "503 draining" })
}

// ended waits for the end, which must be a good one, and returns the ledger's
// operations and the last record.
func (s *stopping) ended() ([]ledger.Operation, audit.Record) {
	s.t.Helper()
	if err := s.Wait(s.ctx); err != nil {
		s.t.Fatalf("the broker ended with %v\n%s", err, s.Log())
	}
	if n := s.Vault.Residue(); n != 0 {
		s.t.Errorf("%d holds are left in Vault", n)
	}
	return s.onDisk()
}

// onDisk reads what the broker left, before any recovery.
func (s *stopping) onDisk() ([]ledger.Operation, audit.Record) {
	s.t.Helper()
	ctx := context.Background()
	st, err := store.Open(ctx, store.Config{Path: s.DatabasePath()})
	if err != nil {
		s.t.Fatal(err)
	}
	defer st.Close()
	jobs, err := ledger.New(st, ledger.Config{}).List(ctx, "gateway", "user:7", time.Now().Add(-time.Hour), 10)
	if err != nil {
		s.t.Fatal(err)
	}
	all := strings.Split(strings.TrimSpace(storetest.Audit(s.t, st)), "\n")
	var last audit.Record
	line := all[len(all)-1]
	if err := json.NewDecoder(strings.NewReader(line[strings.Index(line, "{"):])).Decode(&last); err != nil {
		s.t.Logf("%s", line)
	}
	if last.Kind != audit.Stop || last.Stopped == nil {
		s.t.Fatalf("the last record is %s", line)
	}
	return jobs, last
}

func hasLeg(a brokertest.Answer, reason fault.Reason) bool {
	for _, l := range a.Legs {
		if l.Reason == reason {
			return true
		}
	}
	return false
}

// A leg is where an operation is when the broker is asked to end.
type leg struct {
	name, server string
	hold         func(*stopping)      // keeps the leg from being answered
	there        func(*stopping) bool // the leg is in flight
	state        string               // of the operation that is cut there
	held         string               // what becomes of its hold
}

const (
	subjects = "kv/data/broker/subjects"
	holds    = "cubbyhole/op/"
)

func vaultLeg(name, method, path, held string, before int) leg {
	return leg{name, "records",
		func(s *stopping) { s.Vault.Fail(method, path, 1, devvault.Failure{Hang: true}) },
		func(s *stopping) bool { return s.Vault.Count(method, path) == before+1 }, "not_sent", held}
}

func mcpLeg(server, method, state string) leg {
	return leg{method, server,
		func(s *stopping) { s.t.Cleanup(s.server(server).Hold(method)) },
		func(s *stopping) bool { return s.server(server).Arrived(method) == 1 }, state, "dropped"}
}

func (s *stopping) server(name string) *devmcp.Server {
	if name == "archive" {
		return s.Archive
	}
	return s.Records
}

func legs() []leg {
	return []leg{
		vaultLeg("subject", "GET", subjects, "", 0),
		{"exchange", "records", func(s *stopping) { s.Provider.Break(devidp.Hang) },
			func(s *stopping) bool { return len(s.Provider.Requests()) == 1 }, "not_sent", ""},
		vaultLeg("hold", "POST", holds, "pending", 0),
		vaultLeg("the check before a leg", "GET", holds, "dropped", 0),
		mcpLeg("records", "server/discover", "not_sent"),
		mcpLeg("archive", "initialize", "not_sent"),
		mcpLeg("archive", "notifications/initialized", "not_sent"),
		mcpLeg("archive", "tools/call", "unknown"),
		mcpLeg("records", "tools/call", "unknown"),
	}
}

// TestSecondSignal: whatever leg is in flight, it is cut at once; the waiting
// caller and the ledger are told what had left, the hold goes, the end is good.
func TestSecondSignal(t *testing.T) {
	for _, l := range legs() {
		t.Run(l.server+" "+l.name, func(t *testing.T) {
			s := startStopping(t, "")
			l.hold(s)
			s.call(brokertest.Call{Server: l.server})
			s.await(func() bool { return l.there(s) })
			s.terminate()
			s.signal(syscall.SIGTERM)
			a := <-s.answers
			if string(a.State) != l.state || a.Cause != fault.BrokerStopping || a.Hold != l.held || a.Status != 200 || !hasLeg(a, fault.BrokerStopping) {
				t.Errorf("the waiting caller got %d %s", a.Status, a.Body)
			}
			if safe := l.state == "not_sent"; safe != (a.Retry == fault.RetrySafe) {
				t.Errorf("retry: %s", a.Retry)
			}
			jobs, last := s.ended()
			held := l.held
			if held == "pending" { // gone with its epoch, which is revoked before the end
				held = "dropped"
			}
			if len(jobs) != 1 || jobs[0].Outcome.State != a.State || jobs[0].Outcome.Cause != fault.BrokerStopping || jobs[0].Hold != held {
				t.Errorf("the ledger says %+v", jobs)
			}
			if got := *last.Stopped; got.Cut != 1 || got.Ended != 0 || got.Left != 0 {
				t.Errorf("the last record says %+v", got)
			}
		})
	}
}

// TestDrainEnds: what has begun ends by itself, at each leg that can be let go.
func TestDrainEnds(t *testing.T) {
	for _, l := range []struct{ server, method string }{
		{"records", "server/discover"}, {"archive", "initialize"}, {"archive", "notifications/initialized"}, {"archive", "tools/call"}, {"records", "tools/call"},
	} {
		t.Run(l.server+" "+l.method, func(t *testing.T) {
			s := startStopping(t, "")
			release := s.server(l.server).Hold(l.method)
			s.call(brokertest.Call{Server: l.server, Key: "k"})
			s.await(func() bool { return s.server(l.server).Arrived(l.method) == 1 })
			s.terminate()
			if a := s.Call(t, brokertest.Call{}); a.Status != http.StatusServiceUnavailable || a.Reason != fault.Draining {
				t.Errorf("a new call got %d %s", a.Status, a.Body)
			}
			if a := s.Call(t, brokertest.Call{Server: l.server, Key: "k", Wait: "1ms"}); a.Status != http.StatusAccepted {
				t.Errorf("the same call again got %d %s", a.Status, a.Body)
			}
			release()
			if a := <-s.answers; a.State != "succeeded" || a.Hold != "dropped" {
				t.Errorf("the waiting caller got %s", a.Body)
			}
			jobs, last := s.ended()
			if len(jobs) != 1 || jobs[0].Outcome.State != fault.Succeeded || jobs[0].Hold != ledger.HoldDropped {
				t.Errorf("the ledger says %+v", jobs)
			}
			if got := *last.Stopped; got != (audit.Stopped{Ended: 1}) {
				t.Errorf("the last record says %+v", got)
			}
		})
	}
}

// TestDrainIsBounded: one signal, and a server that does not answer.
func TestDrainIsBounded(t *testing.T) {
	s := startStopping(t, "{drain: 200ms}")
	s.t.Cleanup(s.Archive.Hold("tools/call"))
	s.call(brokertest.Call{Server: "archive"})
	s.await(func() bool { return s.Archive.Arrived("tools/call") == 1 })
	s.signal(syscall.SIGTERM)
	if a := <-s.answers; a.State != fault.InDoubt || a.Cause != fault.BrokerStopping || a.Hold != "dropped" {
		t.Errorf("the waiting caller got %s", a.Body)
	}
	if _, last := s.ended(); last.Stopped.Cut != 1 {
		t.Errorf("the last record says %+v", *last.Stopped)
	}
	if s.Archive.Arrived("notifications/cancelled") != 1 {
		t.Error("the server was not told")
	}
}

// TestCleanUpIsBounded: nobody answers any more, and the broker ends all the same;
// what it could not do is in the record.
func TestCleanUpIsBounded(t *testing.T) {
	s := startStopping(t, "{drain: 0s}")
	s.t.Cleanup(s.Records.Hold("tools/call"))
	s.call(brokertest.Call{})
	s.await(func() bool { return s.Records.Arrived("tools/call") == 1 })
	s.Vault.Fail("DELETE", "", -1, devvault.Failure{Hang: true})
	s.Vault.Fail("POST", "", -1, devvault.Failure{Hang: true})
	began := time.Now()
	s.signal(syscall.SIGTERM)
	if a := <-s.answers; a.State != fault.InDoubt || a.Cause != fault.BrokerStopping || a.Hold != "pending" {
		t.Errorf("the waiting caller got %s", a.Body)
	}
	if err := s.Wait(s.ctx); err != nil {
		t.Fatal(err)
	}
	// Generous: what must not be is a wait without a bound.
	if took := time.Since(began); took > 2*policy.CleanUp {
		t.Errorf("it took %v", took)
	}
	s.Vault.Mend()
	s.Vault.RevokeAll("epochs") // what Vault does by itself, later
	if jobs, last := s.onDisk(); len(jobs) != 1 || jobs[0].Outcome.State != fault.InDoubt || last.Stopped.Cut != 1 {
		t.Errorf("the ledger says %+v, the last record %+v", jobs, last.Stopped)
	}
}

// TestDelay: not ready at once, and operations are taken until the delay is over.
func TestDelay(t *testing.T) {
	s := startStopping(t, "{delay: 5m, grace_period: 10m}")
	s.terminate()
	if a := s.Call(t, brokertest.Call{}); a.State != "succeeded" {
		t.Errorf("a call within the delay got %d %s", a.Status, a.Body)
	}
	s.signal(os.Interrupt)
	s.ended()
}

// TestReloadWhileDraining: who is cut off from a server meanwhile is cut off.
func TestReloadWhileDraining(t *testing.T) {
	s := startStopping(t, "")
	release := s.Archive.Hold("initialize")
	s.call(brokertest.Call{Server: "archive"})
	s.await(func() bool { return s.Archive.Arrived("initialize") == 1 })
	s.terminate()
	err := s.Edit(func(yaml string) string {
		return strings.Replace(yaml, "enabled: true\n        credential", "enabled: false\n        credential", 1)
	})
	if err != nil {
		t.Fatal(err)
	}
	s.await(func() bool { return strings.Contains(s.Log(), `"msg":"reloaded"`) })
	release()
	if a := <-s.answers; a.State != fault.NotSent || a.Cause != fault.GrantRevoked {
		t.Errorf("the waiting caller got %s", a.Body)
	}
	s.ended()
}

// TestConnectionsWhileDraining: an idle one is closed, a request that is on its way
// is answered, one that never comes to its end holds nobody up.
func TestConnectionsWhileDraining(t *testing.T) {
	s := startStopping(t, "")
	release := s.Records.Hold("tools/call")
	s.call(brokertest.Call{})
	s.await(func() bool { return s.Records.Arrived("tools/call") == 1 })

	idle, late, never := s.dial(), s.dial(), s.dial()
	fmt.Fprintf(idle, "GET /healthz HTTP/1.1\r\nHost: %s\r\n\r\n", s.host())
	if !strings.HasPrefix(readSome(t, idle), "HTTP/1.1 200") {
		t.Fatal("no answer")
	}
	body := `{"server":"records","tool":"whoami","request_key":"late"}`
	for _, c := range []net.Conn{late, never} {
		fmt.Fprintf(c, "POST /v1/operations HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nBroker-Actor: user:7\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n{",
			s.host(), s.Bearer, len(body))
	}
	s.terminate()
	if rest, err := io.ReadAll(idle); err != nil || len(rest) != 0 {
		t.Errorf("the idle connection: %q, %v", rest, err)
	}
	io.WriteString(late, body[1:])
	if got := readSome(t, late); !strings.HasPrefix(got, "HTTP/1.1 503") || !strings.Contains(got, `"reason":"draining"`) || !strings.Contains(got, "Connection: close") {
		t.Errorf("a request whose body came late got %s", got)
	}
	release()
	if a := <-s.answers; a.State != "succeeded" {
		t.Errorf("the waiting caller got %s", a.Body)
	}
	if jobs, _ := s.ended(); len(jobs) != 1 {
		t.Errorf("%d operations", len(jobs))
	}
}

func (s *stopping) host() string { return strings.TrimPrefix(s.URL, "http://") }

func (s *stopping) dial() net.Conn {
	s.t.Helper()
	c, err := net.Dial("tcp", s.host())
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	deadline, _ := s.ctx.Deadline()
	c.SetDeadline(deadline)
	return c
}

func readSome(t *testing.T, c net.Conn) string {
	t.Helper()
	b := make([]byte, 64<<10)
	n, err := c.Read(b)
	if err != nil {
		t.Error(err)
	}
	return string(b[:n])
}

// TestSignalWhileStarting: before the broker looks for signals it may be ended by
// one; from then on its end is a good one, whether or not Vault has answered.
func TestSignalWhileStarting(t *testing.T) {
	s := startStopping(t, "")
	s.signal(syscall.SIGTERM)
	s.ended()
	cmd := exec.Command("broker-stopped", "serve", "--config", s.ConfigPath)
	cmd.Env = []string{"VAULT_TOKEN=a-token"}
	if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte(`"stopped"`)) {
		t.Errorf("stopped from the first line on: %v\n%s", err, out)
	}
	s.Vault.Fail("GET", "auth/token/lookup-self", -1, devvault.Failure{Hang: true})
	for i := range 12 {
		cmd := exec.Command(binary(t), "serve", "--config", s.ConfigPath)
		cmd.Env = []string{"VAULT_TOKEN=a-token"}
		stderr, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		said := bufio.NewReader(stderr)
		for serves := i%2 == 0; !serves; {
			line, err := said.ReadString('\n')
			if err != nil {
				t.Fatalf("it ended before it served: %s", line)
			}
			serves = strings.Contains(line, `"serving"`)
		}
		cmd.Process.Signal(syscall.SIGTERM)
		rest, _ := io.ReadAll(said)
		cmd.Wait()
		status := cmd.ProcessState.Sys().(syscall.WaitStatus)
		early := i%2 == 0 && status.Signaled() && status.Signal() == syscall.SIGTERM
		if !early && status.ExitStatus() != 0 {
			t.Errorf("it ended with %v\n%s", cmd.ProcessState, rest)
		}
	}
}
