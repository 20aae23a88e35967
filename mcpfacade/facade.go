// Package mcpfacade is the broker as MCP servers: /mcp/{server} for each declared one, over
// Streamable HTTP, so that any MCP client works through the broker by its address alone.
//
// What a client may do is what a gateway may at the HTTP API: tools/list is the offer for
// this actor, tools/call is an operation. Two tools of the broker's own say what became of
// one (lookup.go).
//
// What always holds:
//
//   - Nobody comes further than this file without an access token that was made for this
//     very address (package identity). The token goes no further: neither the library nor
//     anything behind it is shown it, and no server ever is.
//   - A session belongs to the caller, actor and address that opened it; to everybody else it
//     does not exist.
//   - What a client is told is what happened: an outcome that is not a result is said in
//     words, with the operation's id, and so that a model knows what to do next (told.go).
//   - A server's own words never say what became of an operation: our names in _meta are ours.
//   - A body that is not one strict JSON object is refused before the library reads it.
//
// The protocol itself is the library's, github.com/modelcontextprotocol/go-sdk; its types
// stay in this package.
package mcpfacade

import (
	"context"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/identity"
	"onbehalf.internal/broker/operation"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/trace"
)

// Config is what the façade works with; every field is needed.
type Config struct {
	Runner  *operation.Runner
	Policy  *policy.Holder
	Origin  string // "https://broker.example.org": before /mcp/ in the addresses that tokens are for
	Version string
	Log     *slog.Logger
	Now     func() time.Time
}

// A Facade answers MCP clients.
type Facade struct {
	Config
	legacy, modern http.Handler // until 2025-11-25, with sessions; since 2026-07-28, without

	rates operation.Rates

	mu       sync.Mutex
	sessions map[string]string // :: id → whose it is, see [visit.owner]
}

const (
	metadataPath = "/.well-known/oauth-protected-resource"
	serverPath   = "/mcp/"
)

// Route returns which of the façade's addresses a path is, without the name of the server;
// "": it is none of them.
func Route(path string) string {
	for _, route := range []string{serverPath, metadataPath + serverPath} {
		if strings.HasPrefix(path, route) {
			return route + "{server}"
		}
	}
	return ""
}

// versions are those that the façade speaks: those that our own client does.
var versions = []string{"2026-07-28", "2025-11-25", "2025-06-18"}

// idle is how long a session is kept that nobody uses. A client whose session is gone opens
// another.
const idle = 30 * time.Minute

// New returns the façade as a handler of the addresses that have a [Route].
func New(c Config) http.Handler {
	f := &Facade{Config: c, sessions: map[string]string{}}
	server := mcp.NewServer(&mcp.Implementation{Name: "onbehalf-broker", Version: c.Version}, &mcp.ServerOptions{
		Instructions: instructions, Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}}, SupportedProtocolVersions: versions})
	server.AddReceivingMiddleware(f.methods)
	// The token was verified before: what the library asks is answered by the visit.
	known := auth.RequireBearerToken(vouch, &auth.RequireBearerTokenOptions{AllowMissingExpiration: true})
	handler := func(o mcp.StreamableHTTPOptions) http.Handler {
		o.DisableLocalhostProtection = true // ours is stricter, and knows the name that a proxy serves us by
		o.MaxRequestBodyBytes = maxBody
		return known(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &o))
	}
	f.modern = handler(mcp.StreamableHTTPOptions{Stateless: true, PropagateRequestCancellation: true})
	f.legacy = handler(mcp.StreamableHTTPOptions{SessionTimeout: idle})
	return f.guard(http.HandlerFunc(f.route))
}

// serverName is what stands behind /mcp/. Whether there is such a server is not said here:
// its tools are offered, or they are not.
var serverName = regexp.MustCompile(`^[a-z0-9_]{1,32}$`)

func (f *Facade) route(w http.ResponseWriter, r *http.Request) {
	path, wantsMetadata := strings.CutPrefix(r.URL.Path, metadataPath)
	name := strings.TrimPrefix(path, serverPath)
	switch {
	case !serverName.MatchString(name), r.URL.RawQuery != "":
		f.refuse(w, name, fault.New("mcpfacade.route", fault.UnknownRoute, "an address is "+f.Origin+serverPath+" and the name of a server"))
	case wantsMetadata:
		f.metadata(w, r, name)
	default:
		f.enter(w, r, name)
	}
}

// enter does, in this order: caller and actor, rate, body, session.
func (f *Facade) enter(w http.ResponseWriter, r *http.Request, name string) {
	caller, actor, err := f.Policy.Current().Directory.Token(r.Header, f.resource(name))
	if err != nil {
		f.refuse(w, name, err)
		return
	}
	v := &visit{caller: caller, actor: actor, server: name, received: f.Now(), gone: r.Context(), trace: trace.Parse(r.Header)}
	if !f.rates.Allow(caller.ID(), v.received) {
		f.refuse(w, name, fault.New("mcpfacade.enter", fault.RateLimited, "too many requests of this caller"))
		return
	}
	m, err := readMessage(w, r)
	if err == nil && !f.owns(v, r.Header.Get("Mcp-Session-Id")) {
		err = fault.New("mcpfacade.enter", fault.UnknownRoute, "there is no such session: open another")
	}
	if err != nil {
		f.refuse(w, name, err)
		return
	}
	r.Header.Set("Authorization", "Bearer verified") // the token itself goes no further
	r = r.WithContext(withVisit(r.Context(), v))
	switch {
	case m.modern && m.id != nil && !offers(m.method):
		unknown(w, m)
	case m.modern:
		f.modern.ServeHTTP(w, r)
	default:
		f.legacy.ServeHTTP(w, r)
	}
}

// resource is the address that a token for this server is made for.
func (f *Facade) resource(server string) string { return f.Origin + serverPath + server }

// A visit is one request of somebody whom a token has proven.
type visit struct {
	caller   identity.Caller
	actor    identity.Actor
	server   string
	received time.Time
	gone     context.Context // ends when the client has hung up, in either era
	trace    trace.Context   // where the request stands in a trace, as its headers say; zero: they do not
}

// owner is whose a session is.
func (v *visit) owner() string { return v.caller.ID() + " " + v.actor.String() + " " + v.server }
