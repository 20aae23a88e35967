//go:build real

package providers_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/secret/canary"
)

// A row is a profile that is written otherwise, and how its exchange ends.
type row struct {
	name   string
	change func(*profile)
	want   fault.Reason
}

// run makes each row's exchange with a profile of its own. The subject may not show
// up in what comes of it.
func run(t *testing.T, fresh func(testing.TB) profile, rows []row) {
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			p := fresh(t)
			r.change(&p)
			d := p.decide(t)
			canary.Run(t, func(c *canary.Cage) {
				e := p.by(t, d)
				c.Value("error", e.err)
				c.Value("issued", e.issued)
				if e.reason != r.want {
					t.Errorf("error %v, want reason %q", e.err, r.want)
				}
				if e.err == nil && !cmp.Equal(e.issued.Scopes, slices.Sorted(slices.Values(p.scopes))) {
					t.Errorf("scopes %q, want those asked for", e.issued.Scopes)
				}
			}, p.subject) // the secrets of these clients are too short to be told from chance
		})
	}
}

func asItIs(*profile) {}
