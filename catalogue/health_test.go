package catalogue_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/catalogue"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/store"
)

// TestContact: the newest contact counts, whichever comes last, and is seen before it
// is on disk.
func TestContact(t *testing.T) {
	r := newRig(t)
	r.imports("records")
	r.Contact("records", 30*time.Millisecond, noon.Add(time.Second))
	r.Contact("records", 40*time.Millisecond, noon)
	r.Contact("other", -time.Second, noon.In(time.FixedZone("CET", 3600)))
	r.Contact("", time.Second, noon)
	want := []catalogue.Server{
		{Name: "other", Status: catalogue.NeverImported, Contact: noon},
		{Name: "records", Status: catalogue.OK, Imported: noon, Good: noon, Contact: noon.Add(time.Second), Latency: 30 * time.Millisecond},
	}
	for _, when := range []string{"in memory", "on disk"} {
		got, err := r.Servers(t.Context())
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v %s", when, err, diff)
		}
		r.must(r.Flush(t.Context()))
		r.reopen()
	}
	if len(r.records()) != 1 {
		t.Errorf("%d records, want the import's alone", len(r.records()))
	}
}

// TestFlush commits once for all that is new, and not at all where nothing is.
func TestFlush(t *testing.T) {
	r := newRig(t)
	commits := 0
	r.Fail = func(at store.Moment, _ []audit.Record) error {
		if at == store.Committing {
			commits++
		}
		return nil
	}
	flushed := func(want int) {
		t.Helper()
		commits = 0
		if err := r.Flush(t.Context()); err != nil || commits != want {
			t.Errorf("Flush = %v, %d commits, want %d", err, commits, want)
		}
	}
	flushed(0)
	r.Contact("a", 1, noon.Add(1))
	r.Contact("b", 2, noon.Add(1))
	flushed(1)
	flushed(0)
	r.Contact("a", 3, noon)
	flushed(0)
	r.Contact("a", 4, noon.Add(2))
	flushed(1)
	if a, b := r.server("a"), r.server("b"); a.Latency != 4 || b.Latency != 2 {
		t.Errorf("%+v, %+v", a, b)
	}

	r.Contact("a", 5, noon.Add(3))
	r.must(r.Probed(t.Context(), "a", catalogue.Probe{Latency: 6}, audit.Record{Time: noon.Add(4)}))
	if a := r.server("a"); a.Latency != 6 {
		t.Errorf("an older one in memory: %+v", a)
	}
	r.must(r.Flush(t.Context()))
	if a := r.server("a"); a.Latency != 6 || !a.Contact.Equal(noon.Add(4)) {
		t.Errorf("an older one on disk: %+v", a)
	}
}

// TestFlushThatFails: what could not be written is written the next time.
func TestFlushThatFails(t *testing.T) {
	r := newRig(t)
	r.Contact("a", 1, noon)
	r.Fail = func(at store.Moment, _ []audit.Record) error { return errors.New("broken") }
	if err := r.Flush(t.Context()); fault.ReasonOf(err) != fault.StoreFailed {
		t.Errorf("Flush = %v", err)
	}
	r.Fail = nil
	r.must(r.Flush(t.Context()))
	r.reopen()
	if a := r.server("a"); a.Latency != 1 {
		t.Errorf("%+v", a)
	}
}

// TestContactDuringFlush: contacts come in while others are written; none is lost, and
// none waits for the commit.
func TestContactDuringFlush(t *testing.T) {
	r := newRig(t)
	r.Contact("a", 1, noon)
	r.Fail = func(at store.Moment, _ []audit.Record) error {
		if at == store.Committing {
			r.Contact("a", 2, noon.Add(1))
		}
		return nil
	}
	r.must(r.Flush(t.Context()))
	r.Fail = nil
	r.must(r.Flush(t.Context()))
	r.reopen()
	if a := r.server("a"); a.Latency != 2 {
		t.Errorf("%+v", a)
	}

	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for n := range 50 {
				r.Contact("a", time.Duration(n), noon.Add(time.Duration(10+50*i+n)))
			}
			if err := r.Flush(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	r.reopen()
	if a := r.server("a"); !a.Contact.Equal(noon.Add(10 + 399)) {
		t.Errorf("the last at %v", a.Contact)
	}
}

// TestProbed: a good probe says what the server is, one in vain leaves that; neither
// changes what the last import said.
func TestProbed(t *testing.T) {
	r := newRig(t)
	long := strings.Repeat("ä", 101)
	r.must(r.Refused(t.Context(), "records", fault.ConnectFailed, "", audit.Record{}))
	r.Now = noon.Add(time.Hour)
	r.must(r.Probed(t.Context(), "records", catalogue.Probe{Is: "up", Latency: time.Second, Era: policy.EraLegacy, Version: "2025-11-25",
		Software: long, SoftwareVersion: "1.0\n\u202e"}, audit.Record{Caller: "admin"}))
	want := catalogue.Server{Name: "records", Status: catalogue.Failed, Problem: "connect_failed", Imported: noon,
		Contact: r.Now, Latency: time.Second, Era: policy.EraLegacy, Version: "2025-11-25", Software: long[:200] + "…", SoftwareVersion: `1.0\u{a}\u{202e}`,
		Is: "up", Probed: r.Now}
	if diff := cmp.Diff(want, r.server("records")); diff != "" {
		t.Error(diff)
	}

	r.Now = noon.Add(2 * time.Hour)
	r.must(r.Probed(t.Context(), "records", catalogue.Probe{Is: "down", Reason: fault.ConnectFailed, Software: "not looked at"}, audit.Record{Caller: "admin"}))
	want.Is, want.Probe, want.Probed = "down", "connect_failed", r.Now
	r.reopen()
	if diff := cmp.Diff(want, r.server("records")); diff != "" {
		t.Error(diff)
	}

	records := r.records()
	for i, want := range []map[string]any{
		{"kind": "probe", "time": "2026-11-30T13:00:00.000000000Z", "caller": "admin", "server": "records"},
		{"kind": "probe", "time": "2026-11-30T14:00:00.000000000Z", "caller": "admin", "server": "records", "reason": "connect_failed"},
	} {
		if diff := cmp.Diff(want, records[1+i]); diff != "" {
			t.Error(diff)
		}
	}
}

// TestSoftware: what a server calls itself is one line of a hundred characters that
// can be seen.
func TestSoftware(t *testing.T) {
	for said, want := range map[string]string{
		"":                                 "",
		"Records 1":                        "Records 1",
		strings.Repeat("\U0001f50d", 100):  strings.Repeat("\U0001f50d", 100),
		strings.Repeat("\U0001f50d", 101):  strings.Repeat("\U0001f50d", 100) + "…",
		strings.Repeat("x", 1_000_000):     strings.Repeat("x", 100) + "…",
		"\x1b[31m\tred":                    `\u{1b}[31m\u{9}red`,
		strings.Repeat("\u200b", 100) + "": strings.Repeat(`\u{200b}`, 13)[:100] + "…",
	} {
		r := newRig(t)
		r.must(r.Probed(t.Context(), "records", catalogue.Probe{Software: said, SoftwareVersion: said, Version: said}, audit.Record{}))
		if s := r.server("records"); s.Software != want || s.SoftwareVersion != want || s.Version != want {
			t.Errorf("%.20q: %q, want %q", said, s.Software, want)
		}
	}
}
