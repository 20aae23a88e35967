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
)

const defaultConfig = "configs/profiles.yaml"

func serveCommand(w world) *cobra.Command {
	var path string
	cmd := &cobra.Command{Use: "serve", Short: "Run the sidecar", Args: cobra.NoArgs,
		Long: `Run the sidecar until SIGTERM or an interrupt. SIGHUP reads the configuration
again; a broken file is reported and the last good one stays.

Environment: VAULT_ADDR where the configuration names no address; VAULT_TOKEN
with auth method "token" (development and tests).`,
		RunE: func(cmd *cobra.Command, _ []string) error { return serve(cmd.Context(), path, w) }}
	cmd.Flags().StringVar(&path, "config", defaultConfig, "profiles file")
	return cmd
}

func serve(ctx context.Context, path string, w world) error {
	snapshot, err := policy.Load(path)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewJSONHandler(w.stderr, nil))
	b, err := broker.New(ctx, broker.Config{Snapshot: snapshot, Getenv: w.getenv, Log: log})
	if err != nil {
		return err
	}
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	go func() {
		for {
			select {
			case <-hangup:
				if err := b.Reload(); err != nil {
					fmt.Fprintln(w.stderr, "broker:", err)
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return b.Serve(ctx)
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
