package mcpclient

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/egress"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/secret"
	"onbehalf.internal/broker/strictjson"
)

// A Credential goes into one request.
type Credential struct {
	Header string // "Authorization" puts "Bearer " before the value; any other header takes it as it is; "" is anonymous
	Value  secret.Text
	ReadAt time.Time // when it was checked; a second later it may not be sent
}

// A Gate is what must hold before a leg leaves. Its errors end the operation
// with their own reason.
type Gate struct {
	// Credential is called for every leg, by its name, with the connection ready.
	Credential func(ctx context.Context, leg string) (Credential, error)

	// Sending is called once per attempt of tools/call, after Credential and
	// before the first byte. What it records is durable when it returns nil.
	Sending func(ctx context.Context) error
}

// A Call is one call of a tool.
type Call struct {
	Tool      string
	Arguments strictjson.Raw // an object; nil is {}
}

// A Report is how a conversation ended.
type Report struct {
	Outcome   fault.Outcome
	Result    strictjson.Raw // the bytes of `result`; for rpc_error those of `error`
	Legs      []audit.Leg
	Era       policy.Era // "" until it is known
	Version   string     // the protocol version that was spoken
	Challenge Challenge  // of a 401 or 403
}

// A Conversation is what one operation says to one server, over one connection
// that no other operation uses. Its methods may overlap: they wait for each
// other, but Close does not wait.
type Conversation struct {
	client *Client
	server *policy.Server
	line   *egress.Line
	ids    string // what every request id begins with

	mu      sync.Mutex // held by whoever uses the line; guards what follows
	speaks  dialect
	session string // Mcp-Session-Id of a legacy server
	greeted bool   // tools/… may be sent
	count   int    // requests so far

	gate    Gate
	legs    []audit.Leg
	calling bool // the gate stood open for tools/call
}

// Ready dials. It may run in the background before CallTool, which waits for it.
func (c *Conversation) Ready(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.line.Ready(ctx)
}

// Close closes the connection. It may be called at any time and more than once.
func (c *Conversation) Close() error { return c.line.Close() }

// CallTool calls a tool once. It always returns a report; a panic on the way is
// one, too.
func (c *Conversation) CallTool(ctx context.Context, call Call, g Gate) (rep Report) {
	c.begin(g)
	defer c.end()
	defer func() {
		if recover() != nil {
			rep = c.report(c.interrupted())
		}
	}()

	if call.Arguments == nil {
		call.Arguments = strictjson.Raw("{}")
	}
	if reason := call.check(); reason != fault.None {
		return c.report(ending{failure: reason})
	}
	if e, ok := c.greet(ctx); !ok {
		return c.report(e.beforehand())
	}
	e := c.request(ctx, message{
		method: methodCall, name: call.Tool,
		params: params{Name: call.Tool, Arguments: call.Arguments},
	})
	e.readToolResult()
	return c.report(e)
}

// check refuses a call that we cannot put into words. Policy and the API have
// looked at it before; this is the last door.
func (call Call) check() fault.Reason {
	_, err := strictjson.Members(call.Arguments)
	if err != nil || call.Tool == "" || !utf8.ValidString(call.Tool) {
		return fault.MalformedRequest
	}
	return fault.None
}

// request sends m. If a modern server refuses the version that it says in the
// same breath it supports, m is sent once more, through the gate again: the
// refusal proves that the first was not taken up.
func (c *Conversation) request(ctx context.Context, m message) ending {
	first := c.leg(ctx, m)
	c.reconsiderEra(first)
	refused := first.status == http.StatusBadRequest && first.rpc.code() == codeVersion
	if !refused || c.speaks.era != policy.EraModern || !slices.Contains(first.rpc.supported, c.speaks.version) {
		return first
	}
	if again := c.leg(ctx, m); again.sent {
		return again
	}
	return first
}

func (c *Conversation) begin(g Gate) {
	c.mu.Lock()
	c.gate, c.legs, c.calling = g, nil, false
}

func (c *Conversation) end() {
	c.gate = Gate{}
	c.mu.Unlock()
}

// interrupted is the ending after a panic. Nothing of the panic is kept: it may
// hold what came in.
func (c *Conversation) interrupted() ending {
	return ending{sent: c.calling, failure: fault.InternalError}
}

func (c *Conversation) report(e ending) Report {
	return Report{
		Outcome: classify(e), Result: e.answer(), Legs: c.legs,
		Era: c.speaks.era, Version: c.speaks.version, Challenge: e.challenge,
	}
}
