package audit_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/fault"
)

var noon = time.Date(2026, 11, 30, 13, 0, 0, 5000, time.FixedZone("CET", 3600))

func full() audit.Record {
	return audit.Record{
		Time: noon, Kind: audit.Outcome, Caller: "gateway", Actor: "user:7", Operation: "op1", Attempt: 2,
		RequestKey: audit.DigestOf("key"), Server: "records", Tool: "search", Pin: "sha256:07", Redefined: &audit.Redefined{Tool: "search", Old: "sha256:08", New: "sha256:09"}, Arguments: audit.DigestOf("{}"),
		Grant: "profiles.yaml:31", Snapshot: "sha256:00", Profile: "company", Audience: "mcp-api",
		Scopes: []string{"records.read"}, Narrowed: true, Reason: fault.WallClock, State: fault.InDoubt, Ran: fault.RanUnknown,
		Evidence: fault.EvidenceNone, Epoch: "accessor", Token: audit.DigestOf("token"), Hold: "dropped", Count: 3,
		Recovered: &audit.Recovered{NotSent: 1, InDoubt: 2, Holds: 3}, Supersedes: "op0", Swept: &audit.Swept{Results: 1, Operations: 2},
		Pruned:  &audit.Pruned{From: 1, To: audit.Place{Seq: 3, Hash: audit.DigestOf("cut")}, Tree: []byte("roots"), Head: "head\n— k"},
		Started: &audit.Started{Version: "0.1.0", Ledger: "l2", Former: "l1", Clean: true, Previous: audit.Place{Seq: 6, Hash: audit.DigestOf("before")}},
		Stopped: &audit.Stopped{Ended: 4, Cut: 3, Left: 2, Holds: 1}, Suspended: &audit.Suspended{ID: "s1", Until: noon.UTC(), Text: "why\u200b\n"},
		Resolved: &audit.Resolved{By: "admin", Text: "seen"},
		Reading:  &audit.Reading{From: 1, To: 6, Since: noon.UTC(), Until: noon.UTC(), Actor: "user:7", Operation: "op1"},
		Imported: &audit.Imported{Tools: 3, Skipped: 1, Orphaned: 2, New: []string{"a"}, Changed: []audit.Redefined{{Tool: "b", Old: "sha256:01", New: "sha256:02"}},
			Vanished: []string{"c"}, Returned: []string{"d"}},
		Approved: &audit.Approved{Decision: "approved", Issuer: "https://people.example", Subject: "user:8", By: "portal", Text: "looked"},
		Legs: []audit.Leg{
			{Name: "exchange", Budget: 20 * time.Second, Took: 3250 * time.Microsecond},
			{Name: "tools/call", Budget: time.Second, Took: time.Second, Reason: fault.WallClock},
		},
	}
}

