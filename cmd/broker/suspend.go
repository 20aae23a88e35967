package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"onbehalf.internal/broker/httpapi"
)

// suspendCommand stops an actor, a server or a profile at a running broker.
func suspendCommand(w world) *cobra.Command {
	var flags clientFlags
	var raw bool
	body := map[string]*string{}
	cmd := &cobra.Command{Use: "suspend", Short: "Stop an actor, a server or a profile at once", Args: cobra.NoArgs,
		Long: `Stop an actor, a server or a profile at a running broker, as a caller with the
role admin. When this returns it is in force, whatever the configuration grants,
and stays so after a reload and a restart:

  new operations         are refused: suspended
  running operations     send no further leg and end before it, cause suspended;
                         their tokens are dropped
  a call that has left   is not called back; its result is withheld
  results of earlier     are withheld while the suspension stands

It ends with --until, or with: broker suspensions lift <id> --reason "..."`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for name, value := range body {
				if !cmd.Flags().Changed(name) {
					value = nil
				}
				body[name] = value
			}
			text, _ := json.Marshal(body)
			return suspension(cmd, w, &flags, raw, "suspended", http.MethodPost, "/v1/suspensions", text)
		}}
	flags.bindCaller(cmd)
	for name, help := range map[string]string{
		"actor": "the actor to stop, such as user:7", "server": "the MCP server to stop", "profile": "the identity provider to stop, by its profile",
		"reason": "why, in one line; others will read it", "until": "when it ends by itself, such as 2027-01-31T12:00:00Z (default: when it is lifted)",
	} {
		body[name] = cmd.Flags().String(name, "", help)
	}
	cmd.Flags().BoolVar(&raw, "json", false, "print the broker's answer as it is")
	cmd.MarkFlagsOneRequired("actor", "server", "profile")
	cmd.MarkFlagsMutuallyExclusive("actor", "server", "profile")
	cmd.MarkFlagRequired("reason")
	return cmd
}

func suspensionsCommand(w world) *cobra.Command {
	var flags clientFlags
	var raw bool
	cmd := &cobra.Command{Use: "suspensions", Short: "What is stopped, by whom and why", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return suspensions(cmd, w, &flags, raw)
		}}
	flags.bindCaller(cmd)
	cmd.Flags().BoolVar(&raw, "json", false, "print the broker's answer as it is")
	cmd.AddCommand(liftCommand(w))
	return cmd
}

func liftCommand(w world) *cobra.Command {
	var flags clientFlags
	var raw bool
	var reason string
	cmd := &cobra.Command{Use: "lift <id>", Short: "End a suspension; what it had ended does not begin again by itself", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path := "/v1/suspensions/" + url.PathEscape(args[0]) + "?reason=" + url.QueryEscape(reason)
			return suspension(cmd, w, &flags, raw, "lifted", http.MethodDelete, path, nil)
		}}
	flags.bindCaller(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "why, in one line; it goes into the audit")
	cmd.Flags().BoolVar(&raw, "json", false, "print the broker's answer as it is")
	cmd.MarkFlagRequired("reason")
	return cmd
}

// suspension makes a request whose answer is one suspension, and says what was done.
func suspension(cmd *cobra.Command, w world, flags *clientFlags, raw bool, done, method, path string, body []byte) error {
	var s httpapi.Suspension
	told, err := ask(cmd, w, flags, raw, method, path, body, &s)
	if err != nil || told {
		return err
	}
	fmt.Fprintf(w.stdout, "%s: %s\nid %s\n", done, targetOf(s), s.ID)
	if !s.Known {
		fmt.Fprintln(w.stdout, "note: the configuration does not know it; is it written right?")
	}
	if s.Others != nil && *s.Others > 0 {
		fmt.Fprintf(w.stdout, "note: it stays suspended, by %d more\n", *s.Others)
	}
	return nil
}

// suspensions prints what stands as a table.
func suspensions(cmd *cobra.Command, w world, flags *clientFlags, raw bool) error {
	var answer struct{ Suspensions []httpapi.Suspension }
	told, err := ask(cmd, w, flags, raw, http.MethodGet, "/v1/suspensions", nil, &answer)
	if err != nil || told {
		return err
	}
	if len(answer.Suspensions) == 0 {
		fmt.Fprintln(w.stdout, "nothing is suspended")
		return nil
	}
	printSuspensions(w.stdout, answer.Suspensions)
	return nil
}

func printSuspensions(out io.Writer, list []httpapi.Suspension) {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, s := range list {
		fmt.Fprintf(table, "%s\t%s\tsince %s\tby %s\t%q\n", s.ID, targetOf(s), s.Since.Format(time.RFC3339), s.By, s.Reason)
	}
	table.Flush()
}

// targetOf says what s stops, and until when.
func targetOf(s httpapi.Suspension) string {
	target := "actor " + s.Actor
	switch {
	case s.Server != "":
		target = "server " + s.Server
	case s.Profile != "":
		target = "profile " + s.Profile
	}
	if s.Until == nil {
		return target + ", until it is lifted"
	}
	return target + ", until " + s.Until.Format(time.RFC3339)
}

// ask makes a request and decodes a good answer into into. told means that the
// answer was printed as it is. A problem is printed, with exit status 1.
func ask(cmd *cobra.Command, w world, flags *clientFlags, raw bool, method, path string, body []byte, into any) (told bool, err error) {
	c, err := flags.client(w)
	if err != nil {
		return false, err
	}
	status, answer, err := c.do(cmd.Context(), method, path, body)
	if err != nil {
		return false, err
	}
	if raw {
		fmt.Fprintf(w.stdout, "%s\n", answer)
	}
	if status >= 300 {
		return false, problem(w, raw, answer)
	}
	if err := json.Unmarshal(answer, into); err != nil {
		return false, fmt.Errorf("the broker answered %d with something else than JSON", status)
	}
	return raw, nil
}
