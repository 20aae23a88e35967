package process_test

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"onbehalf.internal/broker/process"
)

const canary = "canary-3f9c1b7e"

// TestMain is also the process that the tests look at: what it does cannot be undone.
func TestMain(m *testing.M) {
	if act := acts[os.Getenv("PROCESS_TEST")]; act != nil {
		act()
		return
	}
	os.Exit(m.Run())
}

var acts = map[string]func(){
	"take":             func() { told(process.Take("SECRET")) },
	"both":             func() { must(process.Harden()); told(process.Take("SECRET")) },
	"absent":           func() { told(process.Take("ABSENT")) },
	"plain":            say,
	"hardened":         func() { must(process.Harden()); say() },
	"crash plain":      func() { crash(func() error { return nil }) },
	"crash hardened":   func() { crash(process.Harden) },
	"crash undumpable": func() { crash(process.Undumpable) },
}

func must(err error) {
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(3)
	}
}

// told says what Take gave and what is left of it: in this process's environment,
// in a child's, and in the block that the kernel shows.
func told(value interface{ Reveal() string }, err error) {
	must(err)
	fmt.Printf("value %q\n", value.Reveal())
	_, there := os.LookupEnv("SECRET")
	fmt.Println("there", there, slices.ContainsFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, "SECRET=") }))
	child, err := exec.Command("/usr/bin/env").Output()
	must(err)
	fmt.Printf("child %q\n", child)
	block, err := os.ReadFile("/proc/self/environ")
	if err != nil {
		block = []byte(err.Error())
	}
	fmt.Printf("block %q\n", block)
}

// say prints whether this process is dumpable, and its limits for a core.
func say() {
	dumpable, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	must(err)
	var limit unix.Rlimit
	must(unix.Getrlimit(unix.RLIMIT_CORE, &limit))
	fmt.Println(dumpable, limit.Cur, limit.Max)
}

// crash asks for as large a core as may be had, and panics.
func crash(first func() error) {
	var limit unix.Rlimit
	must(unix.Getrlimit(unix.RLIMIT_CORE, &limit))
	must(unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: limit.Max, Max: limit.Max}))
	must(first())
	panic("a defect")
}

// child is this test as another process.
func child(act string, env ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append([]string{"PROCESS_TEST=" + act, "GORACE=atexit_sleep_ms=0"}, env...)
	return cmd
}

// TestTake: one variable is read and gone, wherever it stood and however often;
// the others stay as they were.
func TestTake(t *testing.T) {
	for _, act := range []string{"take", "both"} {
		for _, env := range [][]string{
			{"SECRET=" + canary, "SECRETS=kept", "NO_SECRET=SECRET=kept"},
			{"SECRETS=kept", "SECRET=" + canary, "NO_SECRET=SECRET=kept"},
			{"SECRETS=kept", "NO_SECRET=SECRET=kept", "SECRET=" + canary},
			{"SECRETS=kept", "NO_SECRET=SECRET=kept", "SECRET=", "LAST=SECRET=" + strings.Repeat("x", 100<<10)},
		} {
			out, err := child(act, env...).Output()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			said := string(out)
			value := ""
			if slices.Contains(env, "SECRET="+canary) {
				value = canary
			}
			if !strings.HasPrefix(said, fmt.Sprintf("value %q\nthere false false\n", value)) || strings.Count(said, canary) != len(value)/len(canary) {
				t.Errorf("%s: %.400s", act, said)
			}
			if strings.Contains(said, `\x00SECRET=`) || strings.Contains(said, `nSECRET=`) {
				t.Errorf("%s: the variable is left: %.400s", act, said)
			}
			// Once in the child's; in the block, where it can be read, once more.
			if n := strings.Count(said, "SECRETS=kept") + strings.Count(said, "NO_SECRET=SECRET=kept"); n != 4 && !strings.Contains(said, "permission denied") {
				t.Errorf("%s: the others: %.400s", act, said)
			}
		}
	}
	if out, err := child("absent", "SECRET="+canary).Output(); err != nil || !strings.HasPrefix(string(out), "value \"\"\nthere true true\n") {
		t.Errorf("nothing to take: %v, %s", err, out)
	}
}

// TestUndumpable: the process says so itself, and others are told by the kernel;
// what they get is looked at with the running broker, in cmd/broker.
func TestUndumpable(t *testing.T) {
	for act, want := range map[string]string{"plain": "1 ", "hardened": "0 0 0\n"} {
		if out, err := child(act).Output(); err != nil || !strings.HasPrefix(string(out), want) {
			t.Errorf("%s: %q, %v", act, out, err)
		}
	}
}

// TestNoCore: a crash that asks for a core leaves none. Each of the two measures is
// enough for that by itself.
func TestNoCore(t *testing.T) {
	for act, core := range map[string]bool{"crash plain": true, "crash hardened": false, "crash undumpable": false} {
		cmd := child(act, "GOTRACEBACK=crash")
		cmd.Dir = t.TempDir()
		out, _ := cmd.CombinedOutput()
		status := cmd.ProcessState.Sys().(syscall.WaitStatus)
		left, _ := os.ReadDir(cmd.Dir)
		switch {
		case !status.Signaled() || status.Signal() != syscall.SIGABRT:
			t.Errorf("%s: %v\n%s", act, cmd.ProcessState, out)
		case core && !status.CoreDump():
			t.Logf("%s: this machine makes no core files anyway", act)
		case !core && (status.CoreDump() || len(left) != 0):
			t.Errorf("%s: a core, %v", act, left)
		}
	}
}
