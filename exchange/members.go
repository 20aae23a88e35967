package exchange

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"time"

	"onbehalf.internal/broker/strictjson"
)

// members reads a JSON object member by member. One that is absent reads as
// nothing; the name of one that has not the form asked for is kept in wrong.
type members struct {
	raw   map[string]strictjson.Raw
	wrong string
}

// open reports whether b is one object with distinct names. The error of
// strictjson is dropped here: it names members, and those are foreign text.
func open(b []byte) (members, bool) {
	raw, err := strictjson.Members(b)
	return members{raw: raw}, err == nil
}

func (m *members) has(name string) bool { _, ok := m.raw[name]; return ok }

// text reads a string.
func (m *members) text(name string) string {
	raw, ok := m.raw[name]
	if !ok {
		return ""
	}
	s, ok := unquote(raw)
	if !ok {
		m.wrong = name
	}
	return s
}

// texts reads a string or an array of strings (RFC 7519 §4.1.3). It is nil
// only where the member is absent or wrong.
func (m *members) texts(name string) []string {
	raw, ok := m.raw[name]
	if !ok {
		return nil
	}
	if s, ok := unquote(raw); ok {
		return []string{s}
	}
	var list []strictjson.Raw
	if raw[0] != '[' || json.Unmarshal(raw, &list) != nil {
		m.wrong = name
		return nil
	}
	all := make([]string, 0, len(list))
	for _, item := range list {
		s, ok := unquote(item)
		if !ok {
			m.wrong = name
			return nil
		}
		all = append(all, s)
	}
	return all
}

// scopeToken is RFC 6749 §3.3.
var scopeToken = regexp.MustCompile(`^[\x21\x23-\x5B\x5D-\x7E]+$`)

// scopes reads a string of scopes with one separator between them, or an array
// of scopes.
func (m *members) scopes(name, separator string) []string {
	all := m.texts(name)
	if raw := m.raw[name]; len(all) == 1 && raw[0] == '"' {
		all = strings.Split(all[0], separator)
	}
	for _, s := range all {
		if !scopeToken.MatchString(s) {
			m.wrong = name
		}
	}
	return all
}

// wholeSeconds has neither sign, fraction, exponent nor leading zero. Some
// servers send the number as a string.
var wholeSeconds = regexp.MustCompile(`^("[1-9][0-9]{0,9}"|[1-9][0-9]{0,9})$`)

// seconds reads a positive number of seconds, at most 2^31.
func (m *members) seconds(name string) time.Duration {
	raw, ok := m.raw[name]
	if !ok {
		return 0
	}
	n, err := strconv.ParseInt(strings.Trim(string(raw), `"`), 10, 64)
	if err != nil || !wholeSeconds.Match(raw) || n > 1<<31 {
		m.wrong = name
		return 0
	}
	return time.Duration(n) * time.Second
}

// date reads a NumericDate (RFC 7519 §2), which may have a fraction.
func (m *members) date(name string) time.Time {
	raw, ok := m.raw[name]
	if !ok {
		return time.Time{}
	}
	n, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || n < 0 || n > 1<<40 {
		m.wrong = name
		return time.Time{}
	}
	return time.Unix(int64(n), 0)
}

// yes reports whether the member is the word true; anything else is no.
func (m *members) yes(name string) bool { return string(m.raw[name]) == "true" }

// object reads an object; an absent one has no members.
func (m *members) object(name string) members {
	raw, ok := m.raw[name]
	if !ok {
		return members{}
	}
	inner, ok := open(raw)
	if !ok {
		m.wrong = name
	}
	return inner
}

func unquote(raw strictjson.Raw) (s string, ok bool) {
	ok = len(raw) > 0 && raw[0] == '"' && json.Unmarshal(raw, &s) == nil
	return s, ok
}
