package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"onbehalf.internal/broker"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/process"
)

const defaultConfig = "configs/profiles.yaml"

func serveCommand(w world) *cobra.Command {
	var path string
	cmd := &cobra.Command{Use: "serve", Short: "Run the sidecar", Args: cobra.NoArgs,
		Long: `Run the sidecar until SIGTERM or an interrupt: what has begun ends within the
configuration's stop.drain, then it is cut. A second signal cuts at once. SIGHUP
reads the configuration again; a broken file is reported and the last good one
stays.

Environment: VAULT_ADDR where the configuration names no address; VAULT_TOKEN
with auth method "token" (development and tests).`,
		RunE: func(cmd *cobra.Command, _ []string) error { return serve(cmd.Context(), path, w) }}
	cmd.Flags().StringVar(&path, "config", defaultConfig, "profiles file")
	return cmd
}

// serve hardens the process before it holds a secret, and answers signals from
// its first line on: a hangup that comes early is a reload after the start, and
// a start is not broken off, it is followed by the stop.
func serve(ctx context.Context, path string, w world) error {
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	getenv, err := seclude(w.getenv)
	if err != nil {
		return err
	}
	snapshot, err := policy.Load(path)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewJSONHandler(w.stderr, nil))
	b, err := broker.New(context.WithoutCancel(ctx), broker.Config{Snapshot: snapshot, Getenv: getenv, Log: log, Stdout: w.stdout, Tamper: tamper(snapshot.Store.Path, getenv)})
	if err != nil {
		return err
	}
	served := make(chan struct{})
	defer close(served)
	go func() {
		again := w.again
		for {
			select {
			case <-hangup:
				if err := b.Reload(); err != nil {
					fmt.Fprintln(w.stderr, "broker:", err)
				}
			case <-again:
				b.Hasten()
				again = nil
			case <-served:
				return
			}
		}
	}()
	return b.Serve(ctx)
}

// seclude makes the process keep its secrets to itself, and returns the
// environment as the broker sees it: with the one secret that may be in it, which
// the process's own has no longer.
func seclude(getenv func(string) string) (func(string) string, error) {
	const variable = "VAULT_TOKEN"
	if err := process.Harden(); err != nil {
		return nil, err
	}
	token, err := process.Take(variable)
	if err != nil {
		return nil, err
	}
	return func(name string) string {
		if name == variable {
			return token.Reveal()
		}
		return getenv(name)
	}, nil
}

func checkCommand(w world) *cobra.Command {
	var path string
	cmd := &cobra.Command{Use: "check", Short: "Report every problem of the configuration and stop", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			s, err := policy.Load(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(w.stdout, "ok: %d servers, %d profiles, %d grants, snapshot %s\n", len(s.Servers()), len(s.Profiles()), countGrants(s), s.Hash)
			return nil
		}}
	cmd.Flags().StringVar(&path, "config", defaultConfig, "profiles file")
	return cmd
}
