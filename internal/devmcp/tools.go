package devmcp

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// arguments are those of all tools together.
type arguments struct {
	Seconds float64 `json:"seconds"`
	Job     string  `json:"job"`
	Then    string  `json:"then"` // see endings
}

type tool struct {
	name, description, schema string
	reads                     bool
	run                       func(ctx context.Context, v *visit, args arguments) (*mcp.CallToolResult, error)
}

const (
	noArguments = `{"type":"object","additionalProperties":false}`
	jobArgument = `{"type":"object","additionalProperties":false,"required":["job"],"properties":{"job":{"type":"string","minLength":1}}}`
	secondsOnly = `{"type":"object","additionalProperties":false,"required":["seconds"],"properties":{"seconds":{"type":"number","minimum":0,"maximum":3600}}}`
)

// jobArguments is jobArgument with the endings of drop.
func jobArguments() string {
	then, _ := json.Marshal(map[string]any{"type": "string", "enum": Endings()})
	return strings.Replace(jobArgument, `"properties":{`, `"properties":{"then":`+string(then)+`,`, 1)
}

func (s *Server) tools() []tool {
	return []tool{
		{"whoami", "Says as whom it was called.", noArguments, true, s.whoami},
		{"slow", "Takes the given time, or until it is cancelled.", secondsOnly, true, s.slow},
		{"fail", "Runs, and says that it failed.", noArguments, false, s.fail},
		{"drop", "Does the job and drops the connection without an answer, or leaves the caller in doubt in another way.", jobArguments(), false, s.drop},
		{"job", "Says how often drop has done the job.", jobArgument, true, s.job},
	}
}

func (s *Server) addTools(server *mcp.Server) {
	for _, t := range s.tools() {
		server.AddTool(&mcp.Tool{
			Name:        t.name,
			Description: t.description,
			InputSchema: json.RawMessage(t.schema),
			Annotations: &mcp.ToolAnnotations{ReadOnlyHint: t.reads},
		}, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			var args arguments
			if err := json.Unmarshal(req.Params.Arguments, &args); len(req.Params.Arguments) > 0 && err != nil {
				return failure("the arguments are not what the schema says"), nil
			}
			v := s.visitOf(req.Extra.Header)
			s.note(func() { s.calls[t.name]++ })
			return t.run(ctx, v, args)
		})
	}
}

func (s *Server) whoami(_ context.Context, v *visit, _ arguments) (*mcp.CallToolResult, error) {
	return success(v.identity), nil
}

func (s *Server) slow(ctx context.Context, _ *visit, args arguments) (*mcp.CallToolResult, error) {
	select {
	case <-time.After(time.Duration(args.Seconds * float64(time.Second))):
		return success(map[string]any{"slept": args.Seconds}), nil
	case <-ctx.Done():
		s.note(func() { s.cancelled++ })
		return nil, ctx.Err()
	}
}

func (s *Server) fail(context.Context, *visit, arguments) (*mcp.CallToolResult, error) {
	return failure("it failed, as it was asked to"), nil
}

func (s *Server) drop(_ context.Context, v *visit, args arguments) (*mcp.CallToolResult, error) {
	if args.Then != "" { // the known ones do not come here
		return failure("there is no such ending"), nil
	}
	s.note(func() { s.jobs[args.Job]++ })
	v.conn.Close()
	return success(map[string]any{}), nil // to nobody
}

func (s *Server) job(_ context.Context, _ *visit, args arguments) (*mcp.CallToolResult, error) {
	return success(map[string]any{"job": args.Job, "ran": s.Done(args.Job)}), nil
}

// success answers with v, as text and as structured content.
func success(v any) *mcp.CallToolResult {
	text, err := json.Marshal(v)
	if err != nil {
		panic("devmcp: internal error: " + err.Error())
	}
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(text)}}, StructuredContent: v}
}

func failure(text string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}, IsError: true}
}
