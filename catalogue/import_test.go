package catalogue_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/catalogue"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/store"
	"onbehalf.internal/broker/strictjson"
)

// TestHistories imports one list after the other, an hour apart, and looks at the last
// report, at the rows and at how the server stands, in this process and in the next.
func TestHistories(t *testing.T) {
	lists := func(all ...[]strictjson.Raw) [][]strictjson.Raw { return all }
	titled := advertised("b", `,"title":"T"`)
	unfit := strictjson.Raw(`{"name":"b","inputSchema":[]}`)
	const noSchema = `"b" was skipped: the server advertised no parameter schema`
	pin := func(raw strictjson.Raw) string {
		tools, _ := catalogue.Read("records", []strictjson.Raw{raw}, nobody)
		return tools[0].Pin
	}
	plainB, titledB := pin(advertised("b", "")), pin(titled)

	for _, tc := range []struct {
		name   string
		lists  [][]strictjson.Raw
		report catalogue.Report
		rows   []string
		status catalogue.Status
	}{
		{"new", lists(list("b", "a")), catalogue.Report{Imported: 2, New: []string{"a", "b"}},
			[]string{"a since 0 seen 0 orphaned - returned -", "b since 0 seen 0 orphaned - returned -"}, catalogue.OK},
		{"known", lists(list("a", "b"), list("b", "a")), catalogue.Report{Imported: 2},
			[]string{"a since 0 seen 1 orphaned - returned -", "b since 0 seen 1 orphaned - returned -"}, catalogue.OK},
		{"one more", lists(list("a"), list("a", "b")), catalogue.Report{Imported: 2, New: []string{"b"}},
			[]string{"a since 0 seen 1 orphaned - returned -", "b since 1 seen 1 orphaned - returned -"}, catalogue.OK},
		{"changed", lists(list("a", "b"), append(list("a"), titled)), catalogue.Report{Imported: 2, Changed: []audit.Redefined{{Tool: "b", Old: plainB, New: titledB}}},
			[]string{"a since 0 seen 1 orphaned - returned -", "b since 0 seen 1 orphaned - returned -"}, catalogue.OK},
		{"vanished", lists(list("a", "b"), list("a")), catalogue.Report{Imported: 1, Orphaned: 1, Vanished: []string{"b"}},
			[]string{"a since 0 seen 1 orphaned - returned -", "b since 0 seen 0 orphaned 1 returned -"}, catalogue.OK},
		{"gone for longer", lists(list("a", "b"), list("a"), list("a")), catalogue.Report{Imported: 1, Orphaned: 1},
			[]string{"a since 0 seen 2 orphaned - returned -", "b since 0 seen 0 orphaned 1 returned -"}, catalogue.OK},
		{"renamed", lists(list("a"), list("b")), catalogue.Report{Imported: 1, Orphaned: 1, New: []string{"b"}, Vanished: []string{"a"}},
			[]string{"a since 0 seen 0 orphaned 1 returned -", "b since 1 seen 1 orphaned - returned -"}, catalogue.OK},
		{"renamed in case alone", lists(list("a"), list("A")), catalogue.Report{Imported: 1, Orphaned: 1, New: []string{"A"}, Vanished: []string{"a"}},
			[]string{"A since 1 seen 1 orphaned - returned -", "a since 0 seen 0 orphaned 1 returned -"}, catalogue.OK},
		{"returned", lists(list("a", "b"), list("a"), list("a", "b")), catalogue.Report{Imported: 2, Returned: []string{"b"}},
			[]string{"a since 0 seen 2 orphaned - returned -", "b since 0 seen 2 orphaned - returned 2"}, catalogue.OK},
		{"returned and stayed", lists(list("b"), list(), list("b"), list("b")), catalogue.Report{Imported: 1},
			[]string{"b since 0 seen 3 orphaned - returned 2"}, catalogue.OK},
		{"returned and gone again", lists(list("b"), list(), list("b"), list()), catalogue.Report{Orphaned: 1, Vanished: []string{"b"}},
			[]string{"b since 0 seen 2 orphaned 3 returned 2"}, catalogue.OK},
		{"returned twice", lists(list("b"), list(), list("b"), list(), list("b")), catalogue.Report{Imported: 1, Returned: []string{"b"}},
			[]string{"b since 0 seen 4 orphaned - returned 4"}, catalogue.OK},
		{"returned as another", lists(list("b"), list(), []strictjson.Raw{titled}),
			catalogue.Report{Imported: 1, Returned: []string{"b"}, Changed: []audit.Redefined{{Tool: "b", Old: plainB, New: titledB}}},
			[]string{"b since 0 seen 2 orphaned - returned 2"}, catalogue.OK},
		{"skipped from the beginning", lists([]strictjson.Raw{unfit}), catalogue.Report{Skipped: []catalogue.Skip{{Tool: "b", Why: noSchema}}},
			nil, catalogue.Partial},
		{"known and skipped", lists(list("a", "b"), append(list("a"), unfit)),
			catalogue.Report{Imported: 1, Orphaned: 1, Vanished: []string{"b"}, Skipped: []catalogue.Skip{{Tool: "b", Why: noSchema}}},
			[]string{"a since 0 seen 1 orphaned - returned -", "b since 0 seen 0 orphaned 1 returned -"}, catalogue.Partial},
		{"skipped, then fine", lists(append(list("a"), unfit), list("a", "b")), catalogue.Report{Imported: 2, New: []string{"b"}},
			[]string{"a since 0 seen 1 orphaned - returned -", "b since 1 seen 1 orphaned - returned -"}, catalogue.OK},
		{"known, skipped, then fine", lists(list("b"), []strictjson.Raw{unfit}, list("b")), catalogue.Report{Imported: 1, Returned: []string{"b"}},
			[]string{"b since 0 seen 2 orphaned - returned 2"}, catalogue.OK},
		{"nothing ever", lists(list()), catalogue.Report{}, nil, catalogue.OK},
		{"nothing any more", lists(list("a", "b"), list()), catalogue.Report{Orphaned: 2, Vanished: []string{"a", "b"}},
			[]string{"a since 0 seen 0 orphaned 1 returned -", "b since 0 seen 0 orphaned 1 returned -"}, catalogue.OK},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t)
			var rep catalogue.Report
			for i, advertised := range tc.lists {
				r.Now = noon.Add(time.Duration(i) * time.Hour)
				rep = r.imports("records", advertised...)
			}
			tc.report.Server = "records"
			if diff := cmp.Diff(tc.report, rep); diff != "" {
				t.Error(diff)
			}
			want := catalogue.Server{Name: "records", Status: tc.status, Imported: r.Now, Good: r.Now, Tools: tc.report.Imported}
			if tc.status == catalogue.Partial {
				want.Problem = noSchema
			}
			for _, process := range []string{"this", "the next"} {
				if diff := cmp.Diff(tc.rows, r.rows("records")); diff != "" {
					t.Errorf("%s process: %s", process, diff)
				}
				if diff := cmp.Diff(want, r.server("records")); diff != "" {
					t.Errorf("%s process: %s", process, diff)
				}
				r.reopen()
			}
		})
	}
}

