package policy

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

func (s *section) version() {
	if n, ok := s.scalar("version", number); ok && n.value != "1" {
		s.report("version", "is not 1, the only version there is")
	}
}

func readListen(s *section) (l Listen) {
	if s == nil {
		return l
	}
	defer s.end()
	s.need("api")
	s.notYet("tls")
	return Listen{API: s.text("api", apiAddress), Metrics: s.text("metrics", loopbackAddress)}
}

// apiAddress accepts a Unix socket or a loopback address: callers prove
// themselves by bearers, and those must not cross a network in the open.
func apiAddress(s string) string {
	if path, ok := strings.CutPrefix(s, "unix:"); ok {
		if !filepath.IsAbs(path) || filepath.Clean(path) != path || len(path) > 107 { // sun_path, with its NUL, is 108
			return `must be "unix:" and an absolute path of at most 107 bytes`
		}
		return ""
	}
	return loopbackAddress(s)
}

func loopbackAddress(s string) string {
	host, port, err := net.SplitHostPort(s)
	n, portErr := strconv.ParseUint(port, 10, 16)
	switch {
	case err != nil || portErr != nil || strconv.FormatUint(n, 10) != port:
		return "must be an address and a port, such as 127.0.0.1:8471"
	case loopback(host) == nil:
		return "is not a loopback address; others need TLS, which is not available yet"
	}
	return ""
}

func readVault(s *section) (v Vault) {
	if s == nil {
		return v
	}
	defer s.end()
	s.need("auth", "hold")
	v.Address = s.text("address", vaultAddress)
	v.CA = s.certificates("ca_file")
	if hold := s.child("hold"); hold != nil {
		hold.need("role")
		v.Role = hold.text("role", roleName)
		v.PerOperation = hold.textOr("per", "epoch", oneOf("epoch", "operation")) == "operation"
		hold.end()
	}
	v.Auth = readVaultAuth(s.child("auth"))
	return v
}

// vaultAddress accepts https, and http to a loopback host for a dev server.
func vaultAddress(s string) string {
	own := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	u, what := endpoint(s, own)
	if what == "" && u.Path != "" {
		return "must not have a path, nor a slash at its end"
	}
	return what
}

func readVaultAuth(s *section) (a VaultAuth) {
	if s == nil {
		return a
	}
	defer s.end()
	s.need("method")
	a.Method = s.text("method", vaultMethod)
	switch a.Method {
	case "approle":
		s.need("role_id", "secret_id_file")
		a.Mount = s.textOr("mount", "approle", mountPath)
		a.RoleID = s.text("role_id", tokenType)
		if name := s.text("secret_id_file", atMost(4096)); name != "" {
			a.SecretID = s.l.path(name)
		}
	case "token":
		s.without("with method token", "mount", "role_id", "secret_id_file", "role")
	default:
		s.skip() // what belongs to a method nobody knows cannot be judged
	}
	return a
}

func vaultMethod(s string) string {
	switch s {
	case "token", "approle":
		return ""
	case "token_file", "kubernetes", "jwt", "cert":
		return "is not available yet; use approle, or token for development"
	}
	return "must be one of token, approle"
}

func readStore(s *section) (st Store) {
	if s == nil {
		return st
	}
	defer s.end()
	s.need("path")
	if name := s.text("path", atMost(4096)); name != "" {
		st.Path = s.l.path(name)
	}
	st.Results = s.duration("keep_results", time.Minute, mostKept)
	st.Keys = s.duration("keep_keys", time.Minute, mostKept)
	if st.Results > 0 && st.Keys < st.Results {
		s.report("keep_results", "needs keep_keys beside it, not shorter: a result does not outlive its operation")
	}
	return st
}

func readKeyFiles(s *section) (k Keys) {
	if s == nil {
		return k
	}
	defer s.end()
	s.notYet("audit")
	if name, ok := strings.CutPrefix(s.text("results", sealingKey), "file:"); ok {
		k.Results = s.l.path(name)
	}
	return k
}

func sealingKey(s string) string {
	if name, ok := strings.CutPrefix(s, "file:"); !ok || name == "" || len(name) > 4096 {
		return "must be file: and a path; a key in Vault is not available yet"
	}
	return ""
}

const mostKept = 10 * 366 * 24 * time.Hour

const (
	defaultTimeout = 20 * time.Second
	leastTimeout   = 10 * time.Millisecond
	mostTimeout    = 30 * time.Minute
)

func readOperation(s *section) time.Duration {
	if s == nil {
		return defaultTimeout
	}
	defer s.end()
	if d := s.duration("timeout", leastTimeout, mostTimeout); d > 0 {
		return d
	}
	return defaultTimeout
}

// certificates returns the pool of the PEM file at key; nil without one.
func (s *section) certificates(key string) *x509.CertPool {
	name := s.text(key, atMost(4096))
	if name == "" {
		return nil
	}
	b, what := s.l.read(name, maxOther)
	if what != "" {
		s.report(key, "the file "+what)
		return nil
	}
	pool, ok := parseCertificates(b)
	if !ok {
		s.report(key, "the file must hold certificates in PEM, at least one, and nothing after them")
	}
	return pool
}

func parseCertificates(b []byte) (*x509.CertPool, bool) {
	pool := x509.NewCertPool()
	for {
		block, rest := pem.Decode(b)
		if block == nil || block.Type != "CERTIFICATE" {
			return nil, false
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, false
		}
		pool.AddCert(cert)
		if b = bytes.TrimSpace(rest); len(b) == 0 {
			return pool, true
		}
	}
}

// cidrs returns the prefixes at key, in their canonical form. Everything is not
// a prefix.
func (s *section) cidrs(key string) []netip.Prefix {
	var all []netip.Prefix
	for _, entry := range s.texts(key, 32, cidr) {
		all = append(all, netip.MustParsePrefix(entry))
	}
	return all
}

func cidr(s string) string {
	p, err := netip.ParsePrefix(s)
	if err != nil || p.Masked().String() != s || p.Bits() == 0 {
		return "must be a network such as 10.1.0.0/16, its host bits zero, and not all addresses"
	}
	return ""
}

// endpoint returns the URL at key; see the function of that name.
func (s *section) endpoint(key string, cidrs []netip.Prefix) *url.URL {
	var u *url.URL
	s.text(key, func(v string) (what string) {
		u, what = endpoint(v, cidrs)
		return what
	})
	return u
}
