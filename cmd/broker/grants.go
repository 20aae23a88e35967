package main

import (
	"fmt"
	"iter"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"onbehalf.internal/broker/fault"
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
	cmd := &cobra.Command{Use: "grants", Short: "Who may do what as whom, why and since when",
		Long: `Who may do what as whom, why and since when: from the configuration alone, without
a broker. So suspensions are not looked at (broker suspensions lists them), and
servers are taken to offer what the configuration names (broker servers).`}
	cmd.AddCommand(listGrantsCommand(w), whoCanCommand(w), canCommand(w), explainCommand(w), diffCommand(w), expiringCommand(w), orphanedCommand(w))
	return cmd
}

// reviewFlags say which configuration is looked at, and as of when.
type reviewFlags struct{ path, at, format string }

func (f *reviewFlags) bind(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.path, "config", defaultConfig, "profiles file")
	cmd.Flags().StringVar(&f.at, "at", "", "the time that is asked about, such as 2027-01-31T12:00:00Z (default: now)")
}

func (f *reviewFlags) bindFormat(cmd *cobra.Command) {
	f.bind(cmd)
	cmd.Flags().StringVar(&f.format, "format", "table", "table, csv or json")
}

func (f *reviewFlags) load() (s *policy.Snapshot, at time.Time, err error) {
	at = time.Now()
	if f.at != "" {
		if at, err = time.Parse(time.RFC3339, f.at); err != nil {
			return nil, at, fmt.Errorf("--at %q: write it as 2027-01-31T12:00:00Z", f.at)
		}
	}
	s, err = policy.Load(f.path)
	return s, at, err
}

// review is a command that prints rows of the configuration.
func review(w world, cmd *cobra.Command, columns string, rows func(s *policy.Snapshot, at time.Time) (iter.Seq[policy.Row], error)) *cobra.Command {
	var flags reviewFlags
	cmd.Args = cobra.NoArgs
	cmd.RunE = func(*cobra.Command, []string) error {
		s, at, err := flags.load()
		if err != nil {
			return err
		}
		found, err := rows(s, at)
		if err != nil {
			return err
		}
		return printRows(w.stdout, flags.format, strings.Fields(columns), found)
	}
	flags.bindFormat(cmd)
	return cmd
}

func listGrantsCommand(w world) *cobra.Command {
	var f policy.Filter
	cmd := &cobra.Command{Use: "list", Short: "Every grant at every tool that it opens, sorted",
		Long: `One row for each actor, server and tool that a grant makes possible, sorted, so that
two lists can be compared. Disabled and expired grants are there, with their
status; a grant that opens no tool has a row without a server, with its bounds.

callers are those who can use it: they speak for the actor, have the server in
their list and may see its data. Servers of mode legacy ask for no grant: see
who-can. In CSV, a cell that a spreadsheet would take for a formula begins with '.`}
	cmd.Flags().StringVar(&f.Actor, "actor", "", "this actor alone")
	cmd.Flags().StringVar(&f.Profile, "profile", "", "this profile alone")
	cmd.Flags().StringVar(&f.Server, "server", "", "this server alone")
	cmd.Flags().StringVar(&f.Tool, "tool", "", "this tool alone")
	const columns = "actor callers profile credential server audience scopes tool effect data_class approval administrator " +
		"since approved_by reason expires enabled status where"
	return review(w, cmd, columns, func(s *policy.Snapshot, at time.Time) (iter.Seq[policy.Row], error) {
		return s.List(f, at), known(s, f)
	})
}

func whoCanCommand(w world) *cobra.Command {
	var f policy.Filter
	cmd := &cobra.Command{Use: "who-can", Short: "Every actor for whom a tool may be called, and by which caller",
		Long: `Every actor for whom the broker would call the tool now, or --at a time, by which
callers and as whom. Where administrator says yes, an assertion has to prove it.
A server of mode legacy asks for no grant: an actor "user:" is then all of them.`}
	cmd.Flags().StringVar(&f.Server, "server", "", "the MCP server's id")
	cmd.Flags().StringVar(&f.Tool, "tool", "", "the server's own name of the tool")
	cmd.MarkFlagRequired("server")
	cmd.MarkFlagRequired("tool")
	const columns = "actor callers credential administrator since approved_by reason expires status where"
	return review(w, cmd, columns, func(s *policy.Snapshot, at time.Time) (iter.Seq[policy.Row], error) {
		return s.WhoCan(f, at), known(s, f)
	})
}