// TestClockThatGoesBack: a history is one of imports, not of times. With a clock that
// stands still, or goes back, what is not listed is orphaned all the same.
func TestClockThatGoesBack(t *testing.T) {
	for _, step := range []time.Duration{0, -time.Hour} {
		r := newRig(t)
		r.imports("records", list("a", "b")...)
		r.Now = r.Now.Add(step)
		if rep := r.imports("records", list("a")...); !cmp.Equal(rep.Vanished, []string{"b"}) || r.tools("records")[1].Orphaned.IsZero() {
			t.Errorf("%v: %+v, %v", step, rep, r.rows("records"))
		}
	}
}

// TestChangedInPlace: a tool that changed is the new one in every column, and each of
// its definitions can be had by its pin, the first time that it was seen with it.
func TestChangedInPlace(t *testing.T) {
	r := newRig(t)
	old := strictjson.Raw(`{"name":"a","inputSchema":{"type":"object"}}`)
	changed := strictjson.Raw(`{"name":"a","title":"T","description":"D","inputSchema":{"type":"object","required":["q"]}}`)
	pins := map[string]strictjson.Raw{}
	for i, raw := range []strictjson.Raw{old, changed, old, changed} {
		r.Now = noon.Add(time.Duration(i) * time.Hour)
		r.imports("records", raw)
		pins[r.tools("records")[0].Pin] = raw
	}
	got := r.tools("records")
	want := []catalogue.Kept{{Tool: catalogue.Tool{Server: "records", Name: "a", Local: "mcp_records_a", Title: "T", Description: "D",
		Schema: strictjson.Raw(`{"type":"object","required":["q"]}`), Pin: got[0].Pin}, Since: noon, Seen: r.Now}}
	if diff := cmp.Diff(want, got); diff != "" || len(pins) != 2 {
		t.Errorf("%d pins; %s", len(pins), diff)
	}
	for pin, want := range pins {
		got, found, err := r.Definition(t.Context(), "records", "a", pin)
		if err != nil || !found || string(got) != string(want) {
			t.Errorf("%s: %s, %v, %v, want %s", pin, got, found, err, want)
		}
		for _, other := range [][3]string{{"records", "b", pin}, {"rec", "a", pin}, {"records", "a", "sha256:00"}} {
			if got, found, err := r.Definition(t.Context(), other[0], other[1], other[2]); err != nil || found || got != nil {
				t.Errorf("%v: %s, %v, %v", other, got, found, err)
			}
		}
	}
	var latest int64
	r.must(r.Store.Read().QueryRow(`SELECT MAX(first_seen) FROM definitions`).Scan(&latest))
	if latest != noon.Add(time.Hour).UnixNano() {
		t.Errorf("first seen at %v", time.Unix(0, latest))
	}
}

