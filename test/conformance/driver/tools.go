package main

import (
	"encoding/json"
	"errors"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/mcpclient"
	"onbehalf.internal/broker/strictjson"
)

// arguments are for the suite's tools that want some.
var arguments = map[string]strictjson.Raw{
	"add_numbers": strictjson.Raw(`{"a":5,"b":3}`),
	"valid_tool":  strictjson.Raw(`{"region":"us-west1"}`),
	"lookup_user": strictjson.Raw(`{"id":"u-1"}`),
}

// endings are the causes of calls that must not succeed. A tool that is not
// here must.
var endings = map[string]fault.Reason{
	"lookup_user":                      fault.ServerError, // it is only listed; nothing answers
	"test_reconnection":                fault.StreamEnded,
	"test_client_elicitation_defaults": fault.Idle, // it asks on a stream that we never open
	"test_mrtr_echo_state":             fault.UnsupportedContinuation,
	"test_mrtr_no_state":               fault.UnsupportedContinuation,
}

// argumentsFor returns the arguments for a call of tool. One tool of the suite
// wants back, as it came, the schema that another one was listed with.
func argumentsFor(tool string, schemas map[string]strictjson.Raw) strictjson.Raw {
	if tool == "json_schema_echo" {
		return strictjson.Raw(`{"schema":` + string(schemas["json_schema_2020_12_tool"]) + `}`)
	}
	return arguments[tool]
}

// describe returns the name and the input schema of a listed tool.
func describe(tool strictjson.Raw) (name string, schema strictjson.Raw, _ error) {
	m, err := strictjson.Members(tool)
	if err != nil || json.Unmarshal(m["name"], &name) != nil || m["inputSchema"] == nil {
		return "", nil, errors.New("a listed tool has no name or no input schema")
	}
	return name, m["inputSchema"], nil
}

// askedCalls returns the calls that the suite asks for in its context, or nil
// if it leaves them to us.
func askedCalls(asked string) (calls []mcpclient.Call, _ error) {
	if asked == "" {
		return nil, nil
	}
	var c struct {
		ToolCalls []struct {
			Name      string
			Arguments strictjson.Raw
		}
	}
	if err := json.Unmarshal([]byte(asked), &c); err != nil {
		return nil, errors.New("MCP_CONFORMANCE_CONTEXT is not what the suite says it is")
	}
	for _, call := range c.ToolCalls {
		calls = append(calls, mcpclient.Call{Tool: call.Name, Arguments: call.Arguments})
	}
	return calls, nil
}
