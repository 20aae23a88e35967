package mcpfacade

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/operation"
	"onbehalf.internal/broker/strictjson"
	"onbehalf.internal/broker/trace"
)

// What stands in _meta, of a request and of its answer.
const (
	metaKey     = "onbehalf/request_key"  // the client's own, or the one that was minted here
	metaID      = "onbehalf/operation_id" // of an operation that exists
	metaOutcome = "onbehalf/outcome"      // how it stands, see [outcome]
	metaRefusal = "onbehalf/refusal"      // why nothing was begun
)

// longest is how long a call is waited for, which its own budget ends before.
const longest = time.Hour

// call answers tools/call: it is an operation, as POST /v1/operations is.
func (f *Facade) call(ctx context.Context, v *visit, req *mcp.CallToolRequest) *mcp.CallToolResult {
	ctx, hungUp := context.WithCancel(ctx)
	defer hungUp()
	defer context.AfterFunc(v.gone, hungUp)()
	switch req.Params.Name {
	case getTool:
		return f.get(ctx, v, strictjson.Raw(req.Params.Arguments))
	case listTool:
		return f.operations(ctx, v, strictjson.Raw(req.Params.Arguments))
	}
	asked, err := f.request(ctx, v, req.Params)
	if err != nil {
		return f.refused(err, "")
	}
	got, err := f.run(ctx, v, asked, req)
	if err != nil {
		return f.refused(err, asked.RequestKey)
	}
	return f.told(got)
}

// A whole is a result of tools/call that says that nothing follows, as 2026-07-28 wants it:
// the library says so of the tools alone that are registered with it.
type whole struct{ *mcp.CallToolResult }

func (w whole) MarshalJSON() ([]byte, error) {
	b, err := json.Marshal(w.CallToolResult)
	if err != nil {
		return nil, err
	}
	return append([]byte(`{"resultType":"complete",`), b[1:]...), nil // there is always content
}

// request is what a call asks for. A key that the client does not bring is minted here, but
// that the very call which waits for a person already goes on waiting by its own.
func (f *Facade) request(ctx context.Context, v *visit, p *mcp.CallToolParamsRaw) (operation.Request, error) {
	bad := func(detail string) (operation.Request, error) {
		return operation.Request{}, fault.New("mcpfacade.request", fault.MalformedRequest, detail)
	}
	r := operation.Request{Caller: v.caller, Actor: v.actor, Server: v.server, Tool: p.Name, Arguments: strictjson.Raw(p.Arguments), Received: v.received, Wait: longest, Trace: v.place(p.Meta)}
	if len(r.Arguments) == 0 {
		r.Arguments = strictjson.Raw("{}")
	}
	brought, there := p.Meta[metaKey]
	r.RequestKey, _ = brought.(string)
	switch {
	case !toolName.MatchString(p.Name):
		return bad("name: 1 to 128 of letters, digits and _.-")
	case r.Arguments[0] != '{':
		return bad("arguments: must be an object")
	case there && !operation.ValidKey(r.RequestKey):
		return bad(metaKey + ": 1 to 255 visible ASCII characters, new for each new request")
	}
	var err error
	if !there {
		if r.RequestKey, err = f.Runner.Waiting(ctx, r); err == nil && r.RequestKey == "" {
			r.RequestKey = uuid.Must(uuid.NewV7()).String()
		}
	}
	if err != nil {
		return operation.Request{}, err
	}
	if r.FirstSent, err = operation.FirstSent("", r.RequestKey, v.received); err != nil {
		return bad(metaKey + ": the time in it lies in the future")
	}
	return r, nil
}

// place is where a call stands in a trace: as _meta says (SEP-414), else as the headers of
// its request do.
func (v *visit) place(meta mcp.Meta) trace.Context {
	parent, _ := meta["traceparent"].(string)
	state, _ := meta["tracestate"].(string)
	if said := trace.Parse(http.Header{"Traceparent": {parent}, "Tracestate": {state}}); !said.IsZero() {
		return said
	}
	return v.trace
}

// run does the operation, and where the client wants to know how far it is, says so.
func (f *Facade) run(ctx context.Context, v *visit, asked operation.Request, req *mcp.CallToolRequest) (operation.Answer, error) {
	token := req.Params.GetProgressToken()
	if token == nil {
		return f.Runner.Run(ctx, asked)
	}
	asked.Progress, asked.Wait = true, 0
	begun, err := f.Runner.Run(ctx, asked)
	if err != nil {
		return begun, err
	}
	if watch := f.Runner.Watch(v.caller, v.actor, begun); watch != nil {
		for p, more := watch.Next(ctx); more; p, more = watch.Next(ctx) {
			req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Progress: p.Done, Total: p.Total, Message: p.Message})
		}
		if ctx.Err() != nil {
			watch.Leave()
		}
	}
	last, err := f.Runner.Get(ctx, v.caller, v.actor, begun.ID)
	last.Replayed = begun.Replayed
	return last, err
}
