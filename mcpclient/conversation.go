package mcpclient

import (
	"context"
	"crypto/tls"
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
	"onbehalf.internal/broker/trace"
)

// A Credential goes into one request.
type Credential struct {
	Header string // "Authorization" puts "Bearer " before the value; any other header takes it as it is; "" is anonymous
	Value  secret.Text
	ReadAt time.Time // when it was checked; a second later it may not be sent

	Certificate *tls.Certificate // the connection must show it, and no other; nil: none
	Legs        []audit.Leg      // what it took to have a credential again; also with an error
}

// A Gate is what must hold before a leg leaves. Its errors end the operation
// with their own reason.
type Gate struct {
	// Credential is called for every leg, by its name, with the connection ready.
	Credential func(ctx context.Context, leg string) (Credential, error)

	// Certificate is asked before a connection is dialled what it shows. Where the
	// Credential then comes with another one, the connection is dialled again. nil:
	// none is shown.
	Certificate func() *tls.Certificate

	// Sending is called once per attempt of tools/call, after Credential and
	// before the first byte. What it records is durable when it returns nil.
	Sending func(ctx context.Context) error
}

// A Call is one call of a tool.
type Call struct {
	Tool      string
	Arguments strictjson.Raw // an object; nil is {}

	// Context names on whose authority the call is made. A list of tools that
	// the server calls private is remembered for calls of the same Context
	// alone; "" remembers none.
	Context string

	Meta     map[string]string // members of _meta besides those of the protocol; nil: none
	Idle     time.Duration     // a leg on which nothing comes in for so long is given up; 0: the budget alone
	Progress func(Progress)    // gets what the server says while it works; nil: it is not asked to
	// Verify, if not nil, is shown the tool as the server lists it at the moment, after
	// the handshake and before the call. A reason ends it there.
	Verify func(tool strictjson.Raw) fault.Reason

	Trace trace.Context // where in a trace the call stands, for a server of the modern era; zero: it is told nothing
	Drain time.Duration // how long the answer is read after time alone has cut the call off, see Late; 0: not at all
}

// A Report is how a conversation ended.
type Report struct {
	Outcome   fault.Outcome
	Result    strictjson.Raw // the bytes of `result`; for rpc_error those of `error`
	Legs      []audit.Leg
	Era       policy.Era // "" until it is known
	Version   string     // the protocol version that was spoken
	Challenge Challenge  // of a 401 or 403
	Draining  bool       // the answer may still come, see [Conversation.Late]
}

// A Conversation is what one operation says to one server, over connections
// that no other operation uses: one for its requests, and a short second one
// where the first is taken. Its methods may overlap: they wait for each other,
// but Close does not wait.
type Conversation struct {
	client *Client
	server *policy.Server
	limits policy.Limits
	line   *egress.Line
	ids    numbering

	mu      sync.Mutex // held by whoever uses the line; guards what follows
	speaks  dialect
	session string             // Mcp-Session-Id of a legacy server
	greeted bool               // tools/… may be sent
	cutOff  strictjson.Raw     // id of a request that a legacy server may still work on
	late    *late              // the reading of an answer that did not come in time; nil: none
	listed  map[string]mirrors // tools as they were listed here

	gate    Gate
	call    Call // what is being called; its Tool is "" while listing
	legs    []audit.Leg
	calling bool // the gate stood open for tools/call
}

// Ready dials. It may run in the background before CallTool, which waits for it.
func (c *Conversation) Ready(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.line.Ready(ctx)
}

// Close closes the connection, and with it ends the reading of a late answer. It
// may be called at any time and more than once.
func (c *Conversation) Close() error { return c.line.Close() }

// CallTool calls a tool once. It always returns a report; a panic on the way is
// one, too.
func (c *Conversation) CallTool(ctx context.Context, call Call, g Gate) (rep Report) {
	c.begin(g, call)
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
	if e, ok := c.verify(ctx, call); !ok {
		return c.report(e.beforehand())
	}
	mirrored, ok := c.mirrored(call)
	if !ok {
		return c.report(ending{failure: fault.MalformedRequest})
	}
	e := c.request(ctx, message{
		method: methodCall, name: call.Tool, mirrored: mirrored, wantsProgress: call.Progress != nil,
		params: params{Name: call.Tool, Arguments: call.Arguments}, meta: call.Meta,
	})
	e.readToolResult()
	return c.report(e)
}

// verify has the tool looked at as it is listed now.
func (c *Conversation) verify(ctx context.Context, call Call) (e ending, ok bool) {
	if call.Verify == nil {
		return ending{}, true
	}
	l, e := c.walk(ctx, nil)
	if e.failure != fault.None {
		return e, false
	}
	i := slices.IndexFunc(l.Tools, func(t strictjson.Raw) bool { name, _, _ := toolMirrors(t); return name == call.Tool })
	if i < 0 {
		return ending{failure: fault.ToolNotOffered}, false
	}
	reason := call.Verify(l.Tools[i])
	return ending{failure: reason}, reason == fault.None
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

// request sends m. If a modern server refuses it for a fault that can be mended,
// m is sent once more, through the gate again: the refusal proves that the
// first was not taken up.
func (c *Conversation) request(ctx context.Context, m message) ending {
	first := c.leg(ctx, m)
	c.reconsiderEra(first)
	if first.status != http.StatusBadRequest || c.speaks.era != policy.EraModern || !c.mend(ctx, &m, first) {
		return first
	}
	if again := c.leg(ctx, m); again.sent {
		return again
	}
	return first
}

// mend changes m so that it is worth sending again: the version is, by the
// server's own word, one that it speaks, or the tool's schema turns out to ask
// for other headers.
func (c *Conversation) mend(ctx context.Context, m *message, refused ending) bool {
	switch refused.rpc.code() {
	case codeVersion:
		return slices.Contains(refused.rpc.supported, c.speaks.version)
	case codeHeader:
		return m.method == methodCall && c.mirrorAnew(ctx, m)
	}
	return false
}

func (c *Conversation) begin(g Gate, call Call) {
	c.mu.Lock()
	c.gate, c.call, c.legs, c.calling = g, call, nil, false
}

func (c *Conversation) end() {
	c.gate, c.call = Gate{}, Call{}
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
		Era: c.speaks.era, Version: c.speaks.version, Challenge: e.challenge, Draining: c.late != nil,
	}
}
