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

	"onbehalf.internal/broker/internal/testhttp"
)

// A process is a broker that runs as a program of its own.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{}
	err   error // of its end; read after ended
}

// startProcess runs the program in o.Binary as an init system does, and waits
// until it is ready.
func (r *Rig) startProcess(ctx context.Context, o Options, environ []string) error {
	cmd := exec.Command(o.Binary, "serve", "--config", r.ConfigPath)
	cmd.Env = append([]string{"VAULT_TOKEN=" + r.login, "PATH=" + os.Getenv("PATH")}, environ...)
	cmd.Dir = r.Dir
	cmd.Stdout, cmd.Stderr = o.Log, o.Log
	if err := cmd.Start(); err != nil {
		return err
	}
	p := &process{cmd: cmd, ended: make(chan struct{})}
	go func() { p.err = cmd.Wait(); close(p.ended) }()
	r.process.Store(p)
	return r.awaitReady(ctx, p)
}

func (r *Rig) awaitReady(ctx context.Context, p *process) error {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		req, err := http.NewRequestWithContext(ctx, "GET", r.URL+"/readyz", nil)
		if err != nil {
			return err
		}
		if res, err := testhttp.Client.Do(req); err == nil {
			io.Copy(io.Discard, res.Body)
			res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-p.ended:
			r.process.CompareAndSwap(p, nil)
			return fmt.Errorf("brokertest: the broker ended before it was ready: %v", p.err)
		case <-ctx.Done():
			return errors.New("brokertest: the broker did not get ready")
		case <-tick.C:
		}
	}
}

// Kill ends a broker process at once, as SIGKILL does, also while it starts; see
// [Rig.Restart]. It may be called from anywhere, by a counterpart too.
func (r *Rig) Kill() error {
	p := r.process.Swap(nil)
	if p == nil {
		return errors.New("brokertest: there is no process to kill: Kill needs Options.Binary")
	}
	p.cmd.Process.Kill()
	<-p.ended
	return nil
}

// Process is the broker's, with Options.Binary: for signals, and for a look at it
// from outside. It is nil when the broker does not run.
func (r *Rig) Process() *os.Process {
	if p := r.process.Load(); p != nil {
		return p.cmd.Process
	}
	return nil
}

// Ended waits until the broker process has ended by itself, however.
func (r *Rig) Ended(ctx context.Context) error {
	p := r.process.Load()
	if p == nil {
		return nil
	}
	select {
	case <-p.ended:
		r.process.CompareAndSwap(p, nil)
		return nil
	case <-ctx.Done():
		return errors.New("brokertest: the broker has not ended")
	}
}

// Wait is Ended; a process that fails to end well is an error.
func (r *Rig) Wait(ctx context.Context) error {
	p := r.process.Load()
	if err := r.Ended(ctx); err != nil || p == nil {
		return err
	}
	return p.err
}

// Restart starts the broker again over the same configuration and database,
// after Stop or Kill. environ is added to the environment of a process.
func (r *Rig) Restart(ctx context.Context, environ ...string) error {
	return r.startBroker(ctx, r.options, environ...)
}

// stop sends SIGTERM and waits; a broker that fails to end well is an error.
func (p *process) stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	<-p.ended
	return p.err
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
