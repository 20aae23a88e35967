package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/mod/sumdb/note"

	"onbehalf.internal/broker/audit"
)

// The ways that a verification ends.
const (
	notWhole exit = 1
	unread   exit = 2
)

// verifyCommand looks at files alone: it asks nobody.
func verifyCommand(w world) *cobra.Command {
	var keys []string
	var heads, expect string
	cmd := &cobra.Command{Use: "verify <file.jsonl>...", Short: "Whether exports are whole, from the files alone", Args: cobra.MinimumNArgs(1),
		Long: `Read an export (of all records: no filters) and say whether it is as it was
written, or which record is the first that is not. Nobody is asked: it takes the
file, and what you have kept elsewhere.

Several files are one chain, the oldest first: those of audit.sink, and an export
after them. A file may begin with records that those before it have, too, if they
are the same. An export alone of a broker that prunes begins with a later record
than the first, where one of its own says so.

  --key K --heads F    signed heads, as audit.heads or broker audit head wrote them,
                       and the public half of the key that signed them
  --expect-head N:H    an end of the chain, as broker audit head printed it

Without one of the two it is not seen whether the end of the file is missing, or
all of it was written anew.

Exit status: 0 it is whole, 1 it is not, 2 something cannot be read.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return verdict(w, verify(w.stdout, args, heads, expect, keys))
		}}
	cmd.Flags().StringArrayVar(&keys, "key", nil, "a verifier key, <name>+<hash>+<key>; may be given again, for heads of before a change of keys")
	cmd.Flags().StringVar(&heads, "heads", "", "file with signed heads")
	cmd.Flags().StringVar(&expect, "expect-head", "", "<number>:<hash> of a record, kept elsewhere")
	cmd.MarkFlagsRequiredTogether("key", "heads")
	return cmd
}

func verify(out io.Writer, paths []string, heads, expect string, keys []string) error {
	signers, err := verifiers(keys)
	if err != nil {
		return err
	}
	evidence, err := readEvidence(heads, expect, signers)
	if err != nil {
		return err
	}
	files, err := openAll(paths)
	for _, f := range files {
		defer f.Close()
	}
	if err != nil {
		return err
	}
	if err := findCut(&evidence, files, signers); err != nil {
		return err
	}
	report, err := evidence.Verify(readers(files)...)
	var bad *audit.BadRecord
	switch {
	case errors.As(err, &bad) && len(paths) > 1:
		return fmt.Errorf("%q: %w", paths[bad.File-1], err)
	case err != nil:
		return err
	}
	tell(out, report, evidence.Expect)
	return nil
}

// tell prints what was found whole, and what nothing here shows.
func tell(out io.Writer, report audit.Report, expect audit.Head) {
	fmt.Fprintf(out, "whole: %d records, head %d:%x, ledger %s\n", report.Head.Seq-report.Before, report.Head.Seq, report.Head.Hash, report.Ledger)
	if report.Repeats > 0 {
		fmt.Fprintf(out, "repeats: %d records are in two files, alike\n", report.Repeats)
	}
	if report.Before > 0 {
		fmt.Fprintf(out, "note: records 1 to %d are not here: they were pruned, as a record here says\n", report.Before)
	}
	if report.Unseen > 0 {
		fmt.Fprintf(out, "note: %d heads speak of those alone, and of them nothing here shows anything\n", report.Unseen)
	}
	expected := expect.Seq > 0 && expect.Seq >= report.Before
	switch {
	case report.Heads > 0:
		fmt.Fprintf(out, "signed: %d heads fit, the newest speaks of %d records\n", report.Heads, report.Signed)
		if report.Signed < report.Head.Seq && expect.Seq < report.Head.Seq {
			fmt.Fprintf(out, "note: of the %d records after it, and of what may be missing behind them, no head says anything\n", report.Head.Seq-report.Signed)
		}
	case expected:
		fmt.Fprintf(out, "expected: record %d is the one that was kept\n", expect.Seq)
	default:
		fmt.Fprintln(out, "note: no head was given, so nothing here shows that the end is not missing, or that all of it was not written anew")
	}
	if expect.Seq > 0 && !expected {
		fmt.Fprintf(out, "note: record %d, which was kept, is not here\n", expect.Seq)
	}
}

// verdict prints why an audit is not whole, or was not looked at, and is the exit status.
func verdict(w world, err error) error {
	var bad *audit.BadRecord
	var badHead *audit.BadHead
	switch {
	case err == nil:
		return nil
	case errors.As(err, &bad), errors.As(err, &badHead):
		fmt.Fprintln(w.stdout, "not whole:", err)
		return notWhole
	}
	fmt.Fprintln(w.stderr, "broker:", err)
	return unread
}

func openAll(paths []string) (files []*os.File, err error) {
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			return files, fmt.Errorf("reading %q: not there or not readable", path)
		}
		files = append(files, f)
	}
	return files, nil
}

func readers(files []*os.File) (all []io.Reader) {
	for _, f := range files {
		all = append(all, f)
	}
	return all
}

// findCut looks for where pruned files begin; the head at the cut is evidence, too. It
// reads the files, and rewinds them; what cannot be rewound begins with the first record.
func findCut(e *audit.Evidence, files []*os.File, keys []note.Verifier) error {
	rewind := func(f *os.File) bool { _, err := f.Seek(0, io.SeekStart); return err == nil }
	if slices.ContainsFunc(files, func(f *os.File) bool { return !rewind(f) }) {
		return nil
	}
	e.Cut = audit.FindCut(io.MultiReader(readers(files)...))
	for _, f := range files {
		rewind(f)
	}
	if e.Cut == nil || len(keys) == 0 {
		return nil
	}
	head, err := audit.OpenCheckpoint([]byte(e.Cut.Head), keys...)
	if err != nil {
		return &audit.BadRecord{File: 1, Line: 1, Why: "follows what was pruned, and the head there is not signed by a key that was given"}
	}
	if !slices.Contains(e.Heads, head) {
		e.Heads = append(e.Heads, head)
	}
	return nil
}

// readEvidence reads what was kept elsewhere.
func readEvidence(heads, expect string, keys []note.Verifier) (e audit.Evidence, err error) {
	if expect != "" {
		if e.Expect, err = readHead(expect); err != nil {
			return e, err
		}
	}
	if heads == "" {
		return e, nil
	}
	f, err := os.Open(heads)
	if err != nil {
		return e, fmt.Errorf("reading %q: not there or not readable", heads)
	}
	defer f.Close()
	if e.Heads, err = audit.ReadHeads(f, keys...); err != nil {
		return e, fmt.Errorf("%q: %w", heads, err)
	}
	if len(e.Heads) == 0 {
		return e, fmt.Errorf("%q: holds no head", heads)
	}
	return e, nil
}

// verifiers reads the public halves of the keys that sign heads.
func verifiers(keys []string) (all []note.Verifier, err error) {
	for _, key := range keys {
		v, err := note.NewVerifier(key)
		if err != nil {
			return nil, fmt.Errorf("--key %q: write it as broker audit keygen prints it, <name>+<hash>+<key>", key)
		}
		all = append(all, v)
	}
	return all, nil
}

func readHead(text string) (h audit.Head, err error) {
	number, hash, _ := strings.Cut(text, ":")
	h.Seq, err = strconv.ParseUint(number, 10, 63)
	var d audit.Digest
	if err = errors.Join(err, d.UnmarshalText([]byte(hash))); err != nil || h.Seq == 0 {
		return h, fmt.Errorf("--expect-head %q: write it as broker audit head prints it, <number>:<hash>", text)
	}
	h.Hash = d
	return h, nil
}
