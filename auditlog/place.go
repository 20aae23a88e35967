package auditlog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
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
		f, info, err := openOurs(path, os.O_WRONLY)
		if err != nil {
			return err
		}
		return errors.Join(appendTo(f, info.Size(), head), f.Close())
	}
}

// openOurs opens a file to add to it, or makes it. Nobody else may be able to write it.
func openOurs(path string, flag int) (*os.File, fs.FileInfo, error) {
	// A named pipe without a reader is not waited for, and a link not followed.
	f, err := os.OpenFile(path, flag|os.O_APPEND|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		err = refuse(path, "is not a regular file")
	case info.Mode().Perm()&0o022 != 0:
		err = refuse(path, "can be written by its group or by everybody; chmod go-w it")
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, info, nil
}

// appendTo adds text to a file of this size as a whole, or not at all: a part of it, on a
// disk that is full, would spoil the file for its readers.
func appendTo(f *os.File, size int64, text []byte) error {
	if _, err := f.Write(text); err != nil {
		return errors.Join(err, f.Truncate(size))
	}
	return f.Sync()
}

func refuse(path, what string) error { return fmt.Errorf("%q %s", path, what) }
