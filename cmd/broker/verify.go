package main

import (
	"errors"
	"fmt"
	"io"
	"os"
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

// verifyCommand looks at a file alone: it asks nobody.
func verifyCommand(w world) *cobra.Command {
	var keys []string
	var heads, expect string
	cmd := &cobra.Command{Use: "verify <file.jsonl>", Short: "Whether an export is whole, from the file alone", Args: cobra.ExactArgs(1),
		Long: `Read an export (of all records: no filters) and say whether it is as it was
written, or which record is the first that is not. Nobody is asked: it takes the
file, and what you have kept elsewhere.

  --key K --heads F    signed heads, as audit.heads or broker audit head wrote them,
                       and the public half of the key that signed them
  --expect-head N:H    an end of the chain, as broker audit head printed it

Without one of the two it is not seen whether the end of the file is missing, or
all of it was written anew.

Exit status: 0 it is whole, 1 it is not, 2 something cannot be read.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			err := verify(w.stdout, args[0], heads, expect, keys)
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
		}}
	cmd.Flags().StringArrayVar(&keys, "key", nil, "a verifier key, <name>+<hash>+<key>; may be given again, for heads of before a change of keys")
	cmd.Flags().StringVar(&heads, "heads", "", "file with signed heads")
	cmd.Flags().StringVar(&expect, "expect-head", "", "<number>:<hash> of a record, kept elsewhere")
	cmd.MarkFlagsRequiredTogether("key", "heads")
	return cmd
}

func verify(out io.Writer, path, heads, expect string, keys []string) error {
	evidence, err := readEvidence(heads, expect, keys)
	if err != nil {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("reading %q: not there or not readable", path)
	}
	defer f.Close()
	report, err := evidence.Verify(f)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "whole: %d records, head %d:%x, ledger %s\n", report.Head.Seq, report.Head.Seq, report.Head.Hash, report.Ledger)
	switch {
	case report.Heads > 0:
		fmt.Fprintf(out, "signed: %d heads fit, the newest speaks of %d records\n", report.Heads, report.Signed)
		if report.Signed < report.Head.Seq && evidence.Expect.Seq < report.Head.Seq {
			fmt.Fprintf(out, "note: of the %d records after it, and of what may be missing behind them, no head says anything\n", report.Head.Seq-report.Signed)
		}
	case evidence.Expect.Seq > 0:
		fmt.Fprintf(out, "expected: record %d is the one that was kept\n", evidence.Expect.Seq)
	default:
		fmt.Fprintln(out, "note: no head was given, so nothing here shows that the end is not missing, or that all of it was not written anew")
	}
	return nil
}

// readEvidence reads what was kept elsewhere.
func readEvidence(heads, expect string, keys []string) (e audit.Evidence, err error) {
	if expect != "" {
		if e.Expect, err = readHead(expect); err != nil {
			return e, err
		}
	}
	if heads == "" {
		return e, nil
	}
	signers, err := verifiers(keys)
	if err != nil {
		return e, err
	}
	f, err := os.Open(heads)
	if err != nil {
		return e, fmt.Errorf("reading %q: not there or not readable", heads)
	}
	defer f.Close()
	if e.Heads, err = audit.ReadHeads(f, signers...); err != nil {
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
