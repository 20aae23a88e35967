// Program profiled is `broker serve` with a CPU profile of its whole life, which
// it writes to cpu.pprof in its working folder. It is built by the load rig and
// is no way to run a broker: the product has no profiler.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/pprof"
	"syscall"

	"onbehalf.internal/broker"
	"onbehalf.internal/broker/policy"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "profiled:", err)
		os.Exit(1)
	}
}

// run takes the arguments that the rig gives to a broker: serve --config FILE.
func run(ctx context.Context, args []string) (err error) {
	if len(args) != 3 || args[0] != "serve" || args[1] != "--config" {
		return errors.New("usage: profiled serve --config FILE")
	}
	snapshot, err := policy.Load(args[2])
	if err != nil {
		return err
	}
	file, err := os.Create("cpu.pprof")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if err := pprof.StartCPUProfile(file); err != nil {
		return err
	}
	defer pprof.StopCPUProfile()
	b, err := broker.New(ctx, broker.Config{Snapshot: snapshot})
	if err != nil {
		return err
	}
	return b.Serve(ctx)
}
