package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"onbehalf.internal/broker/brokertest"
	"onbehalf.internal/broker/internal/testhttp"
)

// TestProcessFromOutside looks at the running broker as its neighbours do. What
// they may read holds no secret, and what could hold one they may not read.
func TestProcessFromOutside(t *testing.T) {
	withoutPtrace(t)
	rig := brokertest.New(t, &brokertest.Options{Binary: binary(t)})
	rig.Call(t, brokertest.Call{})
	rig.Call(t, brokertest.Call{Server: "archive"})
	secrets := append(rig.Secrets(), rig.Vault.Secrets()...)
	proc := fmt.Sprint("/proc/", rig.Process().Pid, "/")

	for name, want := range map[string]string{
		"cmdline": binary(t) + "\x00serve\x00--config\x00" + rig.ConfigPath + "\x00",
		"limits":  "Max core file size        0                    0 ",
		"status":  "CoreDumping:\t0",
		"stat":    "(broker)",
	} {
		text, err := os.ReadFile(proc + name)
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s: no %q, %v\n%s", name, want, err, text)
		}
		holdsNone(t, name, text, secrets)
	}

	cat := exec.Command("cat")
	in, _ := cat.StdinPipe()
	if err := cat.Start(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"environ", "mem", "maps", "fd/0", "cwd", "exe"} {
		if err := open(fmt.Sprint("/proc/", cat.Process.Pid, "/", name)); err != nil {
			t.Errorf("the test itself: %s of another process: %v", name, err)
		}
		if err := open(proc + name); err == nil {
			t.Errorf("%s can be opened by a process of the same user", name)
		}
	}
	in.Close()
	cat.Wait()
}

// withoutPtrace goes on with this goroutine, and what it starts, as two processes
// of one user: root without the capabilities to look into others is no more than
// that. The thread ends with the goroutine.
func withoutPtrace(t *testing.T) {
	t.Helper()
	runtime.LockOSThread()
	if os.Geteuid() != 0 {
		return
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	err := unix.Capget(&header, &data[0])
	for _, c := range []uint{unix.CAP_SYS_PTRACE, unix.CAP_SYS_ADMIN, unix.CAP_PERFMON} {
		if err == nil {
			err = unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0) // for what is started
		}
		for _, set := range []*uint32{&data[c/32].Effective, &data[c/32].Permitted, &data[c/32].Inheritable} {
			*set &^= 1 << (c % 32)
		}
	}
	if err == nil {
		err = unix.Capset(&header, &data[0])
	}
	if err != nil {
		t.Fatal("giving up a capability: ", err)
	}
}

func open(path string) error {
	f, err := os.Open(path)
	if err == nil {
		f.Close()
	}
	return err
}

func holdsNone(t *testing.T, where string, text []byte, secrets []string) {
	t.Helper()
	for _, s := range secrets {
		if strings.Contains(string(text), s) {
			t.Errorf("%s holds a secret", where)
		}
	}
}

// TestProcessFromAbove looks at the running broker as root does, who sees more:
// the environment is without the token, open files are sockets, pipes and the
// database, which is for its owner alone. Who is not root is refused all of it.
func TestProcessFromAbove(t *testing.T) {
	rig := brokertest.New(t, &brokertest.Options{Binary: binary(t)})
	rig.Call(t, brokertest.Call{})
	proc := fmt.Sprint("/proc/", rig.Process().Pid, "/")
	environ, err := os.ReadFile(proc + "environ")
	if os.Geteuid() != 0 {
		if !os.IsPermission(err) {
			t.Errorf("environ, not as root: %q, %v", environ, err)
		}
		return
	}
	if err != nil || !strings.Contains(string(environ), "PATH=") || strings.Contains(string(environ), "VAULT_TOKEN") {
		t.Errorf("environ: %q, %v", environ, err)
	}
	holdsNone(t, "environ", environ, append(rig.Secrets(), rig.Vault.Secrets()...))

	files, err := filepath.Glob(proc + "fd/*")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d open files, %v", len(files), err)
	}
	for _, f := range files {
		target, _ := os.Readlink(f)
		kind, _, _ := strings.Cut(target, ":")
		st, err := os.Stat(f)
		switch {
		case slices.Contains([]string{"socket", "pipe", "anon_inode"}, kind), target == "/dev/null":
		case strings.HasPrefix(target, "/sys/fs/cgroup/"): // the runtime's: how many processors
		case err == nil && strings.HasPrefix(target, rig.DatabasePath()) && st.Mode().Perm() == 0o600:
		default:
			t.Errorf("open: %s, %v", target, err)
		}
	}
	maps, err := os.ReadFile(proc + "maps")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(maps)) {
		if f := strings.Fields(line); len(f) == 6 && strings.HasPrefix(f[5], "/") && strings.Contains(f[1], "w") &&
			!strings.HasPrefix(f[5], rig.DatabasePath()) && strings.Contains(f[1], "s") {
			t.Errorf("shared with others: %s", line)
		}
	}
}

// TestNoDebugging: profiles and variables of the process are on neither listener,
// whatever a library has registered with net/http.
func TestNoDebugging(t *testing.T) {
	metrics := "127.0.0.1:0"
	rig := brokertest.New(t, &brokertest.Options{Config: func(yaml string) string {
		return strings.Replace(yaml, `listen: {`, `listen: {metrics: "`+metrics+`", `, 1)
	}})
	for _, base := range []string{rig.URL, rig.Broker.MetricsAddress()} {
		for _, path := range []string{"/debug/vars", "/debug/pprof/", "/debug/pprof/cmdline", "/debug/pprof/goroutine?debug=2", "/debug/requests", "/debug/events", "/debug"} {
			req, err := http.NewRequestWithContext(context.Background(), "GET", base+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+rig.Bearer)
			res, err := testhttp.Client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			if res.StatusCode != http.StatusNotFound {
				t.Errorf("%s%s: %d", base, path, res.StatusCode)
			}
		}
	}
}