// TestSecondImportChangesStampsAlone: an identical list, in another order and spelled
// otherwise, changes no column but when it was seen.
func TestSecondImportChangesStampsAlone(t *testing.T) {
	r := newRig(t)
	unfit := strictjson.Raw(`{"name":"x","inputSchema":7}`)
	r.imports("records", append(list("a", "gone"), unfit)...)
	r.imports("records", append(list("a", "b"), advertised("back", `,"title":"T"`), unfit)...)
	r.imports("records", append(list("a", "b"), unfit)...)
	all := append(list("b", "a"), advertised("back", `,"title":"\u0054"`), unfit)
	r.imports("records", all...)
	before := r.dump()

	r.Now = noon.Add(time.Hour)
	rep := r.imports("records", append(list("a", "b"), advertised("back", ` , "title" : "T"`), unfit)...)
	if diff := cmp.Diff(before, r.dump()); diff != "" {
		t.Error(diff)
	}
	if s := r.server("records"); !s.Imported.Equal(r.Now) || !s.Good.Equal(r.Now) || !r.tools("records")[0].Seen.Equal(r.Now) {
		t.Errorf("not stamped: %+v", s)
	}
	if len(rep.New)+len(rep.Changed)+len(rep.Vanished)+len(rep.Returned) != 0 || rep.Imported != 3 || rep.Orphaned != 1 {
		t.Errorf("%+v", rep)
	}
}

// TestTwoServers: no import changes a row of another server, and a local name stays
// with the first, also when its tool is gone.
func TestTwoServers(t *testing.T) {
	r := newRig(t)
	r.imports("a", list("b_c", "b_D", "own")...)
	r.imports("a", list("own")...)
	before := r.rows("a")

	r.Now = noon.Add(time.Hour)
	rep := r.imports("a_b", list("c", "d", "C", "own")...)
	want := catalogue.Report{Server: "a_b", Imported: 1, New: []string{"own"}, Skipped: []catalogue.Skip{
		{Tool: "c", Why: `"c" would be "mcp_a_b_c", which is a tool of server "a"`},
		{Tool: "d", Why: `"d" would be "mcp_a_b_d", which is a tool of server "a"`},
		{Tool: "C", Why: `"C" differs from "c" in case alone`},
	}}
	if diff := cmp.Diff(want, rep); diff != "" {
		t.Error(diff)
	}
	if rep := r.imports("a_b", list("C")...); len(rep.Skipped) != 1 || len(rep.Vanished) != 1 || !strings.Contains(rep.Skipped[0].Why, `a tool of server "a"`) {
		t.Errorf("in another case: %+v", rep)
	}
	if diff := cmp.Diff(before, r.rows("a")); diff != "" {
		t.Errorf("the other server's: %s", diff)
	}
	if rep := r.imports("a", list("b_c")...); rep.Imported != 1 {
		t.Errorf("its own: %+v", rep)
	}
}

// TestImportsAtOnce: of two servers that want one name at the same moment, one gets it,
// and the other is told; neither import fails.
func TestImportsAtOnce(t *testing.T) {
	r := newRig(t)
	for i := range 20 {
		var reports [2]catalogue.Report
		var errs [2]error
		var all sync.WaitGroup
		for n, side := range [2][2]string{{"a", fmt.Sprintf("b_c%d", i)}, {"a_b", fmt.Sprintf("c%d", i)}} {
			all.Go(func() { reports[n], errs[n] = r.Import(t.Context(), side[0], list(side[1]), audit.Record{}) })
		}
		all.Wait()
		if errs != [2]error{} || reports[0].Imported+reports[1].Imported != 1 || len(reports[0].Skipped)+len(reports[1].Skipped) != 1 {
			t.Fatalf("%d: %+v, %v", i, reports, errs)
		}
	}
}

