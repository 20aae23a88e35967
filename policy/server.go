package policy

import (
	"crypto/x509"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"time"

	"onbehalf.internal/broker/secret"
)

// A Server is an MCP server as the operator declared it.
type Server struct {
	ID               string
	URL              *url.URL
	AllowCIDRs       []netip.Prefix
	CA               *x509.CertPool // nil: the system's
	Enabled          bool
	DataClass        DataClass     // zero: undeclared, the server is inert
	RequiresApproval bool          // true unless the file says false
	ApprovalExpires  time.Duration // how long after it was asked for an approval can be given, and used
	Era              Era
	Versions         []string      // accepted protocol versions, sorted; empty: all we speak
	NumericIDs       bool          // request ids are integers: some servers break on text
	Timeout          time.Duration // 0: the operation's
	Idle             time.Duration // how long a leg may go without a byte; 0: its budget
	Drain            time.Duration // of its tools that say nothing else; negative: as their effect is
	Cancels          bool          // of its tools that say nothing else: a caller that has gone cancels its operation
	VerifyPins       bool          // pins are held against the server itself, before each call
	ImportEvery      time.Duration // 0: when somebody asks
	ProbeEvery       time.Duration // 0: when somebody asks
	Limits           Limits
	Auth             Auth
	Recovery         Recovery
	Tools            map[string]Tool // by remote name
	Where            string          // file:line
}

// Era is which protocol a server speaks.
type Era string

// The eras.
const (
	EraAuto   Era = "auto" // found out on first contact
	EraModern Era = "modern"
	EraLegacy Era = "legacy"
)

// Auth is how the broker authenticates at a server.
type Auth struct {
	Mode       string     // "delegated" or "legacy"
	Profile    string     // delegated
	Audience   string     // delegated
	Scopes     []string   // delegated; sorted
	Discovery  secret.Ref // delegated: discovery_credential, for imports and probes alone; zero: neither works
	Credential secret.Ref // legacy, for everything; zero: anonymous
	Placement  string     // legacy: "bearer" or "header"
	Header     string     // legacy, placement header
}

// ToolNames are the remote names of the tools that are declared, sorted.
func (v *Server) ToolNames() []string { return slices.Sorted(maps.Keys(v.Tools)) }

// LocalName is what a model calls a tool: unique over all servers.
func LocalName(server, tool string) string { return "mcp_" + server + "_" + tool }

// A Tool is what the operator says of one tool, whatever the server says.
type Tool struct {
	Enabled bool
	Effect  string        // "write" (default), "idempotent", "read"
	Timeout time.Duration // 0: the server's
	Idle    time.Duration // 0: the server's

	Drain   time.Duration // how long the answer to a call is read that time alone has cut off; 0: not at all
	Cancels bool          // a caller that has gone cancels its operation

	Pin           string // "sha256:…", the definition that the operator has looked at; empty: none
	RequiresAdmin bool   // the actor has to be an administrator

	// Expected is how long a call takes when all is well; 0: not said. Neither
	// the timeout nor the idle window may be shorter.
	Expected time.Duration

	Key UpstreamKey

	Where string // file:line
}

// An UpstreamKey says how a server takes a key by which it never does one thing
// twice. Zero: it takes none.
type UpstreamKey struct {
	Argument string        // the argument that carries it; or
	Meta     string        // the member of _meta that does
	Window   time.Duration // for how long the server remembers it, as it states
}

// IsZero reports whether the server takes no key.
func (k UpstreamKey) IsZero() bool { return k.Window == 0 }

// Recovery is the server's own way to look what became of a call: a tool that
// only reads. Zero: it has none.
type Recovery struct {
	Tool     string
	Argument string // of that tool, for the [UpstreamKey]; empty: it takes none
}

// A DataClass says how much harm a server's data can do; 0 is undeclared.
type DataClass int

// A Zone says how far a caller is trusted with data; the zero Zone is the least
// trusted one.
type Zone int

// dataClasses rise: the index of a name, plus one, is its DataClass.
var dataClasses = []string{
	"publicContent", "editorContent", "sourceCode",
	"internalConfiguration", "systemDiagnostics", "secretAdjacent",
}

// zones rise in trust: the index of a name, plus one, is its Zone.
var zones = []string{"externalGlobal", "externalEu", "privateHosted", "local"}

// String returns the word of the file, or "undeclared".
func (c DataClass) String() string {
	if c < 1 || int(c) > len(dataClasses) {
		return "undeclared"
	}
	return dataClasses[c-1]
}

// String returns the word of the file; what is none is externalGlobal.
func (z Zone) String() string {
	if z < 1 || int(z) > len(zones) {
		return zones[0]
	}
	return zones[z-1]
}

// Zones are the words for zones, the least trusted first.
func Zones() []string { return slices.Clone(zones) }

// ParseZone returns the zone of a word; 0 for none. known is false for what is no word.
func ParseZone(word string) (z Zone, known bool) {
	if word == "" {
		return 0, true
	}
	z = Zone(slices.Index(zones, word) + 1)
	return z, z != 0
}

// Ceiling returns the highest data class that a caller of z may see.
func (z Zone) Ceiling() DataClass {
	switch z.String() {
	case "local":
		return 6
	case "privateHosted":
		return 5
	case "externalEu":
		return 4
	default: // externalGlobal
		return 2
	}
}
