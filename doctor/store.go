package doctor

import (
	"context"
	"fmt"
	"path/filepath"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/store"
)

const (
	scarce = 256 << 20 // bytes free: a broker that cannot write refuses everything
	little = 2 << 30
)

// store: the database, its disk, and the disks of the audit's files.
func (e *examination) store(ctx context.Context) []Finding {
	c, err := e.Store.Condition(ctx)
	if err == nil {
		err = e.Store.Err()
	}
	if err != nil {
		return []Finding{wrong("database", err.Error(), Remedy(fault.ReasonOf(err)))}
	}
	findings := []Finding{
		ok("database", fmt.Sprintf("%s, schema %d of %d, journal %s, %s and %s of log", c.Engine, c.Schema, c.Newest, c.Journal, bytes(c.Size), bytes(c.Log))),
		disk("disk of the database", c.Folder, c.Disk),
	}
	for _, path := range []string{e.snapshot.Audit.Heads, e.snapshot.Audit.Sink} {
		if folder := filepath.Dir(path); path != "" && folder != c.Folder {
			findings = append(findings, disk("disk of the audit", folder, store.DiskOf(folder)))
		}
	}
	return findings
}

func disk(about, folder string, d store.Disk) Finding {
	free := fmt.Sprintf("%s free of %s at %q", bytes(d.Free), bytes(d.Size), folder)
	switch {
	case d == store.Disk{}:
		return note(about, "this system does not say how much is free", "df -h "+folder)
	case d.Free < scarce:
		return wrong(about, free+": when it is full, nothing is begun any more", "make room, or let records go after a while: audit.keep and store.results (docs/operations.md)")
	case d.Passing != "":
		return note(about, fmt.Sprintf("%q is on %s: the ledger is gone with the machine or container, and retrieval with it", folder, d.Passing), "put store.path on a volume")
	case d.Free < little:
		return note(about, free, "df -h "+folder+" now and then, or the node's own metrics")
	}
	return ok(about, free)
}

func bytes(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%d KiB", n>>10)
}
