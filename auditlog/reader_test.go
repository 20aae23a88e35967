package auditlog_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/auditlog"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/store"
)

// A desk is where an auditor reads a store.
type desk struct {
	t      *testing.T
	store  *store.Store
	reader *auditlog.Reader
	now    time.Time
	fail   error // of commits
}

func newDesk(t *testing.T, records ...audit.Record) *desk {
	t.Helper()
	d := &desk{t: t, now: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)}
	var err error
	d.store, err = store.Open(t.Context(), store.Config{Path: filepath.Join(t.TempDir(), "broker.db"), Now: func() time.Time { return d.now },
		Tamper: func(at store.Moment, _ []audit.Record) error {
			if at == store.Applying {
				return d.fail
			}
			return nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.store.Close() })
	d.add(records...)
	d.reader = auditlog.NewReader(d.store, func() time.Time { return d.now })
	return d
}

func (d *desk) add(records ...audit.Record) {
	d.t.Helper()
	if err := d.store.Commit(d.t.Context(), nil, records...); err != nil {
		d.t.Fatal(err)
	}
}

func (d *desk) page(caller string, after uint64, most int, f auditlog.Filter) auditlog.Page {
	d.t.Helper()
	p, err := d.reader.Page(d.t.Context(), auditlog.Auditor{Caller: caller}, after, most, f)
	if err != nil {
		d.t.Fatal(err)
	}
	return p
}

// readings are the records of readings.
func (d *desk) readings() (all []string) {
	d.t.Helper()
	err := d.store.Lines(d.t.Context(), 0, 1<<20, func(_ uint64, line []byte, _ [32]byte) error {
		var r struct {
			Kind    audit.Kind
			Caller  string
			Reading json.RawMessage
		}
		err := json.Unmarshal(line, &r)
		if r.Kind == audit.Read {
			all = append(all, r.Caller+" "+string(r.Reading))
		}
		return err
	})
	if err != nil {
		d.t.Fatal(err)
	}
	return all
}

// TestReadings: who reads is in the audit, once for a reading, however many its pages
// are, and before any of it is given away.
func TestReadings(t *testing.T) {
	d := newDesk(t, denials(2500)...)
	var whole []byte
	for next := uint64(0); next < 2500; {
		p := d.page("a", next, 100, auditlog.Filter{})
		whole, next = append(whole, p.Lines...), p.Next
	}
	if report, err := (audit.Evidence{}).Verify(bytes.NewReader(whole)); err != nil || report.Head.Seq != 2500 {
		t.Errorf("the pages together: %+v, %v", report, err)
	}
	want := []string{`a {"from":1,"to":2500}`}
	equal(t, "25 pages", d.readings(), want)

	d.page("a", 40, 10, auditlog.Filter{})
	equal(t, "some of it again", d.readings(), want)
	d.page("a", 2500, 10, auditlog.Filter{})
	equal(t, "nothing but the reading itself", d.readings(), want)
	d.page("b", 0, 10, auditlog.Filter{})
	want = append(want, `b {"from":1,"to":2501}`)
	equal(t, "somebody else", d.readings(), want)
	d.page("a", 0, 10, auditlog.Filter{Actor: "user:7", Operation: "o", Since: d.now, Until: d.now.Add(time.Hour)})
	want = append(want, `a {"from":1,"to":2502,"since":"2026-11-30T12:00:00Z","until":"2026-11-30T13:00:00Z","actor":"user:7","operation":"o"}`)
	equal(t, "another filter", d.readings(), want)
	d.add(denials(1)...)
	d.page("a", 2500, 10, auditlog.Filter{})
	want = append(want, `a {"from":2501,"to":2504}`)
	equal(t, "what came since", d.readings(), want)
	d.now = d.now.Add(time.Hour)
	d.page("b", 0, 10, auditlog.Filter{})
	want = append(want, `b {"from":1,"to":2505}`)
	equal(t, "an hour later", d.readings(), want)

	d.fail = errors.New("no")
	if p, err := d.reader.Page(t.Context(), auditlog.Auditor{Caller: "c"}, 0, 10, auditlog.Filter{}); err == nil || fault.ReasonOf(err) != fault.StoreFailed || len(p.Lines) > 0 {
		t.Errorf("not recorded, and given away: %d bytes, %v", len(p.Lines), err)
	}
}

