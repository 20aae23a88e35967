package policy

import (
	"bytes"
	"cmp"
	"crypto/x509"
	"encoding/pem"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"onbehalf.internal/broker/secret"
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
		return socketPath(path)
	}
	return loopbackAddress(s)
}

func socketPath(path string) string {
	if !filepath.IsAbs(path) || filepath.Clean(path) != path || len(path) > 107 { // sun_path, with its NUL, is 108
		return `must be "unix:" and an absolute path of at most 107 bytes`
	}
	return ""
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
	v.Namespace = s.text("namespace", vaultNamespace)
	v.CA = s.certificates("ca_file")
	if hold := s.child("hold"); hold != nil {
		hold.need("role")
		v.Role = hold.text("role", roleName)
		v.PerOperation = hold.textOr("per", "epoch", oneOf("epoch", "operation")) == "operation"
		hold.end()
	}
	v.Auth = readVaultAuth(s.child("auth"))
	switch socket := strings.HasPrefix(v.Address, "unix:"); {
	case v.Address == "": // VAULT_ADDR, which is judged by whoever reads it
	case v.Auth.Method == "proxy" && !socket:
		s.report("address", `must be a Unix socket with method proxy, "unix:/…": on a port every process of the machine would have the broker's rights`)
	case v.Auth.Method == "cert" && !strings.HasPrefix(v.Address, "https:"):
		s.report("address", "must be https with method cert: a certificate is shown in the TLS handshake")
	case socket && v.CA != nil:
		s.report("ca_file", "has no effect on a Unix socket; remove it")
	}
	return v
}

// vaultAddress accepts https, http to a loopback host for a dev server, and a
// Unix socket.
func vaultAddress(s string) string {
	if path, ok := strings.CutPrefix(s, "unix:"); ok {
		return socketPath(path)
	}
	u, what := endpoint(s, thisMachine)
	if what == "" && u.Path != "" {
		return "must not have a path, nor a slash at its end"
	}
	return what
}

var namespacePath = matching(`[A-Za-z0-9_][A-Za-z0-9_-]{0,63}(/[A-Za-z0-9_][A-Za-z0-9_-]{0,63}){0,7}`,
	"the path of a namespace, such as team/a: names of A-Z a-z 0-9 _ -, no slash at its ends")

// vaultNamespace follows what Vault takes for a namespace's name, and leaves out
// the ones that it keeps for itself.
func vaultNamespace(s string) string {
	if what := namespacePath(s); what != "" {
		return what
	}
	for name := range strings.SplitSeq(s, "/") {
		switch name {
		case "root", "sys", "audit", "auth", "cubbyhole", "identity":
			return "holds " + quote(name) + ", which cannot be the name of a namespace; without a namespace leave the key out"
		}
	}
	return ""
}

// vaultMethods are the ways to log in: the keys that each needs, and those that
// it may have besides.
var vaultMethods = map[string]struct{ need, may []string }{
	"approle":    {[]string{"role_id", "secret_id_file"}, []string{"mount", "secret_id_response_wrapping_path"}},
	"kubernetes": {[]string{"role"}, []string{"mount", "jwt_file"}},
	"jwt":        {[]string{"role", "jwt_file"}, []string{"mount"}},
	"cert":       {[]string{"cert_file", "key_file"}, []string{"mount", "role"}},
	"token_file": {[]string{"token_file"}, nil},
	"proxy":      {},
	"token":      {},
}

// serviceAccount is where Kubernetes puts the token of a pod's service account.
const serviceAccount = "/var/run/secrets/kubernetes.io/serviceaccount/token"

func readVaultAuth(s *section) (a VaultAuth) {
	if s == nil {
		return a
	}
	defer s.end()
	s.need("method")
	a.Method = s.text("method", oneOf("approle", "kubernetes", "jwt", "cert", "token_file", "proxy", "token"))
	method, known := vaultMethods[a.Method]
	if !known {
		s.skip() // what belongs to a method nobody knows cannot be judged
		return a
	}
	s.need(method.need...)
	for _, key := range []string{"mount", "role", "role_id", "secret_id_file", "secret_id_response_wrapping_path", "token_file", "jwt_file", "cert_file", "key_file"} {
		if !slices.Contains(method.need, key) && !slices.Contains(method.may, key) {
			s.without("with method "+a.Method, key)
		}
	}
	a.Role, a.RoleID = s.text("role", roleName), s.text("role_id", tokenType)
	a.SecretIDFile, a.TokenFile = s.pathAt("secret_id_file"), s.pathAt("token_file")
	a.JWTFile, a.CertFile, a.KeyFile = s.pathAt("jwt_file"), s.pathAt("cert_file"), s.pathAt("key_file")
	if slices.Contains(method.may, "mount") {
		a.Mount = s.textOr("mount", a.Method, mountPath)
	}
	if a.Method == "kubernetes" {
		a.JWTFile = cmp.Or(a.JWTFile, serviceAccount)
	}
	a.Wrapping = s.text("secret_id_response_wrapping_path", madeAt(a.Mount))
	return a
}

