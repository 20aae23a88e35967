// Program vuln compares what govulncheck found with the list of findings that
// we live with. It reads an OpenVEX document on standard input; the list is
// the file that its argument names, one finding a line: id, date, reason.
//
// It fails for a finding that can be reached and is not listed, and for a listed
// one whose date has passed.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"
)

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "vuln:", err)
		os.Exit(1)
	}
}

func run(path string) error {
	found, err := reachable()
	if err != nil {
		return err
	}
	list, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	today := time.Now().UTC().Format(time.DateOnly)
	var wrong []string
	for line := range strings.Lines(string(list)) {
		f := strings.Fields(line)
		if len(f) == 0 || strings.HasPrefix(f[0], "#") {
			continue
		}
		switch {
		case len(f) < 3:
			wrong = append(wrong, f[0]+": a line is id, date and reason")
		case f[1] < today:
			wrong = append(wrong, f[0]+": allowed until "+f[1]+", decide again")
		case !found[f[0]]:
			fmt.Println("vuln:", f[0]+": not found with this toolchain")
		}
		delete(found, f[0])
	}
	for id := range found {
		wrong = append(wrong, id+": can be reached and is not on the list")
	}
	if len(wrong) > 0 {
		return fmt.Errorf("%s", strings.Join(wrong, "\nvuln: "))
	}
	fmt.Println("vuln: every finding that can be reached is decided")
	return nil
}

// reachable reads which findings our programs can reach.
func reachable() (map[string]bool, error) {
	var doc struct {
		Statements []struct {
			Vulnerability struct{ Name string }
			Status        string
		}
	}
	if err := json.NewDecoder(os.Stdin).Decode(&doc); err != nil {
		return nil, fmt.Errorf("the document cannot be read: %w", err)
	}
	found := map[string]bool{}
	for _, s := range doc.Statements {
		if s.Status == "affected" {
			found[s.Vulnerability.Name] = true
		}
	}
	return found, nil
}
