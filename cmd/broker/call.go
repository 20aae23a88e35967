package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/httpapi"
)

// callCommand runs one tool call through a broker. Its exit status is 0 for a
// result, 2 for an operation that ended otherwise, 3 for one still open and 1
// for a request that began nothing.
func callCommand(w world) *cobra.Command {
	var flags clientFlags
	var server, tool, arguments, key, wait, timeout, supersedes string
	var raw bool
	cmd := &cobra.Command{Use: "call", Short: "Run one tool call, as a gateway would", Args: cobra.NoArgs,
		Long: `Run one tool call through a running broker and show how it ended, with its legs.

Exit status: 0 the tool answered; 1 nothing was begun; 2 the operation ended
without a result; 3 it is still open.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			args, err := argumentsOf(arguments)
			if err != nil {
				return err
			}
			if key == "" {
				key = uuid.Must(uuid.NewV7()).String()
			}
			body, _ := json.Marshal(map[string]any{"server": server, "tool": tool, "arguments": args,
				"request_key": key, "wait": wait, "timeout": timeout, "supersedes": supersedes})
			return show(cmd.Context(), w, &flags, raw, http.MethodPost, "/v1/operations", body)
		}}
	flags.bind(cmd)
	cmd.Flags().StringVar(&server, "server", "", "the MCP server's id")
	cmd.Flags().StringVar(&tool, "tool", "", "the server's own name of the tool")
	cmd.Flags().StringVar(&arguments, "arguments", "{}", "the tool's arguments, a JSON object, or @file")
	cmd.Flags().StringVar(&key, "key", "", "request key (default: a new UUIDv7); the same key never runs a second time")
	cmd.Flags().StringVar(&wait, "wait", "", `how long to wait for the end, such as "5s" (default: until it ends)`)
	cmd.Flags().StringVar(&timeout, "timeout", "", "shorten the operation's budget")
	cmd.Flags().StringVar(&supersedes, "supersedes", "", "run a second time what may have run: the id of that operation")
	cmd.Flags().BoolVar(&raw, "json", false, "print the broker's answer as it is")
	cmd.MarkFlagRequired("server")
	cmd.MarkFlagRequired("tool")
	return cmd
}

func argumentsOf(s string) (json.RawMessage, error) {
	if path, ok := strings.CutPrefix(s, "@"); ok {
		b, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("--arguments @%s: not there or not readable", path)
		}
		s = string(b)
	}
	if !json.Valid([]byte(s)) {
		return nil, errors.New("--arguments: not a JSON document")
	}
	return json.RawMessage(s), nil
}

func operationsCommand(w world) *cobra.Command {
	cmd := &cobra.Command{Use: "operations", Short: "What became of a call"}
	var flags clientFlags
	var key string
	var raw bool
	get := &cobra.Command{Use: "get [id]", Short: "Show an operation by its id, or by your own --key; read-only", Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 1 && key == "":
				return show(cmd.Context(), w, &flags, raw, http.MethodGet, "/v1/operations/"+url.PathEscape(args[0]), nil)
			case len(args) == 0 && key != "":
				return show(cmd.Context(), w, &flags, raw, http.MethodGet, "/v1/operations?request_key="+url.QueryEscape(key), nil)
			}
			return errors.New("name the operation: its id, or --key with your own request key")
		}}
	flags.bind(get)
	get.Flags().StringVar(&key, "key", "", "the request key the call was made with")
	get.Flags().BoolVar(&raw, "json", false, "print the broker's answer as it is")
	cmd.AddCommand(get, listCommand(w), resolveCommand(w))
	return cmd
}

// show makes the request and prints the answer for a person.
func show(ctx context.Context, w world, flags *clientFlags, raw bool, method, path string, body []byte) error {
	c, err := flags.client(w)
	if err != nil {
		return err
	}
	status, answer, err := c.do(ctx, method, path, body)
	if err != nil {
		return err
	}
	if raw {
		fmt.Fprintf(w.stdout, "%s\n", answer)
	}
	var op httpapi.Operation
	if err := json.Unmarshal(answer, &op); err != nil {
		return fmt.Errorf("the broker answered %d with something else than JSON", status)
	}
	if op.State == "" {
		return problem(w, raw, answer)
	}
	if !raw {
		print(w.stdout, op)
	}
	switch {
	case op.State.Open():
		return exit(3)
	case op.State != fault.Succeeded:
		return exit(2)
	}
	return nil
}

// problem prints why a request began nothing.
func problem(w world, raw bool, answer []byte) error {
	var p httpapi.Problem
	if err := json.Unmarshal(answer, &p); err == nil && !raw {
		fmt.Fprintf(w.stderr, "broker: %d %s (%s) %s\n", p.Status, p.Reason, p.Kind, p.Detail)
	}
	return exit(1)
}

// print shows the outcome and the legs as a small table. What a server wrote
// is quoted where it could move the cursor.
func print(out io.Writer, op httpapi.Operation) {
	fmt.Fprintf(out, "%s  ran: %s (%s)  retry: %s", op.State, op.Ran, op.Evidence, op.Retry)
	if op.Cause != "" {
		fmt.Fprintf(out, "  cause: %s", op.Cause)
	}
	fmt.Fprintf(out, "\noperation %s  key %s  attempt %d", op.ID, op.RequestKey, op.Attempt)
	if op.Hold != "" {
		fmt.Fprintf(out, "  hold: %s", op.Hold)
	}
	fmt.Fprintln(out)
	if r := op.Resolution; r != nil {
		fmt.Fprintf(out, "resolved by %s at %s: %q\n", r.By, r.At.Format(time.RFC3339), r.Reason)
	}
	if a := op.Approval; a != nil {
		printApproval(out, *a)
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, l := range op.Legs {
		fmt.Fprintf(table, "%s\t%.1f ms\tof %d ms left\t%s\t\n", l.Name, l.Took.Seconds()*1000, l.Budget.Milliseconds(), l.Reason)
	}
	table.Flush()
	for name, text := range map[string]json.RawMessage{"result": op.Result, "error": op.Error} {
		if text != nil {
			fmt.Fprintf(out, "%s: %s\n", name, printable(text))
		}
	}
	if op.Withheld != "" {
		fmt.Fprintf(out, "result withheld: %s\n", op.Withheld)
	}
}

// printable escapes what a terminal would act on; JSON text stays readable.
func printable(b []byte) string {
	var s strings.Builder
	for _, r := range string(b) {
		if r < ' ' && r != '\n' || r > '~' && !strconv.IsPrint(r) || r == 0x7f {
			s.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		} else {
			s.WriteRune(r)
		}
	}
	return s.String()
}
