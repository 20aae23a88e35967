package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"onbehalf.internal/broker/audit/ocsf"
	"onbehalf.internal/broker/httpapi"
)

// exportCommand writes the audit of a running broker to standard output.
func exportCommand(w world) *cobra.Command {
	var flags clientFlags
	var format string
	query := url.Values{}
	filters := map[string]*string{}
	cmd := &cobra.Command{Use: "export", Short: "Write the audit of a running broker to standard output", Args: cobra.NoArgs,
		Long: `Write the records of a running broker's audit, as a caller with the role audit,
up to the newest one there is when it begins. That is a record, too.

Without a filter it is the chain, byte for byte, which broker audit verify reads:
from the first record on, or from the first that was not pruned (audit.keep).
With filters, or in OCSF, it is none: keep a whole one to verify.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			write := map[string]func(io.Writer, []byte) error{"jsonl": asStored, "ocsf": ocsf.Write}[format]
			if write == nil {
				return fmt.Errorf("--format %q: jsonl or ocsf", format)
			}
			for name, value := range filters {
				if *value != "" {
					query.Set(name, moment(name, *value))
				}
			}
			c, err := flags.client(w)
			if err != nil {
				return err
			}
			return export(cmd.Context(), w, c, query, write)
		}}
	flags.bindCaller(cmd)
	for name, help := range map[string]string{
		"since": "from this time on, such as 2026-11-30 or 2026-11-30T12:00:00Z", "until": "before this time",
		"actor": "records of this actor", "operation": "records of this operation",
		"server": "records of this server", "tool": "records of tools of this name",
	} {
		filters[name] = cmd.Flags().String(name, "", help)
	}
	cmd.Flags().StringVar(&format, "format", "jsonl", "jsonl, as it is stored, or ocsf")
	return cmd
}

// moment writes a day as the moment it begins in UTC.
func moment(name, value string) string {
	if day, err := time.Parse(time.DateOnly, value); err == nil && (name == "since" || name == "until") {
		return day.Format(time.RFC3339)
	}
	return value
}

func asStored(out io.Writer, lines []byte) error {
	_, err := out.Write(lines)
	return err
}

// export goes from page to page, up to what was the newest record at the first.
func export(ctx context.Context, w world, c *client, query url.Values, write func(io.Writer, []byte) error) error {
	var next, end uint64
	for first := true; first || next < end; first = false {
		query.Set("after", strconv.FormatUint(next, 10))
		if !first {
			query.Set("limit", strconv.FormatUint(min(end-next, exportPage), 10))
		}
		page, err := auditPage(ctx, w, c, query)
		if err != nil {
			return err
		}
		switch {
		case first:
			end = page.head
			if page.first > 1 {
				fmt.Fprintf(w.stderr, "note: records 1 to %d were pruned and are not here; the files of audit.sink have them\n", page.first-1)
			}
		case page.first > next+1:
			return fmt.Errorf("records %d to %d were pruned meanwhile: export once more", next+1, page.first-1)
		}
		if page.next <= next && next < end {
			return fmt.Errorf("the broker at %q answered with no page after record %d", c.address, next)
		}
		if err := write(w.stdout, page.lines); err != nil {
			return err
		}
		next = page.next
	}
	return nil
}

const exportPage = 1000

type page struct {
	lines             []byte
	first, next, head uint64
}

func auditPage(ctx context.Context, w world, c *client, query url.Values) (p page, err error) {
	res, err := c.send(ctx, http.MethodGet, "/v1/audit?"+query.Encode(), nil, "application/x-ndjson")
	if err != nil {
		return p, err
	}
	defer res.Body.Close()
	p.lines, err = io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil || res.ContentLength > maxAnswer {
		return p, fmt.Errorf("the answer of the broker at %q broke off", c.address)
	}
	if res.StatusCode != http.StatusOK {
		return p, problem(w, false, p.lines)
	}
	first, err1 := strconv.ParseUint(res.Header.Get(httpapi.AuditFirst), 10, 64)
	next, err2 := strconv.ParseUint(res.Header.Get(httpapi.AuditNext), 10, 64)
	head, err3 := strconv.ParseUint(res.Header.Get(httpapi.AuditHead), 10, 64)
	if errors.Join(err1, err2, err3) != nil || len(p.lines) > 0 && !bytes.HasSuffix(p.lines, []byte("\n")) {
		return p, fmt.Errorf("the broker at %q answered with something else than a page of its audit", c.address)
	}
	p.first, p.next, p.head = first, next, head
	return p, nil
}
