package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"onbehalf.internal/broker/audit"
)

// TestHeadAtTheCut: what was pruned is believed with a key only if it has signed the
// head there.
func TestHeadAtTheCut(t *testing.T) {
	dir := t.TempDir()
	keys, verifiers := map[string]note.Signer{}, map[string]string{}
	for _, name := range []string{"mine", "other"} {
		file, verifier, err := audit.NewKey(name)
		if err != nil {
			t.Fatal(err)
		}
		verifiers[name] = verifier
		if keys[name], err = audit.ParseKey(file); err != nil {
			t.Fatal(err)
		}
	}
	path, heads := filepath.Join(dir, "audit.jsonl"), filepath.Join(dir, "heads")
	for signer, want := range map[string]string{"mine": "", "other": "the head there is not signed by a key that was given"} {
		var tree audit.Tree
		line, cut := audit.Head{}.Next(audit.Record{Time: time.Now(), Kind: audit.Start})
		tree.Add(line)
		sign := func(by string) []byte {
			msg, err := audit.Checkpoint{Origin: audit.Origin("l"), Size: tree.Size(), Root: tree.Root()}.Sign(keys[by])
			if err != nil {
				t.Fatal(err)
			}
			return msg
		}
		pruned := &audit.Pruned{From: 1, To: cut.Place(), Tree: tree.Bytes(), Head: string(sign(signer))}
		line, end := cut.Next(audit.Record{Time: time.Now(), Kind: audit.Retention, Pruned: pruned})
		tree.Add(line)
		for name, text := range map[string][]byte{path: audit.Exported(line, end.Hash), heads: sign("mine")} {
			if err := os.WriteFile(name, text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		var out bytes.Buffer
		err := verify(&out, []string{path}, heads, "", []string{verifiers["mine"]})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", signer, err, want)
		}
		if err == nil && !strings.Contains(out.String(), "signed: 2 heads fit, the newest speaks of 2 records") {
			t.Error(out.String())
		}
		if err := verify(&out, []string{path}, heads, "", []string{verifiers["mine"], verifiers["other"]}); err != nil {
			t.Errorf("%s, with both keys: %v", signer, err)
		}
	}
}
