package brokertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// A process is a broker that runs as a program of its own.
type process struct {
	cmd   *exec.Cmd
	ended chan error
}

// startProcess runs the program in o.Binary as an init system does, and waits
// until it is ready.
func (r *Rig) startProcess(ctx context.Context, o Options, login string) error {
	cmd := exec.Command(o.Binary, "serve", "--config", r.ConfigPath)
	cmd.Env = []string{"VAULT_TOKEN=" + login, "PATH=" + os.Getenv("PATH")}
	cmd.Dir = r.Dir
	cmd.Stdout, cmd.Stderr = o.Log, o.Log
	if err := cmd.Start(); err != nil {
		return err
	}
	p := &process{cmd, make(chan error, 1)}
	go func() { p.ended <- cmd.Wait() }()
	r.process = p
	return r.awaitReady(ctx)
}

func (r *Rig) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		req, err := http.NewRequestWithContext(ctx, "GET", r.URL+"/readyz", nil)
		if err != nil {
			return err
		}
		if res, err := client.Do(req); err == nil {
			io.Copy(io.Discard, res.Body)
			res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case err := <-r.process.ended:
			r.process = nil
			return fmt.Errorf("brokertest: the broker ended before it was ready: %v", err)
		case <-ctx.Done():
			return errors.New("brokertest: the broker did not get ready")
		case <-tick.C:
		}
	}
}

// Kill ends a broker process at once, as SIGKILL does; see [Rig.Restart].
func (r *Rig) Kill() error {
	if r.process == nil {
		return errors.New("brokertest: Kill needs Options.Binary")
	}
	r.process.cmd.Process.Kill()
	<-r.process.ended
	r.process = nil
	return nil
}

// Process is the broker's, with Options.Binary: for signals, and for a look at it
// from outside. It is nil when the broker does not run.
func (r *Rig) Process() *os.Process {
	if r.process == nil {
		return nil
	}
	return r.process.cmd.Process
}

// Wait waits for a broker process that ends without [Rig.Stop]; one that fails to
// end well is an error.
func (r *Rig) Wait(ctx context.Context) error {
	select {
	case err := <-r.process.ended:
		r.process = nil
		return err
	case <-ctx.Done():
		return errors.New("brokertest: the broker has not ended")
	}
}

// Restart starts the broker again over the same configuration and database,
// after Stop or Kill.
func (r *Rig) Restart(ctx context.Context) error { return r.startBroker(ctx, r.options) }

// stopProcess sends SIGTERM and waits; a broker that fails to end well is an error.
func (r *Rig) stopProcess() error {
	p := r.process
	r.process = nil
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return <-p.ended
}

// freePort finds a loopback port below the range that the kernel gives to
// outgoing connections, so that nothing takes it before the broker does.
func freePort() (string, error) {
	for port := 20000 + os.Getpid()%5000; port < 32768; port++ {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		defer l.Close()
		return l.Addr().String(), nil
	}
	return "", errors.New("brokertest: no free port")
}
