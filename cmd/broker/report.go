package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/mod/sumdb/note"

	"onbehalf.internal/broker"
	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/httpapi"
	"onbehalf.internal/broker/policy"
)

// reportFlags say what evidence is made from.
type reportFlags struct {
	out, until, path, audit, heads string
	keys                           []string
	live                           liveFlags
}

func reportCommand(w world) *cobra.Command {
	var f reportFlags
	cmd := &cobra.Command{Use: "report", Short: "Write an evidence bundle: grants, the verified audit, and how to verify both", Args: cobra.NoArgs,
		Long: `Write a zip with the list of grants (CSV and JSON), all records of the audit before
--until, the signed heads of them, a manifest with versions, hashes and what is
covered, and VERIFY.md, which says how to verify all of it by hand. It is made from
a running broker, as a caller with the role audit, or with --config and --audit from
files.

The audit is verified before anything is written, against the heads where --key says
who signs them. Of a broker without --heads it is the newest head alone. What is made
twice of the same, until the same time, is the same to the byte; its SHA-256 is
printed, to keep elsewhere.

Exit status: 0 it is written; 1 the audit is not whole, and nothing is written;
2 something cannot be read or written.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := makeReport(cmd, w, f)
			if status := exit(0); errors.As(err, &status) { // told already
				return unread
			}
			return verdict(w, err)
		}}
	cmd.Flags().StringVar(&f.out, "out", "evidence.zip", "the file to make")
	cmd.Flags().StringVar(&f.until, "until", "", "records before this time, such as 2026-11-30 or 2026-11-30T12:00:00Z (default: now); from files, also the time that is asked about")
	cmd.Flags().StringVar(&f.path, "config", "", "profiles file, in the place of a broker")
	cmd.Flags().StringVar(&f.audit, "audit", "", "an export of the audit, with --config")
	cmd.Flags().StringVar(&f.heads, "heads", "", "file with signed heads, as audit.heads wrote them")
	cmd.Flags().StringArrayVar(&f.keys, "key", nil, "a verifier key, <name>+<hash>+<key>; may be given again, for heads of before a change of keys")
	f.live.bind(cmd)
	cmd.MarkFlagsRequiredTogether("config", "audit")
	return cmd
}

func makeReport(cmd *cobra.Command, w world, f reportFlags) error {
	until := time.Now().UTC()
	if f.until != "" {
		var err error
		if until, err = time.Parse(time.RFC3339, moment("until", f.until)); err != nil {
			return fmt.Errorf("--until %q: a day or a time such as 2026-11-30T12:00:00Z", f.until)
		}
	}
	dir, err := os.MkdirTemp("", "broker-report-")
	if err != nil {
		return errors.New("making a folder for a while: not possible for this process")
	}
	defer os.RemoveAll(dir)
	b := &bundle{dir: dir, manifest: manifest{Format: "onbehalf-broker evidence 1", Broker: broker.Version}}
	notes, heads, err := f.signed(cmd, w) // before the records: a head of more than there are is a tail that is missing
	if err == nil {
		err = f.grants(cmd, w, b, until.UTC())
	}
	if err == nil {
		err = f.records(cmd, w, b, until.UTC(), notes, heads)
	}
	if err != nil {
		return err
	}
	sum, err := b.write(f.out)
	if err == nil {
		fmt.Fprintf(w.stdout, "whole: %d records; %d grants\n%x  %s\n", b.manifest.Audit.Records, b.manifest.Grants.Rows, sum, f.out)
	}
	return err
}

// signed reads the heads that were signed by the keys, each with its note.
func (f reportFlags) signed(cmd *cobra.Command, w world) (notes [][]byte, heads []audit.Checkpoint, err error) {
	if len(f.keys) == 0 {
		if f.heads != "" {
			return nil, nil, errors.New("--heads: name the key that signed them with --key")
		}
		return nil, nil, nil
	}
	keys, err := verifiers(f.keys)
	if err != nil {
		return nil, nil, err
	}
	var text []byte
	switch {
	case f.heads != "":
		if text, err = os.ReadFile(f.heads); err != nil {
			return nil, nil, fmt.Errorf("reading %q: not there or not readable", f.heads)
		}
	case f.path != "":
		return nil, nil, errors.New("--key: name the heads that it signed with --heads")
	default:
		var head httpapi.AuditEnd
		if _, err := ask(cmd, w, &f.live.clientFlags, false, "GET", "/v1/audit/head", nil, &head); err != nil {
			return nil, nil, err
		}
		if head.Signed != nil {
			text = []byte(head.Signed.Checkpoint)
		}
	}
	if notes, err = audit.ReadNotes(bytes.NewReader(text)); err == nil {
		heads, err = audit.ReadHeads(bytes.NewReader(text), keys...)
	}
	return notes, heads, err
}

// grants puts the list into the bundle.
func (f reportFlags) grants(cmd *cobra.Command, w world, b *bundle, at time.Time) error {
	var found asked
	columns := listColumns
	if f.path == "" {
		var err error
		if found, err = askGrants(cmd, w, &f.live.clientFlags, "/v1/grants", nil); err != nil {
			return err
		}
		columns += " " + usedColumns
	} else {
		s, err := policy.Load(f.path)
		if err != nil {
			return err
		}
		found = asked{slices.Collect(lines(s.List(policy.Filter{}, at))), s.Hash, time.Time{}}
	}
	b.manifest.Grants = listed{len(found.rows), found.snapshot, timeCell(found.counted)}
	for _, format := range []string{"csv", "json"} {
		if err := b.add("grants."+format, func(out io.Writer) error {
			return printRows(out, format, strings.Fields(columns), slices.Values(found.rows))
		}); err != nil {
			return err
		}
	}
	return nil
}

// records verifies the whole audit, puts its records before until into the bundle, and
// verifies those as whoever gets it will.
func (f reportFlags) records(cmd *cobra.Command, w world, b *bundle, until time.Time, notes [][]byte, heads []audit.Checkpoint) error {
	path := f.audit
	if path == "" {
		path = b.path("all.jsonl")
		if err := f.export(cmd, w, path); err != nil {
			return err
		}
	}
	signers, err := verifiers(f.keys)
	if err != nil {
		return err
	}
	whole, err := verified(path, heads, signers)
	if err != nil {
		return err
	}
	about := &b.manifest.Audit
	about.Before = whole.Before
	err = b.add("audit.jsonl", func(out io.Writer) (err error) {
		about.covered, err = cut(path, out, until)
		return err
	})
	if err != nil {
		return err
	}
	var within []byte
	var kept []audit.Checkpoint
	for i, head := range heads {
		if head.Size >= about.Before && head.Size <= about.Before+about.Records {
			kept, within = append(kept, head), append(within, notes[i]...)
		}
	}
	if len(kept) > 0 {
		if err := b.add("heads", func(out io.Writer) error { _, err := out.Write(within); return err }); err != nil {
			return err
		}
	}
	report, err := verified(b.path("audit.jsonl"), kept, signers)
	switch {
	case err != nil && report.Before < about.Before:
		return fmt.Errorf("--until %s: the record that says that those up to %d were pruned is not before it", until.Format(time.RFC3339), about.Before)
	case err != nil:
		return err
	}
	about.Until, about.Verified, about.Ledger, about.Hash = until.Format(time.RFC3339Nano), true, report.Ledger, fmt.Sprintf("%x", report.Head.Hash)
	about.Head = fmt.Sprintf("%d:%s", report.Head.Seq, about.Hash)
	about.Heads, about.Signed = len(kept), report.Signed
	for _, key := range f.keys {
		name, rest, _ := strings.Cut(key, "+")
		hash, _, _ := strings.Cut(rest, "+")
		about.Keys = append(about.Keys, name+"+"+hash)
	}
	return nil
}

// export keeps the audit of the broker in a file.
func (f reportFlags) export(cmd *cobra.Command, w world, path string) error {
	c, err := f.live.client(w)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return errors.New("keeping the audit for a while: not possible for this process")
	}
	w.stdout = file
	return errors.Join(export(cmd.Context(), w, c, url.Values{}, asStored), file.Close())
}

// verified verifies a file, which begins with the first record or where it says that
// those before were pruned.
func verified(path string, heads []audit.Checkpoint, keys []note.Verifier) (audit.Report, error) {
	files, err := openAll([]string{path})
	if err != nil {
		return audit.Report{}, err
	}
	defer files[0].Close()
	evidence := audit.Evidence{Heads: heads}
	if err := findCut(&evidence, files, keys); err != nil {
		return audit.Report{}, err
	}
	return evidence.Verify(files[0])
}

// covered is what a part of the audit covers.
type covered struct {
	Records uint64 `json:"records"`
	First   string `json:"first"` // when it was written
	Last    string `json:"last"`
}

// cut writes the records before the first one of that time or later.
func cut(path string, out io.Writer, until time.Time) (c covered, err error) {
	file, err := os.Open(path)
	if err != nil {
		return c, fmt.Errorf("reading %q: not there or not readable", path)
	}
	defer file.Close()
	in := bufio.NewReader(file)
	for {
		line, err := in.ReadBytes('\n')
		if err == io.EOF {
			break
		}
		var rec struct{ Time time.Time }
		if err == nil {
			err = json.Unmarshal(line, &rec)
		}
		if err != nil {
			return c, errors.New("the audit could be read once, and not again")
		}
		if !rec.Time.Before(until) {
			break
		}
		if _, err := out.Write(line); err != nil {
			return c, err
		}
		c.Records, c.Last = c.Records+1, rec.Time.UTC().Format(time.RFC3339Nano)
		if c.Records == 1 {
			c.First = c.Last
		}
	}
	if c.Records == 0 {
		return c, fmt.Errorf("--until %s: there is no record before it", until.Format(time.RFC3339))
	}
	return c, nil
}
