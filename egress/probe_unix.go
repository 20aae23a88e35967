//go:build unix

package egress

import (
	"io"
	"net"
	"os"
	"syscall"
)

// probeable reports whether readNow works on c.
func probeable(c net.Conn) bool { _, ok := c.(syscall.Conn); return ok }

// readNow reads what is there. Nothing there is os.ErrDeadlineExceeded, which
// TLS takes for a passing condition.
func readNow(c net.Conn, p []byte) (n int, err error) {
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		return 0, err
	}
	var failed error
	if err := raw.Read(func(fd uintptr) bool {
		n, failed = syscall.Read(int(fd), p)
		return true
	}); err != nil {
		return 0, err
	}
	switch {
	case failed == syscall.EAGAIN || failed == syscall.EINTR:
		return 0, os.ErrDeadlineExceeded
	case failed != nil:
		return 0, failed
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}
