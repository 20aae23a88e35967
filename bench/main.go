// Program bench measures what the broker costs beside its floor: the same legs,
// made directly by a bare client.
//
//	go run ./bench                                 all of it, about five minutes
//	go run ./bench -rounds 2 -time 1s              a look
//	go run ./bench -cases modern/64 -profiles DIR  CPU profiles of the broker under load
//
// Around the broker, which is a process of its own, stand a real Vault in dev
// mode (VAULT_BIN, PATH, or what `make vault` built), the dev identity provider
// and the dev MCP servers of both eras. For each case, an era and a number of
// callers, rounds of the floor and of the broker alternate. Then come what each
// server saw of one operation, memory, and the time from start to ready.
//
// What always holds:
//
//   - The floor makes the requests that the broker makes, to the same servers, on
//     connections that are as fresh: this is counted, and a difference fails the run.
//   - Every operation's answer is checked; a wrong one fails the run.
//   - Counting and profiling happen in passes of their own or by request; nothing
//     is counted in a timed round.
//
// The load, the dev servers, Vault and the broker share the machine's cores, so
// absolute numbers say little. What counts is the ratio of broker and floor in one
// run: it is taken round by round, and the median over the rounds is reported.
//
// It reads the broker's CPU time and memory from /proc and so needs Linux. It
// holds no target against a noisy machine: a missed one is said, and the run
// succeeds all the same.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // the dev provider's engine writes there
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	rounds   int
	bound    bound
	cases    []load
	json     string
	profiles string
}

func parse(args []string) (o options, err error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.IntVar(&o.rounds, "rounds", 7, "rounds of each side in a case")
	flags.DurationVar(&o.bound.time, "time", 2500*time.Millisecond, "how long a round may last, at most 30s")
	flags.IntVar(&o.bound.count, "operations", 5000, "how many operations a round may have")
	cases := flags.String("cases", "modern/1,modern/16,modern/64,legacy/1,legacy/16,legacy/64", "era/callers, …")
	flags.StringVar(&o.json, "json", "", "write the results to this file, too")
	flags.StringVar(&o.profiles, "profiles", "", "write a CPU profile of the broker for each case into this folder; memory and size then include the profiler")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.rounds < 1 || o.bound.count < 1 || o.bound.time <= 0 || o.bound.time > epochUse {
		return o, errors.New("-rounds, -operations and -time must be above zero, -time at most 30s")
	}
	for _, name := range strings.Split(*cases, ",") {
		era, callers, _ := strings.Cut(name, "/")
		n, err := strconv.Atoi(callers)
		if err != nil || n < 1 || era != "modern" && era != "legacy" {
			return o, fmt.Errorf("-cases: %q is not modern/N or legacy/N", name)
		}
		o.cases = append(o.cases, load{Era: era, Callers: n})
	}
	return o, nil
}

// run is the whole program; main only binds it to this process.
func run(ctx context.Context, args []string, out io.Writer) (err error) {
	o, err := parse(args)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if o.profiles != "" {
		if err := os.MkdirAll(o.profiles, 0o700); err != nil {
			return err
		}
	}
	vault, err := startVault(ctx, dir)
	if err != nil {
		return err
	}
	defer vault.close()
	s := &site{vault: vault, profiles: o.profiles, binary: filepath.Join(dir, "broker")}
	if err := build(ctx, s.binary, o.profiles != ""); err != nil {
		return err
	}
	r := newReport()
	if err := r.measure(ctx, s, o, out); err != nil {
		return err
	}
	if o.json != "" {
		return r.write(o.json)
	}
	return nil
}

// build builds the broker as a release is built or, to be profiled, with the
// profiler around it.
func build(ctx context.Context, binary string, profiled bool) error {
	program := "onbehalf.internal/broker/cmd/broker"
	if profiled {
		program = "onbehalf.internal/broker/bench/profiled"
	}
	args := []string{"build", "-trimpath", "-ldflags", "-s -w", "-o", binary, program}
	if text, err := exec.CommandContext(ctx, "go", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w\n%s", program, err, text)
	}
	return nil
}
