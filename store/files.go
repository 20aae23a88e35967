package store

import (
	"errors"
	"os"
)

// errTaken: what is written into a file without a name is gone with the process, and
// no write says so.
var errTaken = errors.New("a file of the database was removed or replaced")

// files are those that make a commit durable and ours: path → which file it was.
type files map[string]os.FileInfo

func filesOf(path string) (files, error) {
	f := files{path: nil, path + "-wal": nil, path + ".lock": nil}
	for name := range f {
		info, err := os.Stat(name)
		if err != nil {
			return nil, err
		}
		f[name] = info
	}
	return f, nil
}

// still returns errTaken if a path leads to another file now, or to none.
func (f files) still() error {
	for name, was := range f {
		if is, err := os.Stat(name); err != nil || !os.SameFile(was, is) {
			return errTaken
		}
	}
	return nil
}
