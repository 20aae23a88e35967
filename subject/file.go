package subject

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/secret"
)

// readFile reads a token that somebody else keeps fresh, such as a projected
// service-account token: each time anew, since it is replaced. It looks at the open
// file and not at its name again, follows links (a projected token is one), and
// does not wait for the writer of a named pipe. One line end is not part of the token.
func readFile(path string) (secret.Text, error) {
	const op = "subject.File"
	refuse := func(reason fault.Reason, what string) (secret.Text, error) {
		return secret.Text{}, fault.New(op, reason, fmt.Sprintf("%q %s", path, what))
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return refuse(fault.CredentialMissing, "does not exist")
	case err != nil:
		return refuse(fault.CredentialMissing, "cannot be opened by this process")
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil || !info.Mode().IsRegular():
		return refuse(fault.CredentialRejected, "is not a regular file")
	case info.Mode().Perm()&0o022 != 0:
		return refuse(fault.CredentialRejected, "can be written by its group or by everybody; chmod go-w it")
	}
	b, err := io.ReadAll(io.LimitReader(f, maxToken+3)) // one more than a token and its line end
	if err != nil {
		return refuse(fault.CredentialMissing, "cannot be read")
	}
	token := strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r")
	if token == "" {
		return refuse(fault.CredentialMissing, "is empty")
	}
	return secret.New(token), nil
}
