package mcpclient

import "strings"

// A Challenge is what a 401 or 403 says in WWW-Authenticate, as far as a fixed
// list of words and the alphabet of scopes go. The rest, and any URL in it,
// is dropped.
type Challenge struct {
	Error string // "invalid_token", "insufficient_scope" or ""
	Scope string // scope tokens with a space between, RFC 6749 §3.3; 1,024 characters at most
}

const (
	errorInvalidToken      = "invalid_token"
	errorInsufficientScope = "insufficient_scope"
	maxScope               = 1024
)

// parseChallenge reads the first Bearer challenge (RFC 6750 §3) in the values
// of WWW-Authenticate (RFC 9110 §11.6.1). A value is read up to where it
// stops making sense.
func parseChallenge(values []string) Challenge {
	for _, value := range values {
		if found, ok := bearerParams(value); ok {
			return Challenge{Error: knownError(found["error"]), Scope: scopeOf(found["scope"])}
		}
	}
	return Challenge{}
}

// bearerParams returns the parameters of the first Bearer challenge in s.
func bearerParams(s string) (params map[string]string, found bool) {
	for {
		s = strings.TrimLeft(s, ", \t")
		word, rest := cutToken(s)
		value, after, isParam := cutParam(rest)
		switch {
		case word == "":
			return params, found
		case isParam && found:
			if _, twice := params[strings.ToLower(word)]; !twice {
				params[strings.ToLower(word)] = value
			}
			s = after
		case isParam:
			s = after
		case found: // the next scheme
			return params, true
		default:
			if strings.EqualFold(word, "Bearer") {
				params, found = map[string]string{}, true
			}
			s = rest
		}
	}
}

// cutToken cuts a token of RFC 9110 §5.6.2 off s.
func cutToken(s string) (token, rest string) {
	end := strings.IndexFunc(s, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' ||
			strings.ContainsRune("!#$%&'*+-.^_`|~", r))
	})
	if end < 0 {
		end = len(s)
	}
	return s[:end], s[end:]
}

// cutParam cuts "=" and a token or quoted string off s.
func cutParam(s string) (value, rest string, ok bool) {
	s, ok = strings.CutPrefix(strings.TrimLeft(s, " \t"), "=")
	if !ok {
		return "", s, false
	}
	s = strings.TrimLeft(s, " \t")
	if !strings.HasPrefix(s, `"`) {
		value, rest = cutToken(s)
		return value, rest, true
	}
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == '"':
			return b.String(), s[i+1:], true
		case s[i] == '\\' && i+1 < len(s):
			i++
		}
		b.WriteByte(s[i])
	}
	return "", "", true // never closed
}

func knownError(s string) string {
	if s == errorInvalidToken || s == errorInsufficientScope {
		return s
	}
	return ""
}

// scopeOf returns s if it is a list of scope tokens, else "".
func scopeOf(s string) string {
	foreign := func(r rune) bool { return r < ' ' || r > '~' || r == '"' || r == '\\' }
	if len(s) > maxScope || strings.ContainsFunc(s, foreign) {
		return ""
	}
	return s
}
