package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/httpapi"
)

// listCommand shows many operations, without results.
func listCommand(w world) *cobra.Command {
	var flags clientFlags
	var open, doubt, raw bool
	cmd := &cobra.Command{Use: "list", Short: "What this caller did for an actor, what is open, or what is in doubt; read-only", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			path := "/v1/operations"
			switch {
			case open:
				path += "?state=open"
			case doubt:
				path = "/v1/doubts"
			}
			var answer struct{ Operations []httpapi.Operation }
			told, err := ask(cmd, w, &flags, raw, http.MethodGet, path, nil, &answer)
			if err != nil || told {
				return err
			}
			printOperations(w.stdout, answer.Operations)
			return nil
		}}
	flags.bind(cmd)
	cmd.Flags().BoolVar(&open, "open", false, "what is open, for all actors of this caller")
	cmd.Flags().BoolVar(&doubt, "in-doubt", false, "what nobody knows of, of all callers; needs the role admin or audit")
	cmd.Flags().BoolVar(&raw, "json", false, "print the broker's answer as it is")
	cmd.MarkFlagsMutuallyExclusive("open", "in-doubt")
	return cmd
}

func printOperations(out io.Writer, list []httpapi.Operation) {
	if len(list) == 0 {
		fmt.Fprintln(out, "none")
		return
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, op := range list {
		whose := op.Actor
		if op.Caller != "" {
			whose += " by " + op.Caller
		}
		fmt.Fprintf(table, "%s\t%s\tran: %s\tretry: %s\t%s %s\t%s\tattempt %d\t%s\n",
			op.ID, op.State, op.Ran, op.Retry, op.Server, op.Tool, whose, op.Attempt, op.Created.Format(time.RFC3339))
	}
	table.Flush()
}

// resolveCommand records what a person has found out.
func resolveCommand(w world) *cobra.Command {
	var flags clientFlags
	var body struct {
		Ran     string `json:"ran"`
		Reason  string `json:"reason"`
		Attempt int    `json:"attempt"`
	}
	var raw bool
	cmd := &cobra.Command{Use: "resolve <id>", Short: "Say whether an operation in doubt ran, after a look at the server", Args: cobra.ExactArgs(1),
		Long: `Record what you have found out about an operation that ended with ran: unknown,
of whatever caller, as a caller with the role admin. Its own caller is told, with
your name and reason.

  --ran yes   it is resolved_ran: the same request key sends nothing any more
  --ran no    it is resolved_not_ran: the same request key runs again. Be sure
              that the call is not there, and cannot arrive any more

It is about the attempt that you have looked at, and those before it. A yes may
follow a no until the next attempt begins; a no never follows a yes.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if body.Ran != "yes" && body.Ran != "no" {
				return errors.New("--ran: yes or no, as you have found out")
			}
			text, _ := json.Marshal(body)
			var op httpapi.Operation
			told, err := ask(cmd, w, &flags, raw, http.MethodPost, "/v1/operations/"+url.PathEscape(args[0])+"/resolve", text, &op)
			if err != nil || told {
				return err
			}
			print(w.stdout, op)
			if op.Retry == fault.RetrySafe {
				fmt.Fprintln(w.stdout, "note: its key runs again as soon as its caller sends it")
			}
			return nil
		}}
	flags.bindCaller(cmd)
	cmd.Flags().StringVar(&body.Ran, "ran", "", "yes or no")
	cmd.Flags().StringVar(&body.Reason, "reason", "", "what shows it, in one line; the operation's caller and auditors read it")
	cmd.Flags().IntVar(&body.Attempt, "attempt", 1, "which attempt you have looked at")
	cmd.Flags().BoolVar(&raw, "json", false, "print the broker's answer as it is")
	cmd.MarkFlagRequired("ran")
	cmd.MarkFlagRequired("reason")
	return cmd
}
