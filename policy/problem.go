package policy

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A Problem is one thing to mend in a file.
type Problem struct {
	File string // as the operator names it: the file's base name, or its path in the config
	Line int    // from 1; 0: the file as a whole
	Key  string // "servers.records.url"; empty: not under a key
	Text string // what is wrong and what to do; never a credential
}

func (p Problem) String() string {
	s := p.File
	if p.Line > 0 {
		s += ":" + strconv.Itoa(p.Line)
	}
	if p.Key != "" {
		s += ": " + p.Key
	}
	return s + ": " + p.Text
}

// Problems is every problem of a configuration, by file and line.
type Problems []Problem

// Error prints one problem a line.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

func (ps Problems) sort() {
	slices.SortStableFunc(ps, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Key, b.Key))
	})
}

const hidden = "the value (not shown)"

// quote shows a value of the file. What may be a credential is not shown:
// people paste one where a name belongs.
func quote(s string) string {
	const most = 60
	if mayBeSecret(s) {
		return hidden
	}
	if utf8.RuneCountInString(s) > most {
		return fmt.Sprintf("%.60q…", s)
	}
	return strconv.Quote(s)
}

var (
	token     = regexp.MustCompile(`eyJ[A-Za-z0-9_-]*\.[A-Za-z0-9_-]+\.|\bhv[sbr]\.[A-Za-z0-9_-]{20}|-----BEGIN`)
	unbroken  = regexp.MustCompile(`[A-Za-z0-9_+/=-]{16,}`)
	digitIn   = regexp.MustCompile(`[0-9]`)
	plainName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_:@-]{0,63}(\[[0-9]+\])?$`)
)

// isToken reports what is a token or a private key beyond doubt: a signed JWT,
// a token of Vault, PEM. Most text is ruled out before the expression runs.
func isToken(s string) bool {
	for _, sign := range []string{"eyJ", "hv", "-----BEGIN"} {
		if strings.Contains(s, sign) {
			return token.MatchString(s)
		}
	}
	return false
}

// mayBeSecret is broader: any long unbroken run that holds a digit.
func mayBeSecret(s string) bool {
	return isToken(s) || slices.ContainsFunc(unbroken.FindAllString(s, -1), digitIn.MatchString)
}

// under returns the key of name below path.
func under(path, name string) string {
	const ourKeys = "abcdefghijklmnopqrstuvwxyz_"
	switch {
	case strings.Trim(name, ourKeys) != "" && (!plainName.MatchString(name) || mayBeSecret(name)):
		return path + "[" + quote(name) + "]"
	case path == "":
		return name
	default:
		return path + "." + name
	}
}
