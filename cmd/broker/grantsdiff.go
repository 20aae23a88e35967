package main

import (
	"bufio"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"onbehalf.internal/broker/policy"
)

// diffCommand compares what two configurations give. What keeps it from comparing
// has a status of its own: a check that did not take place is none that failed.
func diffCommand(w world) *cobra.Command {
	var failOn string
	cmd := &cobra.Command{Use: "diff old.yaml new.yaml", Short: "What one configuration grants and another does not",
		Long: `One line for each actor's grant in a profile that does not give the same in both,
sorted, with its line in each file and what it has gained (+) and lost (-):

  added     a grant that was not there, also a disabled one
  removed   a grant that is gone
  widened   it gives something that it did not, whatever it lost besides
  narrowed  it gives less

A grant gives its audiences and scopes, as its credential and subject, until it
expires; the tools that it opens, by which callers, at which address, with or without
approval, for an administrator or anybody, with one definition or any; at its
profile's token endpoint. Reasons and dates are no difference, and servers of mode legacy, which
ask for no grant, are not compared.

Exit status: 0 no difference; 1 differences, and nothing was added or widened;
2 something was added or widened; 3 nothing was compared. As a check of a pull
request, --fail-on widened makes 1 a 0:

  broker grants diff --fail-on widened base/profiles.yaml profiles.yaml`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return notCompared(w, errors.New("name two configurations: the old one and the new one"))
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if failOn != "any" && failOn != "widened" {
				return notCompared(w, fmt.Errorf("--fail-on %q: any or widened", failOn))
			}
			before, err := loadNamed(args[0])
			if err != nil {
				return notCompared(w, err)
			}
			after, err := loadNamed(args[1])
			if err != nil {
				return notCompared(w, err)
			}
			return diffGrants(w, before, after, failOn)
		}}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return notCompared(w, err) })
	cmd.Flags().StringVar(&failOn, "fail-on", "any", "any difference, or widened: what was added or widened alone")
	return cmd
}

func notCompared(w world, err error) error {
	fmt.Fprintln(w.stderr, "broker:", err)
	return exit(3)
}

// loadNamed names the file before its problems: both may have the same base name.
func loadNamed(path string) (*policy.Snapshot, error) {
	s, err := policy.Load(path)
	if err != nil {
		return nil, fmt.Errorf("%s:\n%w", path, err)
	}
	return s, nil
}

func diffGrants(w world, before, after *policy.Snapshot, failOn string) error {
	out := bufio.NewWriter(w.stdout)
	status := exit(0)
	for c := range policy.Diff(before, after) {
		fmt.Fprintln(out, changeLine(c))
		switch {
		case c.Kind.Wider():
			status = 2
		case failOn == "any":
			status = max(status, 1)
		}
	}
	if err := out.Flush(); err != nil {
		return notCompared(w, err)
	}
	if status == 0 {
		return nil
	}
	return status
}

func changeLine(c policy.Change) string {
	line := fmt.Sprintf("%-8s  %s in %s  old %s  new %s", c.Kind, c.Actor, c.Profile, orDash(c.Old), orDash(c.New))
	for _, part := range []struct {
		mark  string
		words []string
	}{{"+", c.Gained}, {"-", c.Lost}} {
		if part.words != nil {
			line += "  " + part.mark + " " + strings.Join(part.words, ", ")
		}
	}
	return shown(line)
}
