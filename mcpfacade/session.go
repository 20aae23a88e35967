package mcpfacade

import (
	"context"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	maxSessions     = 4096 // in all
	maxSessionsEach = 64   // of one actor at one address
)

// errSessions answers an initialize that there is no room for.
var errSessions = &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: "too many sessions are open: end some with DELETE, or wait"}

// methods answers what clients ask; the rest is the library's.
func (f *Facade) methods(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		switch method {
		case "initialize":
			return f.open(ctx, next, req)
		case "tools/list":
			return f.list(ctx, visitOf(req), req.(*mcp.ListToolsRequest))
		case "tools/call":
			call := req.(*mcp.CallToolRequest)
			result := f.call(ctx, visitOf(req), call)
			if call.ProtocolVersion() >= versions[0] {
				return whole{result}, nil
			}
			return result, nil
		}
		if !offers(method) {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: notOffered}
		}
		return next(ctx, method, req)
	}
}

const notOffered = "this server offers tools, and nothing else"

// offers reports whether a method is one that we have declared. The library answers others,
// too, with lists of nothing.
func offers(method string) bool {
	switch method {
	case "initialize", "ping", "server/discover", "subscriptions/listen", "tools/list", "tools/call":
		return true
	}
	return strings.HasPrefix(method, "notifications/")
}

// open has the library open a session, and remembers whose it is until it ends.
func (f *Facade) open(ctx context.Context, next mcp.MethodHandler, req mcp.Request) (mcp.Result, error) {
	session := req.GetSession().(*mcp.ServerSession)
	if session.ID() == "" { // the other era has none
		return next(ctx, "initialize", req)
	}
	fresh, room := f.remember(session.ID(), visitOf(req).owner())
	if !room {
		return nil, errSessions
	}
	if fresh {
		go func() {
			session.Wait()
			f.mu.Lock()
			defer f.mu.Unlock()
			delete(f.sessions, session.ID())
		}()
	}
	return next(ctx, "initialize", req)
}

// remember notes whose a session is; fresh says that it was not known.
func (f *Facade) remember(id, owner string) (fresh, room bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, known := f.sessions[id]; known {
		return false, true
	}
	own := 0
	for _, o := range f.sessions {
		if o == owner {
			own++
		}
	}
	if len(f.sessions) >= maxSessions || own >= maxSessionsEach {
		return false, false
	}
	f.sessions[id] = owner
	return true, true
}

// owns reports whether the visit may use a session; everybody may use none.
func (f *Facade) owns(v *visit, id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return id == "" || f.sessions[id] == v.owner()
}