func TestCanonicalIsStable(t *testing.T) {
	for _, tc := range []struct {
		name   string
		record audit.Record
		want   string
	}{
		{"empty members are left out", audit.Record{Time: noon, Kind: audit.Start},
			`{"seq":7,"prev":"` + strings.Repeat("00", 32) + `","v":1,"time":"2026-11-30T12:00:00.000005000Z","kind":"start"}`},
		{"every member", full(),
			`{"seq":7,"prev":"0000000000000000000000000000000000000000000000000000000000000000","v":1,` +
				`"time":"2026-11-30T12:00:00.000005000Z","kind":"outcome","caller":"gateway","actor":"user:7",` +
				`"operation":"op1","attempt":2,` +
				`"request_key":"2c70e12b7a0646f92279f427c7b38e7334d8e5389cff167a1dc30e73f826b683",` +
				`"server":"records","tool":"search","pin":"sha256:07","redefined":{"tool":"search","old":"sha256:08","new":"sha256:09"},` +
				`"arguments":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a",` +
				`"grant":"profiles.yaml:31","snapshot":"sha256:00","profile":"company","audience":"mcp-api",` +
				`"scopes":["records.read"],"narrowed":true,"reason":"wall_clock","state":"unknown","ran":"unknown","evidence":"none",` +
				`"epoch":"accessor","token":"3c469e9d6c5875d37a43f353d4f88e61fcf812c66eee3457465a40b0da4153e0",` +
				`"hold":"dropped","count":3,"started":{"version":"0.1.0","ledger":"l2","former":"l1","clean":true,"previous":{"seq":6,"hash":"` + audit.DigestOf("before").String() + `"}},"recovered":{"not_sent":1,"in_doubt":2,"holds":3},` +
				`"supersedes":"op0","swept":{"results":1,"operations":2},` +
				`"pruned":{"from":1,"to":{"seq":3,"hash":"` + audit.DigestOf("cut").String() + `"},"tree":"cm9vdHM=","head":"head\n\u2014 k"},` +
				`"stopped":{"ended":4,"cut":3,"left":2,"holds":1},` +
				`"suspension":{"id":"s1","until":"2026-11-30T12:00:00.000005Z","text":"why\u200b\n"},` +
				`"resolution":{"by":"admin","text":"seen"},` +
				`"reading":{"from":1,"to":6,"since":"2026-11-30T12:00:00.000005Z","until":"2026-11-30T12:00:00.000005Z","actor":"user:7","operation":"op1"},` +
				`"imported":{"tools":3,"skipped":1,"orphaned":2,"new":["a"],"changed":[{"tool":"b","old":"sha256:01","new":"sha256:02"}],` +
				`"vanished":["c"],"returned":["d"]},` +
				`"approval":{"decision":"approved","digest":"0000000000000000000000000000000000000000000000000000000000000000","issuer":"https://people.example","subject":"user:8","by":"portal","text":"looked"},` +
				`"legs":[{"leg":"exchange","budget_ms":20000,"ms":3.25},` +
				`{"leg":"tools/call","budget_ms":1000,"ms":1000,"reason":"wall_clock"}]}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := string(tc.record.Canonical(7, [32]byte{}))
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestEveryMemberIsShown fails when a member was added to Record and not to
// full, and so keeps TestCanonicalIsStable honest.
func TestEveryMemberIsShown(t *testing.T) {
	v := reflect.ValueOf(full())
	for i := range v.NumField() {
		if v.Field(i).IsZero() {
			t.Errorf("full() lacks %s", v.Type().Field(i).Name)
		}
	}
}

func TestKindsAreClosed(t *testing.T) {
	for _, k := range audit.Kinds() {
		if !k.Known() {
			t.Errorf("%q is not known", k)
		}
	}
	for _, k := range []audit.Kind{"", "Start", "other"} {
		if k.Known() {
			t.Errorf("%q is known", k)
		}
	}
}

func TestLegsComeBack(t *testing.T) {
	want := full().Legs
	b, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got []audit.Leg
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestNamesAreCut(t *testing.T) {
	whole, long := strings.Repeat("x", 256), strings.Repeat("x", 257)
	for _, tc := range []struct{ name, want string }{
		{whole, whole},
		{long, long[:253] + "..."},
		{strings.Repeat("ä", 200), strings.Repeat("ä", 126) + "..."},
	} {
		line := audit.Record{Kind: audit.Denial, Actor: tc.name, Server: tc.name, Tool: tc.name}.Canonical(1, [32]byte{})
		var got struct{ Actor, Server, Tool string }
		if err := json.Unmarshal(line, &got); err != nil {
			t.Fatal(err)
		}
		if got.Actor != tc.want || got.Server != tc.want || got.Tool != tc.want {
			t.Errorf("%v, want %q", got, tc.want)
		}
	}
}

// TestImportedIsBounded: 64 names of a sort are in a line, the others are counted,
// and what was given stays as it was.
func TestImportedIsBounded(t *testing.T) {
	names := func(n int) []string { return slices.Repeat([]string{"tool"}, n) }
	given := audit.Imported{Tools: 500, New: names(500), Vanished: names(64), Returned: names(65), Changed: make([]audit.Redefined, 66)}
	rec := audit.Record{Kind: audit.Import, Imported: &given}
	line := rec.Canonical(1, [32]byte{})
	var got struct{ Imported audit.Imported }
	if err := json.Unmarshal(line, &got); err != nil {
		t.Fatal(err)
	}
	want := audit.Imported{Tools: 500, New: names(64), Vanished: names(64), Returned: names(64), Changed: make([]audit.Redefined, 64),
		More: audit.More{New: 436, Changed: 2, Returned: 1}}
	if diff := cmp.Diff(want, got.Imported); diff != "" {
		t.Error(diff)
	}
	if len(given.New) != 500 || given.More != (audit.More{}) {
		t.Errorf("the record was changed: %d, %v", len(given.New), given.More)
	}
}

func FuzzCanonical(f *testing.F) {
	f.Add("search", "user:7")
	f.Add("a\n{\"seq\":2}", "\x1b[31m\x7f\u2028\xff")
	f.Add(strings.Repeat("ä", 300), "😀")
	f.Fuzz(func(t *testing.T, tool, actor string) {
		line := audit.Record{Kind: audit.Denial, Tool: tool, Actor: actor}.Canonical(1, [32]byte{})
		for _, c := range line {
			if c < 0x20 || c > 0x7e {
				t.Fatalf("byte %#x in %s", c, line)
			}
		}
		var got struct{ Tool, Actor string }
		if err := json.Unmarshal(line, &got); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		for sent, read := range map[string]string{tool: got.Tool, actor: got.Actor} {
			valid := strings.ToValidUTF8(sent, "\ufffd")
			if len(sent) <= 256 && valid == sent && read != sent {
				t.Errorf("%q became %q", sent, read)
			}
		}
	})
}

// chain returns the exported lines of n records.
func chain(n int) (lines [][]byte, head audit.Head) {
	for i := range n {
		line, next := head.Next(audit.Record{Time: noon, Kind: audit.Decision, Attempt: i + 1, Actor: "user:ä"})
		lines = append(lines, audit.Exported(line, next.Hash))
		head = next
	}
	return lines, head
}

func TestVerify(t *testing.T) {
	lines, head := chain(4)
	got, err := audit.Verify(bytes.NewReader(bytes.Join(lines, nil)))
	if err != nil || got != head {
		t.Errorf("Verify = %v, %v, want %v", got, err, head)
	}
	if got, err := audit.Verify(strings.NewReader("")); err != nil || got != (audit.Head{}) {
		t.Errorf("Verify of nothing = %v, %v", got, err)
	}
}

func TestVerifyNamesTheFirstBadRecord(t *testing.T) {
	lines, _ := chain(4)
	foreign, _ := audit.Head{Seq: 1}.Next(audit.Record{Kind: audit.Start})
	rewritten := audit.Exported(foreign, audit.Link(foreign))
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	edit := func(line []byte, old, new string) []byte { return bytes.Replace(line, []byte(old), []byte(new), 1) }

	for _, tc := range []struct {
		name   string
		export []byte
		line   int
		why    string
	}{
		{"a word was changed", join(lines[0], edit(lines[1], "user:", "user;"), lines[2]), 2, "does not match its hash"},
		{"a hash was changed", join(lines[0], edit(lines[1], `"hash":"`, `"hash":"0`), lines[2]), 2, "does not match its hash"},
		{"its hash in capitals", join(lines[0], bytes.ToUpper(lines[1])), 2, "does not match its hash"},
		{"rewritten with a hash that fits", join(lines[0], rewritten, lines[2]), 2, "does not follow the one before it"},
		{"the first was dropped", join(lines[1], lines[2]), 1, "does not follow the one before it: it is record 2, and record 1 is missing"},
		{"one was dropped", join(lines[0], lines[2], lines[3]), 2, "does not follow the one before it: it is record 3, and record 2 is missing"},
		{"one was doubled", join(lines[0], lines[1], lines[1]), 3, "does not follow the one before it: it is record 2 once more"},
		{"two were swapped", join(lines[0], lines[2], lines[1], lines[3]), 2, "does not follow the one before it: it is record 3, and record 2 stands after it"},
		{"the last is torn", join(lines[0], lines[1][:40]), 2, "is cut off"},
		{"the last line break is missing", join(lines[0], bytes.TrimSuffix(lines[1], []byte("\n"))), 2, "is cut off"},
		{"an empty line", join(lines[0], []byte("\n"), lines[1]), 2, "is not a record"},
		{"a carriage return", join(lines[0], edit(lines[1], "\n", "\r\n")), 2, "does not match its hash"},
		{"a line without end", join(lines[0], bytes.Repeat([]byte("x"), 1<<20+1)), 2, "is too long to be one"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := audit.Verify(bytes.NewReader(tc.export))
			bad := (*audit.BadRecord)(nil)
			if !errors.As(err, &bad) || bad.Line != tc.line || bad.Why != tc.why {
				t.Errorf("Verify = %v, want line %d %s", err, tc.line, tc.why)
			}
		})
	}
}

func TestVerifyReturnsTheReadersError(t *testing.T) {
	lines, _ := chain(1)
	r := io.MultiReader(bytes.NewReader(lines[0]), iotest.ErrReader(iotest.ErrTimeout))
	if _, err := audit.Verify(r); !errors.Is(err, iotest.ErrTimeout) {
		t.Errorf("Verify = %v", err)
	}
}

// FuzzVerify changes one byte of a good export, which is always found.
func FuzzVerify(f *testing.F) {
	lines, _ := chain(3)
	export := bytes.Join(lines, nil)
	f.Add(uint16(0), byte(1))
	f.Add(uint16(len(export)-1), byte(7))
	f.Add(uint16(len(lines[0])-5), byte(0x20))
	f.Fuzz(func(t *testing.T, at uint16, flip byte) {
		if flip == 0 {
			return
		}
		changed := bytes.Clone(export)
		changed[int(at)%len(changed)] ^= flip
		bad := (*audit.BadRecord)(nil)
		if _, err := audit.Verify(bytes.NewReader(changed)); !errors.As(err, &bad) {
			t.Fatalf("byte %d ^ %#x was not found: %v", int(at)%len(changed), flip, err)
		}
	})
}

// TestEveryByteCounts goes through every byte, which the fuzzer only samples:
// once by a bit, once by the case of a letter.
func TestEveryByteCounts(t *testing.T) {
	lines, _ := chain(2)
	export := bytes.Join(lines, nil)
	for i := range export {
		for _, flip := range []byte{1 << (i % 8), 0x20} {
			export[i] ^= flip
			if _, err := audit.Verify(bytes.NewReader(export)); err == nil {
				t.Errorf("byte %d ^ %#x was not found", i, flip)
			}
			export[i] ^= flip
		}
	}
}

// FuzzVerifyAnything feeds lines that were never written by us. What passes
// is what Exported would write again.
func FuzzVerifyAnything(f *testing.F) {
	lines, _ := chain(2)
	f.Add(bytes.Join(lines, nil))
	f.Add([]byte("{}\n"))
	f.Fuzz(func(t *testing.T, export []byte) {
		head, err := audit.Verify(bytes.NewReader(export))
		if err == nil && head.Seq != uint64(bytes.Count(export, []byte("\n"))) {
			t.Errorf("%d records in %d lines", head.Seq, bytes.Count(export, []byte("\n")))
		}
	})
}
