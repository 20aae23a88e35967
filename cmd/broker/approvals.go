package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"onbehalf.internal/broker/httpapi"
)

func approvalsCommand(w world) *cobra.Command {
	cmd := &cobra.Command{Use: "approvals", Short: "What waits for a person, and the person's decision"}
	cmd.AddCommand(pendingCommand(w), decideCommand(w, "approve"), decideCommand(w, "deny"))
	return cmd
}

func pendingCommand(w world) *cobra.Command {
	var flags clientFlags
	var raw bool
	cmd := &cobra.Command{Use: "list", Short: "The calls that wait, with their arguments, the oldest first", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, told, err := pending(cmd, w, &flags, raw)
			if err != nil || told {
				return err
			}
			if len(list) == 0 {
				fmt.Fprintln(w.stdout, "nothing waits")
			}
			for _, p := range list {
				printPending(w.stdout, p)
			}
			return nil
		}}
	flags.bindCaller(cmd)
	cmd.Flags().BoolVar(&raw, "json", false, "print the broker's answer as it is")
	return cmd
}

// decideCommand brings a person's decision: word is approve or deny.
func decideCommand(w world, word string) *cobra.Command {
	var flags clientFlags
	var digest, reason string
	var raw bool
	cmd := &cobra.Command{Use: word + " <id>", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if digest == "" {
				p, err := find(cmd, w, &flags, args[0])
				if err != nil {
					return err
				}
				if word == "approve" {
					printPending(w.stdout, p)
					return fmt.Errorf("nothing was approved: if this is the call that is meant, say so with --digest %s", p.Digest)
				}
				digest = p.Digest
			}
			body, _ := json.Marshal(map[string]string{"decision": word, "digest": digest, "reason": reason})
			var p httpapi.Pending
			told, err := ask(cmd, w, &flags, raw, http.MethodPost, "/v1/approvals/"+url.PathEscape(args[0]), body, &p)
			if err != nil || told {
				return err
			}
			fmt.Fprintf(w.stdout, "%s: %s %s for %s, by %s\n", p.Decision, p.Server, p.Tool, p.Actor, p.Approver)
			return nil
		}}
	flags.bindCaller(cmd)
	cmd.Flags().StringVar(&flags.approverFile, "approver-assertion-file", "", "file with the assertion of the person who decides; good for one decision")
	cmd.Flags().StringVar(&reason, "reason", "", "why, in one line; the operation's caller and auditors read it")
	cmd.Flags().StringVar(&digest, "digest", "", "of the call that was looked at")
	cmd.Flags().BoolVar(&raw, "json", false, "print the broker's answer as it is")
	cmd.MarkFlagRequired("approver-assertion-file")
	switch word {
	case "approve":
		cmd.Short = "Approve one very call; its caller then repeats its key"
		cmd.Long = `Approve one call that waits, as the person in --approver-assertion-file, through a
caller with the role approve. It begins nothing: the operation's own caller runs
it by repeating its request key, once, until the approval expires.

Without --digest it shows the call and approves nothing.`
	default:
		cmd.Short = "Deny a call: its operation ends, and nothing was sent"
		cmd.MarkFlagRequired("reason")
	}
	return cmd
}

func pending(cmd *cobra.Command, w world, flags *clientFlags, raw bool) (list []httpapi.Pending, told bool, err error) {
	var answer struct{ Approvals []httpapi.Pending }
	told, err = ask(cmd, w, flags, raw, http.MethodGet, "/v1/approvals", nil, &answer)
	return answer.Approvals, told, err
}

// find is the call that waits by the operation's id.
func find(cmd *cobra.Command, w world, flags *clientFlags, id string) (httpapi.Pending, error) {
	list, _, err := pending(cmd, w, flags, false)
	if err != nil {
		return httpapi.Pending{}, err
	}
	for _, p := range list {
		if p.ID == id {
			return p, nil
		}
	}
	return httpapi.Pending{}, errors.New("no call with this id waits, or it is not among the oldest; see broker approvals list")
}

// printPending shows a call to a person. Of the arguments everything that a terminal
// would act on is escaped; a line break, too, so that nothing in them passes for a
// line of ours.
func printPending(out io.Writer, p httpapi.Pending) {
	fmt.Fprintf(out, "%s  %s %s  for %s by %s  until %s\n", p.ID, p.Server, p.Tool, p.Actor, p.Caller, p.Expires.Format(time.RFC3339))
	fmt.Fprintf(out, "  digest     %s\n", p.Digest)
	if p.Pin != "" {
		fmt.Fprintf(out, "  pin        %s\n", p.Pin)
	}
	if p.Withheld != "" {
		fmt.Fprintf(out, "  arguments  withheld: %s\n", p.Withheld)
		return
	}
	fmt.Fprintf(out, "  arguments  %s\n", oneLine(p.Arguments))
}

// oneLine is printable without line breaks.
func oneLine(b []byte) string { return strings.ReplaceAll(printable(b), "\n", `\n`) }

// printApproval says to an operation's caller what it waits for, or did not get.
func printApproval(out io.Writer, a httpapi.Approval) {
	switch a.Decision {
	case "":
		fmt.Fprintf(out, "approval %s until %s\n", a.Digest, a.Expires.Format(time.RFC3339))
	default:
		fmt.Fprintf(out, "%s by %s: %q\n", a.Decision, a.Approver, a.Reason)
	}
}
