package operation

import (
	"path/filepath"
	"testing"
	"time"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/ledger"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/store"
)

// TestDigestBinds: an approval is for one very call. With any part of it changed,
// nothing is sent, and the approval is not used up.
func TestDigestBinds(t *testing.T) {
	s, err := store.Open(t.Context(), store.Config{Path: filepath.Join(t.TempDir(), "broker.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	l := ledger.New(s, ledger.Config{})
	very := callDigest("gateway", "user:7", "records", "purge", "sha256:1", [32]byte{1})
	op := ledger.Operation{ID: "op", Caller: "gateway", Actor: "user:7", RequestKey: "k", Server: "records", Tool: "purge", Arguments: [32]byte{1}}
	asked := ledger.Approval{Digest: very, Pin: "sha256:1", Arguments: []byte(`{}`), Expires: time.Now().Add(time.Hour)}
	if _, asked, err := l.Ask(t.Context(), op, asked, audit.Record{}); !asked || err != nil {
		t.Fatal(err)
	}
	word := ledger.Word{Approver: policy.Consent{By: "people", Issuer: "i", Subject: "user:8"}, JTI: "j", Digest: very, Approved: true}
	if _, _, err := l.Decide(t.Context(), "op", word); err != nil {
		t.Fatal(err)
	}
	if _, begun, err := l.Begin(t.Context(), op, audit.Record{}); !begun || err != nil {
		t.Fatal(err)
	}
	for name, other := range map[string]CallDigest{
		"caller":            callDigest("gateway2", "user:7", "records", "purge", "sha256:1", [32]byte{1}),
		"actor":             callDigest("gateway", "user:6", "records", "purge", "sha256:1", [32]byte{1}),
		"server":            callDigest("gateway", "user:7", "archive", "purge", "sha256:1", [32]byte{1}),
		"tool":              callDigest("gateway", "user:7", "records", "purge2", "sha256:1", [32]byte{1}),
		"pin":               callDigest("gateway", "user:7", "records", "purge", "sha256:2", [32]byte{1}),
		"no pin":            callDigest("gateway", "user:7", "records", "purge", "", [32]byte{1}),
		"arguments":         callDigest("gateway", "user:7", "records", "purge", "sha256:1", [32]byte{2}),
		"a border is moved": callDigest("gatewayu", "ser:7", "records", "purge", "sha256:1", [32]byte{1}),
	} {
		if other == very {
			t.Errorf("%s: the digest is the same", name)
		}
		if err := l.SendingApproved(t.Context(), "op", 1, other, audit.Record{}); fault.ReasonOf(err) != fault.ApprovalVoid {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := l.SendingApproved(t.Context(), "op", 1, very, audit.Record{}); err != nil {
		t.Error(err)
	}
}

// TestPinnedToday: the digest is taken with what the server offers now.
func TestPinnedToday(t *testing.T) {
	h := policy.NewHolder(&policy.Snapshot{})
	op := ledger.Operation{Caller: "gateway", Actor: "user:7", Server: "records", Tool: "purge", Arguments: [32]byte{1}}
	for _, pin := range []string{"", "sha256:1", "sha256:2"} {
		if pin != "" {
			h.SetOffers(policy.Offers{"records": {"purge": {Pin: pin}, "search": {Pin: "sha256:3"}}})
		}
		digest, got := pinned(h.Current(), op)
		if got != pin || digest != callDigest("gateway", "user:7", "records", "purge", pin, [32]byte{1}) {
			t.Errorf("pin %q: %q, %s", pin, got, digest)
		}
	}
}

// TestParseCallDigest: one spelling.
func TestParseCallDigest(t *testing.T) {
	d := callDigest("a", "b", "c", "d", "e", [32]byte{})
	if got, ok := ParseCallDigest(d.String()); !ok || got != d {
		t.Errorf("%s: %v, %v", d, got, ok)
	}
	hex := d.String()[len("sha256:"):]
	for _, s := range []string{"", "sha256:", hex, "sha256:" + hex[1:], "sha256:" + hex + "00", "SHA256:" + hex, "sha256:A" + hex[1:], "sha256:g" + hex[1:], " " + d.String()} {
		if _, ok := ParseCallDigest(s); ok {
			t.Errorf("%q passes", s)
		}
	}
}
