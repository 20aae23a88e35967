// Program tally counts what runs of the conformance suite came to.
//
//	tally <results> <baseline> [<results> <baseline> ...]
//
// A results folder is what the suite writes with -o: one folder for each
// scenario, with checks.json and the client's stdout.txt; "status" in it is the
// status with which the suite ended. A baseline is the file that the suite was
// given as --expected-failures.
//
// It is stricter than the suite, which lets pass a client that ended badly and
// every scenario that a revision does not score. Its last line is
//
//	conformance: <p> passed, <f> failed, <b> baselined
//
// and it ends with status 0 only if <f> is 0. The unit is one check:
//
//   - passed: it succeeded, and the baseline does not excuse its whole scenario
//   - baselined: it failed or warned, and the baseline names it
//   - failed: it failed or warned and the baseline does not name it; and one
//     more for each scenario in which the driver did not say "as it should", for
//     each entry of a baseline that excuses nothing, and for a suite that says no
//     where nothing here explains it
//
// A check that the suite skipped counts nowhere.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "tally:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	if len(args) == 0 || len(args)%2 != 0 {
		return errors.New("usage: tally <results> <baseline> [<results> <baseline> ...]")
	}
	var total count
	for i := 0; i < len(args); i += 2 {
		c, err := tallyRun(args[i], args[i+1], out)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s: %s\n", filepath.Base(args[i]), c)
		total.add(c)
	}
	fmt.Fprintf(out, "conformance: %s\n", total)
	if total.failed > 0 {
		return errors.New("not as the baseline says")
	}
	return nil
}

// tallyRun judges one run of the suite and tells of every failure.
func tallyRun(results, baseline string, out io.Writer) (count, error) {
	excused, err := readBaseline(baseline)
	if err != nil {
		return count{}, err
	}
	played, err := readResults(results)
	if err != nil {
		return count{}, err
	}
	c, failures := judge(played.scenarios, excused)
	if len(failures) == 0 && played.status != "0" {
		c.failed++
		failures = append(failures, fmt.Sprintf("the suite ended with status %q", played.status))
	}
	for _, f := range failures {
		fmt.Fprintf(out, "%s: %s\n", filepath.Base(results), f)
	}
	return c, nil
}
