// Package policy is what may be: profiles, grants, servers and tool rules as the
// operator wrote them, and the decision about one operation.
//
// [Load] reads the file once, strictly, into a [Snapshot] that never changes. A
// new file is a new Snapshot; a [Holder] holds the newest, together with the
// suspensions (suspension.go) that win over whatever the file says. [Snapshot.Decide]
// and [Snapshot.Explain] run the same list of steps (steps.go): one says yes or
// no, the other shows why. For a review, report.go says who may do what by the same
// steps, and diff.go what one file gives and another does not.
//
// What always holds:
//
//   - Absence denies: no entry, no list, no field that says so means no.
//   - A decision depends on the snapshot, the question and the time alone, never
//     on the order of the file, and costs the same for one grant as for 100,000.
//   - What is suspended is refused, whatever else holds, and is suspended still
//     after a new file.
//   - A tool that its server no longer offers, or whose definition is not the one
//     that the operator has pinned, is refused (offers.go).
//   - What is asked for is contained in the bounds or refused; nothing is
//     trimmed to fit.
//   - Nothing in the file is ignored: a key that is not known, or whose feature
//     is not there yet, is a problem. All problems are reported at once.
//   - No secret is in a snapshot: credentials are names of Vault fields, and a
//     value that looks like a token is refused and not repeated.
//
// This package does not read the environment, dial, log, or ask who is calling:
// that was proven before, by package identity.
package policy

import (
	"crypto/x509"
	"iter"
	"maps"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"onbehalf.internal/broker/identity"
	"onbehalf.internal/broker/secret"
)

// A Snapshot is one configuration file, read once and never changed.
type Snapshot struct {
	Hash      string // "sha256:" and hex over the name and every byte of each file that was read
	Path      string
	Listen    Listen
	Vault     Vault
	Store     Store
	Keys      Keys
	Audit     Audit
	UI        *UI           // nil: no web page
	MCP       *MCP          // nil: no address for MCP clients
	Traces    *Traces       // nil: none are made
	Timeout   time.Duration // operation.timeout
	Calls     Calls
	Stop      Stop
	Directory *identity.Directory

	callers  map[string]*Caller
	profiles map[string]*Profile
	servers  map[string]*Server
	grants   map[string]map[string]*Grant // by profile, then by actor

	suspended *suspensions // nil where no Holder holds the snapshot
	offers    Offers       // the same
}

// Listen is where the broker answers.
type Listen struct {
	API     string // "127.0.0.1:8471" or "unix:/run/broker/api.sock"; loopback only
	Metrics string // loopback; empty: not served
}

// Vault is where the broker keeps and reads secrets.
type Vault struct {
	Address   string         // "https://…" or "unix:/…"; empty: whoever builds the client takes VAULT_ADDR
	Namespace string         // "team/a"; empty: the root, or what has none
	CA        *x509.CertPool // nil: the system's
	Auth      VaultAuth
	Role      string // hold.role: the token role that mints epochs

	PerOperation bool // hold.per: a token of its own for each operation, instead of an epoch's
}

// VaultAuth is how the broker logs in to Vault.
type VaultAuth struct {
	Method   string // one of the names in vaultMethods
	Mount    string // approle, kubernetes, jwt, cert; default the method's name
	Role     string // kubernetes, jwt; cert: may be empty
	RoleID   string // approle
	Wrapping string // approle: secret_id_response_wrapping_path; empty: the file holds the secret id itself

	// Paths of files. They are read at each login, not here.
	SecretIDFile, TokenFile, JWTFile, CertFile, KeyFile string
}

// Store is where the rows live.
type Store struct {
	Path    string        // of the database file
	Results time.Duration // how long results are kept; 0: as the ledger does by itself
	Keys    time.Duration // how long operations and their keys are
}

// Keys are the broker's own, for what it keeps.
type Keys struct {
	Results []SealingKey // the first seals results, each opens them; empty: none does
	Audit   string       // path of the file with what signs heads of the audit; empty: they are not signed
}

