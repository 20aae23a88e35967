package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"onbehalf.internal/broker/doctor"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/httpapi"
)

// importCommand has a running broker ask servers for their tools.
func importCommand(w world) *cobra.Command {
	var flags clientFlags
	var all, raw bool
	cmd := &cobra.Command{Use: "import <server> | --all", Short: "Ask a server, or every enabled one, for its tools",
		Long: `Have a running broker ask a server for its tools, by the discovery credential,
and bring the catalogue in line. Importing grants nothing: a tool is called only
where the configuration names it.

A server that refuses, or cannot be reached, keeps the tools that it had; with
--all the others are imported all the same.

Exit status: 0 every server gave its list, also where tools were skipped or are
gone; 1 one did not; 2 it was not said which.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if named := len(args) == 1 && args[0] != ""; named == all || len(args) > 1 || all && len(args) == 1 {
				fmt.Fprintln(w.stderr, "broker: name one server, or say --all")
				return exit(2)
			}
			c, err := flags.client(w)
			if err != nil {
				return err
			}
			servers, err := enabledServers(cmd.Context(), w, c)
			switch {
			case err != nil:
				return err
			case all && len(servers) == 0:
				fmt.Fprintln(w.stderr, "broker: no server is enabled; nothing to import")
				return nil
			case all:
				return importAll(cmd.Context(), w, c, servers, raw)
			}
			for _, s := range servers {
				if s == args[0] {
					return importAll(cmd.Context(), w, c, []string{s}, raw)
				}
			}
			return fmt.Errorf("no enabled server is called %q", args[0])
		}}
	flags.bindCaller(cmd)
	cmd.Flags().BoolVarP(&all, "all", "a", false, "every enabled server")
	cmd.Flags().BoolVar(&raw, "json", false, "print each answer of the broker as a line of JSON")
	return cmd
}

// enabledServers are the ids of those that the broker may import, sorted.
func enabledServers(ctx context.Context, w world, c *client) (ids []string, err error) {
	status, body, err := c.do(ctx, http.MethodGet, "/v1/servers", nil)
	if err != nil {
		return nil, err
	}
	if status != http.StatusOK {
		return nil, problem(w, false, body)
	}
	var list struct{ Servers []httpapi.Server }
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, errors.New("the broker answered with something else than a list of servers")
	}
	for _, s := range list.Servers {
		if s.Enabled {
			ids = append(ids, s.ID)
		}
	}
	return ids, nil
}

// importAll goes on past a server that refuses.
func importAll(ctx context.Context, w world, c *client, servers []string, raw bool) error {
	refused := 0
	for _, id := range servers {
		line, got, err := importOne(ctx, w, c, id)
		if err != nil {
			return err
		}
		if got.Refused != "" {
			refused++
		}
		if raw {
			fmt.Fprintf(w.stdout, "%s\n", line)
		} else {
			printImport(w.stdout, got)
		}
	}
	if refused > 0 {
		fmt.Fprintf(w.stderr, "broker: %d of %d server(s) refused the import.\n", refused, len(servers))
		return exit(1)
	}
	return nil
}

// importOne imports one server while it shows on a terminal how far that is. What
// began nothing, such as a suspended server, is a refusal like any other.
func importOne(ctx context.Context, w world, c *client, id string) (line []byte, got httpapi.ImportAnswer, err error) {
	got.Server = id
	err = c.stream(ctx, http.MethodPost, "/v1/servers/"+url.PathEscape(id)+"/import", func(event string, data []byte) error {
		switch event {
		case "page":
			var p httpapi.ImportProgress
			if isTerminal(w.stderr) && json.Unmarshal(data, &p) == nil {
				fmt.Fprintf(w.stderr, "\r%s: page %d, %d tools, %.0f s of the budget left ", id, p.Pages, p.Tools, p.Left/1000)
			}
			return nil
		case "problem":
			var p httpapi.Problem
			if err := json.Unmarshal(data, &p); err != nil {
				return err
			}
			got.Refused = p.Reason
			line, _ = json.Marshal(got)
			return nil
		case "imported":
			line = data
			return json.Unmarshal(data, &got)
		}
		return nil
	})
	if isTerminal(w.stderr) {
		fmt.Fprint(w.stderr, "\r\x1b[K")
	}
	if err == nil && line == nil {
		err = fmt.Errorf("the answer about %q broke off; broker servers says how the import ended", id)
	}
	return line, got, err
}

func printImport(out io.Writer, got httpapi.ImportAnswer) {
	if got.Refused != "" {
		fmt.Fprintf(out, "%s: refused - %s\n", got.Server, got.Refused)
		return
	}
	fmt.Fprintf(out, "%s: %d imported, %d skipped, %d orphaned\n", got.Server, got.Imported, len(got.Skipped), got.Orphaned)
	for _, s := range got.Skipped {
		where := ""
		if s.Pointer != "" {
			where = " at " + s.Pointer
		}
		fmt.Fprintf(out, "  skipped: %s%s\n", s.Why, where)
	}
	for _, c := range got.Changed {
		fmt.Fprintf(out, "  changed: %s, now %s\n", c.Tool, c.New)
	}
	for _, name := range got.Returned {
		fmt.Fprintf(out, "  returned: %s\n", name)
	}
	for _, name := range got.Vanished {
		fmt.Fprintf(out, "  vanished: %s\n", name)
	}
}

// isTerminal reports whether somebody watches.
func isTerminal(out io.Writer) bool {
	f, ok := out.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// stream makes a request and hands out the events of the answer. An answer that is no
// stream is the event "problem".
func (c *client) stream(ctx context.Context, method, path string, take func(event string, data []byte) error) error {
	res, err := c.send(ctx, method, path, nil, "text/event-stream")
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
		if err != nil {
			return err
		}
		return take("problem", body)
	}
	event, lines := "", bufio.NewScanner(io.LimitReader(res.Body, maxAnswer))
	lines.Buffer(nil, maxAnswer)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch name {
		case "event":
			event = value
		case "data":
			if err := take(event, []byte(value)); err != nil {
				return fmt.Errorf("the broker said something that cannot be read (%s)", event)
			}
		}
	}
	return lines.Err()
}

// liveness are what a person does about each word of a probe.
var liveness = map[string]string{
	"up":             "it would take a call",
	"down":           "nobody answers there: look at the server, the address and what is in between",
	"unwelcome":      "it is alive and refuses the discovery credential: look at servers.<id>.auth.discovery_credential",
	"wrong_protocol": "it is alive and speaks no version of MCP that the broker does: look at its url, era and versions",
	"not_asked":      "nothing was sent; the reason is the broker's own",
}

// probeCommand has a running broker look whether a server is there.
func probeCommand(w world) *cobra.Command {
	var flags clientFlags
	var raw bool
	cmd := &cobra.Command{Use: "probe <server>", Short: "Look whether a server is there and speaks with the broker", Args: cobra.ExactArgs(1),
		Long: `Have a running broker shake hands with a server, by the discovery credential,
and nothing more. Exit status: 0 it is up; 1 it is not, and what to look at is
said.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			var got httpapi.ProbeAnswer
			told, err := ask(cmd, w, &flags, raw, http.MethodPost, "/v1/servers/"+url.PathEscape(args[0])+"/probe", nil, &got)
			if err != nil {
				return err
			}
			if !told {
				printProbe(w.stdout, got)
			}
			if got.Is != "up" && !told {
				return exit(1)
			}
			return nil
		}}
	flags.bindCaller(cmd)
	cmd.Flags().BoolVar(&raw, "json", false, "print the broker's answer as it is")
	return cmd
}

func printProbe(out io.Writer, got httpapi.ProbeAnswer) {
	fmt.Fprintf(out, "%s: %s - %s\n", got.Server, got.Is, liveness[got.Is])
	if got.Is == "up" {
		fmt.Fprintf(out, "  %.1f ms, %s %s, %q %q\n", got.Latency, got.Era, got.Version, got.Software, got.Release)
		return
	}
	fmt.Fprintf(out, "  %s\n", cmpReason(got.Reason))
}

func cmpReason(r fault.Reason) string {
	if r == fault.None {
		return "no reason was found"
	}
	return string(r) + ": " + doctor.Remedy(r)
}
