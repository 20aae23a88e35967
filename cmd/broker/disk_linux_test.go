package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"onbehalf.internal/broker/brokertest"
)

// A diskFault is a real one, of a broker that runs as a program.
type diskFault struct {
	name, program string
	strike        func(*stopping)
	persists      bool // what is told as failed may be on disk all the same
}

var diskFaults = []diskFault{
	// The log cannot grow any more: the kernel's answer is EFBIG in place of ENOSPC.
	{name: "full", program: "broker", strike: func(s *stopping) {
		log, err := os.Stat(s.DatabasePath() + "-wal")
		if err == nil {
			limit := unix.Rlimit{Cur: uint64(log.Size()), Max: unix.RLIM_INFINITY}
			err = unix.Prlimit(s.Process().Pid, unix.RLIMIT_FSIZE, &limit, nil)
		}
		if err != nil {
			s.t.Fatal(err)
		}
	}},
	{name: "fsync", program: "broker-unsynced", persists: true, strike: func(s *stopping) {
		s.signal(syscall.SIGUSR1)
		s.await(func() bool { return strings.Contains(s.Log(), unsyncedWord) })
	}},
}

const unsyncedWord = "from now on fsync is EIO"

// unsynced is the program whose every fsync fails once it gets SIGUSR1: a filter
// of system calls answers in the disk's place.
func unsynced() {
	strike := make(chan os.Signal, 1)
	signal.Notify(strike, syscall.SIGUSR1)
	go func() {
		<-strike
		if err := failSync(); err != nil {
			panic(err)
		}
		fmt.Fprintln(os.Stderr, unsyncedWord)
	}()
	main()
}

func failSync() error {
	runtime.LockOSThread()
	is := func(call uint32, yes, no uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: call, Jt: yes, Jf: no}
	}
	answer := func(k uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: k} }
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // the number of the call
		is(unix.SYS_FSYNC, 1, 0),
		is(unix.SYS_FDATASYNC, 0, 1),
		answer(unix.SECCOMP_RET_ERRNO | uint32(unix.EIO)),
		answer(unix.SECCOMP_RET_ALLOW),
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return errno
	}
	return nil
}

// A diskRow is where an operation is when the disk fails.
type diskRow struct {
	name string
	held string // the leg that waits meanwhile; "": the disk fails before the call comes

	status              int
	state, reason       string // of the answer
	calls               int    // tools/call requests that reached the server
	then                string // the state after the restart; "": the ledger never heard of it
	persisted           string // the same where the last commit is on disk all the same
	again               string // what the same key says after that
	persistedAgain      string
	finally, ifPersists int // times the tool ran in the end
}

var diskRows = []diskRow{
	{name: "before begin", status: 503, reason: "store_failed",
		then: "", again: "succeeded", finally: 1,
		persisted: "not_sent", persistedAgain: "succeeded", ifPersists: 1},
	{name: "before sending", held: "server/discover", status: 200, state: "not_sent", reason: "store_failed",
		then: "not_sent", again: "succeeded", finally: 1,
		persisted: "unknown", persistedAgain: "unknown", ifPersists: 0},
	{name: "before the outcome", held: "tools/call", status: 200, state: "succeeded", calls: 1,
		then: "unknown", again: "unknown", finally: 1,
		persisted: "succeeded", persistedAgain: "succeeded", ifPersists: 1},
}

// TestDisk: the disk of a broker that serves fills up, or fails to write, at each
// commit of an operation. Nothing is sent without "sending" on disk, what came is
// handed out, and the next broker calls nothing unsent that may have been sent.
func TestDisk(t *testing.T) {
	for _, fault := range diskFaults {
		for _, row := range diskRows {
			t.Run(fault.name+" "+row.name, func(t *testing.T) { testDisk(t, fault, row) })
		}
	}
}

