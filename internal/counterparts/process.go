package counterparts

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

const (
	patience = 30 * time.Second // from start to the first good answer
	shown    = 16 << 10         // bytes of a program's output in a failed test
)

// errEnded is the one failure that another port may cure: somebody took ours.
var errEnded = errors.New("it ended at once")

// A program is how one child of a test is started on a port of its own.
type program struct {
	path  string   // see cached
	args  []string // seen by everyone on the machine: no secret
	env   []string // besides HOME and PATH
	ready string   // a URL that is answered with a status below 500 once it serves

	patience time.Duration // from start to the first good answer; 0: as the constant says
}

// start runs what on returns for an empty folder and a free port, until the
// test ends. It returns that port when the program is ready.
func start(t testing.TB, on func(home string, port int) program) int {
	t.Helper()
	var last error
	for range 3 { // a free port can be taken before the program takes it
		port, err := freePort()
		if err != nil {
			t.Fatal(err)
		}
		home := t.TempDir()
		p := on(home, port)
		if last = p.start(t, home); last == nil {
			return port
		}
		if !errors.Is(last, errEnded) {
			t.Fatalf("starting %s: %v", filepath.Base(p.path), last)
		}
	}
	t.Fatalf("starting a counterpart: %v", last)
	return 0
}

func (p program) start(t testing.TB, home string) error {
	name := filepath.Join(home, "output")
	output, err := os.Create(name)
	if err != nil {
		return err
	}
	defer output.Close()
	cmd := exec.Command(p.path, p.args...)
	cmd.Dir = home
	cmd.Env = append([]string{"HOME=" + home, "PATH=" + os.Getenv("PATH")}, p.env...)
	cmd.Stdout, cmd.Stderr = output, output
	cmd.SysProcAttr = dieWithParent

	exited, err := launch(cmd)
	if err != nil {
		return err
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		<-exited
		if t.Failed() {
			t.Logf("%s said:\n%s", filepath.Base(p.path), tail(name))
		}
	})
	return await(p.ready, cmp.Or(p.patience, patience), exited)
}

// launch starts cmd from a thread that lives as long as the child: the kernel
// ties the child's death to the thread, not to the process.
func launch(cmd *exec.Cmd) (exited chan struct{}, err error) {
	started := make(chan error)
	exited = make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer close(exited)
		err := cmd.Start()
		started <- err
		if err == nil {
			cmd.Wait()
		}
	}()
	return exited, <-started
}

// await asks url until it is answered with a status below 500.
func await(url string, limit time.Duration, exited chan struct{}) error {
	client := http.Client{Timeout: time.Second}
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	late := time.After(limit)
	for {
		select {
		case <-exited:
			return errEnded
		case <-late:
			return fmt.Errorf("no good answer from %s within %s", url, limit)
		case <-poll.C:
		}
		resp, err := client.Get(url)
		if err != nil {
			continue
		}
		resp.Body.Close()
		if resp.StatusCode < http.StatusInternalServerError {
			return nil
		}
	}
}

// tail is the end of a file.
func tail(name string) []byte {
	b, err := os.ReadFile(name)
	if err != nil {
		return []byte(err.Error())
	}
	return bytes.TrimSpace(b[max(0, len(b)-shown):])
}

// freePort finds a port below those that the system gives to outgoing
// connections, so that none of ours takes it.
func freePort() (int, error) {
	for range 100 {
		n, err := rand.Int(rand.Reader, big.NewInt(12000))
		if err != nil {
			return 0, err
		}
		port := 20000 + int(n.Int64())
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			return port, l.Close()
		}
	}
	return 0, errors.New("no free port between 20000 and 32000")
}

// cached is the path of something in the cache; script is what puts it there.
func cached(t testing.TB, name, script string) string {
	t.Helper()
	cache := os.Getenv("BROKER_CACHE")
	if cache == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			t.Fatal(err)
		}
		cache = filepath.Join(home, ".cache", "onbehalf-broker")
	}
	path := filepath.Join(cache, filepath.FromSlash(name))
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("there is no %s: run `sh %s` once", path, script)
	}
	return path
}
