package vault

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/ownfile"
	"onbehalf.internal/broker/secret"
)

// readFile reads a file that proves who we are.
func readFile(path string, g ownfile.Guard) ([]byte, error) {
	b, err := ownfile.Read(path, g)
	if err != nil {
		return nil, fault.New("vault.login", fault.VaultNotReady, err.Error())
	}
	return b, nil
}

// readSecret reads one line; space around it is not part of it.
func readSecret(path string, g ownfile.Guard) (secret.Text, error) {
	b, err := readFile(path, g)
	if err != nil {
		return secret.Text{}, err
	}
	line := strings.TrimSpace(string(b))
	what := ""
	switch {
	case line == "":
		what = "is empty"
	case !utf8.ValidString(line) || strings.ContainsFunc(line, unicode.IsControl):
		what = "does not hold one line of text"
	default:
		return secret.New(line), nil
	}
	return secret.Text{}, fault.New("vault.login", fault.VaultNotReady, fmt.Sprintf("%q %s", path, what))
}
