package broker_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestThreatModel: each attack of docs/threat-model.md names a test, and what is named is
// there: the test in its folder, its row as a text in quotes in that folder or one below, a
// script by its path.
func TestThreatModel(t *testing.T) {
	raw, err := os.ReadFile("docs/threat-model.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(raw)
	named := regexp.MustCompile("`([a-z0-9/]+)\\.((?:Test|Fuzz)\\w+)(?:/([^`]+))?`")
	for _, m := range named.FindAllStringSubmatch(page, -1) {
		folder := m[1]
		if folder == "broker" {
			folder = "."
		}
		if !strings.Contains(sources(t, folder+"/*_test.go"), "\nfunc "+m[2]+"(") {
			t.Errorf("%s.%s is named and not there", m[1], m[2])
		}
		if m[3] != "" && !strings.Contains(sources(t, folder+"/*_test.go")+sources(t, folder+"/*/*.go"), strconv.Quote(m[3])) {
			t.Errorf("%s.%s has no row %q", m[1], m[2], m[3])
		}
	}
	for _, m := range regexp.MustCompile("`([a-z/]+\\.sh)`").FindAllStringSubmatch(page, -1) {
		if _, err := os.Stat(m[1]); err != nil {
			t.Error(err)
		}
	}
	_, tables, _ := strings.Cut(page, "\n## 1.")
	tables, _, _ = strings.Cut(tables, "\n## What it does not")
	rows := 0
	for row := range strings.Lines(tables) {
		if !strings.HasPrefix(row, "| ") || strings.HasSuffix(row, "| where it is held |\n") {
			continue
		}
		if rows++; !named.MatchString(row) {
			t.Errorf("no test is named for %.60s", row)
		}
	}
	if rows < 60 {
		t.Errorf("%d attacks: the test no longer reads the tables", rows)
	}
}

// sources is the text of all files that fit.
func sources(t *testing.T, pattern string) string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}
