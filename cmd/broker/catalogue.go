package main

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"onbehalf.internal/broker/catalogue"
	"onbehalf.internal/broker/httpapi"
)

// serversCommand shows how the servers are.
func serversCommand(w world) *cobra.Command {
	var flags clientFlags
	var raw bool
	cmd := &cobra.Command{Use: "servers", Short: "How the servers are: imports, contacts, probes, tools that have changed", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var list struct{ Servers []httpapi.Server }
			told, err := ask(cmd, w, &flags, raw, http.MethodGet, "/v1/servers", nil, &list)
			if err != nil || told {
				return err
			}
			table := tabwriter.NewWriter(w.stdout, 0, 0, 2, ' ', 0)
			fmt.Fprintln(table, "SERVER\tENABLED\tIMPORT\tTOOLS\tPROBE\tCONTACT\tCHANGED")
			for _, s := range list.Servers {
				fmt.Fprintf(table, "%s\t%t\t%s\t%d\t%s\t%s\t%s\n", s.ID, s.Enabled, s.Import.Status, s.Import.Tools, orDash(s.Health.Is), when(s.Health.Contact), orDash(strings.Join(s.Changed, " ")))
			}
			return table.Flush()
		}}
	flags.bindCaller(cmd)
	cmd.Flags().BoolVar(&raw, "json", false, "print the broker's answer as it is")
	return cmd
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func when(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

func catalogueCommand(w world) *cobra.Command {
	cmd := &cobra.Command{Use: "catalogue", Short: "What servers said they offer, and what became of it"}
	cmd.AddCommand(
		catalogueList(w, "list <server>", "Every tool that the server has ever had", printTools),
		catalogueList(w, "diff <server>", "What is different in tools that are not what is pinned; exit status 1 if anything is", printChanges),
		catalogueList(w, "pin <server>", "The YAML that pins the tools as they are now, to be looked at", printPins),
	)
	return cmd
}

// catalogueList is a command that shows the tools of one server in one way. That is
// false where the exit status has to say so.
func catalogueList(w world, use, short string, show func(out io.Writer, server string, tools []httpapi.KeptTool) bool) *cobra.Command {
	var flags clientFlags
	var raw bool
	cmd := &cobra.Command{Use: use, Short: short, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var got struct{ Tools []httpapi.KeptTool }
			told, err := ask(cmd, w, &flags, raw, http.MethodGet, "/v1/servers/"+url.PathEscape(args[0])+"/tools", nil, &got)
			if err != nil || told {
				return err
			}
			if !show(w.stdout, args[0], got.Tools) {
				return exit(1)
			}
			return nil
		}}
	flags.bindCaller(cmd)
	cmd.Flags().BoolVar(&raw, "json", false, "print the broker's answer as it is")
	return cmd
}

func printTools(out io.Writer, server string, tools []httpapi.KeptTool) bool {
	if len(tools) == 0 {
		fmt.Fprintf(out, "%s: no tool was ever imported\n", server)
		return true
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "TOOL\tLOCAL NAME\tDECLARED\tENABLED\tPINNED\tSINCE\tGONE SINCE")
	for _, k := range tools {
		pinned := "no"
		switch {
		case k.Pinned == k.Pin:
			pinned = "yes"
		case k.Pinned != "":
			pinned = "another"
		}
		fmt.Fprintf(table, "%s\t%s\t%t\t%t\t%s\t%s\t%s\n", k.Name, k.Local, k.Declared, k.Enabled, pinned, when(k.Since), when(k.Orphaned))
	}
	table.Flush()
	return true
}

func printChanges(out io.Writer, server string, tools []httpapi.KeptTool) (same bool) {
	same = true
	for _, k := range tools {
		switch {
		case k.Unseen:
			fmt.Fprintf(out, "%s: what is pinned, %s, was never imported; it is %s\n", k.Name, k.Pinned, k.Pin)
		case k.Pinned != "" && k.Pinned != k.Pin:
			fmt.Fprintf(out, "%s: pinned %s, is %s\n", k.Name, k.Pinned, k.Pin)
		default:
			continue
		}
		same = false
		for _, c := range k.Changes {
			fmt.Fprintf(out, "  %s\n    - %s\n    + %s\n", c.Pointer, c.Old, c.New)
		}
	}
	if same {
		fmt.Fprintf(out, "%s: every pinned tool is what is pinned\n", server)
	}
	return same
}

func printPins(out io.Writer, server string, tools []httpapi.KeptTool) bool {
	fmt.Fprintf(out, "# servers.%s, as imported; look at each before you take it over\ntools:\n", server)
	for _, k := range tools {
		if !k.Orphaned.IsZero() {
			continue
		}
		for line := range strings.Lines(strings.TrimSpace(k.Description)) {
			fmt.Fprintf(out, "  # %s\n", strings.TrimRight(line, "\n"))
		}
		fmt.Fprintf(out, "  # takes %s\n  %s: {enabled: %t, pin: %q}\n", catalogue.Shown(string(k.Schema)), k.Name, k.Enabled, k.Pin)
	}
	return true
}

// toolsCommand shows what an actor is offered.
func toolsCommand(w world) *cobra.Command {
	var flags clientFlags
	var raw bool
	cmd := &cobra.Command{Use: "tools", Short: "What an actor may call by this caller", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var got struct{ Tools []httpapi.Tool }
			told, err := ask(cmd, w, &flags, raw, http.MethodGet, "/v1/tools", nil, &got)
			if err != nil || told {
				return err
			}
			table := tabwriter.NewWriter(w.stdout, 0, 0, 2, ' ', 0)
			fmt.Fprintln(table, "NAME\tSERVER\tTOOL\tEFFECT\tAPPROVAL")
			for _, t := range got.Tools {
				fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%t\n", t.Name, t.Server, t.Tool, t.Effect, t.RequiresApproval)
			}
			return table.Flush()
		}}
	flags.bind(cmd)
	cmd.Flags().BoolVar(&raw, "json", false, "print the broker's answer as it is")
	return cmd
}
