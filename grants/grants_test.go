package grants_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/grants"
	"onbehalf.internal/broker/ledger"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/policy/policytest"
	"onbehalf.internal/broker/store"
	"onbehalf.internal/broker/store/storetest"
)

const configuration = `version: 1
listen: {api: "127.0.0.1:8471"}
vault: {address: "https://vault.example.org", auth: {method: token}, hold: {role: broker-op}}
store: {path: broker.db}
callers:
  gateway: {roles: [operate], bearer_sha256: ["BEARER"], actors: {asserted: ["user:00000"]}, servers: [records], zone: local}
profiles:
  company:
    token_endpoint: https://identity.example.org/token
    client: {id: broker, auth: basic, key: "vault:kv/broker/client#key"}
    allowed_audiences: [mcp-api]
    allowed_scopes: [read]
    response: {token_format: jwt}
    grants_files: [grants.jsonl]
servers:
  records:
    url: https://records.example.org/mcp
    enabled: true
    data_class: publicContent
    requires_approval: false
    auth: {mode: delegated, profile: company, audience: mcp-api, scopes: [read]}
    tools: {search: {enabled: true}}
`

const many = 2500 // more than are looked at together

// newReader is a reader of many grants, of which the first and each hundredth other were used.
func newReader(t *testing.T) (*grants.Reader, *storetest.File) {
	r, file := newUnused(t, many)
	for n := 0; n < many; n += 100 {
		op := ledger.Operation{ID: fmt.Sprint("op", n), Caller: "gateway", Actor: fmt.Sprintf("user:%05d", n), RequestKey: "k", Server: "records", Tool: "search", Profile: "company"}
		if _, begun, err := r.Ledger.Begin(t.Context(), op, audit.Record{}); !begun || err != nil {
			t.Fatal(begun, err)
		}
	}
	return r, file
}

func newUnused(t *testing.T, many int) (*grants.Reader, *storetest.File) {
	dir := t.TempDir()
	var lines strings.Builder
	for n := range many {
		fmt.Fprintf(&lines, `{"actor":"user:%05d","enabled":true,"credential":"vault:kv/broker/%d#t","allowed_audiences":["mcp-api"],"allowed_scopes":["read"]}`+"\n", n, n)
	}
	if err := os.WriteFile(filepath.Join(dir, "grants.jsonl"), []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := policytest.Load(dir, configuration)
	if err != nil {
		t.Fatal(err)
	}
	file := storetest.New(t)
	file.Reopen()
	l := ledger.New(file.Store, ledger.Config{Now: file.Clock})
	return &grants.Reader{Policy: policy.NewHolder(s), Ledger: l, Now: file.Clock}, file
}

// TestUnused: over pages of any size, exactly what was not used in that time, and since
// when that is known.
func TestUnused(t *testing.T) {
	r, file := newReader(t)
	began := file.Now
	unused := func(days, limit int) (n int) {
		t.Helper()
		q := grants.Question{Limit: limit}
		for more := true; more; {
			p, err := r.Unused(t.Context(), q, days)
			if err != nil || len(p.Rows) > limit || !p.Counted.Equal(began) {
				t.Fatal(len(p.Rows), p.Counted, err)
			}
			for _, row := range p.Rows {
				if row.LastUsed.After(file.Now.AddDate(0, 0, -days)) || (*row.Uses == 0) != row.LastUsed.IsZero() {
					t.Errorf("%+v", row)
				}
			}
			n, q.After, more = n+len(p.Rows), p.Next, p.More
		}
		return n
	}
	for _, limit := range []int{7, 999, 1000, 1001, 5000} {
		if n := unused(90, limit); n != many-many/100 {
			t.Errorf("%d unused by %d, want %d", n, limit, many-many/100)
		}
	}
	file.Now = file.Now.AddDate(0, 0, 91)
	if n := unused(90, 1000); n != many {
		t.Errorf("%d unused after 91 days", n)
	}
	if n := unused(92, 1000); n != many-many/100 {
		t.Errorf("%d unused of 92 days", n)
	}
}

// TestPageIsBounded: where nothing is found, a page ends all the same, and says where to go
// on.
func TestPageIsBounded(t *testing.T) {
	const many, lookedAt = 10_100, 10_000
	r, file := newUnused(t, many)
	err := file.Store.Commit(t.Context(), func(tx *store.Tx) error {
		for n := range many {
			if _, err := tx.Exec(`INSERT INTO uses VALUES (?, 'company', 'records', 'search', 1, ?)`, fmt.Sprintf("user:%05d", n), file.Now.UnixNano()); err != nil {
				return err
			}
		}
		return nil
	}, audit.Record{Kind: audit.Start})
	if err != nil {
		t.Fatal(err)
	}
	first, err := r.Unused(t.Context(), grants.Question{Limit: 10}, 90)
	if err != nil || len(first.Rows) != 0 || !first.More || first.Next.Actor != fmt.Sprintf("user:%05d", lookedAt-1) {
		t.Fatalf("%+v, %v", first, err)
	}
	if rest, err := r.Unused(t.Context(), grants.Question{Limit: 10, After: first.Next}, 90); err != nil || len(rest.Rows) != 0 || rest.More {
		t.Fatalf("%+v, %v", rest, err)
	}
}

// TestPlace: a place comes back as it was, and nothing else is one.
func TestPlace(t *testing.T) {
	for _, want := range []grants.Place{{}, {RowID: policy.RowID{Actor: "user:7", Profile: "p", Server: "s", Tool: `t"/\u2028`}, Expires: "2026-11-30"}} {
		if got, err := grants.ParsePlace(want.Words()); got != want || err != nil {
			t.Errorf("%+v came back as %+v, %v", want, got, err)
		}
	}
	for _, text := range []string{"", "x", "W10", "e30", "bnVsbA", "WyJhIl0"} {
		if got, err := grants.ParsePlace(text); err == nil {
			t.Errorf("%q is %+v", text, got)
		}
	}
}
