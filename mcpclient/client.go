// Package mcpclient speaks MCP over Streamable HTTP with one server, for one
// operation, inside one deadline. It knows both eras: the stateless one
// (2026-07-28, one request) and the one before it (2025-03-26 to 2025-11-25,
// a handshake first).
//
// The path of an operation, and the file of each step:
//
//	Open         no I/O                                          client.go
//	Ready        dials; carries no credential                    conversation.go
//	era          pinned, remembered, or asked for                era.go
//	handshake    legacy servers                                  era.go
//	CallTool     tools/call → Report                             conversation.go
//	ListTools    tools/list, page by page → Listing, Report      tools.go
//	Probe        is it there, and does it speak with us          probe.go
//	Late         the answer of a call that was cut off           late.go
//	Farewell     legacy servers: cancelled, and the session goes farewell.go
//
// Every leg goes the same way (leg.go):
//
//	budget left → Gate.Certificate → connection ready → Gate.Credential → request (request.go, mirror.go)
//	→ Gate.Sending, for tools/call → still fresh → first byte
//	→ answer (reply.go, stream.go, aside.go) → what it proves (outcome.go)
//
// What always holds:
//
//   - No leg leaves without a credential that was read for it, at most a
//     second ago. No byte of tools/call leaves before Gate.Sending returned nil.
//   - A leg leaves over a connection that shows the certificate of its credential,
//     or none where the credential has none.
//   - A request is sent once. The exceptions are in Conversation.request and
//     Conversation.handshake, and both follow a refusal of the server.
//   - A leg may take what is left of the context's deadline, exactly. A context
//     without a deadline grants nothing.
//   - An answer counts only if it is one JSON-RPC 2.0 object with our id, byte
//     for byte, and exactly one of result and error. What is not understood is
//     never a success and never "safe to repeat".
//   - What a server sends is bounded in every direction (policy.Limits), and read
//     no further than the answer.
//   - No redirect is followed, no URL of the server is fetched, no text of the
//     server becomes an error or a leg. It leaves only as Report.Result, as a
//     listed tool, as the message of a Progress and as the scope of a Challenge.
//   - Nothing outlives the call: no goroutine, no second request. What Farewell
//     begins ends with the function that it returns, and the reading of a late
//     answer with Late or Close. After its deadline a call is read, and no more: no
//     ping is answered, nothing is sent.
//
// Left out: resuming a stream (a lost answer is in doubt), batches, which no
// single request needs, tasks and input_required, which are outcomes of their own.
package mcpclient

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"time"

	"onbehalf.internal/broker/cache"
	"onbehalf.internal/broker/egress"
	"onbehalf.internal/broker/policy"
)

const (
	rememberEra = 10 * time.Minute
	rememberTLS = 24 * time.Hour // tickets die sooner; this is when an unused server's cache goes
	maxServers  = 1024
	maxMirrors  = 4096
)

// Config is what a Client needs from the world. Zero fields mean the real thing.
type Config struct {
	Name, Version string // what servers are told about us
	Now           func() time.Time

	// Dial replaces the network, and with it the gate on addresses. For tests.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// A Client opens conversations. It remembers which era a server is in, its TLS
// sessions and which arguments of its tools go into headers, and nothing that
// belongs to an operation. It is safe for concurrent use.
type Client struct {
	conf     Config
	eras     *cache.Cache[dialect]
	sessions *cache.Cache[tls.ClientSessionCache]
	mirrors  *cache.Cache[mirrors]
}

// New returns a Client.
func New(conf Config) *Client {
	conf.Name = cmp.Or(conf.Name, "broker")
	conf.Version = cmp.Or(conf.Version, "dev")
	if conf.Now == nil {
		conf.Now = time.Now
	}
	return &Client{
		conf:     conf,
		eras:     cache.New[dialect](maxServers, conf.Now),
		sessions: cache.New[tls.ClientSessionCache](maxServers, conf.Now),
		mirrors:  cache.New[mirrors](maxMirrors, conf.Now),
	}
}

// Open returns a conversation with s that has not begun. It does no I/O.
func (c *Client) Open(s *policy.Server) *Conversation {
	return &Conversation{
		client: c, server: s, limits: s.Limits.Filled(), line: c.newLine(s),
		ids: newNumbering(s.NumericIDs), listed: map[string]mirrors{},
	}
}

func (c *Client) newLine(s *policy.Server) *egress.Line {
	return egress.NewLine(egress.Host{
		URL: s.URL, AllowCIDRs: s.AllowCIDRs, CA: s.CA, Sessions: c.sessionsOf(s), HeadLimit: s.Limits.Filled().Head, Dial: c.conf.Dial,
	})
}

// sessionsOf returns the TLS sessions of s. A ticket says that the server knows
// this process, not for whom it asks: the credential is in each request.
func (c *Client) sessionsOf(s *policy.Server) tls.ClientSessionCache {
	if found, ok := c.sessions.Get(serverKey(s)); ok {
		return found
	}
	made := tls.NewLRUClientSessionCache(8)
	c.sessions.Set(serverKey(s), made, rememberTLS)
	return made
}

// serverKey changes with the address: what was found out about one does not
// hold for another of the same name.
func serverKey(s *policy.Server) string { return s.ID + " " + s.URL.String() }
