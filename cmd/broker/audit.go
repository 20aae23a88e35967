package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/httpapi"
)

func auditCommand(w world) *cobra.Command {
	cmd := &cobra.Command{Use: "audit", Short: "The record of what was decided, and the proof that it is whole"}
	cmd.AddCommand(exportCommand(w), headCommand(w), verifyCommand(w), keygenCommand(w))
	return cmd
}

// headCommand prints what to keep elsewhere.
func headCommand(w world) *cobra.Command {
	var flags clientFlags
	var raw bool
	cmd := &cobra.Command{Use: "head", Short: "The newest head, to keep elsewhere", Args: cobra.NoArgs,
		Long: `Print the newest signed head of a running broker's audit, as a caller with the
role audit. It is what --heads of verify reads. Without keys.audit there is none:
then it is the end of the chain, which --expect-head of verify takes.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var head httpapi.AuditEnd
			told, err := ask(cmd, w, &flags, raw, "GET", "/v1/audit/head", nil, &head)
			if err != nil || told {
				return err
			}
			if head.Signed == nil {
				fmt.Fprintf(w.stdout, "%d:%s\n", head.Seq, head.Hash)
				return nil
			}
			fmt.Fprintln(w.stdout, head.Signed.Checkpoint)
			return nil
		}}
	flags.bindCaller(cmd)
	cmd.Flags().BoolVar(&raw, "json", false, "print the broker's answer as it is")
	return cmd
}

// keygenCommand makes a key. It does not replace one: heads that the old one signed
// could not be made again.
func keygenCommand(w world) *cobra.Command {
	var name, path string
	cmd := &cobra.Command{Use: "keygen", Short: "Make the key that signs heads, and print its public half", Args: cobra.NoArgs,
		Long: `Make an Ed25519 key for keys.audit in a new file, audit.key unless --out says
another, for its owner alone, and print the verifier key, which is public: it is
what --key of verify takes. Give it to those who verify, by a way that does not
lead through this machine.`,
		RunE: func(*cobra.Command, []string) error {
			text, verifier, err := audit.NewKey(name)
			if err != nil {
				return err
			}
			if err := writeNew(cmp.Or(path, "audit.key"), text); err != nil {
				return err
			}
			fmt.Fprintln(w.stdout, verifier)
			return nil
		}}
	cmd.Flags().StringVar(&name, "name", "", "whose signatures they are, such as broker.example; it stands in each of them")
	cmd.Flags().StringVar(&path, "out", "", "the file to make (default: as above)")
	cmd.MarkFlagRequired("name")
	return cmd
}

func writeNew(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("%q is there already; a key is not replaced", path)
	}
	if err != nil {
		return fmt.Errorf("making %q: not possible for this process", path)
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Sync(), f.Close())
}
