//go:build real

package servers

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/catalogue"
	"onbehalf.internal/broker/mcpclient"
	"onbehalf.internal/broker/store"
)

// TestImports: what servers that nobody here wrote offer is taken, and a second import
// changes nothing. The schemas that are skipped are few, and each says why.
func TestImports(t *testing.T) {
	for _, s := range servers {
		t.Run(s.name, func(t *testing.T) {
			m := s.start(t)
			for _, p := range s.pins() {
				t.Run(p.name, func(t *testing.T) {
					db, err := store.Open(t.Context(), store.Config{Path: filepath.Join(t.TempDir(), "broker.db")})
					if err != nil {
						t.Fatal(err)
					}
					defer db.Close()
					kept := catalogue.New(db, time.Now)
					for n := range 2 {
						talk := mcpclient.New(mcpclient.Config{}).Open(declare(t, m.URL, p.era, p.versions))
						ctx, cancel := context.WithTimeout(t.Context(), patience)
						listed, rep := talk.ListTools(ctx, gate(), nil)
						cancel()
						talk.Close()
						got, err := kept.Import(t.Context(), "records", listed.Tools, audit.Record{})
						if err != nil || got.Imported+len(got.Skipped) != len(listed.Tools) || got.Imported == 0 {
							t.Fatalf("%v, %+v of %d tools\n%+v", err, got, len(listed.Tools), rep.Outcome)
						}
						if n == 1 && (len(got.New)+len(got.Changed)+len(got.Vanished)+len(got.Returned) != 0 || got.Orphaned != 0) {
							t.Errorf("a second import: %+v", got)
						}
						for _, skip := range got.Skipped {
							t.Logf("skipped: %s", skip)
						}
					}
				})
			}
		})
	}
}
