package policy

import (
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"onbehalf.internal/broker/identity"
)

// Shapes of values. Each is compared as bytes; nothing is folded or trimmed.
var (
	callerID    = matching(`[A-Za-z0-9][A-Za-z0-9._@-]{0,127}`, `1 to 128 of A-Z a-z 0-9 . _ @ -, the first a letter or digit`)
	profileID   = matching(`[A-Za-z0-9_][A-Za-z0-9_-]{0,63}`, `1 to 64 of A-Z a-z 0-9 _ -, the first not "-"`)
	serverID    = matching(`[a-z0-9_]{1,32}`, "1 to 32 of a-z 0-9 _")
	toolName    = matching(`[A-Za-z0-9_.-]{1,128}`, "1 to 128 of A-Z a-z 0-9 _ . -") // MCP 2025-11-25, tool names
	roleName    = matching(`[A-Za-z0-9_-]{1,64}`, "1 to 64 of A-Z a-z 0-9 _ -")
	mountPath   = matching(`[A-Za-z0-9_-]{1,64}(/[A-Za-z0-9_-]{1,64}){0,3}`, "a mount path, such as approle")
	argument    = matching(`[A-Za-z_][A-Za-z0-9_.-]{0,127}`, "1 to 128 of A-Z a-z 0-9 _ . -, the first a letter or _")
	paramName   = matching(`[A-Za-z0-9_.-]{1,64}`, "1 to 64 of A-Z a-z 0-9 _ . -")
	headerToken = matching("[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}", "the name of a header, at most 64 long") // RFC 9110 §5.1
	scope       = matching(`[\x21\x23-\x5b\x5d-\x7e]{1,128}`, `one scope of RFC 6749 §3.3: 1 to 128 visible characters, no quote, no backslash, no space`)
	audience    = matching(`[^\s]{1,512}`, "1 to 512 characters without a space")
	tokenType   = matching(`[\x21-\x7e]{1,256}`, "1 to 256 visible characters")
	keyID       = matching(`[A-Za-z0-9._:/+=@-]{1,128}`, "1 to 128 of A-Z a-z 0-9 . _ : / + = @ -")
	toolPin     = matching(`sha256:[0-9a-f]{64}`, `"sha256:" and 64 digits of lower-case hex, as broker catalogue pin prints it`)
	digest      = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

func matching(shape, want string) rule {
	re := regexp.MustCompile(`^(?:` + shape + `)$`)
	return func(s string) string {
		if !re.MatchString(s) {
			return "must be " + want
		}
		return ""
	}
}

// metaName accepts a name in _meta that MCP does not keep for itself (2025-11-25,
// basic, general fields).
func metaName(s string) string {
	prefix, name, ok := strings.Cut(s, "/")
	if !ok || !metaPart.MatchString(prefix) || !metaPart.MatchString(name) {
		return "must be a prefix, a slash and a name, such as example.org/request-key"
	}
	for label := range strings.SplitSeq(prefix, ".") {
		if label == "mcp" || label == "modelcontextprotocol" {
			return "must not be a name that MCP keeps for itself"
		}
	}
	return ""
}

var metaPart = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_.-]{0,126}[A-Za-z0-9])?$`)

func oneOf(words ...string) rule {
	return func(s string) string {
		if slices.Contains(words, s) {
			return ""
		}
		return "must be one of " + strings.Join(words, ", ")
	}
}

// among accepts one of the names.
func among(what string, names []string) rule {
	return func(s string) string {
		if !slices.Contains(names, s) {
			return "is not among the " + what
		}
		return ""
	}
}

// atMost accepts text of 1 to n bytes without spaces at its ends.
func atMost(n int) rule {
	return func(s string) string {
		if s == "" || len(s) > n || strings.TrimSpace(s) != s {
			return fmt.Sprintf("must be text of 1 to %d bytes that neither begins nor ends with a space", n)
		}
		return ""
	}
}

// both applies one rule after the other.
func both(a, b rule) rule {
	return func(s string) string {
		if what := a(s); what != "" {
			return what
		}
		return b(s)
	}
}

func noWildcard(s string) string {
	if strings.Contains(s, "*") {
		return "holds a wildcard; name each one"
	}
	return ""
}

func actorID(s string) string {
	if identity.ParseActorID(s) != nil {
		return `must be an actor: "user:" or "service:" and 1 to 128 of A-Z a-z 0-9 . _ @ -`
	}
	return ""
}

// actorOrPrefix accepts an actor, or all of one sort.
func actorOrPrefix(s string) string {
	if s == "user:" || s == "service:" {
		return ""
	}
	return actorID(s)
}

// resourceURI follows RFC 8707 §2: absolute, no fragment.
func resourceURI(s string) string {
	u, err := url.Parse(s)
	if err != nil || !u.IsAbs() || strings.Contains(s, "#") || len(s) > 512 || strings.Contains(s, " ") {
		return "must be an absolute URI without a fragment, at most 512 long"
	}
	return ""
}

// reservedParam keeps what the exchange itself sends, and what would ask for
// another subject or grant, out of extra parameters.
func reservedParam(s string) string {
	for _, prefix := range []string{"client_", "subject_", "actor_"} {
		if strings.HasPrefix(s, prefix) {
			return "is reserved: the broker sets it itself"
		}
	}
	switch s {
	case "grant_type", "assertion", "scope", "audience", "resource", "requested_token_type",
		"requested_subject", "username", "password", "code", "refresh_token", "token":
		return "is reserved: the broker sets it itself, or it would ask for another grant"
	}
	return ""
}

// legacyHeader accepts the name of a header that carries a credential and
// nothing else.
func legacyHeader(s string) string {
	if what := headerToken(s); what != "" {
		return what
	}
	lower := strings.ToLower(s)
	for _, prefix := range []string{"content-", "mcp-", "proxy-", "accept", "x-forwarded-", "sec-", "access-control-", "if-"} {
		if strings.HasPrefix(lower, prefix) {
			return "is a header with a meaning of its own; name another"
		}
	}
	switch lower {
	case "authorization", "host", "cookie", "set-cookie", "connection", "keep-alive", "te", "trailer",
		"transfer-encoding", "upgrade", "expect", "range", "forwarded", "via", "last-event-id", "user-agent",
		"origin", "referer", "date", "traceparent", "tracestate", "baggage":
		return "is a header with a meaning of its own; name another"
	}
	return ""
}

// endpoint reads an address that a credential may be sent to: https, a
// canonical host, no userinfo, query or fragment, at most 2048 bytes. Plain
// http needs a loopback host that cidrs allow.
func endpoint(s string, cidrs []netip.Prefix) (*url.URL, string) {
	u, err := url.Parse(s)
	switch {
	case len(s) > 2048:
		return nil, "is longer than 2048 bytes"
	case err != nil || u.Host == "" || strings.Contains(s, " ") || u.Scheme != "https" && u.Scheme != "http":
		return nil, "must be a URL such as https://records.example.org/mcp"
	case u.User != nil || strings.ContainsAny(s, "?#@"):
		return nil, "must not hold a user, a query or a fragment"
	case canonicalHost(u.Host) != "":
		return nil, canonicalHost(u.Host)
	case u.String() != s:
		return nil, "must be written as it is sent: " + quote(u.String())
	case u.Scheme == "http" && !loopbackAllowed(u.Hostname(), cidrs):
		return nil, "must be https; http is for a loopback host that allow_cidrs names (127.0.0.0/8 or ::1/128)"
	}
	return u, ""
}

var (
	hostAndPort = regexp.MustCompile(`^(?:\[([0-9a-f:.]+)\]|([^:\[\]]+))(?::([1-9][0-9]{0,4}))?$`)
	hostLabel   = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	numberLabel = regexp.MustCompile(`^([0-9]+|0x[0-9a-f]*)$`)
)

// canonicalHost says what is wrong with a host and port. One host has one
// spelling: what some resolvers also take for an address (0x7f.1, 2130706433)
// is none.
func canonicalHost(hostport string) string {
	part := hostAndPort.FindStringSubmatch(hostport)
	if part == nil {
		return "must have a host in lower case and a port from 1 to 65535 without leading zeros, or none"
	}
	if port, _ := strconv.Atoi(part[3]); port > 65535 {
		return "must have a port from 1 to 65535"
	}
	if bracketed := part[1]; bracketed != "" {
		if addr, err := netip.ParseAddr(bracketed); err != nil || !addr.Is6() || addr.String() != bracketed {
			return "must have an IPv6 address in its shortest form"
		}
		return ""
	}
	host := part[2]
	if _, err := netip.ParseAddr(host); err == nil {
		return ""
	}
	labels := strings.Split(host, ".")
	for _, label := range labels {
		if !hostLabel.MatchString(label) {
			return "must have a host in lower case: labels of a-z 0-9 -, no dot at the end"
		}
	}
	if len(host) > 253 || numberLabel.MatchString(labels[len(labels)-1]) {
		return "must have a host name or an IP address in its usual form"
	}
	return ""
}

// loopbackAllowed reports whether host is loopback and among the prefixes.
func loopbackAllowed(host string, cidrs []netip.Prefix) bool {
	for _, addr := range loopback(host) {
		for _, p := range cidrs {
			if p.Contains(addr) {
				return true
			}
		}
	}
	return false
}

// loopback returns the loopback addresses that host means; none if it is not a
// literal one or localhost.
func loopback(host string) []netip.Addr {
	if host == "localhost" {
		return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
	}
	if addr, err := netip.ParseAddr(host); err == nil && addr.IsLoopback() {
		return []netip.Addr{addr}
	}
	return nil
}
