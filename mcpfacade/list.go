package mcpfacade

import (
	"context"
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"onbehalf.internal/broker/operation"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/strictjson"
)

// list answers tools/list: what this actor is offered of this server, in the server's own
// names, and the two tools of the broker. It is one page.
func (f *Facade) list(ctx context.Context, v *visit, req *mcp.ListToolsRequest) (mcp.Result, error) {
	if req.Params != nil && req.Params.Cursor != "" {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "there is no further page"}
	}
	var servers []*policy.Server
	if s, declared := f.Policy.Current().Server(v.server); declared {
		servers = append(servers, s)
	}
	offered, err := f.Runner.Offered(ctx, v.caller, v.actor, servers, func(_, tool string) string { return tool })
	if err != nil {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: string(f.classified(err).Reason)}
	}
	result := &mcp.ListToolsResult{Cacheable: mcp.Cacheable{CacheScope: "private"}, Tools: ownTools()}
	for _, t := range offered {
		if t.Name != getTool && t.Name != listTool { // the names are the broker's
			result.Tools = append(result.Tools, shown(t))
		}
	}
	return result, nil
}

// shown is a tool as clients see it. What it does is the operator's word, not the server's.
func shown(t operation.Tool) *mcp.Tool {
	schema := strictjson.Raw(`{"type":"object"}`)
	if t.Schema != nil {
		schema = unmirrored(t.Schema)
	}
	if t.RequiresApproval {
		t.Description += "\n\nA person has to approve each call before it is made. The first call asks for that, and begins nothing."
	}
	return &mcp.Tool{Name: t.Name, Title: t.Title, Description: t.Description, InputSchema: json.RawMessage(schema),
		Annotations: &mcp.ToolAnnotations{ReadOnlyHint: t.Effect == "read", IdempotentHint: t.Effect != "write"}}
}

// unmirrored is a schema that asks for no headers (2026-07-28, "Custom Headers from Tool
// Parameters"): to the server it is the broker that sends them. Whatever stands elsewhere
// than under a chain of properties an import does not take.
func unmirrored(schema strictjson.Raw) strictjson.Raw {
	members := strictjson.Ordered(schema)
	if members == nil {
		return schema
	}
	out := []byte("{")
	for _, m := range members {
		switch m.Name {
		case "x-mcp-header":
			continue
		case "properties":
			m.Value = each(m.Value)
		}
		out = member(out, m.Spelled, m.Value)
	}
	return append(out, '}')
}

func each(properties strictjson.Raw) strictjson.Raw {
	out := []byte("{")
	for _, m := range strictjson.Ordered(properties) {
		out = member(out, m.Spelled, unmirrored(m.Value))
	}
	return append(out, '}')
}

func member(object, name, value []byte) []byte {
	if len(object) > 1 {
		object = append(object, ',')
	}
	return append(append(append(object, name...), ':'), value...)
}
