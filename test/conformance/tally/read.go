package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// A playing is one run of the suite.
type playing struct {
	status    string // with which the suite ended
	scenarios []scenario
}

type scenario struct {
	name       string
	checks     []check
	asItShould bool // the driver's last word
}

// A check is one entry of checks.json.
type check struct {
	ID           string `json:"id"`
	Status       string `json:"status"` // SUCCESS, FAILURE, WARNING, INFO or SKIPPED
	Description  string `json:"description"`
	ErrorMessage string `json:"errorMessage"`
}

func (c check) passed() bool { return c.Status == "SUCCESS" }

// failed holds for a warning as well: it fails a scenario in the suite, too. A
// status that we do not know is a failure.
func (c check) failed() bool {
	return !c.passed() && c.Status != "INFO" && c.Status != "SKIPPED"
}

func (c check) why() string {
	if c.ErrorMessage != "" {
		return c.ErrorMessage
	}
	return c.Description
}

// stamp is what the suite appends to the name of a scenario.
var stamp = regexp.MustCompile(`-\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d-\d{3}Z$`)

// readResults reads a results folder. The name of a scenario may have a slash in
// it, so its folder may lie deeper.
func readResults(dir string) (p playing, _ error) {
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return playing{}, err
	}
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() || !stamp.MatchString(path) {
			return err
		}
		name, _ := filepath.Rel(dir, stamp.ReplaceAllString(path, ""))
		name, ofServer := strings.CutPrefix(filepath.ToSlash(name), "server-")
		s, err := readScenario(path, ofServer)
		s.name = name
		p.scenarios = append(p.scenarios, s)
		return err
	})
	if err == nil && len(p.scenarios) == 0 {
		err = fmt.Errorf("no scenario in %s", dir)
	}
	p.status = strings.TrimSpace(string(status))
	return p, err
}

// readScenario reads one scenario's folder. It is empty if the suite could not
// play the scenario: then the driver has not said anything, which is a failure. Of a
// server there is no driver: what the checks say is all.
func readScenario(dir string, ofServer bool) (s scenario, _ error) {
	b, err := os.ReadFile(filepath.Join(dir, "checks.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return scenario{}, nil
	}
	if err != nil {
		return scenario{}, err
	}
	if err := json.Unmarshal(b, &s.checks); err != nil {
		return scenario{}, fmt.Errorf("%s: %w", dir, err)
	}
	if ofServer {
		s.asItShould = true
		return s, nil
	}
	word, err := os.ReadFile(filepath.Join(dir, "stdout.txt"))
	s.asItShould = strings.HasSuffix("\n"+string(word), "\nas it should\n")
	return s, err
}

// kinds are the reasons for which a check may be expected to fail, the first
// words of an entry's comment. README.md says what each of them means.
var kinds = []string{"browser flow", "elicitation", "continuation", "resumption", "not offered", "no browsers", "own headers", "schema"}

// readBaseline returns the entries of a baseline. An entry without its reason,
// one of kinds in a comment behind it, is an error.
func readBaseline(file string) (entries []string, _ error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var top struct {
		Client yaml.Node `yaml:"client"`
		Server yaml.Node `yaml:"server"`
	}
	if err := yaml.Unmarshal(b, &top); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	var errs []error
	for _, n := range append(top.Client.Content, top.Server.Content...) {
		kind, _, _ := strings.Cut(strings.TrimPrefix(n.LineComment, "# "), ":")
		if !slices.Contains(kinds, kind) {
			errs = append(errs, fmt.Errorf("%s:%d: %q does not say why it fails: one of %q", file, n.Line, n.Value, kinds))
		}
		entries = append(entries, n.Value)
	}
	return entries, errors.Join(errs...)
}
