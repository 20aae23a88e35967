package main

import (
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"onbehalf.internal/broker/policy"
)

func countGrants(s *policy.Snapshot) (n int) {
	for _, p := range s.Profiles() {
		for range s.Grants(p.ID) {
			n++
		}
	}
	return n
}

func grantsCommand(w world) *cobra.Command {
	cmd := &cobra.Command{Use: "grants", Short: "Who may act as whom"}
	cmd.AddCommand(explainCommand(w))
	return cmd
}

// explainCommand shows each check of a decision, offline, from the file alone.
// Its exit status is 0 for allowed and 1 for refused.
func explainCommand(w world) *cobra.Command {
	var path, caller, actor, server, tool, at string
	cmd := &cobra.Command{Use: "explain", Short: "Show each check of a decision, and the file line that decided", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			s, err := policy.Load(path)
			if err != nil {
				return err
			}
			when := time.Now()
			if at != "" {
				if when, err = time.Parse(time.RFC3339, at); err != nil {
					return fmt.Errorf("--at %q: write it as 2027-01-31T12:00:00Z", at)
				}
			}
			return explain(w, s, caller, actor, server, tool, when)
		}}
	cmd.Flags().StringVar(&path, "config", defaultConfig, "profiles file")
	cmd.Flags().StringVar(&caller, "caller", "", "the caller's id, as under callers:")
	cmd.Flags().StringVar(&actor, "actor", "", "on whose behalf, such as user:7")
	cmd.Flags().StringVar(&server, "server", "", "the MCP server's id")
	cmd.Flags().StringVar(&tool, "tool", "", "the server's own name of the tool")
	cmd.Flags().StringVar(&at, "at", "", "the time of the decision (default: now)")
	for _, name := range []string{"caller", "actor", "server", "tool"} {
		cmd.MarkFlagRequired(name)
	}
	return cmd
}

func explain(w world, s *policy.Snapshot, caller, actor, server, tool string, at time.Time) error {
	checks, reason := s.Explain(caller, actor, server, tool, at)
	table := tabwriter.NewWriter(w.stdout, 0, 0, 2, ' ', 0)
	for _, c := range checks {
		verdict := "ok"
		if !c.OK {
			verdict = "NO"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", verdict, c.Name, c.Value, c.Where)
	}
	table.Flush()
	if reason != "" {
		fmt.Fprintf(w.stdout, "refused: %s\n", reason)
		return exit(1)
	}
	fmt.Fprintln(w.stdout, "allowed")
	return nil
}