// Audit is where the audit goes besides the store, and how long it stays there.
type Audit struct {
	Heads  string        // path of the file for signed heads; empty: none
	Stdout bool          // signed heads go to the process's standard output
	Sink   string        // path of the file that all records are copied to; empty: none
	Keep   time.Duration // how long records stay in the store; 0: for ever
}

// UI is the web page.
type UI struct {
	Origin string // what browsers have in the address bar, as in "https://broker.example.org"; empty: "http://" and the address of listen.api
}

// MCP is what MCP clients see of the broker.
type MCP struct {
	Origin string // "https://broker.example.org": before /mcp/ in the addresses that tokens are for
}

// Traces are sent to a collector of OpenTelemetry.
type Traces struct {
	Collector *url.URL       // of OTLP over HTTP, without v1/traces; https, or loopback
	CA        *x509.CertPool // nil: the system's
	Bearer    string         // path of the file with what the collector wants to see; empty: nothing
	Propagate bool           // servers are told where in a trace they are called
}

// A SealingKey is in a file, or stays in Vault.
type SealingKey struct {
	File    string // its path; empty: it stays in Vault
	Transit secret.TransitRef
}

// Calls are how many operations may be begun; 0: any number.
type Calls struct {
	PerRun  int // with one run_id, by one caller for one actor
	PerHour int // by one caller for one actor, within an hour
}

// A Caller is what policy knows of a caller besides who it is.
type Caller struct {
	ID      string
	Servers []string // sorted; empty: none
	Zone    Zone
	Where   string // file:line
}

// Caller returns the caller with this id.
func (s *Snapshot) Caller(id string) (*Caller, bool) { c, ok := s.callers[id]; return c, ok }

// Profile returns the profile with this id.
func (s *Snapshot) Profile(id string) (*Profile, bool) { p, ok := s.profiles[id]; return p, ok }

// Server returns the server with this id.
func (s *Snapshot) Server(id string) (*Server, bool) { v, ok := s.servers[id]; return v, ok }

// Grant returns the grant of actor in a profile, enabled or not.
func (s *Snapshot) Grant(profile, actor string) (*Grant, bool) {
	g, ok := s.grants[profile][actor]
	return g, ok
}

// Callers returns all callers, sorted by id.
func (s *Snapshot) Callers() []*Caller { return byKey(s.callers) }

// Profiles returns all profiles, sorted by id.
func (s *Snapshot) Profiles() []*Profile { return byKey(s.profiles) }

// Servers returns all servers, sorted by id; disabled and inert ones too.
func (s *Snapshot) Servers() []*Server { return byKey(s.servers) }

// Grants yields the grants of a profile, sorted by actor; disabled and expired
// ones too.
func (s *Snapshot) Grants(profile string) iter.Seq[*Grant] {
	return slices.Values(byKey(s.grants[profile]))
}

func byKey[V any](m map[string]V) []V {
	values := make([]V, 0, len(m))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		values = append(values, m[key])
	}
	return values
}

// A Holder holds the newest snapshot: the newest file, the suspensions that are in
// force, which no file undoes, and what the servers offer. It is safe for concurrent use.
type Holder struct {
	mu sync.Mutex // held for every change, also while it is written; never for a reading
	p  atomic.Pointer[Snapshot]
}

// NewHolder returns a Holder of s without suspensions; see [Holder.Restore].
func NewHolder(s *Snapshot) *Holder {
	h := &Holder{}
	h.p.Store(s.with(newSuspensions(nil, time.Time{})))
	return h
}

// Current returns the newest snapshot.
func (h *Holder) Current() *Snapshot { return h.p.Load() }

// Swap makes the file of s the newest. Suspensions and offers stay.
func (h *Holder) Swap(s *Snapshot) {
	h.mu.Lock()
	defer h.mu.Unlock()
	fresh := s.with(h.Current().suspended)
	fresh.offers = h.Current().offers
	h.p.Store(fresh)
}

// with is s with these suspensions.
func (s *Snapshot) with(set *suspensions) *Snapshot {
	fresh := *s
	fresh.suspended = set
	return &fresh
}
