package broker_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
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
