package catalogue_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/catalogue"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/store"
	"onbehalf.internal/broker/store/storetest"
	"onbehalf.internal/broker/strictjson"
)

var noon = storetest.Noon

// A rig is a catalogue whose clock stands still, on a file that can be opened again.
type rig struct {
	*catalogue.Catalogue
	*storetest.File
	t *testing.T
}

func newRig(t *testing.T) *rig {
	r := &rig{File: storetest.New(t), t: t}
	r.reopen()
	return r
}

// reopen is what a new process does after the old one died.
func (r *rig) reopen() {
	r.t.Helper()
	r.File.Reopen()
	r.Catalogue = catalogue.New(r.Store, r.Clock)
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) imports(server string, advertised ...strictjson.Raw) catalogue.Report {
	r.t.Helper()
	rep, err := r.Import(r.t.Context(), server, advertised, audit.Record{Caller: "admin"})
	r.must(err)
	return rep
}

// tools returns what is kept of a server.
func (r *rig) tools(server string) []catalogue.Kept {
	r.t.Helper()
	list, err := r.Tools(r.t.Context(), server)
	r.must(err)
	return list
}

// rows returns the tools of a server as lines, times as hours since noon.
func (r *rig) rows(server string) (lines []string) {
	r.t.Helper()
	hours := func(t time.Time) string {
		if t.IsZero() {
			return "-"
		}
		return fmt.Sprint(t.Sub(noon).Hours())
	}
	for _, k := range r.tools(server) {
		lines = append(lines, fmt.Sprintf("%s since %s seen %s orphaned %s returned %s",
			k.Name, hours(k.Since), hours(k.Seen), hours(k.Orphaned), hours(k.Returned)))
	}
	return lines
}

// server returns what is known of one; zero if it is not known.
func (r *rig) server(name string) catalogue.Server {
	r.t.Helper()
	list, err := r.Servers(r.t.Context())
	r.must(err)
	for _, s := range list {
		if s.Name == name {
			return s
		}
	}
	return catalogue.Server{}
}

// records returns the audit as it was exported and verified.
func (r *rig) records() []map[string]any {
	r.t.Helper()
	list := storetest.Records(r.t, r.Store)
	for _, m := range list {
		for _, name := range []string{"seq", "prev", "v", "hash"} {
			delete(m, name)
		}
	}
	return list
}

// dump returns every row of our tables, without the times that every import sets.
func (r *rig) dump() (lines []string) {
	r.t.Helper()
	for _, query := range []string{
		`SELECT server, name, local, title, description, schema, pin, since, orphaned, returned FROM tools ORDER BY server, name`,
		`SELECT server, name, pin, definition, first_seen, '', '', '', '', '' FROM definitions ORDER BY server, name, pin`,
		`SELECT server, status, problem, tools, contact, latency, era, version, probe, probed FROM servers ORDER BY server`,
	} {
		rows, err := r.Store.Read().Query(query)
		r.must(err)
		for rows.Next() {
			var v [10]string
			r.must(rows.Scan(&v[0], &v[1], &v[2], &v[3], &v[4], &v[5], &v[6], &v[7], &v[8], &v[9]))
			lines = append(lines, strings.Join(v[:], "|"))
		}
		r.must(errors.Join(rows.Err(), rows.Close()))
	}
	return lines
}

