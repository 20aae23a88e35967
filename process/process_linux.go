package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// undumpable also keeps a core from a program that collects them, for which the
// kernel does not look at RLIMIT_CORE (core(5)).
func undumpable() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("making the process undumpable: %w", err)
	}
	return nil
}

// erase overwrites every entry of this name in the block that the kernel gave to
// the process and shows in /proc/<pid>/environ. Go works on a copy of it, which
// is all that [os.Unsetenv] changes.
func erase(name string) error {
	start, block, err := environment()
	if err != nil {
		return err
	}
	offset := 0
	for _, entry := range bytes.SplitAfter(block, []byte{0}) {
		if bytes.HasPrefix(entry, []byte(name+"=")) {
			if err := overwrite(start+uintptr(offset), len(entry)); err != nil {
				return err
			}
		}
		offset += len(entry)
	}
	return nil
}

// environment returns the block and its address. It is read like memory of another
// process, which a process may do to itself whatever it is forbidden;
// /proc/self/environ belongs to root after Harden.
func environment() (start uintptr, block []byte, err error) {
	from, to, err := bounds()
	if err != nil {
		return 0, nil, err
	}
	block = make([]byte, to-from)
	n, err := unix.ProcessVMReadv(os.Getpid(), vector(block), []unix.RemoteIovec{{Base: from, Len: len(block)}}, 0)
	if err == nil && n != len(block) {
		err = errors.New("it was read in part")
	}
	return from, block, err
}

func overwrite(at uintptr, length int) error {
	n, err := unix.ProcessVMWritev(os.Getpid(), vector(make([]byte, length)), []unix.RemoteIovec{{Base: at, Len: length}}, 0)
	if err == nil && n != length {
		err = errors.New("it was overwritten in part")
	}
	return err
}

func vector(b []byte) []unix.Iovec {
	v := unix.Iovec{Base: &b[0]}
	v.SetLen(len(b))
	return []unix.Iovec{v}
}

// bounds are fields 50 and 51 of proc_pid_stat(5), env_start and env_end.
func bounds() (from, to uintptr, err error) {
	raw, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return 0, 0, err
	}
	fields := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:])) // from field 3 on: the name before may hold anything
	if len(fields) < 49 {
		return 0, 0, errors.New("/proc/self/stat does not say where it is")
	}
	start, err1 := strconv.ParseUint(fields[47], 10, 64)
	end, err2 := strconv.ParseUint(fields[48], 10, 64)
	if err1 != nil || err2 != nil || start == 0 || start >= end {
		return 0, 0, errors.New("/proc/self/stat does not say where it is")
	}
	return uintptr(start), uintptr(end), nil
}