// TestLooks: a view is recorded once in ten minutes for each who looks and for what.
func TestLooks(t *testing.T) {
	d := newDesk(t)
	look := func(caller, person string, v auditlog.View, f auditlog.Filter) {
		t.Helper()
		if err := d.reader.Look(t.Context(), auditlog.Auditor{Caller: caller, Person: person}, v, f); err != nil {
			t.Error(err)
		}
	}
	for range 2 {
		look("a", "", auditlog.Grants, auditlog.Filter{})
		look("page", "user:8", auditlog.Grants, auditlog.Filter{Server: "records", Tool: "search"})
		look("page", "user:9", auditlog.Operations, auditlog.Filter{Actor: "user:7"})
	}
	want := []string{`a {"view":"grants"}`, `page {"person":"user:8","view":"grants","server":"records","tool":"search"}`,
		`page {"person":"user:9","view":"operations","actor":"user:7"}`}
	equal(t, "each once", d.readings(), want)
	d.now = d.now.Add(10 * time.Minute)
	look("a", "", auditlog.Grants, auditlog.Filter{})
	equal(t, "ten minutes later", d.readings(), append(want, want[0]))

	d.fail = errors.New("no")
	if err := d.reader.Look(t.Context(), auditlog.Auditor{Caller: "c"}, auditlog.Grants, auditlog.Filter{}); fault.ReasonOf(err) != fault.StoreFailed {
		t.Errorf("not recorded: %v", err)
	}
}

// TestFilters: what they let through, and that a page of none still leads on.
func TestFilters(t *testing.T) {
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	var all []audit.Record
	for i := range 12_000 {
		all = append(all, audit.Record{Time: at.Add(time.Duration(i) * time.Second), Kind: audit.Outcome, Actor: fmt.Sprintf("user:%d", i%3), Operation: fmt.Sprint("op", i/2),
			Server: fmt.Sprint("s", i%5), Tool: fmt.Sprint("t", i%7)})
	}
	d := newDesk(t, all...)
	for _, tc := range []struct {
		name string
		f    auditlog.Filter
		want string
		next uint64
	}{
		{"an actor", auditlog.Filter{Actor: "user:1"}, "2 5 8", 8},
		{"an operation", auditlog.Filter{Operation: "op7"}, "15 16", 10_000},
		{"both", auditlog.Filter{Operation: "op7", Actor: "user:0"}, "16", 10_000},
		{"a server", auditlog.Filter{Server: "s4"}, "5 10 15", 15},
		{"a tool of it", auditlog.Filter{Server: "s4", Tool: "t2"}, "10 45 80", 80},
		{"since", auditlog.Filter{Since: at.Add(100 * time.Second)}, "101 102 103", 103},
		{"until", auditlog.Filter{Until: at.Add(2 * time.Second)}, "1 2", 10_000},
		{"nobody", auditlog.Filter{Actor: "user:9"}, "", 10_000},
		{"all", auditlog.Filter{}, "1 2 3", 3},
	} {
		p := d.page("a", 0, 3, tc.f)
		var got []string
		for line := range bytes.Lines(p.Lines) {
			var r struct{ Seq int }
			if err := json.Unmarshal(line, &r); err != nil {
				t.Fatal(err)
			}
			got = append(got, fmt.Sprint(r.Seq))
		}
		if strings.Join(got, " ") != tc.want || p.Next != tc.next || p.Head < 12_000 {
			t.Errorf("%s: %v, next %d of %d; want %s, %d", tc.name, got, p.Next, p.Head, tc.want, tc.next)
		}
	}
	if p := d.page("a", 10_000, 3, auditlog.Filter{Actor: "user:9"}); p.Next != p.Head {
		t.Errorf("the last page: %+v", p)
	}
	if p := d.page("a", 1<<62, 3, auditlog.Filter{}); p.Next != 1<<62 || len(p.Lines) > 0 {
		t.Errorf("after the end: %+v", p)
	}
}
