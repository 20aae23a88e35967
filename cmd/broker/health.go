package main

import (
	"fmt"
	"net/http"

	"github.com/spf13/cobra"
)

// healthCommand is for whoever watches over the broker and cannot ask it over
// the network, because the API is on a loopback address: a kubelet, above all.
func healthCommand(w world) *cobra.Command {
	var address string
	var ready bool
	cmd := &cobra.Command{Use: "health", Short: "Ask whether a broker is alive, or ready", Args: cobra.NoArgs,
		Long: `Ask /healthz, or with --ready /readyz, of the broker at $BROKER_API. It needs no
bearer. The status is 0 where the answer is 200, and 1 otherwise.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c := &client{address: first(address, w.getenv("BROKER_API"), "http://127.0.0.1:8471")}
			status, body, err := c.do(cmd.Context(), http.MethodGet, map[bool]string{false: "/healthz", true: "/readyz"}[ready], nil)
			if err != nil {
				return err
			}
			fmt.Fprintf(w.stdout, "%s\n", body)
			if status != http.StatusOK {
				return exit(1)
			}
			return nil
		}}
	cmd.Flags().StringVar(&address, "api", "", `the broker, "http://127.0.0.1:8471" or "unix:/run/broker/api.sock" (default: $BROKER_API, else the first)`)
	cmd.Flags().BoolVar(&ready, "ready", false, "ask whether an operation could run now")
	return cmd
}