// madeAt accepts the path that makes the secret ids of one AppRole at mount.
func madeAt(mount string) rule {
	return func(s string) string {
		role, ok := strings.CutPrefix(s, "auth/"+mount+"/role/")
		role, ok2 := strings.CutSuffix(role, "/secret-id")
		if !ok || !ok2 || roleName(role) != "" {
			return "must be auth/" + mount + "/role/<role>/secret-id"
		}
		return ""
	}
}

// pathAt returns the path at key, of a file that is not read here.
func (s *section) pathAt(key string) string {
	name := s.text(key, atMost(4096))
	if name == "" {
		return ""
	}
	return s.l.path(name)
}

func readStore(s *section) (st Store) {
	if s == nil {
		return st
	}
	defer s.end()
	s.need("path")
	st.Path = s.pathAt("path")
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
	k.Results = s.sealingKeys("results")
	k.Audit = s.filePath("audit", `must be a file that broker audit keygen made, "file:<path>"`)
	return k
}

func readAudit(s *section) (a Audit) {
	if s == nil {
		return a
	}
	defer s.end()
	if !s.has("sink") {
		s.need("heads")
	}
	if n, ok := s.scalar("heads", text); ok && n.value == "stdout" {
		a.Stdout = true
	} else {
		a.Heads = s.filePath("heads", `must be "file:<path>", or stdout`)
	}
	a.Sink = s.filePath("sink", `must be "file:<path>"`)
	a.Keep = s.duration("keep", time.Hour, mostKept)
	switch {
	case a.Keep > 0 && !s.has("sink"):
		s.report("keep", "needs sink beside it: a record is pruned when it is in that file, and not before")
	case a.Sink != "" && a.Sink == a.Heads:
		s.report("sink", "is the file of heads; name another one")
	}
	return a
}

func readTraces(s *section) *Traces {
	if s == nil {
		return nil
	}
	defer s.end()
	s.need("otlp")
	t := &Traces{Collector: s.endpoint("otlp", thisMachine), CA: s.certificates("ca_file"),
		Bearer: s.filePath("bearer", `must be a file, "file:<path>"`), Propagate: s.flag("propagate", false)}
	if t.Collector != nil && t.Collector.Scheme == "http" && t.CA != nil {
		s.report("ca_file", "has no effect without https; remove it")
	}
	return t
}

// signing reports what needs signed heads where there is no key for them.
func (a Audit) signing(root *section) {
	switch {
	case a.Stdout || a.Heads != "":
		root.report("audit", "needs keys.audit: without a key there are no signed heads")
	case a.Keep > 0:
		root.report("audit", "needs keys.audit for keep: records are pruned up to a signed head, which says what they were")
	}
}

// filePath returns the path at key of a file that is not read here, written
// "file:<path>".
func (s *section) filePath(key, what string) string {
	value := s.text(key, func(v string) string {
		if name, ok := strings.CutPrefix(v, "file:"); !ok || name == "" || len(name) > 4096 {
			return what
		}
		return ""
	})
	if value == "" {
		return ""
	}
	return s.l.path(strings.TrimPrefix(value, "file:"))
}

const mostSealingKeys = 8

// sealingKeys reads one key, or a list of them in their order: the first one seals.
func (s *section) sealingKeys(key string) (all []SealingKey) {
	n, ok := s.scalar(key, text, list)
	if !ok {
		return nil
	}
	entries, name := []*node{n}, func(int) string { return key }
	if n.kind == list {
		entries, name = s.items(key, mostSealingKeys), func(i int) string { return key + "[" + strconv.Itoa(i) + "]" }
	}
	for i, n := range entries {
		if !s.isOf(n, name(i), text) {
			continue
		}
		switch k, ok := s.sealingKey(n.value); {
		case !ok:
			s.reportAt(n.line, name(i), quote(n.value)+` must be a file with keys, "file:<path>", or a key that stays in Vault, "vault-transit:<mount>/<key>"`)
		case slices.Contains(all, k):
			s.reportAt(n.line, name(i), quote(n.value)+" is listed twice; remove one")
		default:
			all = append(all, k)
		}
	}
	return all
}

func (s *section) sealingKey(value string) (SealingKey, bool) {
	if name, ok := strings.CutPrefix(value, "file:"); ok {
		return SealingKey{File: s.l.path(name)}, name != "" && len(name) <= 4096
	}
	ref, err := secret.ParseTransitRef(value)
	return SealingKey{Transit: ref}, err == nil
}

const mostKept = 10 * 366 * 24 * time.Hour

const (
	defaultTimeout = 20 * time.Second
	leastTimeout   = 10 * time.Millisecond
	mostTimeout    = 30 * time.Minute
)

const (
	// defaultPerRun is what one run of an agent may call, before a person should look
	// at it.
	defaultPerRun = 20
	mostCalls     = 1_000_000
)

func readOperation(s *section) (time.Duration, Calls) {
	if s == nil {
		return defaultTimeout, Calls{PerRun: defaultPerRun}
	}
	defer s.end()
	timeout := s.durationOr("timeout", defaultTimeout, leastTimeout, mostTimeout)
	return timeout, Calls{PerRun: s.countOr("calls_per_run", defaultPerRun, 0, mostCalls), PerHour: s.count("calls_per_hour", 0, mostCalls)}
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
