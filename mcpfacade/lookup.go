package mcpfacade

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/operation"
	"onbehalf.internal/broker/strictjson"
)

// The broker's own tools. They read what this caller did for this actor at this address, and
// nothing else exists for them.
const (
	getTool  = "broker_operation_get"
	listTool = "broker_operation_list"
)

const (
	listWindow = 7 * 24 * time.Hour
	listLimit  = 100
)

var (
	toolName    = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,128}$`)
	operationID = regexp.MustCompile(`^[a-z2-7]{26}$`)
)

// instructions are for models: what they have to know before the first call.
const instructions = "Each call of a tool here is an operation with an id. A call that is cut off may have run, or may still be running. " +
	"Never call again because an answer is missing: ask " + getTool + " first, or " + listTool + " if you have no id. They only read, and cost nothing."

// contract is what a model has to know to recover: docs/outcomes.md in short.
const contract = "\n\nHow to read it. state: succeeded (use the result), tool_error (it ran and failed: read the error), rpc_error and unknown (it may have run), " +
	"not_sent and refused (it did not run), reserved and sending (still going on), awaiting_approval (a person has to decide), resolved_ran and resolved_not_ran (an administrator has found out). " +
	"ran: no, yes or unknown; evidence says who says so. retry: safe (the same call may be made once more), wait (ask again, do not call), read_the_error (change the call), " +
	"never (it ran), never_without_looking (find out at the server first, with look_with where that is given). " +
	"An operation that is not found is not there, or not yours; that proves nothing about a call that was cut off a moment ago."

func ownTools() []*mcp.Tool {
	reads := &mcp.ToolAnnotations{ReadOnlyHint: true, IdempotentHint: true, OpenWorldHint: new(bool)}
	return []*mcp.Tool{
		{Name: getTool, Title: "What became of a call", Annotations: reads,
			InputSchema: json.RawMessage(`{"type":"object","additionalProperties":false,"properties":{` +
				`"operation_id":{"type":"string","description":"The id that an answer named."},` +
				`"request_key":{"type":"string","description":"Or the request key of the call, where there is no id."}}}`),
			Description: "Says what became of one call that was made here, with its result if it has one. Give operation_id or request_key. It only reads and may be repeated." + contract},
		{Name: listTool, Title: "Calls of the last seven days", Annotations: reads,
			InputSchema: json.RawMessage(`{"type":"object","additionalProperties":false,"properties":{}}`),
			Description: "Lists the calls that were made here in the last seven days, newest first, at most 100, without their results. It only reads. " +
				"Use it where an answer never came and no id is known: find the call by its tool and its time, then ask " + getTool + "." + contract},
	}
}

// get answers broker_operation_get.
func (f *Facade) get(ctx context.Context, v *visit, arguments strictjson.Raw) *mcp.CallToolResult {
	var ask struct {
		ID  string `json:"operation_id"`
		Key string `json:"request_key"`
	}
	if err := decode(arguments, &ask); err != nil {
		return f.refused(err, "")
	}
	got, err := operation.Answer{}, error(nil)
	switch {
	case ask.ID != "" && ask.Key == "" && operationID.MatchString(ask.ID):
		got, err = f.Runner.Get(ctx, v.caller, v.actor, ask.ID)
	case ask.ID == "" && operation.ValidKey(ask.Key):
		got, err = f.Runner.GetByKey(ctx, v.caller, v.actor, ask.Key)
	default:
		err = fault.New("mcpfacade.get", fault.MalformedRequest, "give operation_id, 26 of a-z and 2-7, or request_key")
	}
	if err == nil && got.Server != v.server {
		err = fault.New("mcpfacade.get", fault.OperationNotFound, "")
	}
	if err != nil {
		return f.refused(err, "")
	}
	return f.looked(got)
}

// looked is an operation that was asked after: how it stands, and then its result as it is.
func (f *Facade) looked(a operation.Answer) *mcp.CallToolResult {
	o := f.outcome(a)
	result := &mcp.CallToolResult{Meta: f.meta(o), Content: append(texts(words(o)), said(a)...), StructuredContent: o}
	if isResult(a) {
		text := fmt.Sprintf("operation: %s; state: %s; ran: %s; evidence: %s; retry: %s. What the tool %q answered follows.", o.ID, o.State, o.Ran, o.Evidence, o.Retry, o.Tool)
		result.Content = append(texts(text), passed(a, mcp.Meta{}).Content...)
		result.StructuredContent = struct {
			outcome
			Result json.RawMessage `json:"result"`
		}{o, a.Result}
	}
	return result
}

// operations answers broker_operation_list.
func (f *Facade) operations(ctx context.Context, v *visit, arguments strictjson.Raw) *mcp.CallToolResult {
	if err := decode(arguments, &struct{}{}); err != nil {
		return f.refused(err, "")
	}
	jobs, err := f.Runner.List(ctx, v.caller, v.actor, f.Now().Add(-listWindow), listLimit)
	if err != nil {
		return f.refused(err, "")
	}
	list := struct {
		Operations []outcome `json:"operations"`
		Window     string    `json:"window"`
		Limit      int       `json:"limit"`
	}{[]outcome{}, "168h", listLimit}
	for _, job := range jobs {
		if job.Server == v.server {
			list.Operations = append(list.Operations, f.outcome(operation.Answer{Operation: job}))
		}
	}
	text, _ := json.Marshal(list)
	return &mcp.CallToolResult{Content: texts(string(text)), StructuredContent: list}
}

func decode(arguments strictjson.Raw, into any) error {
	if len(arguments) == 0 {
		return nil
	}
	if err := strictjson.Decode(arguments, into); err != nil {
		return fault.New("mcpfacade.decode", fault.MalformedRequest, "arguments: "+err.Error())
	}
	return nil
}