// TestStoreFails breaks the commit of everything that writes, before and after it
// took effect: nothing reports success, and all of it is on disk or none.
func TestStoreFails(t *testing.T) {
	before := func(r *rig) { r.imports("records", list("search", "gone")...) }
	for _, step := range []struct {
		name    string
		do      func(*rig) error
		records int
	}{
		{"Import", func(r *rig) error {
			_, err := r.Import(t.Context(), "records", append(list("new"), advertised("search", `,"title":"T"`)), audit.Record{})
			return err
		}, 1},
		{"Refused", func(r *rig) error {
			return r.Refused(t.Context(), "records", fault.ConnectFailed, "", audit.Record{})
		}, 1},
		{"Probed", func(r *rig) error {
			return r.Probed(t.Context(), "records", catalogue.Probe{Version: "2025-11-25"}, audit.Record{})
		}, 1},
		{"Flush", func(r *rig) error {
			r.Contact("records", time.Second, noon)
			r.Contact("other", time.Second, noon)
			return r.Flush(t.Context())
		}, 0},
	} {
		whole := newRig(t)
		before(whole)
		untouched := whole.dump()
		whole.must(step.do(whole))
		written := whole.dump()
		if cmp.Equal(untouched, written) {
			t.Fatalf("%s writes nothing", step.name)
		}
		for _, at := range []store.Moment{store.Applying, store.Committing, store.Committed} {
			t.Run(fmt.Sprint(step.name, " ", at), func(t *testing.T) {
				r := newRig(t)
				before(r)
				r.Fail = func(now store.Moment, _ []audit.Record) error {
					if now == at {
						return errors.New("broken")
					}
					return nil
				}
				if err := step.do(r); fault.ReasonOf(err) != fault.StoreFailed {
					t.Errorf("%v, want store_failed", err)
				}
				r.Fail = nil
				r.reopen()
				want, records := untouched, 1
				if at == store.Committed {
					want, records = written, 1+step.records
				}
				if diff := cmp.Diff(want, r.dump()); diff != "" || len(r.records()) != records {
					t.Errorf("%d records, want %d; %s", len(r.records()), records, diff)
				}
			})
		}
	}
}

// TestStoreIsAway: a question that was not answered is a fault, never "nothing there".
func TestStoreIsAway(t *testing.T) {
	r := newRig(t)
	r.imports("records", list("search")...)
	r.Contact("records", 0, noon)
	r.Store.Close()
	for name, do := range map[string]func() error{
		"Import":     func() error { _, err := r.Import(t.Context(), "records", nil, audit.Record{}); return err },
		"Refused":    func() error { return r.Refused(t.Context(), "records", fault.ConnectFailed, "", audit.Record{}) },
		"Probed":     func() error { return r.Probed(t.Context(), "records", catalogue.Probe{}, audit.Record{}) },
		"Flush":      func() error { return r.Flush(t.Context()) },
		"Tools":      func() error { _, err := r.Tools(t.Context(), "records"); return err },
		"Servers":    func() error { _, err := r.Servers(t.Context()); return err },
		"View":       func() error { _, err := r.View(t.Context()); return err },
		"Definition": func() error { _, _, err := r.Definition(t.Context(), "records", "search", ""); return err },
	} {
		if err := do(); fault.KindOf(err) != fault.Unavailable {
			t.Errorf("%s of a closed store = %v", name, err)
		}
	}
}

// TestView: what policy sees. A server that never had a good import is absent, one
// that offers nothing is there.
func TestView(t *testing.T) {
	r := newRig(t)
	r.imports("records", list("search", "gone", "back")...)
	r.imports("records", list("search")...)
	r.imports("records", list("search", "back")...)
	r.imports("empty")
	r.must(r.Refused(t.Context(), "refused", fault.ConnectFailed, "", audit.Record{}))
	r.must(r.Refused(t.Context(), "records", fault.ConnectFailed, "", audit.Record{}))
	r.must(r.Probed(t.Context(), "probed", catalogue.Probe{}, audit.Record{}))
	r.Contact("contact", 0, noon)
	r.must(r.Flush(t.Context()))

	pins := map[string]string{}
	for _, k := range r.tools("records") {
		pins[k.Name] = k.Pin
	}
	want := policy.Offers{
		"records": {
			"search": {Pin: pins["search"]},
			"gone":   {Pin: pins["gone"], Orphaned: true},
			"back":   {Pin: pins["back"], Returned: true},
		},
		"empty": {},
	}
	view, err := r.View(t.Context())
	if diff := cmp.Diff(want, view); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
	delete(view["records"], "search")
	if again, err := r.View(t.Context()); err != nil || !cmp.Equal(want, again) {
		t.Errorf("what one has done to its view, another sees: %v, %v", again, err)
	}
}
