package broker_test

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/mcpclient"
)

// TestLogWordsAreDocumented: every message that the product logs is in
// docs/operations.md, with what to do about it.
func TestLogWordsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	call := regexp.MustCompile(`(?i)\blog\.(?:Debug|Info|Warn|Error)\("([^"]+)"`)
	found := 0
	err = filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "internal/") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, m := range call.FindAllSubmatch(source, -1) {
			found++
			if !strings.Contains(string(text), "`"+string(m[1])+"`") {
				t.Errorf("%s: the message %q is not in docs/operations.md", path, m[1])
			}
		}
		return err
	})
	if err != nil || found < 10 {
		t.Errorf("%d messages found, %v: the test no longer reads the code", found, err)
	}
}

var update = flag.Bool("update", false, "write the tables of docs/outcomes.md")

// TestOutcomesPage: the two tables of docs/outcomes.md are those of the code.
// go test . -run TestOutcomesPage -update writes them.
func TestOutcomesPage(t *testing.T) {
	var states, verdicts strings.Builder
	states.WriteString("| `state` | `ran` | `evidence` | `retry` | what a gateway does |\n|---|---|---|---|---|\n")
	for _, a := range fault.Advices() {
		fmt.Fprintf(&states, "| `%s` | %s | %s | `%s` | %s |\n", a.State, a.Ran, a.Evidence, a.Retry, a.Do)
	}
	verdicts.WriteString("| seen | `state` | `ran` | `cause` |\n|---|---|---|---|\n")
	for _, v := range mcpclient.Verdicts() {
		fmt.Fprintf(&verdicts, "| %s | `%s` | %s | %s |\n", v.Seen, v.Outcome.State, v.Outcome.Ran, cmp.Or(string(v.Outcome.Cause), "–"))
	}
	const page = "docs/outcomes.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	want := between(between(string(text), "<!-- states -->\n", states.String()), "<!-- verdicts -->\n", verdicts.String())
	switch {
	case *update:
		err = os.WriteFile(page, []byte(want), 0o644)
	case want != string(text):
		err = errors.New(page + " is not what the code says: go test . -run TestOutcomesPage -update")
	}
	if err != nil {
		t.Error(err)
	}
}

// between puts table after the mark, up to the next end mark.
func between(text, mark, table string) string {
	before, rest, _ := strings.Cut(text, mark)
	_, after, _ := strings.Cut(rest, "<!-- end -->")
	return before + mark + table + "<!-- end -->" + after
}

// TestFailuresAreShown: every test that the failure table of docs/operations.md
// names is there.
func TestFailuresAreShown(t *testing.T) {
	text, err := os.ReadFile("docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]bool{}
	definition := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err = filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, m := range definition.FindAllSubmatch(source, -1) {
			tests[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "## When something fails")
	named := regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(table, -1)
	for _, m := range named {
		if !tests[m[1]] {
			t.Errorf("%s is named and not there", m[1])
		}
	}
	for row := range strings.Lines(table) {
		if strings.HasPrefix(row, "| ") && !strings.HasPrefix(row, "| what") && !strings.Contains(row, "`Test") {
			t.Errorf("no test is named for %.60s", row)
		}
	}
	if len(named) < 30 {
		t.Errorf("%d tests are named: the test no longer reads the table", len(named))
	}
}
