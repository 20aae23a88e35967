package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A folder is what one scenario leaves: checks as "<status> <id> <message>", the
// last word optional, and the driver's stdout.
type folder struct {
	checks []string
	word   string
}

const word = "tools/list: succeeded \nas it should\n"

const (
	one = "tools_call-2026-11-30T05-37-07-073Z"
	two = "auth/iss-2468-x-2026-11-30T05-37-07-074Z"

	three = "server-tools-list-2026-11-30T05-37-07-075Z" // where we are the server
)

func TestTally(t *testing.T) {
	for _, tc := range []struct {
		name     string
		folders  map[string]folder
		baseline string
		status   string // "" is 0
		last     string
		says     string // somewhere before
	}{
		{name: "all is well", folders: map[string]folder{one: {[]string{"SUCCESS a", "SUCCESS a", "INFO b", "SKIPPED c"}, word}},
			last: "conformance: 2 passed, 0 failed, 0 baselined"},
		{name: "a failure", folders: map[string]folder{one: {[]string{"SUCCESS a", "FAILURE b"}, word}}, status: "1",
			last: "conformance: 1 passed, 1 failed, 0 baselined", says: "tools_call:b: why b"},
		{name: "a failure with a message", folders: map[string]folder{one: {[]string{"FAILURE b because"}, word}},
			last: "conformance: 0 passed, 1 failed, 0 baselined", says: "tools_call:b: because"},
		{name: "a warning", folders: map[string]folder{one: {[]string{"WARNING b"}, word}},
			last: "conformance: 0 passed, 1 failed, 0 baselined", says: "tools_call:b"},
		{name: "a status that we do not know", folders: map[string]folder{one: {[]string{"MAYBE b"}, word}},
			last: "conformance: 0 passed, 1 failed, 0 baselined"},
		{name: "the driver ended badly", folders: map[string]folder{one: {[]string{"SUCCESS a"}, "tools/list: unknown idle\n"}},
			last: "conformance: 1 passed, 1 failed, 0 baselined", says: "tools_call: the driver did not end as it should"},
		{name: "the word in the middle of a line", folders: map[string]folder{one: {[]string{"SUCCESS a"}, "not as it should\n"}},
			last: "conformance: 1 passed, 1 failed, 0 baselined"},
		{name: "the driver ended badly where checks are excused", folders: map[string]folder{two: {[]string{"FAILURE a"}, ""}},
			baseline: "  - auth/iss-2468-x # browser flow\n", last: "conformance: 0 passed, 1 failed, 1 baselined"},
		{name: "a server, which has no driver", folders: map[string]folder{three: {[]string{"SUCCESS a", "FAILURE b"}, ""}},
			baseline: "  - tools-list:b # not offered\n", last: "conformance: 1 passed, 0 failed, 1 baselined"},
		{name: "a server that was not asked", folders: map[string]folder{three: {}},
			last: "conformance: 0 passed, 1 failed, 0 baselined"},
		{name: "a scenario that was not played", folders: map[string]folder{one: {}},
			last: "conformance: 0 passed, 1 failed, 0 baselined"},

		{name: "a scenario is excused", folders: map[string]folder{two: {[]string{"SUCCESS a", "FAILURE b", "WARNING c"}, word}},
			baseline: "  - auth/iss-2468-x # browser flow\n", last: "conformance: 0 passed, 0 failed, 2 baselined"},
		{name: "a check is excused, wherever it fails", folders: map[string]folder{one: {[]string{"SUCCESS a", "FAILURE b", "FAILURE b"}, word}},
			baseline: "  - tools_call:b # continuation: no second request\n", last: "conformance: 1 passed, 0 failed, 2 baselined"},
		{name: "another check is not", folders: map[string]folder{one: {[]string{"FAILURE a", "FAILURE b"}, word}},
			baseline: "  - tools_call:b # continuation\n", last: "conformance: 0 passed, 1 failed, 1 baselined", says: "tools_call:a"},
		{name: "another scenario is not", folders: map[string]folder{one: {[]string{"FAILURE b"}, word}, two: {[]string{"FAILURE b"}, word}},
			baseline: "  - tools_call # browser flow\n", last: "conformance: 0 passed, 1 failed, 1 baselined", says: "auth/iss-2468-x:b"},
		{name: "an excused scenario passes", folders: map[string]folder{one: {[]string{"SUCCESS a"}, word}},
			baseline: "  - tools_call # browser flow\n", last: "conformance: 0 passed, 1 failed, 0 baselined", says: "tools_call is in the baseline and did not fail"},
		{name: "an excused check passes", folders: map[string]folder{one: {[]string{"SUCCESS a", "FAILURE b"}, word}},
			baseline: "  - tools_call:a # browser flow\n  - tools_call:b # browser flow\n", last: "conformance: 1 passed, 1 failed, 1 baselined", says: "tools_call:a is in the baseline"},
		{name: "an excused scenario was not played", folders: map[string]folder{one: {[]string{"SUCCESS a"}, word}},
			baseline: "  - sse-retry # resumption\n", last: "conformance: 1 passed, 1 failed, 0 baselined", says: "sse-retry is in the baseline"},
		{name: "the suite says no and we do not", folders: map[string]folder{one: {[]string{"SUCCESS a"}, word}}, status: "7",
			last: "conformance: 1 passed, 1 failed, 0 baselined", says: `the suite ended with status "7"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			results, baseline := write(t, tc.folders, tc.baseline, tc.status)
			var out bytes.Buffer
			err := run([]string{results, baseline}, &out)
			if bad := !strings.Contains(tc.last, " 0 failed"); (err != nil) != bad {
				t.Errorf("run ended with %v", err)
			}
			if !strings.HasSuffix(out.String(), "\n"+tc.last+"\n") || !strings.Contains(out.String(), tc.says) {
				t.Errorf("run said\n%s\nwant %q before the last line, %q", &out, tc.says, tc.last)
			}
		})
	}
}

func TestTallyAdds(t *testing.T) {
	r1, b1 := write(t, map[string]folder{one: {[]string{"SUCCESS a", "FAILURE b"}, word}}, "  - tools_call:b # browser flow\n", "")
	r2, b2 := write(t, map[string]folder{one: {[]string{"SUCCESS a"}, word}}, "", "")
	var out bytes.Buffer
	if err := run([]string{r1, b1, r2, b2}, &out); err != nil || !strings.HasSuffix(out.String(), "\nconformance: 2 passed, 0 failed, 1 baselined\n") {
		t.Errorf("run ended with %v and said\n%s", err, &out)
	}
}

func TestTallyRefuses(t *testing.T) {
	well := map[string]folder{one: {[]string{"SUCCESS a"}, word}}
	good, baseline := write(t, well, "", "")
	empty, _ := write(t, nil, "", "")
	noStatus := t.TempDir()
	_, noReason := write(t, nil, "  - tools_call\n", "")
	_, otherReason := write(t, nil, "  - tools_call # because\n", "")
	_, mapping := write(t, nil, "  - tools_call: a # browser flow\n", "")
	for name, args := range map[string][]string{
		"nothing": nil, "half": {good}, "no scenario": {empty, baseline}, "no status": {noStatus, baseline}, "no baseline": {good, empty + "/none"},
		"no reason": {good, noReason}, "another reason": {good, otherReason}, "a space behind the colon": {good, mapping},
	} {
		var out bytes.Buffer
		if err := run(args, &out); err == nil || strings.Contains(out.String(), "conformance:") {
			t.Errorf("%s: run ended with %v and said %q", name, err, &out)
		}
	}
}

// TestBaselines: the baselines of the project can be read, which means that each
// entry has its reason.
func TestBaselines(t *testing.T) {
	files, _ := filepath.Glob("../baseline/*.yaml")
	for _, f := range files {
		if entries, err := readBaseline(f); err != nil || len(entries) == 0 {
			t.Errorf("%s: %d entries, %v", f, len(entries), err)
		}
	}
	if len(files) != 6 {
		t.Errorf("%d baselines, want one for each run", len(files))
	}
}

// write makes the results folder of one run and its baseline.
func write(t *testing.T, folders map[string]folder, entries, status string) (results, baseline string) {
	t.Helper()
	dir := t.TempDir()
	results, baseline = filepath.Join(dir, "results"), filepath.Join(dir, "baseline.yaml")
	put := func(text string, path ...string) {
		file := filepath.Join(path...)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(entriesOrNone(entries), baseline)
	if status == "" {
		status = "0"
	}
	put(status+"\n", results, "status")
	for name, f := range folders {
		if f.checks == nil {
			put("", results, name, "stderr.txt")
			continue
		}
		put(checksJSON(f.checks), results, name, "checks.json")
		put(f.word, results, name, "stdout.txt")
	}
	return results, baseline
}

func entriesOrNone(entries string) string {
	if entries == "" {
		return "client: []\n"
	}
	return "client:\n" + entries
}

func checksJSON(checks []string) string {
	var all []string
	for _, c := range checks {
		words := append(strings.Fields(c), "")
		all = append(all, fmt.Sprintf(`{"id":%q,"status":%q,"description":"why %s","errorMessage":%q}`, words[1], words[0], words[1], words[2]))
	}
	return "[" + strings.Join(all, ",") + "]"
}
