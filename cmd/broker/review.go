package main

import (
	"errors"
	"fmt"
	"iter"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"onbehalf.internal/broker/httpapi"
	"onbehalf.internal/broker/policy"
)

// reviewFlags say which configuration is looked at, and as of when.
type reviewFlags struct{ path, at string }

func (f *reviewFlags) bind(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.path, "config", defaultConfig, "profiles file")
	cmd.Flags().StringVar(&f.at, "at", "", "the time that is asked about, such as 2027-01-31T12:00:00Z (default: now)")
}

func (f *reviewFlags) load() (s *policy.Snapshot, at time.Time, err error) {
	at = time.Now()
	if f.at != "" {
		if at, err = time.Parse(time.RFC3339, f.at); err != nil {
			return nil, at, fmt.Errorf("--at %q: write it as 2027-01-31T12:00:00Z", f.at)
		}
	}
	s, err = policy.Load(f.path)
	return s, at, err
}

// liveFlags say which broker is asked, in the place of a configuration.
type liveFlags struct{ clientFlags }

func (f *liveFlags) bind(cmd *cobra.Command) {
	f.bindCaller(cmd)
	for _, file := range []string{"config", "at"} {
		for _, broker := range []string{"api", "bearer-file"} {
			if cmd.Flags().Lookup(file) != nil {
				cmd.MarkFlagsMutuallyExclusive(file, broker)
			}
		}
	}
}

// given reports whether a broker is to be asked: what stands in the environment is no
// such wish.
func (f *liveFlags) given(cmd *cobra.Command) bool {
	return cmd.Flags().Changed("api") || cmd.Flags().Changed("bearer-file")
}

// A view is a question about grants.
type view struct {
	columns string
	file    func(s *policy.Snapshot, at time.Time) (iter.Seq[policy.Row], error) // nil: a file cannot know
	path    string                                                               // of the API; empty: a broker is not asked
	more    string                                                               // columns that only a broker knows
	query   func() map[string]string                                             // empty words are left out
}

// review is a command that prints rows, of the configuration or of a broker.
func review(w world, cmd *cobra.Command, v view) *cobra.Command {
	var flags reviewFlags
	var live liveFlags
	var format string
	cmd.Args = cobra.NoArgs
	cmd.RunE = func(*cobra.Command, []string) error {
		if v.path != "" && (v.file == nil || live.given(cmd)) {
			found, err := askGrants(cmd, w, &live.clientFlags, v.path, v.query())
			if err != nil {
				return err
			}
			return printRows(w.stdout, format, strings.Fields(v.columns+" "+v.more), slices.Values(found.rows))
		}
		s, at, err := flags.load()
		if err != nil {
			return err
		}
		found, err := v.file(s, at)
		if err != nil {
			return err
		}
		return printRows(w.stdout, format, strings.Fields(v.columns), lines(found))
	}
	if v.file != nil {
		flags.bind(cmd)
	}
	if v.path != "" {
		live.bind(cmd)
	}
	cmd.Flags().StringVar(&format, "format", "table", "table, csv or json")
	return cmd
}

func lines(rows iter.Seq[policy.Row]) iter.Seq[line] {
	return func(yield func(line) bool) {
		for r := range rows {
			if !yield(ofFile(r)) {
				return
			}
		}
	}
}

// asked is what a broker answered.
type asked struct {
	rows     []line
	snapshot string    // the hash of its configuration
	counted  time.Time // since when uses are
}

// askGrants goes from page to page.
func askGrants(cmd *cobra.Command, w world, flags *clientFlags, path string, words map[string]string) (all asked, err error) {
	query := url.Values{}
	for name, word := range words {
		if word != "" {
			query.Set(name, word)
		}
	}
	for {
		var page httpapi.Grants
		if _, err := ask(cmd, w, flags, false, "GET", path+"?"+query.Encode(), nil, &page); err != nil {
			return asked{}, err
		}
		if all.snapshot != "" && page.Snapshot != all.snapshot {
			return asked{}, errors.New("the configuration of the broker has changed meanwhile: ask again")
		}
		all.snapshot, all.counted = page.Snapshot, page.Counted
		for _, row := range page.Grants {
			all.rows = append(all.rows, line{row, page.Counted})
		}
		if page.Next == "" || page.Next == query.Get("after") {
			return all, nil
		}
		query.Set("after", page.Next)
	}
}
