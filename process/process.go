// Package process is what the program does to itself before it holds a secret,
// so that what is in its memory stays there.
//
//	[Harden]  no core file, no dump, no reading by another process of the same user
//	[Take]    a secret in the environment is read once, and gone
//
// What always holds after Harden has returned nil, on Linux:
//
//   - The kernel writes no core of this process, neither to a file nor to a
//     program that collects them.
//   - Nobody attaches to the process or reads /proc/<pid>/mem, environ, maps, fd
//     and the like, unless with a capability for that: CAP_SYS_PTRACE, and for
//     some of it, on newer kernels, CAP_PERFMON.
//
// After Take, the value is in no environment: not in [os.Environ], so not in a
// child's, and not in /proc/<pid>/environ. Elsewhere than on Linux, where the
// broker is developed and not run, that last place keeps it, and Harden only
// forbids core files.
//
// It does not protect from root, does not keep memory from being swapped, and
// does not erase what the runtime copied.
package process

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"onbehalf.internal/broker/secret"
)

// Harden does it. It cannot be undone. The error is for the operator: a broker
// whose memory others can read must not start.
func Harden() error {
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("forbidding core files: %w", err)
	}
	return undumpable()
}

// Take returns the value of an environment variable and removes the variable
// from the environment. Where that fails the variable must not be used.
func Take(name string) (secret.Text, error) {
	value, there := os.LookupEnv(name)
	if !there {
		return secret.Text{}, nil
	}
	if err := os.Unsetenv(name); err != nil {
		return secret.Text{}, fmt.Errorf("unsetting %s: %w", name, err)
	}
	if err := erase(name); err != nil {
		return secret.Text{}, fmt.Errorf("erasing %s from the environment that the process was started with: %w; unset it", name, err)
	}
	return secret.New(value), nil
}
