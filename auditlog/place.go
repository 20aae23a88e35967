package auditlog

import (
	"errors"
	"io"
	"os"
	"syscall"
)

// Writer is a second place for heads that is open already.
func Writer(w io.Writer) func(head []byte) error {
	return func(head []byte) error {
		_, err := w.Write(head)
		return err
	}
}

// File is a second place for heads: a file that is for its owner to write alone, made
// if it is not there. It is opened for each head, so that it may be moved away.
func File(path string) func(head []byte) error {
	return func(head []byte) error {
		// A named pipe without a reader is not waited for, and a link not followed.
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
		if err != nil {
			return err
		}
		return errors.Join(appendTo(f, path, head), f.Close())
	}
}

// appendTo adds a head as a whole, or not at all: a part of one, on a disk that is
// full, would spoil the file for its readers.
func appendTo(f *os.File, path string, head []byte) error {
	info, err := f.Stat()
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return refuse(path, "is not a regular file")
	case info.Mode().Perm()&0o022 != 0:
		return refuse(path, "can be written by its group or by everybody; chmod go-w it")
	}
	if _, err := f.Write(head); err != nil {
		return errors.Join(err, f.Truncate(info.Size()))
	}
	return f.Sync()
}