func canCommand(w world) *cobra.Command {
	var actor, caller string
	cmd := &cobra.Command{Use: "can", Short: "Every server and tool that may be called for an actor",
		Long: `Every server and tool that the broker would call for the actor now, or --at a time,
by which callers and as whom. Where administrator says yes, an assertion has to
prove it.`}
	cmd.Flags().StringVar(&actor, "actor", "", "on whose behalf, such as user:7")
	cmd.Flags().StringVar(&caller, "caller", "", "by this caller alone")
	cmd.MarkFlagRequired("actor")
	const columns = "server tool callers credential effect data_class administrator since approved_by reason expires status where"
	return review(w, cmd, columns, func(s *policy.Snapshot, at time.Time) (iter.Seq[policy.Row], error) {
		if _, ok := s.Caller(caller); caller != "" && !ok {
			return nil, fmt.Errorf("--caller: the configuration has no caller %q", caller)
		}
		return s.Can(caller, actor, at), known(s, policy.Filter{Actor: actor})
	})
}

func expiringCommand(w world) *cobra.Command {
	var days int
	cmd := &cobra.Command{Use: "expiring", Short: "Grants that have expired, or soon will have"}
	cmd.Flags().IntVar(&days, "days", 30, "how many days from now, or from --at, are soon")
	const columns = "expires status actor profile credential since approved_by reason where"
	return review(w, cmd, columns, func(s *policy.Snapshot, at time.Time) (iter.Seq[policy.Row], error) {
		if days < 0 {
			return nil, fmt.Errorf("--days %d: 0 is what has expired already, more is what soon will have", days)
		}
		return s.Expiring(days, at), nil
	})
}

func orphanedCommand(w world) *cobra.Command {
	cmd := &cobra.Command{Use: "orphaned", Short: "Grants that open no tool of an enabled server, with the reason"}
	const columns = "actor profile status credential since approved_by reason why where"
	return review(w, cmd, columns, func(s *policy.Snapshot, at time.Time) (iter.Seq[policy.Row], error) {
		return s.Orphaned(at), nil
	})
}

// known refuses what cannot be in a configuration, and a server, tool or profile
// that is not: an empty answer to a misspelt question reads like "nobody". An actor
// without a grant is a good question.
func known(s *policy.Snapshot, f policy.Filter) error {
	if what := (policy.Target{Sort: "actor", Name: f.Actor}).Problem(); f.Actor != "" && what != "" {
		return fmt.Errorf("--actor: %s", what)
	}
	if _, ok := s.Profile(f.Profile); f.Profile != "" && !ok {
		return fmt.Errorf("--profile: the configuration has no profile %q", f.Profile)
	}
	v, ok := s.Server(f.Server)
	if f.Server != "" && !ok {
		return fmt.Errorf("--server: the configuration has no server %q", f.Server)
	}
	among := s.Servers()
	if ok {
		among = []*policy.Server{v}
	}
	for _, v := range among {
		if _, ok := v.Tools[f.Tool]; ok {
			return nil
		}
	}
	if f.Tool != "" {
		return fmt.Errorf("--tool: the configuration has no tool %q there", f.Tool)
	}
	return nil
}

// explainCommand shows each check of a decision, offline, from the file alone.
// Its exit status is 0 for allowed and 1 for refused.
func explainCommand(w world) *cobra.Command {
	var flags reviewFlags
	var c policy.Case
	var zone string
	cmd := &cobra.Command{Use: "explain", Short: "Show each check of a decision, and the file line that decided", Args: cobra.NoArgs,
		Long: `Show each check of a decision with its value and the file line that decided, up to
the one that refuses. Exit status: 0 allowed; 1 refused, or nothing was asked.`,
		RunE: func(*cobra.Command, []string) error {
			z, ok := policy.ParseZone(zone)
			if !ok {
				return fmt.Errorf("--zone %q: one of %s", zone, strings.Join(policy.Zones(), ", "))
			}
			s, at, err := flags.load()
			if err != nil {
				return err
			}
			if err := known(s, policy.Filter{Actor: c.Actor}); err != nil {
				return err
			}
			if c.Admin && !s.Directory.Proves(c.Caller, c.Actor) {
				return fmt.Errorf("--admin: caller %q cannot prove it for %q: see actors.signed.admin of the caller", c.Caller, c.Actor)
			}
			c.Zone, c.Offline = z, true
			return explain(w, s, c, at)
		}}
	flags.bind(cmd)
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

func explain(w world, s *policy.Snapshot, c policy.Case, at time.Time) error {
	speaks, why := s.Speaks(c.Caller, c.Actor)
	checks, reason := []policy.Check{speaks}, string(why)
	if why == fault.None {
		more, refused := s.ExplainCase(c, at)
		checks, reason = append(checks, more...), refused
	}
	table := tabwriter.NewWriter(w.stdout, 0, 0, 2, ' ', 0)
	for _, c := range checks {
		verdict := "ok"
		if !c.OK {
			verdict = "NO"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", verdict, c.Name, shown(c.Value), c.Where)
	}
	table.Flush()
	if reason != "" {
		fmt.Fprintf(w.stdout, "refused: %s\n", reason)
		return exit(1)
	}
	fmt.Fprintln(w.stdout, "allowed")
	return nil
}
