package main

import (
	"fmt"
	"net/url"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/httpapi"
	"onbehalf.internal/broker/policy"
)

// explainCommand shows each check of a decision, from the file alone or from a broker.
// Its exit status is 0 for allowed and 1 for refused.
func explainCommand(w world) *cobra.Command {
	var flags reviewFlags
	var live liveFlags
	var c policy.Case
	var zone string
	cmd := &cobra.Command{Use: "explain", Short: "Show each check of a decision, and the file line that decided", Args: cobra.NoArgs,
		Long: `Show each check of a decision with its value and the file line that decided, up to
the one that refuses. A broker looks at suspensions and at what servers offer, too.
Exit status: 0 allowed; 1 refused, or nothing was asked.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if live.given(cmd) {
				return askExplain(cmd, w, &live.clientFlags, c, zone)
			}
			s, at, err := flags.load()
			if err != nil {
				return err
			}
			if c.Zone, err = explicable(s, c, zone); err != nil {
				return err
			}
			c.Offline = true
			checks, reason := s.Trace(c, at)
			return explain(w, checks, reason)
		}}
	flags.bind(cmd)
	live.bind(cmd)
	cmd.Flags().StringVar(&c.Caller, "caller", "", "the caller's id, as under callers:")
	cmd.Flags().StringVar(&c.Actor, "actor", "", "on whose behalf, such as user:7")
	cmd.Flags().StringVar(&c.Server, "server", "", "the MCP server's id")
	cmd.Flags().StringVar(&c.Tool, "tool", "", "the server's own name of the tool")
	cmd.Flags().StringVar(&zone, "zone", "", "a stricter zone than the caller's, as a request may ask for")
	cmd.Flags().BoolVar(&c.Admin, "admin", false, "the actor is an administrator, as the caller can prove")
	for _, name := range []string{"caller", "actor", "server", "tool"} {
		cmd.MarkFlagRequired(name)
	}
	return cmd
}

// explicable refuses a case that cannot come about.
func explicable(s *policy.Snapshot, c policy.Case, zone string) (policy.Zone, error) {
	z, ok := policy.ParseZone(zone)
	switch {
	case !ok:
		return 0, fmt.Errorf("--zone %q: one of %s", zone, strings.Join(policy.Zones(), ", "))
	case c.Admin && !s.Directory.Proves(c.Caller, c.Actor):
		return 0, fmt.Errorf("--admin: caller %q cannot prove it for %q: see actors.signed.admin of the caller", c.Caller, c.Actor)
	}
	return z, known(s, policy.Filter{Actor: c.Actor})
}

func askExplain(cmd *cobra.Command, w world, flags *clientFlags, c policy.Case, zone string) error {
	query := url.Values{"caller": {c.Caller}, "actor": {c.Actor}, "server": {c.Server}, "tool": {c.Tool}}
	if zone != "" {
		query.Set("zone", zone)
	}
	if c.Admin {
		query.Set("admin", "yes")
	}
	var e httpapi.Explanation
	if _, err := ask(cmd, w, flags, false, "GET", "/v1/grants/explain?"+query.Encode(), nil, &e); err != nil {
		return err
	}
	return explain(w, e.Checks, e.Reason)
}

func explain(w world, checks []policy.Check, reason fault.Reason) error {
	table := tabwriter.NewWriter(w.stdout, 0, 0, 2, ' ', 0)
	for _, c := range checks {
		verdict := "ok"
		if !c.OK {
			verdict = "NO"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", verdict, c.Name, shown(c.Value), c.Where)
	}
	table.Flush()
	if reason != fault.None {
		fmt.Fprintf(w.stdout, "refused: %s\n", reason)
		return exit(1)
	}
	fmt.Fprintln(w.stdout, "allowed")
	return nil
}
