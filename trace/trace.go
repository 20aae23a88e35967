// Package trace is W3C trace context: where in somebody's trace a thing stands.
//
// What always holds:
//
//   - What comes in is taken whole or not at all: a header that is not as the
//     standard says is as if it were not there, and never an error.
//   - Nothing of it decides anything. It comes from whoever calls, and is bounded:
//     55 bytes, and a state of at most 512.
//
// It does not know OpenTelemetry; package trace/otlp does.
package trace

import (
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"regexp"
	"strings"
)

// A Context is one span's place in a trace. The zero Context is none.
type Context struct {
	Trace   [16]byte
	Span    [8]byte
	Sampled bool   // whoever began the trace wants it recorded
	State   string // tracestate, as it came in
}

// IsZero reports whether c is no place.
func (c Context) IsZero() bool { return c.Trace == [16]byte{} }

// Child is a place below c, and below the zero Context the beginning of a trace that
// is recorded.
func (c Context) Child() Context {
	if c.IsZero() {
		rand.Read(c.Trace[:])
		c.Sampled = true
	}
	rand.Read(c.Span[:])
	return c
}

// ID is the trace's name, as logs and dashboards have it.
func (c Context) ID() string { return hex.EncodeToString(c.Trace[:]) }

// Parent is c in the form of traceparent.
func (c Context) Parent() string {
	flags := "-00"
	if c.Sampled {
		flags = "-01"
	}
	return "00-" + c.ID() + "-" + hex.EncodeToString(c.Span[:]) + flags
}

// parent is version 00, and what its fields are in any later one (W3C Trace Context,
// 3.2 and 4).
var parent = regexp.MustCompile(`^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})$`)

// Parse is the place that h names; zero: none, or more than one.
func Parse(h http.Header) (c Context) {
	given := h.Values("Traceparent")
	if len(given) != 1 || len(given[0]) != 55 {
		return Context{}
	}
	part := parent.FindStringSubmatch(given[0])
	if part == nil || part[1] == "ff" {
		return Context{}
	}
	hex.Decode(c.Trace[:], []byte(part[2]))
	hex.Decode(c.Span[:], []byte(part[3]))
	if c.IsZero() || c.Span == [8]byte{} {
		return Context{}
	}
	c.Sampled = strings.ContainsRune("13579bdf", rune(part[4][1]))
	c.State = state(strings.Join(h.Values("Tracestate"), ","))
	return c
}

const (
	maxState   = 512 // what whoever passes it on has to take (3.3.1.5)
	maxMembers = 32
)

// member is key=value (3.3.1.3).
var member = regexp.MustCompile(`^[a-z0-9][a-z0-9_*/@-]{0,255}=[ -+\--<>-~]{0,255}[!-+\--<>-~]$`)

// state is s, or "" where it is not a list as the standard says.
func state(s string) string {
	if len(s) > maxState || strings.Count(s, ",") >= maxMembers {
		return ""
	}
	seen := map[string]bool{}
	for m := range strings.SplitSeq(s, ",") {
		m = strings.Trim(m, " \t")
		key, _, _ := strings.Cut(m, "=")
		if m != "" && (!member.MatchString(m) || seen[key]) {
			return ""
		}
		seen[key] = m != ""
	}
	return s
}
