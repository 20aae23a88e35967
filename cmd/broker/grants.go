package main

import (
	"errors"
	"fmt"
	"iter"
	"strconv"
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
	cmd := &cobra.Command{Use: "grants", Short: "Who may do what as whom, why, since when, and last used when",
		Long: `Who may do what as whom, why and since when: from the configuration alone, without
a broker, or with --api and --bearer-file from a running one, as a caller with the
role audit, which also knows when each grant was last used.

From the configuration, suspensions are not looked at (broker suspensions lists
them), and servers are taken to offer what it names (broker servers).`}
	cmd.AddCommand(listGrantsCommand(w), whoCanCommand(w), canCommand(w), explainCommand(w), unusedCommand(w), diffCommand(w), expiringCommand(w), orphanedCommand(w), reportCommand(w))
	return cmd
}

// bindFilter has the flags that name what is asked about.
func bindFilter(cmd *cobra.Command, f *policy.Filter) {
	cmd.Flags().StringVar(&f.Actor, "actor", "", "this actor alone")
	cmd.Flags().StringVar(&f.Profile, "profile", "", "this profile alone")
	cmd.Flags().StringVar(&f.Server, "server", "", "this server alone")
	cmd.Flags().StringVar(&f.Tool, "tool", "", "this tool alone")
}

func words(f policy.Filter) map[string]string {
	return map[string]string{"actor": f.Actor, "profile": f.Profile, "server": f.Server, "tool": f.Tool}
}

const (
	listColumns = "actor callers profile credential server audience scopes tool effect data_class approval administrator " +
		"since approved_by reason expires enabled status where"
	usedColumns = "last_used uses counted_since"
)

func listGrantsCommand(w world) *cobra.Command {
	var f policy.Filter
	cmd := &cobra.Command{Use: "list", Short: "Every grant at every tool that it opens, sorted",
		Long: `One row for each actor, server and tool that a grant makes possible, sorted, so that
two lists can be compared. Disabled and expired grants are there, with their
status; a grant that opens no tool has a row without a server, with its bounds.

callers are those who can use it: they speak for the actor, have the server in
their list and may see its data. Servers of mode legacy ask for no grant: see
who-can. In CSV, a cell that a spreadsheet would take for a formula begins with '.

A broker also says what is suspended, and how often and when each row was last
used, since the time in counted_since: nothing is known of before.`}
	bindFilter(cmd, &f)
	return review(w, cmd, view{columns: listColumns, file: func(s *policy.Snapshot, at time.Time) (iter.Seq[policy.Row], error) {
		return s.List(f, at), known(s, f)
	}, path: "/v1/grants", more: usedColumns, query: func() map[string]string { return words(f) }})
}

func whoCanCommand(w world) *cobra.Command {
	var f policy.Filter
	cmd := &cobra.Command{Use: "who-can", Short: "Every actor for whom a tool may be called, and by which caller",
		Long: `Every actor for whom the broker would call the tool now, or --at a time, by which
callers and as whom. Where administrator says yes, an assertion has to prove it.
A server of mode legacy asks for no grant: an actor "user:" is then all of them.

A broker leaves out what is suspended or not offered, too.`}
	cmd.Flags().StringVar(&f.Server, "server", "", "the MCP server's id")
	cmd.Flags().StringVar(&f.Tool, "tool", "", "the server's own name of the tool")
	cmd.Flags().StringVar(&f.Actor, "actor", "", "this actor alone")
	cmd.MarkFlagRequired("server")
	cmd.MarkFlagRequired("tool")
	const columns = "actor callers credential administrator since approved_by reason expires status where"
	return review(w, cmd, view{columns: columns, file: func(s *policy.Snapshot, at time.Time) (iter.Seq[policy.Row], error) {
		return s.WhoCan(f, at), known(s, f)
	}, path: "/v1/grants/who-can", more: usedColumns, query: func() map[string]string { return words(f) }})
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
	return review(w, cmd, view{columns: columns, file: func(s *policy.Snapshot, at time.Time) (iter.Seq[policy.Row], error) {
		if _, ok := s.Caller(caller); caller != "" && !ok {
			return nil, fmt.Errorf("--caller: the configuration has no caller %q", caller)
		}
		return s.Can(caller, actor, at), known(s, policy.Filter{Actor: actor})
	}})
}

// unusedCommand asks a broker: no file knows.
func unusedCommand(w world) *cobra.Command {
	var f policy.Filter
	var days int
	cmd := &cobra.Command{Use: "unused", Short: "Grants that were not used for so many days; asks a running broker",
		Long: `The rows of list, of a running broker, that let no operation begin for so many days.
Uses are counted since the time in counted_since: where that is later, it is since
then that they were not used.`}
	bindFilter(cmd, &f)
	cmd.Flags().IntVar(&days, "days", 90, "for how many days")
	const columns = "actor profile server tool last_used uses counted_since status since approved_by reason expires where"
	return review(w, cmd, view{columns: columns, path: "/v1/grants/unused", query: func() map[string]string {
		q := words(f)
		q["days"] = strconv.Itoa(days)
		return q
	}})
}

func expiringCommand(w world) *cobra.Command {
	var days int
	cmd := &cobra.Command{Use: "expiring", Short: "Grants that have expired, or soon will have"}
	cmd.Flags().IntVar(&days, "days", 30, "how many days from now, or from --at, are soon")
	const columns = "expires status actor profile credential since approved_by reason where"
	return review(w, cmd, view{columns: columns, file: func(s *policy.Snapshot, at time.Time) (iter.Seq[policy.Row], error) {
		if days < 0 {
			return nil, fmt.Errorf("--days %d: 0 is what has expired already, more is what soon will have", days)
		}
		return s.Expiring(days, at), nil
	}, path: "/v1/grants/expiring", more: usedColumns, query: func() map[string]string { return map[string]string{"days": strconv.Itoa(days)} }})
}

func orphanedCommand(w world) *cobra.Command {
	var skip bool
	cmd := &cobra.Command{Use: "orphaned", Short: "Grants that open no tool of an enabled server, with the reason",
		Long: `Grants that open no tool of an enabled server, with the reason. A broker also asks
Vault for the credential of each grant, and lists those that are missing: stored
says there, missing, or why Vault did not say. Vault's own audit has a line for each.`}
	cmd.Flags().BoolVar(&skip, "skip-vault", false, "with --api: Vault is not asked")
	const columns = "actor profile status credential since approved_by reason why where"
	return review(w, cmd, view{columns: columns, file: func(s *policy.Snapshot, at time.Time) (iter.Seq[policy.Row], error) {
		return s.Orphaned(at), nil
	}, path: "/v1/grants/orphaned", more: "stored " + usedColumns, query: func() map[string]string {
		if skip {
			return map[string]string{"vault": "skip"}
		}
		return map[string]string{"limit": "500"}
	}})
}

// known refuses what is misspelt, by the flag that says it.
func known(s *policy.Snapshot, f policy.Filter) error {
	if what := s.Misnamed(f); what != "" {
		return errors.New("--" + what)
	}
	return nil
}