// TestRefused: an import that had no list says so and changes nothing else.
func TestRefused(t *testing.T) {
	r := newRig(t)
	r.must(r.Refused(t.Context(), "records", fault.ConnectFailed, "", audit.Record{}))
	want := catalogue.Server{Name: "records", Status: catalogue.Failed, Problem: "connect_failed", Imported: noon}
	if diff := cmp.Diff(want, r.server("records")); diff != "" {
		t.Errorf("before the first import: %s", diff)
	}
	r.imports("records", list("a", "b")...)
	r.imports("records", list("a")...)
	before := r.rows("records")

	r.Now = noon.Add(time.Hour)
	r.must(r.Refused(t.Context(), "records", fault.ReplyTooLarge, "it advertises 501 tools, more than 500", audit.Record{Caller: "admin"}))
	want = catalogue.Server{Name: "records", Status: catalogue.Failed, Problem: "reply_too_large: it advertises 501 tools, more than 500",
		Imported: r.Now, Good: noon, Tools: 1}
	if diff := cmp.Diff(want, r.server("records")); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(before, r.rows("records")); diff != "" {
		t.Error(diff)
	}
	records := r.records()
	last := map[string]any{"kind": "import", "time": "2026-11-30T13:00:00.000000000Z", "caller": "admin", "server": "records", "reason": "reply_too_large"}
	if diff := cmp.Diff(last, records[len(records)-1]); diff != "" {
		t.Error(diff)
	}
	r.imports("records", list("a")...)
	if s := r.server("records"); s.Status != catalogue.OK || s.Problem != "" {
		t.Errorf("after a good one: %+v", s)
	}
}

// TestImportRecord: the audit has who, when, counts, names and pins.
func TestImportRecord(t *testing.T) {
	r := newRig(t)
	r.imports("records", list("a", "b", "back")...)
	r.imports("records", list("a", "b")...)
	old := r.tools("records")[0].Pin
	at := noon.Add(time.Minute)
	_, err := r.Import(t.Context(), "records", append(list("back", "new"), advertised("a", `,"title":"T"`), strictjson.Raw("7")),
		audit.Record{Time: at, Caller: "admin", Server: "other", Kind: audit.Denial})
	r.must(err)
	now := r.tools("records")[0]
	records := r.records()
	want := map[string]any{"kind": "import", "time": "2026-11-30T12:01:00.000000000Z", "caller": "admin", "server": "records", "imported": map[string]any{
		"tools": 3.0, "skipped": 1.0, "orphaned": 1.0, "new": []any{"new"}, "vanished": []any{"b"}, "returned": []any{"back"},
		"changed": []any{map[string]any{"tool": "a", "old": old, "new": now.Pin}}}}
	if diff := cmp.Diff(want, records[2]); diff != "" || len(records) != 3 {
		t.Errorf("%d records; %s", len(records), diff)
	}
	if !now.Seen.Equal(at) || !r.server("records").Imported.Equal(at) {
		t.Errorf("rows at %v, record at %v", now.Seen, at)
	}
}

// TestManyTools: as many as a caller lets through are one commit, and the skips
// that are stored are bounded.
func TestManyTools(t *testing.T) {
	r := newRig(t)
	commits := 0
	r.Fail = func(at store.Moment, _ []audit.Record) error {
		if at == store.Committing {
			commits++
		}
		return nil
	}
	var all, unfit []strictjson.Raw
	for i := range 500 {
		all = append(all, advertised(fmt.Sprintf("tool_%d", i), `,"description":"`+strings.Repeat("x", 1000)+`"`))
		unfit = append(unfit, strictjson.Raw("7"))
	}
	rep := r.imports("records", all...)
	if rep.Imported != 500 || len(rep.New) != 500 || len(r.tools("records")) != 500 || commits != 1 {
		t.Errorf("%d of 500 in %d commits", rep.Imported, commits)
	}
	rep = r.imports("records", unfit...)
	if rep.Orphaned != 500 || len(rep.Vanished) != 500 || len(rep.Skipped) != 500 || commits != 2 {
		t.Errorf("%d of 500 in %d commits", rep.Orphaned, commits)
	}
	problem := strings.Split(r.server("records").Problem, "\n")
	if len(problem) != 65 || problem[64] != "and 436 more" {
		t.Errorf("%d lines, the last %q", len(problem), problem[len(problem)-1])
	}
}