func testDisk(t *testing.T, fault diskFault, row diskRow) {
	s := startDisk(t, fault)
	before := s.Call(t, brokertest.Call{Tool: "fail", Key: "before"})
	if row.held == "" {
		fault.strike(s)
		s.call(brokertest.Call{Key: "k"})
	} else {
		release := s.Archive.Hold(row.held)
		s.call(brokertest.Call{Key: "k", Server: "archive"})
		s.await(func() bool { return s.Archive.Arrived(row.held) == 1 })
		fault.strike(s)
		release()
	}
	a := <-s.answers
	if a.Status != row.status || string(a.State) != row.state || string(a.Reason)+string(a.Cause) != row.reason || s.calls() != row.calls {
		t.Errorf("the answer is %d %s after %d calls", a.Status, a.Body, s.calls())
	}
	if row.state != "" && (a.Durability != "volatile" || a.Hold != "dropped") {
		t.Errorf("the answer is %s with hold %s", a.Durability, a.Hold)
	}
	s.goesOnReading(before)
	if err := s.Stop(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	s.startsAgain(fault, row)
}

func startDisk(t *testing.T, fault diskFault) *stopping {
	t.Helper()
	path, err := exec.LookPath(fault.program)
	if err != nil {
		t.Fatal(err)
	}
	rig := brokertest.New(t, &brokertest.Options{Binary: path})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return &stopping{rig, t, ctx, make(chan brokertest.Answer, 1)}
}

// calls are the tools/call requests that reached a server, but for the one before
// the disk failed.
func (s *stopping) calls() int {
	return s.Archive.Arrived("tools/call") + s.Records.Arrived("tools/call") - 1
}

// goesOnReading: after a commit that failed nothing is begun, and what is known
// can be read.
func (s *stopping) goesOnReading(before brokertest.Answer) {
	s.t.Helper()
	calls := s.calls()
	if got := s.ready(); got != "503 store_failed" {
		s.t.Errorf("readyz: %s", got)
	}
	if a := s.Call(s.t, brokertest.Call{}); a.Status != 503 || a.Reason != "store_failed" || s.calls() != calls {
		s.t.Errorf("a new call: %d %s", a.Status, a.Body)
	}
	if a := s.Get(s.t, "/v1/operations/"+before.ID, brokertest.Call{}); a.Status != 200 || a.State != "tool_error" || a.Text == "" || a.Text != before.Text {
		s.t.Errorf("an operation of before: %d %s", a.Status, a.Body)
	}
	if a := s.Call(s.t, brokertest.Call{Tool: "fail", Key: "before"}); a.Status != 200 || a.Text != before.Text || s.calls() != calls {
		s.t.Errorf("its key again: %d %s", a.Status, a.Body)
	}
	if a := s.Admin(s.t, "GET", "/v1/suspensions", "", nil); a.Status != 200 {
		s.t.Errorf("suspensions: %d %s", a.Status, a.Body)
	}
	if a := s.Admin(s.t, "POST", "/v1/suspensions", `{"actor":"user:8","reason":"r"}`, nil); a.Status != 503 || a.Reason != "store_failed" {
		s.t.Errorf("a suspension: %d %s", a.Status, a.Body)
	}
}

// startsAgain: the next broker, on a disk that is well.
func (s *stopping) startsAgain(fault diskFault, row diskRow) {
	s.t.Helper()
	then, again, runs := row.then, row.again, row.finally
	if fault.persists {
		then, again, runs = row.persisted, row.persistedAgain, row.ifPersists
	}
	if err := s.Restart(s.ctx); err != nil {
		s.t.Fatal(err)
	}
	if opened := s.Log(); !strings.Contains(opened[strings.LastIndex(opened, `"ledger opened"`):], `"clean":false`) {
		s.t.Error("the next broker did not check the file")
	}
	a := s.Get(s.t, "/v1/operations?request_key=k", brokertest.Call{})
	if (a.Status == 404) != (then == "") || string(a.State) != then {
		s.t.Errorf("after the restart: %d %s, want %s", a.Status, a.Body, then)
	}
	call := brokertest.Call{Key: "k"}
	if row.held != "" {
		call.Server = "archive"
	}
	if a := s.Call(s.t, call); string(a.State) != again {
		s.t.Errorf("the same key again: %d %s, want %s", a.Status, a.Body, again)
	}
	if n := s.Archive.Calls("whoami") + s.Records.Calls("whoami"); n != runs {
		s.t.Errorf("the tool ran %d times, want %d", n, runs)
	}
	if err := s.Stop(); err != nil {
		s.t.Error(err)
	}
	s.onDisk() // the chain is whole
}
