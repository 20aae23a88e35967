package store

import (
	"context"
	"os"
	"path/filepath"
)

// A Condition is how the database is, and the disk that it lies on.
type Condition struct {
	Engine         string // "SQLite 3.53.2"
	Schema, Newest int    // the file's and the broker's: equal since it was opened
	Journal        string // "wal"
	Size, Log      int64  // bytes of the file and of its -wal

	Folder string
	Disk   Disk
}

// A Disk is what the folder lies on. Where it cannot be asked all is zero.
type Disk struct {
	Size, Free int64  // bytes; free for us
	Passing    string // "tmpfs", "overlay": what is on it does not outlive the machine, or the container
}

// Condition looks. It reads and changes nothing.
func (s *Store) Condition(ctx context.Context) (Condition, error) {
	c := Condition{Newest: len(migrations)}
	var version string
	for query, dest := range map[string]any{
		`SELECT sqlite_version()`:                             &version,
		`PRAGMA journal_mode`:                                 &c.Journal,
		`SELECT COALESCE(MAX(number), 0) FROM migrations`:     &c.Schema,
		`SELECT file FROM pragma_database_list WHERE seq = 0`: &c.Folder,
	} {
		if err := s.read.QueryRowContext(ctx, query).Scan(dest); err != nil {
			return Condition{}, Failure("store.Condition", err)
		}
	}
	path := c.Folder
	c.Engine, c.Folder = "SQLite "+version, filepath.Dir(path)
	c.Size, c.Log, c.Disk = size(path), size(path+"-wal"), DiskOf(c.Folder)
	return c, nil
}

func size(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}
