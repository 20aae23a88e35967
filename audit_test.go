package broker_test

import (
	"bytes"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"

	"onbehalf.internal/broker"
	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/audit/ocsf"
	"onbehalf.internal/broker/brokertest"
	"onbehalf.internal/broker/policy"
)

// exported is the audit of a running broker, as its auditor gets it.
func exported(t *testing.T, rig *brokertest.Rig) []byte {
	t.Helper()
	a := rig.Auditor(t, "/v1/audit?limit=10000", nil)
	if a.Status != http.StatusOK {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	return a.Body
}

// TestSignedAudit: the heads of brokers that have stopped hold against the export of
// the next one, which is as it is stored, and a broker that was asked to end has
// signed its last record. No token, argument or result is in an export or a head.
func TestSignedAudit(t *testing.T) {
	rig := brokertest.New(t, &brokertest.Options{SignedAudit: true})
	const argument = "canary-of-an-argument"
	for range 2 {
		rig.Call(t, brokertest.Call{})
		rig.Call(t, brokertest.Call{Tool: "drop", Arguments: map[string]string{"job": argument}})
		rig.Call(t, brokertest.Call{Actor: "user:8"})
		if err := errors.Join(rig.Stop(), rig.Restart(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	export := exported(t, rig)
	verifier, err := note.NewVerifier(rig.AuditKey)
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(rig.HeadsPath())
	if err != nil {
		t.Fatal(err)
	}
	heads, err := audit.ReadHeads(bytes.NewReader(file), verifier)
	if err != nil {
		t.Fatal(err)
	}
	report, err := audit.Evidence{Heads: heads}.Verify(bytes.NewReader(export))
	lines := bytes.Split(export, []byte("\n"))
	if err != nil || report.Heads != 2 || !bytes.Contains(lines[report.Signed-1], []byte(`"kind":"stop"`)) {
		t.Errorf("%+v, %v:\n%s\n%s", report, err, file, export)
	}
	var events bytes.Buffer
	if err := ocsf.Write(&events, export); err != nil {
		t.Fatal(err)
	}
	for _, secret := range slices.Concat(rig.Secrets(), []string{argument, rig.AuditorBearer()}) {
		for name, text := range map[string]string{"export": string(export), "events": events.String(), "heads": string(file), "log": rig.Log()} {
			if strings.Contains(text, secret) {
				t.Errorf("a secret is in the %s", name)
			}
		}
	}
	if err := rig.Stop(); err != nil {
		t.Fatal(err)
	}
	if stored := rig.Audit(t); !strings.HasPrefix(stored, string(export)) {
		t.Error("the export is not what is stored")
	}
}

// TestHeadsCannotBeWritten: where the second place is none, the log says so and
// operations run.
func TestHeadsCannotBeWritten(t *testing.T) {
	rig := brokertest.New(t, &brokertest.Options{SignedAudit: true, Config: func(yaml string) string {
		return strings.Replace(yaml, `/heads"`, `/nowhere/heads"`, 1)
	}})
	if a := rig.Call(t, brokertest.Call{}); a.State != "succeeded" {
		t.Errorf("%s", a.Body)
	}
	if err := rig.Stop(); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(rig.Log(), `"msg":"head not at its second place"`) {
		t.Error(rig.Log())
	}
}

// TestAuditKeyFile: a broker does not start with a key that is none, or that others
// may read.
func TestAuditKeyFile(t *testing.T) {
	rig := brokertest.New(t, &brokertest.Options{SignedAudit: true})
	path := filepath.Join(rig.Dir, "audit.key")
	whole, err := os.ReadFile(path)
	if err := errors.Join(err, rig.Stop()); err != nil {
		t.Fatal(err)
	}
	snapshot, err := policy.Load(rig.ConfigPath)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		text []byte
		mode os.FileMode
		want string
	}{
		{"of nobody else", whole, 0o604, "can be read by everybody"},
		{"nor of a group", whole, 0o640, "can be read by its group"},
		{"which nobody else writes", whole, 0o620, "can be written by its group"},
		{"whole", whole[:len(whole)-40], 0o600, "must stand one private key in PEM"},
		{"there", nil, 0o600, "its first line must be the verifier key"},
	} {
		if err := errors.Join(os.WriteFile(path, tc.text, 0o600), os.Chmod(path, tc.mode)); err != nil {
			t.Fatal(err)
		}
		_, err := broker.New(t.Context(), broker.Config{Snapshot: snapshot, Getenv: func(string) string { return "token" }})
		if err == nil || !strings.Contains(err.Error(), "keys.audit: ") || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
	}
}

// TestAuditHead: without a key there is the end of the chain; with one, the newest
// signed head besides.
func TestAuditHead(t *testing.T) {
	for _, signed := range []bool{false, true} {
		rig := brokertest.New(t, &brokertest.Options{SignedAudit: signed})
		if err := errors.Join(rig.Stop(), rig.Restart(t.Context())); err != nil {
			t.Fatal(err)
		}
		var head struct {
			Seq    uint64
			Hash   audit.Digest
			Signed *struct{ Checkpoint string }
		}
		if a := rig.Auditor(t, "/v1/audit/head", &head); a.Status != http.StatusOK || (head.Signed != nil) != signed {
			t.Fatalf("signed %v: %d %s", signed, a.Status, a.Body)
		}
		if _, err := (audit.Evidence{Expect: audit.Head{Seq: head.Seq, Hash: head.Hash}}).Verify(bytes.NewReader(exported(t, rig))); err != nil {
			t.Error(err)
		}
		if file, _ := os.ReadFile(rig.HeadsPath()); signed && string(file) != head.Signed.Checkpoint+"\n" {
			t.Errorf("%q, and the file has %q", head.Signed.Checkpoint, file)
		}
	}
}

// TestSinkOfABroker: a broker that has stopped has left its whole audit in the file of its
// sink, also over a restart. No token, argument or result is in it.
func TestSinkOfABroker(t *testing.T) {
	rig := brokertest.New(t, &brokertest.Options{Config: func(yaml string) string {
		return yaml + "audit: {sink: \"file:audit.jsonl\"}\n"
	}})
	const argument = "canary-of-an-argument"
	for range 2 {
		rig.Call(t, brokertest.Call{})
		rig.Call(t, brokertest.Call{Tool: "drop", Arguments: map[string]string{"job": argument}})
		if err := errors.Join(rig.Stop(), rig.Restart(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	if err := rig.Stop(); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(filepath.Join(rig.Dir, "audit.jsonl"))
	if err != nil || string(file) != rig.Audit(t) || bytes.Count(file, []byte(`"kind":"stop"`)) != 3 {
		t.Errorf("%v, the file:\n%s", err, file)
	}
	for _, secret := range append(rig.Secrets(), argument) {
		if bytes.Contains(file, []byte(secret)) {
			t.Error("a secret is in it")
		}
	}
}

// TestSinkCannotBeWritten: where the file of the sink cannot be, the log says so, and
// operations run.
func TestSinkCannotBeWritten(t *testing.T) {
	rig := brokertest.New(t, &brokertest.Options{Config: func(yaml string) string {
		return yaml + "audit: {sink: \"file:nowhere/audit.jsonl\"}\n"
	}})
	if a := rig.Call(t, brokertest.Call{}); a.State != "succeeded" {
		t.Errorf("%s", a.Body)
	}
	if err := rig.Stop(); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(rig.Log(), `"msg":"sink not written"`) {
		t.Error(rig.Log())
	}
}
