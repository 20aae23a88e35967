package main

import (
	"fmt"
	"maps"
	"slices"
)

// A count is how many checks went which way.
type count struct{ passed, failed, baselined int }

func (c *count) add(d count) {
	c.passed += d.passed
	c.failed += d.failed
	c.baselined += d.baselined
}

func (c count) String() string {
	return fmt.Sprintf("%d passed, %d failed, %d baselined", c.passed, c.failed, c.baselined)
}

// judge compares scenarios with what the baseline excuses: whole scenarios by
// name, single checks as scenario:check.
func judge(scenarios []scenario, excused []string) (c count, failures []string) {
	unused := map[string]bool{} // entries that have excused nothing so far
	for _, e := range excused {
		unused[e] = true
	}
	for _, s := range scenarios {
		if !s.asItShould {
			failures = append(failures, fmt.Sprintf("%s: the driver did not end as it should", s.name))
		}
		whole := slices.Contains(excused, s.name)
		for _, k := range s.checks {
			entry := s.name
			if !whole {
				entry += ":" + k.ID
			}
			switch {
			case k.passed() && !whole:
				c.passed++
			case k.failed() && slices.Contains(excused, entry):
				c.baselined++
				delete(unused, entry)
			case k.failed():
				failures = append(failures, fmt.Sprintf("%s:%s: %s", s.name, k.ID, k.why()))
			}
		}
	}
	for _, e := range slices.Sorted(maps.Keys(unused)) {
		failures = append(failures, fmt.Sprintf("%s is in the baseline and did not fail", e))
	}
	c.failed = len(failures)
	return c, failures
}
